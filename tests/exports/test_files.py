"""Files of rows: exact in every encoding, the same bytes for the same rows, beside a card that types every column."""

import gzip
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from apps.exports.exporting import write_export
from apps.exports.files import JsonLinesFile
from apps.exports.ordering import ExportRefused, queue_export
from apps.exports.parquet import ParquetFile
from apps.gym.exporters.registry import FORMATS
from tests.factories import make_collection, make_rollout

FEATURES = {
    "messages": "json[]",
    "extra": "json",
    "name": "string",
    "good": "bool",
    "count": "int64",
    "reward": "float64",
    "input_ids": "int32[]",
    "logprobs": "float32[]",
}
ROWS = [
    {
        "messages": [{"arguments": {"city": "Paris"}}, {"arguments": {"n": 1}}],
        "extra": {},
        "name": "a",
        "good": True,
        "count": 1,
        "reward": 1.0,
        "input_ids": [1, 2],
        "logprobs": [-0.5, 0.0],
    },
    {
        "messages": [{"arguments": {"n": "one", "deep": {"x": [None, 0.5]}}}],
        "extra": {"n": 10**15},
        "name": "",
        "good": False,
        "count": 2,
        "reward": 0.5,
        "input_ids": [],
        "logprobs": [],
    },
]


def read_parquet(path: Path) -> list[dict]:
    rows = pq.read_table(path).to_pylist()
    for row in rows:
        row["messages"] = [json.loads(one) for one in row["messages"]]
        row["extra"] = json.loads(row["extra"])
    return rows


def test_parquet_keeps_different_arguments_apart_and_writes_no_null_into_them(tmp_path):
    file = ParquetFile(tmp_path / "train.parquet", split="train", features=FEATURES)
    file.write(ROWS)
    file.finish()
    assert read_parquet(file.path) == ROWS
    kinds = {field.name: str(field.type) for field in pq.read_schema(file.path)}
    assert kinds["extra"] == "extension<arrow.json>"
    assert kinds["messages"] == "list<element: extension<arrow.json>>"
    assert (file.rows, file.longest_row) == (2, max(len(json.dumps(row, separators=(",", ":"))) for row in ROWS))


def test_parquet_is_written_in_small_row_groups(tmp_path, monkeypatch):
    monkeypatch.setattr("apps.exports.parquet.GROUP_ROWS", 3)
    file = ParquetFile(tmp_path / "train.parquet", split="train", features=FEATURES)
    for _ in range(4):
        file.write(ROWS)
    file.finish()
    read = pq.ParquetFile(file.path)
    assert [read.metadata.row_group(number).num_rows for number in range(read.num_row_groups)] == [3, 3, 2]
    assert read_parquet(file.path) == ROWS * 4


def test_the_same_rows_are_the_same_bytes_gzipped_too(tmp_path):
    entries = []
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        file = JsonLinesFile(tmp_path / str(number) / "train.jsonl.gz", split="train", gzipped=True)
        file.write(ROWS)
        file.finish()
        entries.append(file.entry())
    assert entries[0] == entries[1]
    assert [json.loads(line) for line in gzip.decompress(file.path.read_bytes()).splitlines()] == ROWS


@pytest.fixture
def collection(db, settings, tmp_path):
    settings.EXPORTS_DIR = tmp_path / "exports"
    made = make_collection()
    make_rollout(made)
    return made


@pytest.mark.parametrize("slug", [slug for slug, one in FORMATS.items() if one.makes not in {"preferences"}])
def test_every_format_is_written_in_each_of_its_encodings_with_a_card(collection, slug):
    format = FORMATS[slug]
    for encoding in format.encodings:
        written = write_export(export=queue_export(format=slug, collection=collection, encoding=encoding))
        assert (written.state, written.message) == ("ready", "")
        _, front, body = (Path(written.path) / "README.md").read_text().split("---\n", 2)
        card = yaml.safe_load(front)
        assert card["configs"][0]["data_files"] == [{"split": "train", "path": f"train.{encoding}"}]
        assert body.startswith(f"\n# {format.title}\n")
        assert written.files[0]["sha256"] in body
        if not format.needs_tokens:
            assert written.rows == (2 if slug == "trl_sft_turns" else 1)


def test_the_card_types_every_column(collection):
    written = write_export(export=queue_export(format="trl_sft", collection=collection))
    card = yaml.safe_load((Path(written.path) / "README.md").read_text().split("---\n")[1])
    assert card["dataset_info"]["features"][:3] == [
        {"name": "messages", "list": "json"},
        {"name": "tools", "list": "json"},
        {"name": "reward", "dtype": "float64"},
    ]


def test_llama_factory_finds_its_registry_beside_the_files(collection):
    order = {"format": "llama_factory_sft", "collection": collection, "validation_share": 0.5}
    written = write_export(export=queue_export(**order))
    registry = json.loads((Path(written.path) / "dataset_info.json").read_text())
    assert {name: entry["file_name"] for name, entry in registry.items()} == {
        "rollouts_train": "train.jsonl",
        "rollouts_validation": "validation.jsonl",
    }


def test_a_folder_with_other_files_is_never_replaced(collection, tmp_path):
    mine = tmp_path / "mine"
    export = queue_export(format="trl_sft", collection=collection)
    assert write_export(export=export, path=mine).state == "ready"
    assert write_export(export=export, path=mine).state == "ready"
    (mine / "thesis.tex").write_text("years of work")
    with pytest.raises(ExportRefused, match="holds other files than those of an export"):
        write_export(export=export, path=mine)
    assert (mine / "thesis.tex").read_text() == "years of work"


def test_two_splits_are_not_one_file(collection, tmp_path):
    export = queue_export(format="trl_sft", collection=collection, validation_share=0.1)
    with pytest.raises(ExportRefused, match="name a folder"):
        write_export(export=export, path=tmp_path / "rows.jsonl")
