"""What `datasets` loads of an export is what stands in it: every TRL format and encoding, whole and as a stream."""

import json
import random
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from apps.exports.parquet_files import ParquetFile
from apps.exports.row_files import JsonLinesFile
from apps.gym.exporters.registry import FORMATS
from apps.gym.loadable import is_loaded_exactly
from tests.trainers.conftest import OPEN_COLUMNS, Exports, Program, named
from tests.trainers.reading import exactly

WRITTEN = [
    (slug, encoding) for slug, format in FORMATS.items() if format.trainer == "TRL" for encoding in format.encodings
]
# The exports are written to the test database, which pytest-django makes for tests that say so.
pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def loaded(exports: Exports, run_program: Program, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("loaded") / "rows.json"
    folders = [*(named(slug, encoding) for slug, encoding in WRITTEN), *OPEN_COLUMNS]
    run_program("load_exports.py", out, *map(exports.path, folders))
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def as_kept(row: dict[str, Any], encoding: str) -> dict[str, Any]:
    """Figures beside the conversations lose what is beyond ten decimals where the file is JSON."""
    if encoding == "parquet":
        return row
    return {name: round(value, 10) if isinstance(value, float) else value for name, value in row.items()}


def is_missing(value: Any) -> bool:
    """Return True for null, and for what Parquet has instead: an empty text, NaN."""
    return value in (None, "", {}) or value != value


@pytest.mark.parametrize(("slug", "encoding"), WRITTEN)
def test_every_row_is_loaded_unchanged(exports: Exports, loaded: dict[str, Any], slug: str, encoding: str) -> None:
    found = loaded[named(slug, encoding)]
    # JSON lines leave out columns without a value; the card types them.
    assert set(found["features"]) >= set(exports.rows(slug)[0])
    for split in ("train", "validation"):
        # The same choice of rows as JSON lines, read by nothing but Python.
        wanted = [exactly(as_kept(row, encoding)) for row in exports.rows(named(slug, "jsonl"), split)]
        assert len(wanted) > 2
        for way in ("loaded", "streamed"):
            rows = [json.loads(row) for row in found[way][split]]
            pairs = list(zip(rows, map(json.loads, wanted), strict=True))
            assert [exactly({name: row[name] for name in own}) for row, own in pairs] == wanted
            assert all(is_missing(row[name]) for row, own in pairs for name in row.keys() - own)


@pytest.mark.parametrize("slug", OPEN_COLUMNS)
def test_fields_of_tasks_are_loaded_unchanged(exports: Exports, loaded: dict[str, Any], slug: str) -> None:
    rows = exports.rows(slug)
    assert {(row["code"], row["due"]) for row in rows} == {("007", "2024-01-01")}
    for way in ("loaded", "streamed"):
        found = [json.loads(row) for row in loaded[slug][way]["train"]]
        for name in ("code", "due", "expected_answer", "id"):
            assert [row[name] for row in found] == [row[name] for row in rows]
        # A temperature of 0.7 is inexact in a JSON column.
        for name in ("input", "tools"):
            params = ([row["responses_create_params"][name] for row in each] for each in (found, rows))
            assert len({exactly(each) for each in params}) == 1


@pytest.mark.parametrize("slug", [slug for slug, format in FORMATS.items() if format.trainer == "TRL"])
def test_no_task_is_in_two_files(exports: Exports, slug: str) -> None:
    sides = [
        {row["task_index"] for row in exports.rows(named(slug, "jsonl"), split)} for split in ("train", "validation")
    ]
    assert sides[0] & sides[1] == set()
    assert sides[0] | sides[1] == {row["task_index"] for row in exports.rows(slug)}


def test_a_number_that_is_called_exact_is_loaded_exactly(
    trainers_python: Path, run_program: Program, tmp_path: Path
) -> None:
    dice = random.Random(3)
    drawn = [round(dice.uniform(-1000, 1000), dice.randrange(12)) for _ in range(20_000)]
    drawn += [dice.gauss(0, 1) * 10.0 ** dice.randint(-18, 18) for _ in range(20_000)]
    exact = [number for number in drawn if is_loaded_exactly(number)]
    assert len(exact) > 15_000
    features = {"numbers": "json"}
    for encoding in ("jsonl", "parquet"):
        folder = tmp_path / encoding
        folder.mkdir()
        path = folder / f"train.{encoding}"
        file = (
            JsonLinesFile(path, split="train")
            if encoding == "jsonl"
            else ParquetFile(path, split="train", features=features)
        )
        rows = [{"numbers": {"all": exact[start : start + 100]}} for start in range(0, len(exact), 100)]
        file.write(rows, [orjson.dumps(row) for row in rows])
        file.finish()
        card = {
            "configs": [{"config_name": "default", "data_files": [{"split": "train", "path": path.name}]}],
            "dataset_info": {"features": [{"name": "numbers", "dtype": "json"}]},
        }
        (folder / "README.md").write_text(f"---\n{yaml.safe_dump(card)}---\n")
    out = tmp_path / "rows.json"
    run_program("load_exports.py", out, tmp_path / "jsonl", tmp_path / "parquet")
    found = json.loads(out.read_text())
    for encoding in ("jsonl", "parquet"):
        loaded = [number for row in found[encoding]["loaded"]["train"] for number in json.loads(row)["numbers"]["all"]]
        assert [pair for pair in zip(exact, loaded, strict=True) if repr(pair[0]) != repr(pair[1])] == []
