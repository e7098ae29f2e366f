"""Text from outside as text of a page: the only way in which pages, SVG and fragments for notebooks take it."""

from __future__ import annotations

import html
import re

from ..words import shown

_DIRECTIONS = re.compile("([\u202a-\u202e\u2066-\u2069])")


def escape(value: object, *, directed: bool = False) -> str:
    r"""Anything as text that neither a page nor a reader's software obeys, between elements and within quoted attributes.

    What HTML cannot hold is spelt: control characters, bytes that are no text, and marks that turn the reading direction
    around, with which a name can be made to look like another one.

    >>> escape('<b>"1"</b>'), escape(3), escape("a\x00b")
    ('&lt;b&gt;&quot;1&quot;&lt;/b&gt;', '3', 'a\\x00b')

    Args:
        value: what is to be shown.
        directed: whether marks of the reading direction stay, for texts in an element that ends their effect (``bdi``).
    """
    text = str(value)
    if directed:
        text = "".join(part if k % 2 else shown(part, lines=True) for k, part in enumerate(_DIRECTIONS.split(text)))
    else:
        text = shown(text, lines=True)
    return html.escape(text)


def as_srcdoc(page: str) -> str:
    """A whole page as the quoted value of a frame's ``srcdoc``, from which the browser reads the same page again.

    >>> as_srcdoc('<p title="a&amp;b">')
    '&lt;p title=&quot;a&amp;amp;b&quot;&gt;'

    Args:
        page: HTML in which every text from outside is escaped already; nothing in it is spelt anew, so that it stays as it is.
    """
    return html.escape(page)
