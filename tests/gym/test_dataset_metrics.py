"""The figures that NeMo Gym writes beside its own example files come out the same, and nothing makes them break off."""

import json
import math
import os
import statistics
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.gym.tasks.dataset_metrics import EXACT_UNIQUE, MAX_FIELDS, DatasetMetrics, Distinct, Spread, as_nemo_gym

SHARED = Path(os.environ.get("GYMWEB_SHARED", Path(__file__).resolve().parents[3] / "shared")) / "data" / "nemo_gym"


def spread(total: int, mean: float, least: float, most: float, std: float) -> dict[str, float]:
    return {
        "Total # non-null values": total,
        "Average": mean,
        "Min": least,
        "Max": most,
        "Standard deviation": std,
    }


NOTHING = spread(0, 0.0, 0.0, 0.0, 0.0)
WORDS = "Json-dumped number of words (proxy for token count)"
# Out of the example_metrics.json that stand beside these files in NeMo Gym's repository.
THEIRS = {
    "example_multi_step": {
        "Number of examples": 5,
        "Number of tools": spread(5, 2.0, 2.0, 2.0, 0.0),
        WORDS: spread(5, 1504.0, 1499.0, 1509.0, 4.0),
        "Number of turns": spread(5, 1.0, 1.0, 1.0, 0.0),
        "Temperature": NOTHING,
        "id": spread(5, 2.0, 0.0, 4.0, 1.58),
        "expected_synonyms": {"unique_count": 2, "total_count": 10},
        "expected_synonym_values": spread(10, 559.0, 407.0, 711.0, 160.22),
        "minefield_label": {"unique_count": 1, "total_count": 5},
        "minefield_label_value": spread(5, 299.0, 299.0, 299.0, 0.0),
    },
    "workplace_assistant": {
        "Number of examples": 5,
        "Number of tools": spread(5, 27.0, 27.0, 27.0, 0.0),
        WORDS: spread(5, 1730.2, 1724.0, 1735.0, 4.76),
        "Number of turns": spread(5, 1.0, 1.0, 1.0, 0.0),
        "Temperature": spread(5, 1.0, 1.0, 1.0, 0.0),
        "id": spread(5, 2.0, 0.0, 4.0, 1.58),
        "category": {"unique_count": 3, "total_count": 5},
        "environment_name": {"unique_count": 1, "total_count": 5},
    },
    "mcqa": {
        "Number of examples": 5,
        "Number of tools": NOTHING,
        WORDS: spread(5, 143.0, 71.0, 210.0, 66.37),
        "Number of turns": spread(5, 1.0, 1.0, 1.0, 0.0),
        "Temperature": NOTHING,
        "expected_answer": {"unique_count": 4, "total_count": 5},
        "grading_mode": {"unique_count": 1, "total_count": 5},
        "uuid": {"unique_count": 5, "total_count": 5},
    },
}


def measure(rows: list[dict[str, object]]) -> DatasetMetrics:
    metrics = DatasetMetrics()
    for row in rows:
        metrics.add({"responses_create_params": {"input": "q"}, **row}, size=10)
    return metrics


@pytest.mark.skipif(not SHARED.exists(), reason="the shared example files are not here")
@pytest.mark.parametrize("name", THEIRS)
def test_the_figures_equal_nemo_gyms_for_its_own_files(name):
    lines = (SHARED / f"{name}.example.jsonl").read_bytes().splitlines()
    metrics = DatasetMetrics()
    for line in lines:
        metrics.add(orjson.loads(line), size=len(line))
    assert as_nemo_gym(metrics.figures()) == THEIRS[name]


def test_a_field_of_mixed_types_is_counted_both_ways():
    rows = [{"x": value} for value in (1, "two", None, {"three": 3}, [4, "five", True, None, []], 2.5)]
    field = measure(rows).figures()["fields"]["x"]
    assert (field["rows"], field["nulls"], field["others"]) == (6, 2, 2)
    assert field["numbers"] == {
        "count": 4,
        "mean": 2.125,
        "min": 1.0,
        "max": 4.0,
        "std": statistics.stdev([1, 4, 1, 2.5]),
    }
    assert field["texts"] == {"unique": 2, "total": 2, "exact": True}
    assert as_nemo_gym(measure(rows).figures())["x"]["Total # non-null values"] == 4


def test_numbers_beyond_floats_do_not_break_the_figures():
    figures = measure([{"x": 10**400}, {"x": 1.7e308}, {"x": -1.7e308}, {"x": 1.7e308}]).figures()
    assert figures["fields"]["x"]["others"] == 1
    assert figures["fields"]["x"]["numbers"]["std"] is None
    json.dumps(figures, allow_nan=False)


def test_more_fields_than_are_kept_are_counted():
    figures = measure([{f"f{n}": n for n in range(MAX_FIELDS + 7)}]).figures()
    assert (len(figures["fields"]), figures["fields_left_out"]) == (MAX_FIELDS, 7)


def test_distinct_texts_are_exact_up_to_a_thousand_and_close_beyond():
    few, many = Distinct(), Distinct()
    for n in range(1000):
        few.add(str(n % (EXACT_UNIQUE - 1)))
    for n in range(100_000):
        many.add(f"text {n % 50_000}")
    assert few.figures() == {"unique": 1000, "total": 1000, "exact": True}
    assert many.figures()["exact"] is False
    assert abs(many.figures()["unique"] - 50_000) < 5_000


def test_splits_and_tags_are_counted():
    metrics = DatasetMetrics()
    row = {"responses_create_params": {"input": [{"role": "user", "content": "q"}], "tools": []}}
    for split, tags in [("train", ("a", "b")), ("train", ("a",)), ("", ())]:
        metrics.add(row, size=1, split=split, tags=tags)
    figures = metrics.figures()
    assert (figures["splits"], figures["tags"], figures["tools"]["max"]) == ({"train": 2}, {"a": 2, "b": 1}, 0.0)


@settings(max_examples=100)
@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=50))
def test_a_spread_is_what_statistics_say(numbers):
    found = Spread()
    for number in numbers:
        found.add(number)
    figures = found.figures()
    assert math.isclose(figures["mean"], statistics.fmean(numbers), abs_tol=1e-6)
    assert math.isclose(figures["std"], statistics.stdev(numbers), rel_tol=1e-6, abs_tol=1e-4)
    assert (figures["min"], figures["max"], figures["count"]) == (min(numbers), max(numbers), len(numbers))


@settings(max_examples=200)
@given(
    st.lists(
        st.dictionaries(
            st.text(max_size=4),
            st.recursive(
                st.none()
                | st.booleans()
                | st.integers()
                | st.floats(allow_nan=False, allow_infinity=False)
                | st.text(),
                lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
                max_leaves=6,
            ),
            max_size=5,
        ),
        max_size=6,
    )
)
def test_no_row_that_json_holds_breaks_the_figures(rows):
    rows = [{name: value for name, value in row.items() if name != "responses_create_params"} for row in rows]
    figures = measure(rows).figures()
    json.dumps(figures, allow_nan=False)
    json.dumps(as_nemo_gym(figures), allow_nan=False)
    assert figures["examples"] == len(rows)
