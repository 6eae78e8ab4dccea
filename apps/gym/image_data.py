"""Images in rows and traces: data URLs of PNG, JPEG, GIF and WebP files, recognised by their content, never by name.

SVG is excluded, because it may contain scripts.
"""

import base64
import binascii
import re
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

SCHEME = "gymweb-image:"
"""Start of a reference to a stored image; the SHA-256 of the image follows in hexadecimal."""
MAX_IMAGE_BYTES = 20 * 1024**2
MAX_PIXELS = 50_000_000
"""A small file may unpack to gigabytes in a trainer or a browser."""
MAX_ROW_IMAGES = 64
ENDINGS = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp"}
COLUMNS = ("images", "image")
"""Columns that hold images, as TRL, verl and LLaMA-Factory name them."""

_PATHS = (".png", ".jpg", ".jpeg", ".gif", ".webp")
_TYPES = "|".join(re.escape(kind) for kind in ENDINGS)
DATA_URL = re.compile(rf"data:(?P<kind>{_TYPES});base64,(?P<data>[A-Za-z0-9+/]+={{0,2}})")


class ImageRefused(Exception):
    """Raised for a file that is not an accepted image. The message continues the name of a column."""


class ImageFile(NamedTuple):
    """An image. Width and height are in pixels."""

    kind: str
    width: int
    height: int
    content: bytes

    @property
    def data_url(self) -> str:
        return data_url(self.kind, self.content)


def data_url(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def read_image(content: bytes) -> ImageFile:
    """Return the image in a file, by its first bytes. Raises ImageRefused."""
    if len(content) > MAX_IMAGE_BYTES:
        raise ImageRefused(f"has {len(content):,} bytes: the limit for an image is {MAX_IMAGE_BYTES:,}")
    kind = find_kind(content)
    if not kind:
        raise ImageRefused("is not a PNG, JPEG, GIF or WebP image")
    try:
        width, height = _SIZES[kind](content)
    except (struct.error, IndexError):
        width = height = 0
    if not width or not height:
        raise ImageRefused(f"is a damaged {ENDINGS[kind].upper()} image: it has no size")
    if width * height > MAX_PIXELS:
        raise ImageRefused(f"has {width:,} × {height:,} pixels: the limit is {MAX_PIXELS:,} pixels")
    return ImageFile(kind, width, height, content)


def find_kind(content: bytes) -> str:
    """Return the media type that the first bytes show, or an empty text."""
    if content[:8] == b"\x89PNG\r\n\x1a\n":
        return "image/png"
    if content[:3] == b"\xff\xd8\xff":
        return "image/jpeg"
    if content[:6] in (b"GIF87a", b"GIF89a"):
        return "image/gif"
    return "image/webp" if content[:4] == b"RIFF" and content[8:12] == b"WEBP" else ""


def read_data_url(address: str) -> ImageFile:
    """Return the image in a data URL. Raises ImageRefused, also if the content has another type than the URL."""
    found = DATA_URL.fullmatch(address)
    if found is None:
        raise ImageRefused("is not a base64 data URL of a PNG, JPEG, GIF or WebP image")
    try:
        content = base64.b64decode(found["data"], validate=True)
    except binascii.Error as error:
        raise ImageRefused(f"is not valid base64: {error}") from None
    image = read_image(content)
    if image.kind != found["kind"]:
        raise ImageRefused(f"is {image.kind}, but its data URL says {found['kind']}")
    return image


def is_data_url(text: str) -> bool:
    """Return True if the text is an image as a data URL, and nothing else."""
    return text.startswith("data:image/") and DATA_URL.fullmatch(text) is not None


def is_path(address: str) -> bool:
    """Return True for the relative path of an image file."""
    return address.lower().endswith(_PATHS) and "://" not in address and not address.startswith(("/", "data:"))


class ImagePlace(NamedTuple):
    """Where a row has the address of an image. `pointer` is a JSON pointer (RFC 6901)."""

    pointer: str
    holder: Any
    key: Any

    @property
    def address(self) -> str:
        return str(self.holder[self.key])


def image_places(row: dict[str, Any]) -> Iterator[ImagePlace]:
    """Yield the images of a row in order: its image columns, and the `image_url` of parts of messages."""
    waiting: list[tuple[str, Any, Any]] = [(f"/{_step(name)}", row, name) for name in reversed(row)]
    columns = {f"/{name}" for name in COLUMNS}
    while waiting:
        pointer, holder, key = waiting.pop()
        value = holder[key]
        in_column = pointer in columns or pointer.rpartition("/")[0] in columns
        if isinstance(value, dict):
            waiting += [(f"{pointer}/{_step(name)}", value, name) for name in reversed(value)]
        elif isinstance(value, list):
            waiting += [(f"{pointer}/{at}", value, at) for at in reversed(range(len(value)))]
        elif isinstance(value, str) and value and (in_column or pointer.endswith(("/image_url", "/image_url/url"))):
            yield ImagePlace(pointer, holder, key)


def image_addresses(item: dict[str, Any]) -> list[str]:
    """Return the addresses of the images of a message or a tool's output, as Responses items have them."""
    content = item.get("output") if item.get("type") == "function_call_output" else item.get("content")
    parts = content if isinstance(content, list) else []
    addresses = [
        part.get("image_url") for part in parts if isinstance(part, dict) and part.get("type") == "input_image"
    ]
    return [address for address in addresses if isinstance(address, str)]


def _step(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _png_size(content: bytes) -> tuple[int, int]:
    return struct.unpack(">II", content[16:24])


def _gif_size(content: bytes) -> tuple[int, int]:
    return struct.unpack("<HH", content[6:10])


def _webp_size(content: bytes) -> tuple[int, int]:
    """Return the size from the first chunk: extended, lossless or lossy."""
    match content[12:16]:
        case b"VP8X":
            low_width, high_width, low_height, high_height = struct.unpack("<HBHB", content[24:30])
            return 1 + low_width + (high_width << 16), 1 + low_height + (high_height << 16)
        case b"VP8L":
            (bits,) = struct.unpack("<I", content[21:25])
            return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
        case b"VP8 ":
            width, height = struct.unpack("<HH", content[26:30])
            return width & 0x3FFF, height & 0x3FFF
    return 0, 0


_NO_LENGTH = {0x01, *range(0xD0, 0xDA)}
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}


def _jpeg_size(content: bytes) -> tuple[int, int]:
    """Return the size from the first frame header (SOF marker)."""
    at = 2
    while at < len(content):
        if content[at] != 0xFF:
            return 0, 0
        marker = content[at + 1]
        if marker in _FRAMES:
            height, width = struct.unpack(">HH", content[at + 5 : at + 9])
            return width, height
        if marker == 0xFF:
            at += 1
        else:
            at += 2 if marker in _NO_LENGTH else 2 + struct.unpack(">H", content[at + 2 : at + 4])[0]
    return 0, 0


_SIZES = {"image/png": _png_size, "image/jpeg": _jpeg_size, "image/gif": _gif_size, "image/webp": _webp_size}
