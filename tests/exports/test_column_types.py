"""Cards type the columns of rows with any fields of their tasks by the values that were written."""

from pathlib import Path

import pytest
import yaml

from apps.exports.column_types import ColumnTypes
from apps.exports.export_jobs import write_export
from apps.exports.export_orders import ExportOrder, queue_export
from tests.factories import make_collection, make_dataset, make_rollout, make_row


@pytest.mark.parametrize(
    ("values", "kind", "is_mixed"),
    [
        (["007", "1.50"], "string", False),
        (["2024-01-01", None, "2024-01-01T10:00Z"], "json", False),
        (["2024-01-01", "x"], "string", False),
        (["2024-01-01", 1], "json", False),
        ([True, False], "bool", False),
        ([1, 2], "int64", False),
        ([1.0, 0.5], "float64", False),
        ([1, 0.5], "json", False),
        ([1, True], "json", False),
        ([2**63], "json", False),
        ([["007"], {"a": 1}], "json", False),
        (["007", 7], "json", True),
        (["007", ["007"]], "json", True),
        (["x", None, {}], "json", True),
    ],
)
def test_a_column_has_the_type_of_its_values(values, kind, is_mixed):
    types = ColumnTypes()
    types.add([{"x": value, "y": {}} for value in values])
    assert types.features() == {"x": kind, "y": "json"}
    assert types.mixed() == (["x"] if is_mixed else [])


@pytest.fixture
def export(db, settings, tmp_path):
    settings.EXPORTS_DIR = tmp_path

    def write(*answers, format="nemo_rl_tasks", **options):
        rows = [make_row(f"{number}?", answer, due="2024-01-01") for number, answer in enumerate(answers)]
        collection = make_collection(dataset=make_dataset(rows))
        for task in collection.version.tasks.all():
            make_rollout(collection, task=task)
        written = write_export(export=queue_export(ExportOrder(format=format, collection=collection, **options)))
        _, front, body = (Path(written.path) / "README.md").read_text().split("---\n", 2)
        features = yaml.safe_load(front)["dataset_info"]["features"]
        return {one["name"]: one.get("dtype") for one in features}, body, written

    return write


@pytest.mark.parametrize("format", ["nemo_rl_tasks", "nemo_gym_rollouts", "nemo_gym_inputs"])
def test_the_card_types_the_fields_of_tasks(export, format):
    features, body, _ = export("007", "008", format=format)
    assert (features["expected_answer"], features["due"]) == ("string", "json")
    assert features["responses_create_params"] == "json"
    assert "decodes such texts" not in body


@pytest.mark.parametrize(("format", "column"), [("trl_grpo", "ground_truth"), ("openrlhf_rl", "label")])
def test_answers_that_are_all_dates_are_a_json_column_unless_parquet_types_them(export, format, column):
    assert export("2024-01-01", "2024-01-02", format=format)[0][column] == "json"
    assert export("2024-01-01", "2 May", format=format)[0][column] == "string"
    if format == "trl_grpo":
        assert export("2024-01-01", format=format, encoding="parquet")[0][column] == "string"


def test_the_types_hold_for_all_splits_and_a_mixed_column_is_named(export):
    features, body, written = export("007", 7, "x", "y", "z", 8, validation_share=0.5)
    assert len(written.files) == 2
    assert features["expected_answer"] == "json"
    assert written.manifest["mixed_columns"] == ["expected_answer"]
    assert "`expected_answer`" in body and "decodes such texts" in body
