"""Compression of trace payloads: zstd with a dictionary trained on traces (scripts/train_trace_dictionary.py).

A stored payload begins with the number of its dictionary, followed by a zstd frame. Payloads that compression would
not make smaller, and those stored by earlier versions, are plain text. No text begins with the byte of a number.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import zstandard
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import ExpressionWrapper, F

Stored = bytes | memoryview | str
"""A payload as the database returns it. Earlier versions stored text in SQLite."""
Frame = tuple[int, bytes]
"""The number of the dictionary and the zstd frame, or 0 and plain text."""

FOLDER = Path(__file__).parent / "trace_dictionaries"
NUMBER = 1
"""The dictionary for new payloads."""
MAX_NUMBER = 31
"""The largest number of a dictionary: text begins with larger bytes."""
LEVEL = 3
AT_ONCE = 1024 * 1024
"""Bytes of payloads that are compressed or decompressed in one call.

Each call releases the interpreter, and gets it back from a busy event loop up to 5 ms later.
"""
FEW = 8
"""Payloads that are compressed or decompressed one by one if there are fewer."""
# An instance must not be used by two threads at once.
_of_thread = threading.local()


def pack(payloads: Sequence[str]) -> list[bytes]:
    """Return the payloads in stored form."""
    plain = list(map(str.encode, payloads))
    packed: list[bytes] = []
    for start, end in _batches(list(map(len, plain))):
        packed += _pack(plain[start:end])
    return packed


def unpack(stored: Stored) -> str:
    """Return the payload as text, usually JSON."""
    return next(unpack_each([stored]))


def unpack_each(stored: Sequence[Stored]) -> Iterator[str]:
    """Yield the payloads as text. Not all of them are in memory at once."""
    frames = _frames(stored)
    for start, end in _batches(_plain_sizes(frames)):
        yield from _unpack(frames[start:end])


def unpack_few(stored: Sequence[Stored]) -> list[str] | None:
    """Return the payloads as text, or None if they are more than AT_ONCE bytes."""
    frames = _frames(stored)
    return list(_unpack(frames)) if sum(_plain_sizes(frames)) <= AT_ONCE else None


def _batches(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield (first, end) of successive payloads of AT_ONCE bytes together; a larger one is alone."""
    first = total = 0
    for place, size in enumerate(sizes):
        if total + size > AT_ONCE and place > first:
            yield first, place
            first, total = place, 0
        total += size
    if sizes:
        yield first, len(sizes)


def _pack(plain: Sequence[bytes]) -> list[bytes]:
    packer = _local("packer", _make_packer)
    mark = bytes([NUMBER])
    packed = [mark + frame for frame in _call(packer.multi_compress_to_buffer, packer.compress, plain)]
    sizes = zip(plain, map(len, plain), packed, map(len, packed), strict=True)
    return [given if size <= short and not _number_of(given) else frame for given, size, frame, short in sizes]


def _frames(stored: Sequence[Stored]) -> list[Frame]:
    payloads = [each.encode() if isinstance(each, str) else bytes(each) for each in stored]
    return [(number, each[1:]) if (number := _number_of(each)) else (0, each) for each in payloads]


def _plain_sizes(frames: Sequence[Frame]) -> list[int]:
    return [zstandard.frame_content_size(frame) if number else len(frame) for number, frame in frames]


def _unpack(frames: Sequence[Frame]) -> Iterator[str]:
    for number, group in groupby(frames, key=itemgetter(0)):
        payloads = [frame for _, frame in group]
        yield from (str(each, "utf-8") for each in (_decompress(number, payloads) if number else payloads))


def _decompress(number: int, frames: Sequence[bytes]) -> Sequence[Any]:
    unpacker = _local(f"unpacker {number}", lambda: zstandard.ZstdDecompressor(dict_data=_dictionary(number)))
    return _call(unpacker.multi_decompress_to_buffer, unpacker.decompress, frames)


def _call(many: Callable[..., Any], one: Callable[[bytes], bytes], given: Sequence[bytes]) -> Sequence[Any]:
    """Return the result for each payload, as bytes or another buffer."""
    # `many` prepares for 40 µs, and refuses payloads that are all empty.
    if len(given) < FEW or not any(given):
        return [one(each) for each in given]
    found = many(list(given), threads=0)
    return [found[place] for place in range(len(found))]


def _number_of(payload: bytes) -> int:
    """Return the number of the dictionary, or 0 for plain text."""
    return payload[0] if payload and payload[0] <= MAX_NUMBER else 0


@cache
def _dictionary(number: int) -> zstandard.ZstdCompressionDict:
    dictionary = zstandard.ZstdCompressionDict((FOLDER / f"{number}.zdict").read_bytes())
    if number == NUMBER:
        dictionary.precompute_compress(level=LEVEL)
    return dictionary


def _make_packer() -> zstandard.ZstdCompressor:
    return zstandard.ZstdCompressor(
        level=LEVEL, dict_data=_dictionary(NUMBER), write_dict_id=False, write_checksum=False, write_content_size=True
    )


def _local(name: str, make: Callable[[], Any]) -> Any:
    found = getattr(_of_thread, name, None)
    if found is None:
        found = make()
        setattr(_of_thread, name, found)
    return found


STORED = ExpressionWrapper(F("payload"), output_field=models.BinaryField())
"""The payload in stored form: a query for many events decompresses them together."""


class PayloadField(models.TextField):  # type: ignore[type-arg]
    """Text that is stored compressed. Lookups by its value do not work."""

    def db_type(self, connection: BaseDatabaseWrapper) -> str | None:
        # A text column of SQLite stores bytes unchanged.
        return "bytea" if connection.vendor == "postgresql" else super().db_type(connection)

    def from_db_value(self, value: Any, expression: Any, connection: BaseDatabaseWrapper) -> str | None:
        return None if value is None else unpack(value)

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        return connection.Database.Binary(pack([value])[0]) if isinstance(value, str) else value
