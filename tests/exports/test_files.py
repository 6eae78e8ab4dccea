"""Files of rows: exact in every encoding, the same bytes for the same rows, beside a card that types every column."""

import functools
import gzip
import json
from pathlib import Path

import orjson
import pyarrow.parquet as pq
import pytest
import yaml
from django.core.management import CommandError, call_command

from apps.exports.export_deletion import delete_export
from apps.exports.export_folders import default_path
from apps.exports.export_jobs import write_export
from apps.exports.export_orders import ExportOrder, ExportRefused, queue_export
from apps.exports.first_rows import read_first_row
from apps.exports.models import Export
from apps.exports.parquet_files import ParquetFile
from apps.exports.row_files import JsonLinesFile
from apps.gym.exporters.registry import FORMATS
from tests.factories import make_collection, make_dataset, make_rollout, make_row
from tests.images import png_url

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
    file.write(ROWS, [orjson.dumps(row) for row in ROWS])
    file.finish()
    assert read_parquet(file.path) == ROWS
    kinds = {field.name: str(field.type) for field in pq.read_schema(file.path)}
    assert kinds["extra"] == "extension<arrow.json>"
    assert kinds["messages"] == "list<element: extension<arrow.json>>"
    assert (file.rows, file.longest_row) == (2, max(len(json.dumps(row, separators=(",", ":"))) for row in ROWS))


def test_the_first_row_of_parquet_has_placeholders_for_images_and_large_columns(tmp_path, monkeypatch):
    features = {**FEATURES, "images": "image[]"}
    rows = [{**row, "images": [png_url(shade=1), png_url(shade=2)]} for row in ROWS]
    file = ParquetFile(tmp_path / "train.parquet", split="train", features=features)
    file.write(rows, [orjson.dumps(row) for row in rows])
    file.finish()
    export = Export(state="ready", path=str(tmp_path), manifest={"files": [{"name": "train.parquet"}]})
    assert json.loads(read_first_row(export)) == {**ROWS[0], "images": "(2 images)"}
    monkeypatch.setattr("apps.exports.first_rows.MAX_COLUMN_BYTES", 100)
    assert json.loads(read_first_row(export))["messages"].startswith("(column of ")
    monkeypatch.setattr("apps.exports.first_rows.LONGEST", 50)
    assert len(read_first_row(export)) == 50
    file.path.unlink()
    assert read_first_row(export) == ""


def test_the_first_row_of_parquet_without_rows_is_empty(tmp_path):
    ParquetFile(tmp_path / "train.parquet", split="train", features=FEATURES).finish()
    export = Export(state="ready", path=str(tmp_path), manifest={"files": [{"name": "train.parquet"}]})
    assert read_first_row(export) == ""


def test_parquet_is_written_in_small_row_groups(tmp_path, monkeypatch):
    monkeypatch.setattr("apps.exports.parquet_files.GROUP_ROWS", 3)
    file = ParquetFile(tmp_path / "train.parquet", split="train", features=FEATURES)
    for _ in range(4):
        file.write(ROWS, [orjson.dumps(row) for row in ROWS])
    file.finish()
    read = pq.ParquetFile(file.path)
    assert [read.metadata.row_group(number).num_rows for number in range(read.num_row_groups)] == [3, 3, 2]
    assert read_parquet(file.path) == ROWS * 4


def test_the_same_rows_are_the_same_bytes_gzipped_too(tmp_path):
    entries = []
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        file = JsonLinesFile(tmp_path / str(number) / "train.jsonl.gz", split="train", gzipped=True)
        file.write(ROWS, [orjson.dumps(row) for row in ROWS])
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


@pytest.mark.parametrize("slug", [slug for slug, one in FORMATS.items() if one.row_kind not in {"preferences"}])
def test_every_format_is_written_in_each_of_its_encodings_with_a_card(collection, slug):
    format = FORMATS[slug]
    for encoding in format.encodings:
        written = write_export(export=queue_export(ExportOrder(format=slug, collection=collection, encoding=encoding)))
        assert (written.state, written.message) == ("ready", "")
        _, front, body = (Path(written.path) / "README.md").read_text().split("---\n", 2)
        card = yaml.safe_load(front)
        assert body.startswith(f"\n# {format.title}\n")
        if format.needs_tokens:
            assert (written.rows, written.files) == (0, [])
            continue
        assert card["configs"][0]["data_files"] == [{"split": "train", "path": f"train.{encoding}"}]
        assert written.files[0]["sha256"] in body
        assert written.rows == (2 if slug == "trl_sft_turns" else 1)


def test_the_card_types_every_column(collection):
    written = write_export(export=queue_export(ExportOrder(format="trl_sft", collection=collection)))
    card = yaml.safe_load((Path(written.path) / "README.md").read_text().split("---\n")[1])
    assert card["dataset_info"]["features"][:3] == [
        {"name": "messages", "list": "json"},
        {"name": "tools", "list": "json"},
        {"name": "reward", "dtype": "float64"},
    ]


def on_both_sides(**order):
    """A written export of many prompts, of which some come to each side."""
    made = make_collection(dataset=make_dataset([make_row(f"What is {number} + 2?") for number in range(20)]))
    for task in made.version.tasks.all():
        make_rollout(made, task=task)
    return write_export(export=queue_export(ExportOrder(collection=made, validation_share=0.5, **order)))


def test_llama_factory_finds_its_registry_beside_the_files(collection):
    written = on_both_sides(format="llama_factory_sft")
    registry = json.loads((Path(written.path) / "dataset_info.json").read_text())
    assert {name: entry["file_name"] for name, entry in registry.items()} == {
        "rollouts_train": "train.jsonl",
        "rollouts_validation": "validation.jsonl",
    }


def test_a_folder_with_other_files_is_never_replaced(collection, tmp_path):
    mine = tmp_path / "mine"
    export = queue_export(ExportOrder(format="trl_sft", collection=collection))
    assert write_export(export=export, path=mine).state == "ready"
    assert write_export(export=export, path=mine).state == "ready"
    (mine / "thesis.tex").write_text("years of work")
    with pytest.raises(ExportRefused, match="contains other files"):
        write_export(export=export, path=mine)
    assert (mine / "thesis.tex").read_text() == "years of work"


def test_two_splits_are_not_one_file(collection, tmp_path):
    export = queue_export(ExportOrder(format="trl_sft", collection=collection, validation_share=0.1))
    with pytest.raises(ExportRefused, match="A validation share needs two files"):
        write_export(export=export, path=tmp_path / "rows.jsonl")


@pytest.mark.parametrize(("encoding", "seed"), [("jsonl", 0), ("jsonl", 1), ("parquet", 0), ("parquet", 1)])
def test_a_split_without_rows_is_no_file_since_no_loader_takes_it(collection, encoding, seed):
    order = {"format": "llama_factory_sft" if encoding == "jsonl" else "trl_sft", "encoding": encoding}
    written = write_export(
        export=queue_export(ExportOrder(collection=collection, validation_share=0.5, split_seed=seed, **order))
    )
    (only,) = written.files
    rows = [one.name for one in Path(written.path).iterdir() if one.name.endswith(encoding)]
    assert (only["rows"], rows, written.sha256) == (1, [only["name"]], only["sha256"])
    _, front, body = (Path(written.path) / "README.md").read_text().split("---\n", 2)
    assert yaml.safe_load(front)["configs"][0]["data_files"] == [{"split": only["split"], "path": only["name"]}]
    assert "All rows are in one file: there are too few prompts for a" in body
    if encoding == "jsonl":
        registry = json.loads((Path(written.path) / "dataset_info.json").read_text())
        assert [entry["file_name"] for entry in registry.values()] == [only["name"]]


@pytest.mark.parametrize(("format", "encoding"), [("llama_factory_sft", "jsonl"), ("trl_sft", "parquet")])
def test_without_any_rows_there_is_no_file_that_no_loader_would_take(collection, format, encoding):
    none = {"filters": {"min_reward": 5.0}, "validation_share": 0.5, "encoding": encoding}
    written = write_export(export=queue_export(ExportOrder(format=format, collection=collection, **none)))
    assert (written.state, written.is_empty, written.files, written.sha256, written.bytes) == ("ready", True, [], "", 0)
    assert sorted(one.name for one in Path(written.path).iterdir()) == ["README.md", "manifest.json"]
    _, front, body = (Path(written.path) / "README.md").read_text().split("---\n", 2)
    assert ("configs" in yaml.safe_load(front), "No rows" in body) == (False, True)
    assert "- 1 below the minimum reward" in body


@pytest.mark.parametrize("gzipped", [False, True])
def test_an_export_waits_while_the_disk_is_full_and_leaves_no_file(collection, monkeypatch, gzipped):
    full = functools.partial(JsonLinesFile, Path("/dev/full"), split="train", gzipped=gzipped)
    monkeypatch.setattr("apps.exports.export_folders.ExportFolder._open", lambda *_: full())
    written = write_export(export=queue_export(ExportOrder(format="trl_sft", collection=collection)))
    assert (written.state, "disk space" in written.message) == ("queued", True)
    assert list(default_path(written).parent.iterdir()) == []


def test_files_of_a_killed_writer_are_removed(collection, tmp_path, django_capture_on_commit_callbacks):
    export = queue_export(ExportOrder(format="trl_sft", collection=collection))
    folder = default_path(export).parent

    def leave(name):
        (folder / name).mkdir(parents=True)
        (folder / name / "train.jsonl").write_text("half")

    leave(f".export-{export.pk}.{export.pk}-1.part")
    leave(f".export-{export.pk}1.{export.pk}1-1.part")
    Export.objects.update(attempt=1)
    write_export(export=export)
    kept = {f".export-{export.pk}1.{export.pk}1-1.part"}
    assert {one.name for one in folder.iterdir()} == {*kept, f"export-{export.pk}"}
    leave(f".export-{export.pk}.{export.pk}-3.part.old")
    with django_capture_on_commit_callbacks(execute=True):
        delete_export(export=export)
    assert {one.name for one in folder.iterdir()} == kept


def test_an_export_of_one_file_is_deleted_with_its_manifest(
    collection, tmp_path, settings, django_capture_on_commit_callbacks
):
    settings.EXPORTS_DIR = tmp_path
    order = ["export", "--collection", str(collection.pk), "--format", "trl_sft", "--out", str(tmp_path / "rows.jsonl")]
    call_command(*order)
    assert len(list(tmp_path.iterdir())) == 2
    with django_capture_on_commit_callbacks(execute=True):
        delete_export(export=Export.objects.get())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "words", "says"),
    [
        ("rows.jsonl", ["--validation", "0.2"], "A validation share needs two files"),
        ("rows.jsonl", ["--encoding", "parquet"], "rows.jsonl has the ending of jsonl, but the encoding is parquet"),
        ("rows.jsonl.gz", ["--encoding", "jsonl"], "has the ending of jsonl.gz, but the encoding is jsonl"),
        ("mine", [], "contains other files"),
        ("mine/a.jsonl", [], "is a folder, but its name looks like a file"),
    ],
)
def test_a_place_where_it_cannot_be_is_refused_before_anything_is_stored(collection, tmp_path, name, words, says):
    (tmp_path / "mine" / "a.jsonl").mkdir(parents=True)
    order = ["export", "--collection", str(collection.pk), "--format", "trl_sft", "--out", str(tmp_path / name)]
    with pytest.raises(CommandError, match=says):
        call_command(*order, *words)
    assert not Export.objects.exists()


@pytest.mark.django_db
def test_only_json_lines_have_a_taskset_for_verifiers(tmp_path):
    collection = make_collection()
    make_rollout(collection)
    for encoding, expected in (("jsonl", True), ("parquet", False)):
        order = ExportOrder(format="verifiers_prompts", collection=collection, encoding=encoding)
        written = write_export(export=queue_export(order), path=tmp_path / encoding)
        assert written.rows == 1
        assert (tmp_path / encoding / "gymweb_tasks.py").exists() == expected
