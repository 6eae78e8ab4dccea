"""Small images of each format, made without a library."""

import base64
import struct
import zlib


def make_png(width: int = 2, height: int = 3, *, shade: int = 0) -> bytes:
    """A grey PNG; `shade` makes its bytes differ."""
    rows = b"".join(b"\0" + bytes([shade]) * width for _ in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(rows)) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_url(**fields: int) -> str:
    return "data:image/png;base64," + base64.b64encode(make_png(**fields)).decode()


# The headers of files that Pillow wrote, of 300 × 7 pixels.
JPEG = (
    b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00"
    b"\xff\xdb\x00\x05\x00\x01\x02\xff\xc0\x00\x0b\x08\x00\x07\x01\x2c\x01\x01\x11\x00\xff\xd9"
)
GIF = b"GIF89a\x2c\x01\x07\x00\x80\x00\x00;"
WEBP_LOSSY = b"RIFF\x20\x00\x00\x00WEBPVP8 \x14\x00\x00\x00\x10\x00\x00\x9d\x01\x2a\x2c\x01\x07\x00"
WEBP_LOSSLESS = b"RIFF\x20\x00\x00\x00WEBPVP8L\x14\x00\x00\x00\x2f" + struct.pack("<I", 299 | 6 << 14)
WEBP_EXTENDED = b"RIFF\x20\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00\x2b\x01\x00\x06\x00\x00"
