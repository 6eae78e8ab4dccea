"""Blank lines are skipped by block, and a reader calls back for each block although it yields no row."""

import csv
import gzip
import io
import random
import time
import zipfile
from dataclasses import replace

import orjson
import pytest

from apps.gym.tasks.files.file_limits import BadRow, Limits
from apps.gym.tasks.files.lines import BOM, LineReader
from apps.gym.tasks.files.row_source import open_rows

MANY = 16 * 1024**2
ROW = b'{"a": 1}'
SECONDS = 1.0
"""Processor time of 16 MB of blank lines line by line: 2 s as JSONL, 20 s as CSV. By block: 0.1 s."""


def zipped(name: str, content: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return packed.getvalue()


BLANK = {
    "rows.jsonl": (b"\n" * MANY + ROW, MANY + 1, b'{"a": 1}'),
    "crlf.jsonl": (b"\r\n" * (MANY // 2) + ROW, MANY // 2 + 1, b'{"a": 1}'),
    "spaces.jsonl": (b" \t\n" * (MANY // 3) + ROW, MANY // 3 + 1, b'{"a": 1}'),
    "rows.csv": (b"a,b\n" + b"\n" * MANY + b"1,\n", MANY + 2, b'{"a":"1"}'),
    "commas.csv": (b"\r\na,b\r\n" + b",\r\n" * (MANY // 3) + b"1,", MANY // 3 + 3, b'{"a":"1"}'),
    "header.csv": (b" , \n" * (MANY // 4) + b"a,b\n1,", MANY // 4 + 2, b'{"a":"1"}'),
    "tabs.tsv": (b"a\tb\n" + b"\t\n" * (MANY // 2) + b"1\t", MANY // 2 + 2, b'{"a":"1"}'),
}


@pytest.mark.parametrize("packing", ["plain", "gzip", "zip"])
@pytest.mark.parametrize("name", BLANK)
def test_many_blank_lines_take_little_time_and_report_each_block(name: str, packing: str) -> None:
    content, line, row = BLANK[name]
    pack = {"plain": lambda: content, "gzip": lambda: gzip.compress(content), "zip": lambda: zipped(name, content)}
    filename = {"plain": name, "gzip": f"{name}.gz", "zip": "rows.zip"}[packing]
    stream, places, files = io.BytesIO(pack[packing]()), [], []
    began = time.process_time()
    # The first block is read while the file is opened.
    limits = Limits(on_read=lambda: places.extend(file.bytes_read for file in files))
    files.append(open_rows(stream, filename=filename, limits=limits))
    assert list(files[0].rows) == [(line, row)]
    assert time.process_time() - began < SECONDS
    # A call for each 256 KB of content, so progress, heartbeat and cancellation need no row.
    assert len(places) >= MANY * 0.9 // (256 * 1024)
    assert places == sorted(places)
    assert places[-1] == len(stream.getvalue()) or packing == "zip"


def test_a_reader_stops_where_the_callback_raises() -> None:
    class Stopped(Exception):
        pass

    def stop() -> None:
        if opened.bytes_read > 1024**2:
            raise Stopped

    opened = open_rows(io.BytesIO(b"\n" * MANY), filename="rows.jsonl", limits=Limits(on_read=stop))
    with pytest.raises(Stopped):
        list(opened.rows)
    assert opened.bytes_read < 2 * 1024**2


def mixed(chance: random.Random, parts: list[bytes]) -> bytes:
    return b"".join(chance.choice(parts) for _ in range(chance.randrange(60)))


class Bits:
    """A stream that returns blocks of random sizes."""

    def __init__(self, content: bytes, chance: random.Random) -> None:
        self._file, self._chance = io.BytesIO(content), chance

    def read(self, size: int = -1, /) -> bytes:
        return self._file.read(self._chance.randrange(1, min(size, 12) + 1))


def test_lines_and_their_numbers_are_those_of_a_plain_split() -> None:
    chance = random.Random(7)
    for _ in range(3000):
        content = chance.choice([b"", BOM]) + mixed(
            chance, [b"\n", b"\n\n\n", b" ", b"\r\n", b"\t", b"x", b"yy", b"z" * 9]
        )
        limit = chance.choice([5, 20, 1000])
        lines = content.removeprefix(BOM).split(b"\n")
        expected = [(number, line) for number, line in enumerate(lines, 1) if line.strip() or len(line) > limit]
        found = [
            (number, None if isinstance(line, BadRow) else line)
            for number, line in LineReader(Bits(content, chance), max_line_bytes=limit)
        ]
        # The byte order mark counts towards the length.
        if not (content.startswith(BOM) and limit < len(lines[0]) + len(BOM)):
            assert found == [(number, None if len(line) > limit else line) for number, line in expected], content


def test_records_are_those_of_the_csv_module() -> None:
    chance = random.Random(11)
    parts = [b"\n", b"\n\n", b"\r\n", b",", b"1,2\n", b'"a\n\n,\n",x\n', b" ,y\n", b" , \n", b'"",""\n']
    for _ in range(3000):
        content = mixed(chance, [b"\n", b" , \n", b",\n"]) + b"a,b\n" + mixed(chance, parts)
        records = csv.reader(io.StringIO(content.decode(), newline=""))
        cells = [record for record in records if any(record)]
        start = next(place for place, record in enumerate(cells) if any(cell.strip() for cell in record))
        wanted = [
            {name: cell for name, cell in zip("ab", record, strict=True) if cell} if len(record) == 2 else None
            for record in cells[start + 1 :]
        ]
        opened = open_rows(io.BytesIO(content), filename="x.csv", limits=replace(Limits(), line_bytes=4096))
        assert [None if isinstance(row, BadRow) else orjson.loads(row) for _, row in opened.rows] == wanted, content
