"""What the page of one explained photo is made of, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ..attribution import Attribution
from ._interactive import Map
from ._panel import Panel
from ._pixels import Array


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture that does not move.

    Attributes:
        title: what it shows.
        note: how to read it, or ''.
        pixels: (H, W, 3) uint8, the bytes of a PNG file, or a panel of :mod:`integrand.render.image`, which brings its scale.
        place: the section it belongs to.
    """

    title: str
    note: str
    pixels: Array | bytes | Panel
    place: Literal["path", "regions", "more"] = "more"


@dataclass(frozen=True, slots=True)
class Region:
    """A part of the photo.

    Attributes:
        name: in words.
        total: what its attributions add up to.
        area: its share of the photo's area, 0 to 1, where known.
    """

    name: str
    total: float
    area: float | None = None


@dataclass(frozen=True, slots=True)
class Rival:
    """What separates the first class from the second.

    Attributes:
        first: the label of the one.
        second: the label of the other.
        result: the attribution of score(first) - score(second), of the same photo.
        says: what to know of it, in a sentence; '' for nothing beyond the certificate.
    """

    first: str
    second: str
    result: Attribution
    says: str = ""


@dataclass(frozen=True, slots=True)
class ImagePage:
    """Everything that a page says of one photo, as plain data.

    Attributes:
        label: what is explained, such as "tabby cat".
        photo: what the network saw, (H, W, 3) uint8.
        main: the attribution, of one example, (1, C, H, W) or (C, H, W).
        name: of the file.
        network: its name, for readers.
        score_name: the unit of the attributions, such as "probability of tabby cat".
        title: the heading; the label by default.
        question: what the page answers, in a sentence; by default made of the label and its rank.
        rank: the place of the label among all answers, 1 for the surest; by default its place in ``top``.
        top: labels with their probabilities, most likely first.
        others: further attributions (C, h, w) to choose in the viewer, by name.
        rival: what separates the first two classes.
        pictures: further pictures, such as the score along the path.
        regions: parts of the photo with what they add up to, strongest first.
        notes: what happened to the photo on its way in.
        preprocessing: how the network's input was made of it, in words.
        meta: how it was made, beyond what the attribution says.
        command: what makes the page again.
        share: where the slider for clipping starts.
    """

    label: str
    photo: Array
    main: Attribution
    name: str = ""
    network: str = "the network"
    score_name: str = "the score"
    title: str = ""
    question: str = ""
    rank: int | None = None
    top: Sequence[tuple[str, float]] = ()
    others: Mapping[str, Array | Map] = field(default_factory=dict)
    rival: Rival | None = None
    pictures: Sequence[Picture] = ()
    regions: Sequence[Region] = ()
    notes: Sequence[str] = ()
    preprocessing: str = ""
    meta: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    share: float = 0.7
