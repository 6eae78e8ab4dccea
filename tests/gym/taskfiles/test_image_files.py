"""Images in Parquet columns, and image files beside rows in a ZIP archive, become data URLs."""

import io
import zipfile

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from apps.gym.tasks.files.file_limits import BadRow, FileRefused, Limits
from apps.gym.tasks.files.row_source import open_rows
from tests.images import make_png, png_url


def read(content: bytes, filename: str = "rows", **limits: int) -> list[object]:
    found = open_rows(io.BytesIO(content), filename=filename, limits=Limits(**limits)).rows
    return [row if isinstance(row, BadRow) else orjson.loads(row) for _, row in found]


def parquet(rows: list[dict[str, object]]) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), file)
    return file.getvalue()


def archive(files: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in files.items():
            made.writestr(name, content)
    return file.getvalue()


def jsonl(*rows: object) -> bytes:
    return b"".join(orjson.dumps(row) + b"\n" for row in rows)


def test_image_columns_of_parquet_become_data_urls():
    cells = [{"bytes": make_png(shade=shade), "path": "x.png"} for shade in (1, 2)]
    rows = [{"prompt": "What is it?", "images": cells, "raw": make_png(shade=3), "name": b"text"}]
    assert read(parquet(rows)) == [
        {
            "prompt": "What is it?",
            "images": [png_url(shade=1), png_url(shade=2)],
            "raw": png_url(shade=3),
            "name": "text",
        }
    ]


def test_an_image_column_without_bytes_keeps_its_path():
    rows = [{"images": [{"bytes": None, "path": "a.png"}]}, {"images": [{"bytes": make_png(), "path": None}]}]
    assert read(parquet(rows)) == [{"images": ["a.png"]}, {"images": [png_url()]}]


def test_a_cell_with_another_file_is_a_bad_row_that_names_its_column():
    rows = [{"images": [{"bytes": b"<svg/>", "path": "x.svg"}]}, {"images": [{"bytes": make_png(), "path": None}]}]
    bad, good = read(parquet(rows))
    assert bad == BadRow("bad_image", "/images/0 is not a PNG, JPEG, GIF or WebP image", b"")
    assert good == {"images": [png_url()]}


@pytest.mark.parametrize("folder", ["", "data/"])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rows.jsonl", jsonl({"images": ["pictures/a.png"], "n": 1e2})),
        ("rows.json", orjson.dumps([{"images": ["pictures/a.png"], "n": 100.0}])),
        ("rows.parquet", parquet([{"images": ["pictures/a.png"], "n": 100.0}])),
    ],
)
def test_files_beside_the_rows_become_data_urls(folder, name, content):
    packed = archive({folder + name: content, folder + "pictures/a.png": make_png(), "__MACOSX/rows.jsonl": b"x"})
    assert read(packed) == [{"images": [png_url()], "n": 100.0}]


def test_a_table_in_an_archive_has_a_header():
    opened = open_rows(
        io.BytesIO(archive({"rows.csv": b"question,image,empty\nWhat?,a.png,\n", "a.png": make_png()})),
        filename="tasks.zip",
        limits=Limits(),
    )
    assert [orjson.loads(row) for _, row in opened.rows] == [{"question": "What?", "image": png_url()}]
    assert (opened.format, opened.header) == ("zip", ["question", "image", "empty"])


def test_paths_count_from_the_file_of_rows_first():
    files = {"a.png": make_png(shade=1), "data/a.png": make_png(shade=2)}
    packed = archive({"data/rows.jsonl": jsonl({"image": "a.png"}, {"image": "../a.png"}), **files})
    assert read(packed) == [{"image": png_url(shade=2)}, {"image": png_url(shade=1)}]


def test_other_addresses_in_an_archive_stay():
    row = {"image": "python:3.12", "messages": [{"content": [{"image_url": "https://example.org/a.png"}]}]}
    assert read(archive({"rows.jsonl": jsonl(row)})) == [row]


def test_rows_of_an_archive_that_cannot_have_their_images_are_bad():
    rows = jsonl({"image": "missing.png"}, {"image": "text.png"}, {"image": "big.png"}, {"image": "../../etc/a.png"})
    packed = archive({"rows.jsonl": rows, "text.png": b"hello", "big.png": make_png().ljust(3000, b"\0")})
    bad = read(packed, line_bytes=2000)
    assert [(row.code, row.message) for row in bad if isinstance(row, BadRow)] == [
        ("bad_image", "/image names the file missing.png, which is not in the archive"),
        ("bad_image", "/image is not a PNG, JPEG, GIF or WebP image"),
        ("too_long", "4,035 bytes in one row: the limit is 2,000 (GYMWEB_MAX_LINE_BYTES)"),
        ("bad_image", "/image names the file ../../etc/a.png, which is not in the archive"),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (archive({"a.png": make_png()}), "no file of rows"),
        (archive({"a.jsonl": b"{}", "b.csv": b"x"}), "several files of rows: a.jsonl, b.csv"),
        (archive({"rows.jsonl": b"{}\n"})[:40], "cannot be read"),
    ],
    # An archive has the time of its files.
    ids=["no rows", "two files of rows", "cut off"],
)
def test_other_archives_are_refused(content, message):
    with pytest.raises(FileRefused, match=message) as refused:
        read(content)
    assert refused.value.code == "not_zip"


def test_an_archive_has_the_limits_of_a_packed_file():
    files = {f"{n}.png": make_png(shade=n).ljust(900, b"\0") for n in range(4)}
    rows = jsonl(*({"image": name} for name in files))
    with pytest.raises(FileRefused) as refused:
        read(archive({"rows.jsonl": rows, **files}), unpacked_bytes=2000)
    assert (refused.value.code, refused.value.limit) == ("unpacks_too_large", "GYMWEB_MAX_UNPACKED_BYTES")
    with pytest.raises(FileRefused) as refused:
        read(archive({"rows.jsonl": b" " * 3000 + b"\n"}), unpacked_bytes=2000)
    assert refused.value.limit == "GYMWEB_MAX_UNPACKED_BYTES"


def test_an_archive_with_too_many_files_is_refused_before_they_are_listed(monkeypatch):
    files = {"rows.jsonl": jsonl({"image": "0.png"}), **{f"{n}.png": make_png() for n in range(20)}}
    packed = archive(files)
    assert read(packed) == [{"image": png_url()}]
    monkeypatch.setattr("apps.gym.tasks.files.zip_archives.MAX_DIRECTORY_BYTES", 1_000)
    monkeypatch.setattr(zipfile, "ZipFile", None)
    with pytest.raises(
        FileRefused, match=r"the list of files in the ZIP archive has 1,0\d\d bytes: the limit is 1,000"
    ):
        read(packed)
