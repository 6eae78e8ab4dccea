"""Replies are small, continue with a cursor, and name the remedy of a wrong argument."""

import json
from typing import Any

import pytest

from apps.accounts.models import Scope
from apps.gym.traces.events import ModelCall, Prompt, ToolResult
from apps.gym.traces.items import message
from apps.rollouts.models import Rollout
from tests.factories import make_collection, make_dataset, make_rollout, make_row, make_user
from tests.mcp_server.calls import call, client_of, refused, unmarked
from tests.mcp_server.seed import seed_regression

pytestmark = pytest.mark.django_db


@pytest.fixture
def client():
    return client_of(make_user(), Scope.ROLLOUTS_READ)


def pages(client: Any, name: str, **given: Any) -> list[Any]:
    """Return all replies of a list or of a trace."""
    replies = [call(client, name, **given)]
    while cursor := replies[-1]["next_cursor"]:
        assert len(replies) < 200
        replies.append(call(client, name, **given, cursor=cursor))
    return replies


def rollout_of(*outputs: str) -> Rollout:
    trace: list[Any] = [Prompt(items=[message("user", "Go")])]
    for number, output in enumerate(outputs):
        call_item = {"type": "function_call", "call_id": f"c{number}", "name": "run", "arguments": "{}"}
        trace += [ModelCall(seen=1, items=[call_item]), ToolResult(call_id=f"c{number}", name="run", output=output)]
    return make_rollout(make_collection(), trace=trace)


@pytest.mark.parametrize(
    "outputs",
    [
        ["short"] * 200,
        ["x" * 100_000],
        ['\u00fc\u4e2d\U0001f600\n\x01"' * 5_000, "end"],
        ["a" * 11_000, "b" * 11_000, ""],
        ["", "x" * 11_000, *["y"] * 60],
    ],
    ids=["many steps", "a long step", "escapes", "steps of a page each", "mixed"],
)
def test_a_trace_is_read_in_parts_without_gaps(client, outputs):
    rollout = rollout_of(*outputs)
    texts: dict[int, str] = {}
    for reply in pages(client, "read_trace", rollout=rollout.pk):
        assert reply["steps"]
        for step in reply["steps"]:
            text = unmarked(reply, step["text"]) if step["text"] else ""
            if step["kind"] == "result":
                assert step.get("from_character", 0) == len(texts.get(step["number"], ""))
                texts[step["number"]] = texts.get(step["number"], "") + text
    assert list(texts.values()) == list(outputs)


def test_a_task_is_read_in_parts(client):
    row = make_row("question " * 5_000, "42")
    task = make_dataset([row]).tasks.get()
    text = "".join(unmarked(reply, reply["json"]) for reply in pages(client, "read_task", task=task.pk))
    assert json.loads(text) == row


def test_lists_continue_with_a_cursor(client):
    one, other = seed_regression()
    for name, given in [
        ("list_collections", {}),
        ("list_rollouts", {"collection": one.pk, "ordering": "reward"}),
        ("list_task_changes", {"collection": one.pk, "other": other.pk, "which": "all"}),
        ("list_task_results", {"collection": one.pk}),
    ]:
        whole = call(client, name, **given)["results"]
        parts = [row for reply in pages(client, name, **given, limit=1) for row in reply["results"]]
        ids = [[row.get("id", row.get("task")) for row in rows] for rows in (whole, parts)]
        assert ids[0] == ids[1] and len(ids[0]) == (2 if name == "list_collections" else 8)


def test_a_filter_is_that_of_the_rollouts_page(client):
    _, other = seed_regression()
    found = call(client, "list_rollouts", q=f"collection:{other.pk} reward:<0.5")["results"]
    assert {(row["reward"], row["collection"]) for row in found} == {(0.0, other.pk)}
    assert len(found) == 2


def test_rollouts_of_one_course_do_not_diverge(client):
    one, other = seed_regression()
    first, second = (side.rollouts.order_by("task__index").first() for side in (one, other))
    reply = call(client, "compare_rollouts", rollout=first.pk, other=second.pk)
    assert (reply["diverges_at"], {row["same"] for row in reply["rows"]}) == (None, {True})


def test_a_comparison_continues_after_its_first_rows(client):
    collection = make_collection()
    sides = []
    for letter in "xy":
        trace: list[Any] = [Prompt(items=[message("user", "Go")])]
        for number in range(40):
            call_item = {"type": "function_call", "call_id": f"c{number}", "name": "run", "arguments": "{}"}
            output = f"{number} {letter * 3_000}"
            trace += [ModelCall(seen=1, items=[call_item]), ToolResult(call_id=f"c{number}", name="run", output=output)]
        sides.append(make_rollout(collection, trace=trace))
    replies = pages(client, "compare_rollouts", rollout=sides[0].pk, other=sides[1].pk)
    numbers = [row["number"] for reply in replies for row in reply["rows"]]
    assert numbers == list(range(2, replies[0]["total"] + 1))
    assert replies[0]["diverges_at"] == 3


def test_credentials_are_redacted_before_a_text_is_cut(client):
    secret = f"sk-{'a1B2' * 12}"
    rollout = rollout_of("x" * 11_650 + f" {secret} end")
    replies = pages(client, "read_trace", rollout=rollout.pk)
    text = "".join(
        unmarked(reply, step["text"]) for reply in replies for step in reply["steps"] if step["kind"] == "result"
    )
    assert "a1B2a1B2" not in text and text.endswith(" end")


@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        ("list_rollouts", {"colection": 1}, "collection"),
        ("list_rollouts", {"limit": 26}, "maximum of 25"),
        ("list_rollouts", {"flagged": "yes"}, "flagged"),
        ("list_rollouts", {"q": "rewrd:1"}, "Did you mean"),
        ("list_rollouts", {"cursor": "x"}, "cursor"),
        ("list_rollouts", {"ordering": "name"}, "ordering"),
        ("list_task_changes", {"collection": 1}, "other"),
        ("list_task_changes", {"collection": 1, "other": 2}, "no collection with"),
        ("read_trace", {}, "rollout"),
        ("read_trace", {"rollout": 999_999}, "no rollout with"),
        ("read_trace", {"rollout": 0}, "rollout"),
        ("read_trace", {"rollout": True}, "rollout"),
        ("read_trace", {"rollout": 2**70}, "rollout"),
        ("read_trace", {"rollout": 1, "cursor": "0.0"}, "next_cursor"),
        ("list_failures", {"collection": 1, "cursor": "1.5"}, "next_cursor"),
        ("read_figures", {"collection": 1, "by": "model"}, "by"),
        ("drop_tables", {}, "Unknown tool"),
    ],
    ids=str,
)
def test_a_wrong_argument_is_named_with_the_remedy(client, name, given, says):
    assert says in refused(client, name, **given)


def test_collections_of_two_datasets_cannot_be_compared(client):
    one, other = make_collection(), make_collection()
    assert "same dataset" in refused(client, "compare_collections", collection=one.pk, other=other.pk)
    first, second = make_rollout(one), make_rollout(other)
    assert "different tasks" in refused(client, "compare_rollouts", rollout=first.pk, other=second.pk)
