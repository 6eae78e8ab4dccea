"""Lines of JSON stay one line for readers that split at U+2028, U+2029 and U+0085, whoever writes them."""

import gzip
import io
import json
import sys
from pathlib import Path

import orjson
import pytest
from asgiref.sync import async_to_sync
from gymweb_client.cli.fields import _parse
from gymweb_client.cli.output import Output

from apps.accounts.table_files import table_formats
from apps.exports.export_jobs import write_export
from apps.exports.export_orders import ExportOrder, queue_export
from apps.gym.json_lines import escape_line_ends
from apps.rollouts.streams.rollout_stream import RolloutStream
from apps.tasks.rejected_rows import Rejects
from apps.tasks.unchanged_rows import read_rows
from tests.factories import make_collection, make_dataset, make_rollout, make_row, make_trace, make_user

ENDS = "a\u2028b\u2029c\x85d"
ESCAPED = rb"a\u2028b\u2029c\u0085d"


def check(written: bytes, lines: int) -> str:
    """Return the text, which has `lines` lines for every reader and at least one of the escaped texts."""
    text = written.decode()
    assert ESCAPED in written
    assert len(text.splitlines()) == len(text.strip("\n").split("\n")) == lines
    return text


@pytest.fixture
def collection(db):
    rows = [make_row(ENDS), make_row(f"2 {ENDS}")]
    given = {"repeats": 1, "state": "completed", "total": 2, "completed": 2, "snapshot": {"policy_model": {}}}
    collection = make_collection(dataset=make_dataset(rows), **given)
    for task in collection.version.tasks.order_by("index"):
        make_rollout(collection, task=task, trace=make_trace(ENDS))
    return collection


@pytest.mark.parametrize(
    "text", ["", "plain", "Grüße", "§ 5", "“typographic” — …", "é©È", "東京 ほげ", "\u2027\u202a\x84\x86", "\U0001f326"]
)
def test_other_characters_stay_as_they_are(text):
    line = orjson.dumps(text)
    assert escape_line_ends(line) is line
    mixed = orjson.dumps(f"{text}\u2029{text}")
    assert orjson.loads(escape_line_ends(mixed)) == f"{text}\u2029{text}"
    assert escape_line_ends(mixed).decode() == mixed.decode().replace("\u2029", "\\u2029")


@pytest.mark.parametrize("format", ["trl_sft", "nemo_gym_rollouts", "nemo_rl_tasks"])
@pytest.mark.parametrize("encoding", ["jsonl", "jsonl.gz"])
def test_exports(collection, format, encoding):
    order = ExportOrder(format=format, collection=collection, encoding=encoding)
    written = write_export(export=queue_export(order))
    content = (Path(written.path) / f"train.{encoding}").read_bytes()
    text = check(gzip.decompress(content) if encoding == "jsonl.gz" else content, 2)
    assert ENDS in str(json.loads(text.splitlines()[0])).encode().decode("unicode_escape")


@pytest.mark.parametrize("grouped", [False, True])
def test_streams(collection, grouped):
    given = {"grouped": grouped, "seconds": 20.0, "keep": True, "user": make_user(), "may_return": True}
    stream = RolloutStream(collection=collection, **given, may_read=lambda: True)

    async def read():
        return b"".join([line async for line in stream.lines()])

    assert check(async_to_sync(read)(), 4).count('"type":"') >= 4


def test_downloads_of_tasks_and_tables(collection):
    check(b"".join(read_rows(version=collection.version)), 2)
    _, write = table_formats(["text"], lambda rows: ({"text": one.row_json} for one in rows))["ndjson"]
    content = b"".join(write(collection.version.tasks.all()))
    assert len(content.decode().splitlines()) == 2


def test_lists_of_rejected_rows(db, tmp_path):
    path = tmp_path / "rejected.jsonl"
    with Rejects(path) as rejects:
        rejects.add(line=1, code="invalid", message="Not JSON.", text=ENDS.encode())
    check(path.read_bytes(), 1)


def test_the_command_line_writes_and_reads_them(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    Output(as_json=True).one({"text": ENDS})
    assert json.loads(check(out.getvalue().encode(), 1)) == {"text": ENDS}
    rows = [{"text": ENDS}, {"text": "b"}]
    assert _parse("\n".join(json.dumps(row, ensure_ascii=False) for row in rows), list) == rows
