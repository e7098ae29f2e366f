"""PNG from pixels with the standard library, so that reports need no optional package."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np

from ._pixels import Array


def png(pixels: Array) -> bytes:
    """Encode (H, W, 3) uint8.

    >>> png(np.zeros((2, 2, 3), np.uint8))[1:4]
    b'PNG'
    """
    height, width, _ = pixels.shape
    # Each line of a PNG starts with the number of its filter; 0 is none.
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], 1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # eight bits, RGB, not interlaced
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    )


def data_url(pixels: Array) -> str:
    """The same as an address to write into a page."""
    return "data:image/png;base64," + base64.b64encode(png(pixels)).decode("ascii")
