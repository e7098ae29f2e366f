"""Pictures of explained sounds: the waveform and the spectrogram, coloured by what moments add, and a page to listen to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import MissingExtraError
from .sound_picture import SoundPicture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["SoundPicture", "figure", "page"]


def page(picture: SoundPicture, *, command: str | None = None) -> str:
    """A sound as one self-contained HTML page that loads nothing; it plays without JavaScript too.

    Args:
        picture: what is drawn.
        command: what makes the page again, to be shown in it.
    """
    from .sound_page import page as laid_out

    return laid_out(picture, command=command)


def figure(picture: SoundPicture) -> Figure:
    """A sound drawn with matplotlib.

    Args:
        picture: what is drawn.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from .sound_figure import draw
    except ImportError:
        raise MissingExtraError("matplotlib", "pictures", "drawing a sound") from None
    return draw(picture)
