"""The traps of Arrow over large files: what a loader that infers types would refuse or fill with nulls is loaded here.

One file of 100,000 rows has them all: arguments of every type under one key, a whole reward before a broken one, empty
objects, two tools with different schemas, and calls that first appear after 10 MB, which is what loaders look at.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from apps.exports.export_jobs import write_export
from apps.exports.export_orders import ExportOrder, queue_export
from apps.gym.traces.events import encode_event, event_kind
from apps.rollouts.models import Rollout
from tests.factories import make_collection, make_dataset, make_rollout, make_row
from tests.gym.exporters.attempts import TOOLS
from tests.trainers.conftest import Program, rows_for_a_while
from tests.trainers.plans import Plan, trace_of

pytestmark = [pytest.mark.slow, pytest.mark.django_db]

ROWS = 100_000
REPEATS = 100
PLAIN = 30_000
"""Rows without calls, at the beginning: more than 10 MB of them."""
ARGUMENTS: list[dict[str, Any]] = [
    {},
    {"value": 1},
    {"value": 0.5},
    {"value": "one"},
    {"value": [1, "two", None]},
    {"value": {}},
    {"value": {"deep": [{}]}},
    {"value": None},
    {"value": True},
    {"other": {"value": 2**53}},
]


def plans() -> list[Plan]:
    """One plain attempt, then one for each way of arguments, with one tool or two."""
    asked = [{"role": "user", "text": "How warm is it? " * 20}]
    plain = {"prompt": asked, "tools": [], "turns": [answer("I cannot know. " * 10)], "reward": 1.0}
    return [plain, *(calling(arguments, number) for number, arguments in enumerate(ARGUMENTS))]


def answer(text: str) -> dict[str, Any]:
    return {"role": "assistant", "reasoning": "", "text": text, "calls": []}


def calling(arguments: dict[str, Any], number: int) -> Plan:
    called = {"id": "call_1", "name": TOOLS[number % 2]["name"], "arguments": json.dumps(arguments)}
    turns = [
        {"role": "assistant", "reasoning": "", "text": "", "calls": [called]},
        {"role": "tool", "call": "call_1", "name": called["name"], "text": "{}"},
        answer("It is warm."),
    ]
    prompt = [{"role": "user", "text": "How warm is it?"}]
    return {"prompt": prompt, "tools": TOOLS[: 1 + number % 2], "turns": turns, "reward": 0.5}


@pytest.fixture(scope="module")
def folder(
    trainers_python: Path, django_db_setup: None, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The exports `jsonl` and `parquet`."""
    made = tmp_path_factory.mktemp("large")
    with rows_for_a_while(django_db_blocker, made):
        dataset = make_dataset([make_row() for _ in range(ROWS // REPEATS)])
        collection = make_collection(dataset=dataset, repeats=REPEATS)
        template = make_rollout(collection, reward=1.0, trace=[])
        payloads = [(number, *event) for number, plan in enumerate(plans()) for event in _events(plan)]
        with connection.cursor() as cursor:
            _multiply(cursor, template)
            cursor.execute("CREATE TEMPORARY TABLE held (place, seq, kind, payload)")
            cursor.executemany("INSERT INTO held VALUES (%s, %s, %s, %s)", payloads)
            cursor.execute(_TRACES, [template.task_id, REPEATS, PLAIN, len(ARGUMENTS), collection.pk])
        for encoding in ("jsonl", "parquet"):
            filters = {"min_reward": 0.0, "dedupe": False}
            order = queue_export(
                ExportOrder(format="trl_sft", collection=collection, encoding=encoding, filters=filters)
            )
            written = write_export(export=order, path=made / encoding)
            assert (written.state, written.rows) == ("ready", ROWS), written.message
    return made


def _events(plan: Plan) -> list[tuple[int, str, str]]:
    return [(seq, event_kind(event), encode_event(event)) for seq, event in enumerate(trace_of(plan))]


_TRACES = """
    INSERT INTO rollouts_traceevent (rollout_id, attempt, seq, kind, payload)
    SELECT r.id, 1, h.seq, h.kind, h.payload
    FROM (SELECT *, (task_id - %s) * %s + repeat AS place FROM rollouts_rollout) r
    JOIN held h ON h.place = CASE WHEN r.place < %s THEN 0 ELSE 1 + r.place %% %s END WHERE r.collection_id = %s
"""


def _multiply(cursor: Any, template: Rollout) -> None:
    """Other rollouts like this one, of all tasks; after the first PLAIN the reward is a broken one."""
    cursor.execute("SELECT * FROM rollouts_rollout WHERE id = %s", [template.pk])
    own = {"id", "task_id", "repeat", "reward"}
    names = ", ".join(f'"{column[0]}"' for column in cursor.description if column[0] not in own)
    cursor.execute(
        "WITH RECURSIVE places(place) AS (SELECT 1 UNION ALL SELECT place + 1 FROM places WHERE place < %s) "
        f"INSERT INTO rollouts_rollout ({names}, task_id, repeat, reward) "
        f"SELECT {names}, task_id + place / %s, place %% %s, CASE WHEN place < %s THEN 1 ELSE 0.5 END "
        "FROM rollouts_rollout, places WHERE id = %s",
        [ROWS - 1, REPEATS, REPEATS, PLAIN, template.pk],
    )


def test_datasets_loads_every_row_unchanged(folder: Path, run_program: Program, tmp_path: Path) -> None:
    written = folder / "jsonl" / "train.jsonl"
    with written.open("rb") as file:
        plain = sum(len(next(file)) for _ in range(PLAIN))
        assert b'"tool_calls"' in next(file)
    assert plain > 10 * 1024**2
    run_program("compare_exports.py", tmp_path / "found.json", written, folder / "jsonl", folder / "parquet")
    same = [ROWS, 0, None]
    found = json.loads((tmp_path / "found.json").read_text())
    assert found == {"jsonl": {"loaded": same, "streamed": same}, "parquet": {"loaded": same}}


def test_without_its_card_the_same_file_is_refused(folder: Path, run_program: Program, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "train.jsonl").symlink_to(folder / "jsonl" / "train.jsonl")
    with pytest.raises(AssertionError, match=r"DatasetGenerationError|CastError|Couldn't cast"):
        run_program("compare_exports.py", tmp_path / "found.json", bare / "train.jsonl", bare)
