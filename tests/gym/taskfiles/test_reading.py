"""Whatever a file comes as, its rows come out; what cannot be read is named with its place and its limit."""

import bz2
import gzip
import io
import json
import tracemalloc
import zlib

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.gym.tasks.files.file_limits import BadRow, FileRefused, Limits
from apps.gym.tasks.files.row_source import open_rows

ROWS = [
    {"id": n, "question": f'What is {n} + 1?\nAnswer: "[{{,}}]\\', "nested": {"list": [1, [2, {}]]}} for n in range(5)
]
JSONL = b"".join(orjson.dumps(row) + b"\n" for row in ROWS)


def read(content: bytes, filename: str = "rows", **limits: int) -> list[tuple[int, bytes | BadRow]]:
    return list(open_rows(io.BytesIO(content), filename=filename, limits=Limits(**limits)).rows)


def rows(content: bytes, filename: str = "rows", **limits: int) -> list[object]:
    return [orjson.loads(row) for _, row in read(content, filename, **limits) if isinstance(row, bytes)]


def refusal(content: bytes, filename: str = "rows", **limits: int) -> FileRefused:
    with pytest.raises(FileRefused) as refused:
        read(content, filename, **limits)
    return refused.value


def parquet(table: dict[str, list[object]], **options: object) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table(table), file, **options)
    return file.getvalue()


def columnar() -> bytes:
    return parquet({name: [row[name] for row in ROWS] for name in ("id", "question")})


@pytest.mark.parametrize(
    "content",
    [
        JSONL,
        b"\xef\xbb\xbf" + JSONL,
        json.dumps(ROWS, indent=2).encode(),
        b" \n" + orjson.dumps(ROWS) + b"\n ",
        b"\xef\xbb\xbf" + orjson.dumps(ROWS),
    ],
    ids=["jsonl", "jsonl with a mark", "indented array", "array", "array with a mark"],
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress], ids=["plain", "gzip", "zstd"])
def test_json_is_read_as_lines_and_as_an_array_packed_or_not(content, pack):
    assert rows(pack(content)) == ROWS


def test_the_content_says_what_it_is_not_the_name():
    assert rows(gzip.compress(columnar()), "rows.csv") == [{n: row[n] for n in ("id", "question")} for row in ROWS]
    opened = open_rows(io.BytesIO(zstandard.compress(orjson.dumps(ROWS))), filename="x.jsonl.gz", limits=Limits())
    assert (opened.format, opened.packing, len(list(opened.rows))) == ("array", "zstd", 5)


def test_several_members_and_frames_and_padding_are_one_file():
    assert rows(gzip.compress(JSONL[:100]) + gzip.compress(JSONL[100:]) + b"\x00" * 700) == ROWS
    skippable = b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc"
    halves = [zstandard.compress(JSONL[:100]), zstandard.compress(JSONL[100:])]
    assert rows(halves[0] + skippable + halves[1]) == ROWS
    streamed = zstandard.ZstdCompressor(write_checksum=True, write_content_size=False).compress(JSONL)
    assert rows(streamed) == ROWS


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_a_truncated_compressed_file_is_refused(pack):
    packed = pack(JSONL * 50)
    for end in {len(packed) - 1, len(packed) - 9, len(packed) // 2, 20}:
        assert refusal(packed[:end]).code == "cut_off"


def test_packed_nonsense_is_refused():
    assert refusal(b"\x1f\x8b" + b"x" * 50).code == "not_gzip"
    assert refusal(b"\x28\xb5\x2f\xfd" + b"\xff" * 50).code in {"not_zstd", "window_too_large"}
    broken = bytearray(gzip.compress(JSONL))
    broken[-6] ^= 1  # the checksum
    assert refusal(bytes(broken)).code == "not_gzip"
    assert refusal(gzip.compress(gzip.compress(JSONL))).code == "packed_twice"


def test_bombs_are_refused_with_the_limit_named():
    bomb = gzip.compress(b'{"a": "' + b" " * 80 * 1024**2 + b'"}')
    refused = refusal(bomb, ratio=100)
    assert (refused.code, refused.limit) == ("unpacks_too_large", "GYMWEB_MAX_UNPACK_RATIO")
    refused = refusal(gzip.compress(JSONL * 100), unpacked_bytes=1000)
    assert (refused.code, refused.limit) == ("unpacks_too_large", "GYMWEB_MAX_UNPACKED_BYTES")
    window = zstandard.ZstdCompressor(
        compression_params=zstandard.ZstdCompressionParameters(window_log=27, write_content_size=False)
    ).compressobj()
    assert refusal(window.compress(JSONL) + window.flush()).limit == "zstd window"


def test_rows_are_counted_against_their_limit():
    refused = refusal(JSONL, rows=4)
    assert (refused.code, refused.limit, refused.line) == ("too_many_rows", "GYMWEB_MAX_UPLOAD_ROWS", 5)
    assert len(read(JSONL, rows=5)) == 5
    assert refusal(columnar(), rows=4).limit == "GYMWEB_MAX_UPLOAD_ROWS"


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("héllo".encode("utf-16"), "not_utf8"),
        ('{"a": 1}'.encode("utf-16-be"), "not_text"),
        (b"PK\x03\x04" + b"x" * 20, "not_zip"),
        (bz2.compress(JSONL), "unknown_format"),
        (b'{"a": 1}\n\x00\x00', "not_text"),
    ],
)
def test_binary_files_are_refused_by_type(content, code):
    assert refusal(content).code == code


@pytest.mark.parametrize(
    ("content", "code", "line"),
    [
        (b'[{"a": 1}, {"a": 2}', "cut_off", 2),
        (b'[{"a": "]', "cut_off", 1),
        (b"[1, 2}", "not_an_array", 2),
        (b"[{}] x", "not_an_array", 2),
        (b"[{}][{}]", "not_an_array", 2),
        (b"[{},,{}]", "not_an_array", 2),
        (b"[{},]", "not_an_array", 2),
        (b"[,]", "not_an_array", 1),
    ],
)
def test_a_broken_array_is_refused_with_the_row_where_it_breaks(content, code, line):
    refused = refusal(content, "rows.json")
    assert (refused.code, refused.line) == (code, line)


def test_an_array_may_be_empty_and_its_elements_may_be_wrong():
    assert read(b"[]", "rows.json") == []
    assert read(b"[ 1, {x}, nul ]", "rows.json") == [(1, b"1"), (2, b"{x}"), (3, b"nul")]


@settings(max_examples=200)
@given(
    st.lists(
        st.recursive(
            st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
            max_leaves=8,
        ),
        max_size=6,
    ),
    st.integers(1, 7),
    st.booleans(),
)
def test_an_array_is_taken_apart_as_json_says_however_it_is_cut_into_blocks(values, size, spaced):
    class Dribble(io.BytesIO):
        def read(self, count: int | None = -1, /) -> bytes:
            return super().read(min(count or size, size) if count and count > 0 else size)

    from apps.gym.tasks.files.arrays import ArrayReader

    text = json.dumps(values, indent=1 if spaced else None, ensure_ascii=spaced).encode()
    assert [json.loads(row) for _, row in ArrayReader(Dribble(text), max_line_bytes=10**6)] == values


def test_a_long_element_refuses_the_file_with_its_row_and_the_limit():
    long = b'[{"a": 1}, {"a": "\\"' + b"y" * 600_000 + b'"}, {"b": [1]}]'
    refused = refusal(long, "rows.json", line_bytes=1000)
    assert (refused.code, refused.limit, refused.line) == ("too_long", "GYMWEB_MAX_LINE_BYTES", 2)
    assert refused.message == "row 2 has more than 1,000 bytes (GYMWEB_MAX_LINE_BYTES)"


def test_tables_have_texts_and_leave_empty_cells_out():
    content = b'question,answer,tags\n"What is\n1 + 1?",2,"a,b"\n\n,,\nlast,,\n'
    assert read(content, "rows.csv") == [
        (2, b'{"question":"What is\\n1 + 1?","answer":"2","tags":"a,b"}'),
        (6, b'{"question":"last"}'),
    ]
    assert rows(b"q\ta\n1\t2\n", "rows.tsv.gz") == [{"q": "1", "a": "2"}]
    assert rows(b"q;a\r\n1;2\r\n", "rows.csv") == [{"q": "1", "a": "2"}]


def test_bad_records_are_named_by_their_line_and_the_others_are_read():
    content = b'q,a\n1,2,3\n"x"y,2\n\xff,2\n' + b"z" * 500 + b",1\ngood,1\n"
    found = read(content, "rows.csv", line_bytes=400)
    codes = [(line, row.code) for line, row in found if isinstance(row, BadRow)]
    assert codes == [(2, "wrong_columns"), (3, "not_csv"), (4, "not_utf8"), (5, "too_long")]
    assert found[-1] == (6, b'{"q":"good","a":"1"}')


def test_a_record_with_too_few_cells_is_refused_as_one_with_too_many():
    found = read(b"q,a,b\n1,2\n1\n1,2,\n1,2,3,4\n", "rows.csv")
    assert [(line, row.message) for line, row in found if isinstance(row, BadRow)] == [
        (2, "2 cells, but the header names 3 columns"),
        (3, "1 cell, but the header names 3 columns"),
        (5, "4 cells, but the header names 3 columns"),
    ]
    assert found[2] == (4, b'{"q":"1","a":"2"}')


def test_a_quote_that_never_closes_costs_one_record_of_the_limit_not_the_memory():
    content = b'q\n"' + b"x" * 90 + b"\n" + (b"y" * 90 + b"\n") * 50
    found = read(content, "rows.csv", line_bytes=1000)
    assert isinstance(found[0][1], BadRow)
    assert found[0][1].code == "too_long"


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"a,a", "the column name a is repeated"),
        (b"a,,b", "column 2 has no name in the header"),
        (b"a,\xff", "the header: byte 3 (0xff) is not UTF-8"),
        (b",".join(b"c%d" % n for n in range(2001)), "2,001 columns: the limit is 2,000"),
    ],
)
def test_a_header_that_cannot_be_is_refused(header, message):
    assert refusal(header + b"\n1,2\n", "rows.csv").message == message


def test_parquet_rows_are_json_with_times_decimals_and_bytes_as_text():
    import datetime
    import decimal

    table = {
        "when": [datetime.datetime(2026, 1, 2, 3, 4, 5)],
        "price": [decimal.Decimal("1.10")],
        "raw": [b"text"],
        "none": pa.array([None], pa.string()),
        "messages": [[{"role": "user", "content": "hi"}]],
    }
    assert rows(parquet(table)) == [
        {
            "when": "2026-01-02T03:04:05",
            "price": "1.10",
            "raw": "text",
            "none": None,
            "messages": [{"role": "user", "content": "hi"}],
        }
    ]


NANOSECONDS = 1_767_323_045_678_901_234
FLOATS = pa.array([0.1, None], pa.float32())
COLUMNS = {
    "float32": (FLOATS, [0.1, None]),
    "float16": (pa.array([0.1, 65504.0, 2048.0], pa.float16()), [0.1, 65504.0, 2048.0]),
    "digits": (
        pa.array([16777217.0, 3.4028235e38, 1e-45, -0.3], pa.float32()),
        [16777216.0, 3.4028235e38, 1e-45, -0.3],
    ),
    "float64": (pa.array([0.1, 0.10000000149011612]), [0.1, 0.10000000149011612]),
    "list": (pa.array([[0.1, 0.7], None], pa.list_(pa.float32())), [[0.1, 0.7], None]),
    "large_list": (pa.array([[0.1], []], pa.large_list(pa.float32())), [[0.1], []]),
    "fixed_size_list": (pa.array([[0.1, 0.7]], pa.list_(pa.float32(), 2)), [[0.1, 0.7]]),
    "struct": (
        pa.array([{"a": 0.1, "b": None}], pa.struct({"a": pa.float32(), "b": pa.date32()})),
        [{"a": 0.1, "b": None}],
    ),
    "dictionary": (FLOATS.dictionary_encode(), [0.1, None]),
    "dictionary_of_texts": (pa.array(["a", None]).dictionary_encode(), ["a", None]),
    "map": (pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int64())), [{"a": 1}, {}, None]),
    "map_of_floats": (pa.array([[("a", 0.1)]], pa.map_(pa.string(), pa.float32())), [{"a": 0.1}]),
    "map_of_integers": (pa.array([[(1, "x")]], pa.map_(pa.int64(), pa.string())), [{"1": "x"}]),
    "map_of_bytes": (pa.array([[(b"a", 1)]], pa.map_(pa.binary(), pa.int64())), [{"a": 1}]),
    "map_of_maps": (
        pa.array([[("a", [("b", 0.1)])]], pa.map_(pa.string(), pa.map_(pa.string(), pa.float32()))),
        [{"a": {"b": 0.1}}],
    ),
    "list_of_maps": (pa.array([[[("a", 1)]]], pa.list_(pa.map_(pa.string(), pa.int64()))), [[{"a": 1}]]),
    "timestamp": (pa.array([NANOSECONDS, None], pa.timestamp("ns")), ["2026-01-02T03:04:05.678901234", None]),
    "whole": (pa.array([NANOSECONDS // 1000 * 1000], pa.timestamp("ns")), ["2026-01-02T03:04:05.678901"]),
    "before_1970": (pa.array([-1], pa.timestamp("ns")), ["1969-12-31T23:59:59.999999999"]),
    "zone": (
        pa.array([NANOSECONDS], pa.timestamp("ns", tz="Europe/Zurich")),
        ["2026-01-02T04:04:05.678901234+01:00"],
    ),
    "unknown_zone": (pa.array([NANOSECONDS // 1000], pa.timestamp("us", tz="Mars/One")), ["1767323045678901 us"]),
    "list_of_times": (pa.array([[NANOSECONDS]], pa.list_(pa.timestamp("ns"))), [["2026-01-02T03:04:05.678901234"]]),
    "time": (pa.array([1_234_567_891, 10**9], pa.time64("ns")), ["00:00:01.234567891", "00:00:01"]),
    "duration": (
        pa.array([1_234_567_891, 1, -1], pa.duration("ns")),
        ["0:00:01.234567891", "0:00:00.000000001", "-1 day, 23:59:59.999999999"],
    ),
    "far": (pa.array([300_000_000_000], pa.timestamp("s")), ["11476-08-15T05:20:00.000"]),
    "farther": (pa.array([10**12], pa.timestamp("s")), ["1000000000000000 ms"]),
    "far_date": (pa.array([10**7, 2**30], pa.date32()), ["29349-01-26", "1073741824 days"]),
    "far_duration": (pa.array([2**62], pa.duration("s")), ["4611686018427387904 s"]),
    "decimal": (pa.array(["1.10"]).cast(pa.decimal256(50, 2)), ["1.10"]),
    "large_text": (pa.array(["a"], pa.large_string()), ["a"]),
    "large_binary": (pa.array([b"a"], pa.large_binary()), ["a"]),
    "integers": (pa.array([2**64 - 1], pa.uint64()), [2**64 - 1]),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_parquet_values_keep_their_digits_and_maps_are_objects(name):
    column, expected = COLUMNS[name]
    assert rows(parquet({"x": column})) == [{"x": value} for value in expected]


def test_a_parquet_map_that_is_no_object_is_a_bad_row():
    twice = pa.array([[("a", 1), ("a", 2)], [("b", 1)]], pa.map_(pa.string(), pa.int64()))
    no_text = pa.array([[(b"\xff", 1)], [(b"b", 1)]], pa.map_(pa.binary(), pa.int64()))
    for column in (twice, no_text):
        (_, bad), (_, good) = read(parquet({"x": column}))
        assert bad.code == "not_json"
        assert orjson.loads(good) == {"x": {"b": 1}}


def test_parquet_values_that_json_lacks_are_bad_rows():
    found = read(parquet({"x": [1.0, float("nan"), float("inf")], "y": [[0.5], [1.0], [2.0]]}))
    assert [row.code if isinstance(row, BadRow) else "good" for _, row in found] == ["good", "not_finite", "not_finite"]
    found = read(parquet({"x": [b"\xff\xfe", b"fine"]}))
    assert [row.code if isinstance(row, BadRow) else "good" for _, row in found] == ["not_json", "good"]
    found = read(parquet({"x": ["a" * 2000, "b"]}), line_bytes=1000)
    assert [row.code if isinstance(row, BadRow) else "good" for _, row in found] == ["too_long", "good"]


@pytest.mark.parametrize("content", [b"PAR1", b"PAR1" + b"x" * 100, columnar()[:-10] + b"xxxxxxPAR1", columnar()[:200]])
def test_a_broken_parquet_file_is_refused(content):
    assert refusal(content).code == "not_parquet"


def test_a_parquet_page_beyond_the_memory_is_refused_with_the_limit_named():
    text = "".join(chr(33 + n % 90) for n in range(1000))
    huge = parquet(
        {"x": [text * 1000 for _ in range(120)]},
        data_page_size=2**30, use_dictionary=False, write_batch_size=10**6, compression="zstd",
    )  # fmt: skip
    assert len(huge) < 2 * 1024**2
    refused = refusal(huge, parquet_bytes=48 * 1024**2)
    assert (refused.code, refused.limit) == ("page_too_large", "GYMWEB_PARQUET_MEMORY_BYTES")


def test_a_large_row_group_of_usual_pages_is_read_in_little_memory():
    texts = ["".join(chr(33 + (n * 31 + k) % 90) for k in range(2000)) for n in range(200)]
    table = {"prompt": [texts[n % 200] + str(n) for n in range(15_000)]}
    content = parquet(table, use_dictionary=False, compression="none", row_group_size=15_000)
    assert len(content) > 28 * 1024**2
    assert len(read(content, parquet_bytes=24 * 1024**2)) == 15_000


def test_a_parquet_file_whose_rows_repeat_one_value_endlessly_is_bounded():
    many = parquet({"x": pa.array(["a"] * 3_000_000).dictionary_encode()})
    assert len(many) < 100_000
    assert refusal(many, rows=1_000_000).limit == "GYMWEB_MAX_UPLOAD_ROWS"


def test_closing_early_ends_the_process_that_reads_parquet():
    opened = open_rows(io.BytesIO(parquet({"x": list(range(200_000))})), filename="x", limits=Limits())
    assert next(opened.rows) == (1, b'{"x":0}')
    opened.rows.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json", "rows.csv"])
def test_no_file_costs_more_memory_than_a_row_and_two_blocks(name):
    class Endless:
        """Half a gigabyte without an end of line."""

        left = 2000

        def __init__(self) -> None:
            self.start = b'["' if name == "rows.json" else b'{"'

        def read(self, size: int = -1, /) -> bytes:
            self.left -= 1
            start, self.start = self.start, b""
            return start or (b"x" * size if self.left > 0 else b"")

    tracemalloc.start()
    try:
        opened = open_rows(Endless(), filename=name, limits=Limits(line_bytes=1024**2))
        try:
            found = list(opened.rows)
            assert all(isinstance(row, BadRow) for _, row in found)
        except FileRefused as refused:
            assert refused.code in {"cut_off", "too_long"}
        assert tracemalloc.get_traced_memory()[1] < 16 * 1024**2
    finally:
        tracemalloc.stop()


def test_bytes_read_count_the_received_file():
    packed = zlib.compressobj(wbits=31)
    content = packed.compress(JSONL * 1000) + packed.flush()
    opened = open_rows(io.BytesIO(content), filename="x.gz", limits=Limits(ratio=10**6))
    assert len(list(opened.rows)) == 5000
    assert opened.bytes_read == len(content)


def test_bytes_read_of_a_packed_file_do_not_run_ahead_of_its_rows():
    """One block of a file that packs well holds many rows, and the expected size of an upload comes from this count."""
    content = gzip.compress(b"".join(b'{"n": %d, "text": "%s"}\n' % (n, b"word " * 8_000) for n in range(2_500)), 1)
    opened = open_rows(io.BytesIO(content), filename="rows.gz", limits=Limits())
    for _ in range(1_250):
        next(opened.rows)
    assert 0.4 < opened.bytes_read / len(content) < 0.6
