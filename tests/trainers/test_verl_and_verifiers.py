"""The dataset of verl and the loader of verifiers read what GymWeb exports, from an environment of their own."""

import json
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from apps.exports.export_jobs import write_export
from apps.exports.export_orders import ExportOrder, queue_export
from tests.factories import make_collection, make_dataset, make_rollout, make_row
from tests.trainers.conftest import Program, Writer, find_python

pytestmark = pytest.mark.django_db
CLASS = Path(__file__).parents[2] / "examples" / "verl" / "json_sft_dataset.py"
TURN = re.compile(r"<\|im_start\|>assistant\n(.*?<\|im_end\|>\n)", re.DOTALL)


@pytest.fixture(scope="module")
def python(trainers_python: Path) -> Path:
    return find_python("verl")


@pytest.fixture
def loaded(trainers_python: Path, python: Path, run_program: Program, tmp_path: Path, settings: Any) -> dict[str, Any]:
    settings.EXPORTS_DIR = tmp_path
    writer = Writer(tmp_path)
    writer.export("verl", "verl_sft", encoding="parquet", validation_share=0.0)
    (template,) = trainers_python.parent.parent.glob("lib/python3*/site-packages/trl/chat_templates/qwen2_5.jinja")
    (file,) = (tmp_path / "verl").glob("*.parquet")
    run_program("load_verl.py", template, CLASS, file, tmp_path / "out.json", python=python)
    found: dict[str, Any] = json.loads((tmp_path / "out.json").read_text())
    found["written"] = pq.read_table(file).to_pylist()
    return found


def test_verl_trains_the_turns_of_the_model_in_the_whole_conversation(loaded: dict[str, Any]) -> None:
    assert len(loaded["rows"]) == len(loaded["written"]) > 80
    for row, written in zip(loaded["rows"], loaded["written"], strict=True):
        assert row["messages"] == json.loads(written["messages"])
        assert (row["tools"] or []) == json.loads(written["tools"])
        assert row["text"] == row["whole"]
        assert row["trained"] == TURN.findall(row["whole"])


def test_verl_itself_refuses_the_results_of_parallel_calls(loaded: dict[str, Any]) -> None:
    """As the documentation says, also of `ignore_input_ids_mismatch`."""
    turns = [[len(one.get("tool_calls") or ()) for one in row["messages"]] for row in loaded["rows"]]
    parallel = [number for number, calls in enumerate(turns) if max(calls) > 1]
    assert len(parallel) > 2
    assert (loaded["refused"], loaded["passed"]) == (parallel, list(range(len(turns))))


def test_the_loader_of_verifiers_finds_the_taskset(
    python: Path, run_program: Program, tmp_path: Path, settings: Any
) -> None:
    settings.EXPORTS_DIR = tmp_path
    rows = [make_row(f"{number}\u2028?", f"00{number}", id=f"t{number}") for number in range(8)]
    collection = make_collection(dataset=make_dataset(rows))
    for task in collection.version.tasks.all():
        make_rollout(collection, task=task)
    order = ExportOrder(format="verifiers_prompts", collection=collection, validation_share=0.4)
    folder = write_export(export=queue_export(order)).path
    run_program("load_taskset.py", folder, tmp_path / "out.json", python=python)
    found = json.loads((tmp_path / "out.json").read_text())
    assert min(map(len, found.values())) > 0
    tasks = sorted([*found["train"], *found["validation"]], key=lambda one: one["answer"])
    assert [(one["answer"], one["prompt"][0]["content"]) for one in tasks] == [
        (row["expected_answer"], row["responses_create_params"]["input"][0]["content"]) for row in rows
    ]
    assert [one["id"] for one in tasks] == [one["info"]["task_id"] for one in tasks]
    assert len({one["id"] for one in tasks}) == 8
