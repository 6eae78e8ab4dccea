"""Hostile files: bombs, endless lines, broken encodings and numbers that databases cannot store."""

import gzip
import io
import itertools
from collections.abc import Iterator
from typing import Any

from scripts.measured_server import row
from scripts.measuring import MB

GOOD = b'{"responses_create_params": {"input": "hi"}, "expected_answer": "1"}\n'


def _with(value: bytes) -> bytes:
    return GOOD + b'{"responses_create_params": {"input": "hi"}, "x": ' + value + b"}\n"


def _packed(module: Any, size: int) -> bytes:
    """Return a few bytes that unpack to `size` bytes of one long text."""
    file = io.BytesIO()
    with module.open(file, "wb") as packed:
        packed.write(b'{"responses_create_params": {"input": "')
        for _ in range(size // MB):
            packed.write(b"a" * MB)
        packed.write(b'"}}\n')
    return file.getvalue()


def _bomb_of_rows(size: int) -> bytes:
    file = io.BytesIO()
    with gzip.open(file, "wb") as packed:
        for _ in range(size // MB):
            packed.write(row(0) * (MB // len(row(0))))
    return file.getvalue()


def _parquet(rows: int, size: int) -> bytes:
    """Return one row group with one page of `rows` texts of `size` characters that compress to almost nothing."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    text = "".join(chr(33 + number * 7 % 90) for number in range(size))
    file = io.BytesIO()
    options: dict[str, Any] = {"use_dictionary": False, "data_page_size": 2**31 - 1, "write_batch_size": 10**9}
    pq.write_table(pa.table({"prompt": [text] * rows}), file, compression="zstd", row_group_size=rows, **options)
    return file.getvalue()


def hostile_files(scale: float = 1.0) -> Iterator[tuple[str, Any]]:
    """Yield names and bodies; at scale 1 a line of 1 GB, and files that unpack to gigabytes."""
    import zstandard

    gigabyte = int(1024 * MB * scale) // MB * MB
    yield "gzip bomb", _packed(gzip, 2 * gigabyte)
    yield "gzip bomb of good rows", _bomb_of_rows(gigabyte)
    yield "zstd bomb", _packed(zstandard, 2 * gigabyte)
    yield "1 GB line", itertools.chain([b'{"x": "'], itertools.repeat(b"x" * MB, gigabyte // MB), [b'"}\n'])
    yield (
        "1 GB quote in CSV",
        itertools.chain([b'a,b\n1,"'], itertools.repeat((b"x" * 1023 + b"\n") * 1024, gigabyte // MB)),
    )
    yield "1 GB array element", itertools.chain([b"[["], itertools.repeat(b"[1]," * (MB // 4), gigabyte // MB))
    yield "100,000 deep", _with(b"[" * 100_000 + b"]" * 100_000)
    yield "100,000 deep array", b"[" * 100_000 + b"]" * 100_000
    yield "zero bytes", GOOD + b"\x00" * 1000
    yield "zero byte in a text", _with(b'"a\x00b"')
    yield "UTF-16", GOOD.decode().encode("utf-16")
    yield "Latin-1", _with('"é"'.encode("latin-1"))
    yield "Parquet, one huge page", _parquet(600, 10**6)
    yield "Parquet, cut off", b"PAR1" + b"\x00" * 5000
    yield "name twice", _with(b'{"a": 1, "a": 2}')
    yield "NaN", _with(b"NaN")
    yield "Infinity", _with(b"-Infinity")
    yield "10^400", _with(b"1" + b"0" * 400)
    yield "1e400", _with(b"1e400")
    yield "half a surrogate pair", _with(b'"\\ud800"')
    yield "bad rows", itertools.repeat(b"nonsense\n" * 1000, int(1000 * scale))
