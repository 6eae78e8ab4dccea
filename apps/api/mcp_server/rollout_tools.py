"""Tools that read rollouts, their traces in parts, and tasks."""

import re
from collections.abc import Iterator
from typing import Any

import orjson

from apps.api.mcp_server.operation_calls import Api, Operation, ToolError
from apps.api.mcp_server.tool_declarations import CURSOR, PAGE, Arguments, Tool, id_schema, pick
from apps.api.mcp_server.untrusted_text import Whole
from apps.gym.redaction.shortening import shorten
from apps.policies.installation_redactor import fresh_redactor

LIST = Operation("rollout-list")
SHOW = Operation("rollout-detail", numbered=True)
STEPS = Operation("rollout-steps", numbered=True)
SIDE_BY_SIDE = Operation("rollout-side-by-side", numbered=True)
COMMENTS = Operation("comment-list")
FLAGS = Operation("flag-list")
TASK = Operation("task-detail", numbered=True)

ROLLOUT = id_schema("rollout")
PART_BYTES = 12_000
"""Bytes of step texts in a reply, as JSON."""
_STEP_BYTES = 300
"""Bytes of a step beside its text: number, name and marks."""
_SMALLEST_PART = 500
_SHOWN_OF_A_STEP = 1_200
"""Characters shown of each step in a comparison."""
_AT_ONCE = 40
_NOTES = 10
_PLACE = re.compile(r"([0-9]{1,9})\.([0-9]{1,12})", re.ASCII)
_LISTED = (
    "id,collection,task,repeat,status,attempt,reward,components,stop_reason,masked,error_kind,error_message,turns,tool_calls,"
    "tool_errors,output_tokens,cost,duration,flagged"
)


def _show(api: Api, given: Arguments) -> dict[str, Any]:
    about = {"rollout": given["rollout"], "limit": _NOTES}
    return {
        "rollout": api.call(SHOW, given["rollout"]),
        "comments": api.call(COMMENTS, query=about)["results"],
        "flags": api.call(FLAGS, query={**about, "standing": True})["results"],
    }


def _trace(api: Api, given: Arguments) -> dict[str, Any]:
    number, offset = _read_place(given)
    query = {"attempt": given.get("attempt"), "after": number - 1, "limit": _AT_ONCE}
    page = api.call(STEPS, given["rollout"], query=query)
    parts, place = _pack(page["results"], offset)
    if place is None and page["next_after"] is not None:
        place = (page["next_after"] + 1, 0)
    return {
        **pick(page, ("rollout", "attempt", "total")),
        "steps": parts,
        "next_cursor": place and f"{place[0]}.{place[1]}",
    }


def _pack(steps: list[dict[str, Any]], offset: int) -> tuple[list[dict[str, Any]], tuple[int, int] | None]:
    """Return the steps that fit into a reply, and the place (step, character) where the next reply starts."""
    left, parts = PART_BYTES, list[dict[str, Any]]()
    for step in steps:
        text = _clean(step["text"])
        rest = text[offset:]
        part = _cut_to(rest, left - _STEP_BYTES)
        if parts and len(part) < min(len(rest), _SMALLEST_PART):
            return parts, (step["number"], 0)
        place = {} if part == text else {"characters": len(text), "from_character": offset}
        parts.append({**_head(step), **place, "text": Whole(part)})
        if part != rest:
            return parts, (step["number"], offset + len(part))
        left -= _STEP_BYTES + _size(part)
        offset = 0
    return parts, None


def _compare(api: Api, given: Arguments) -> dict[str, Any]:
    query: dict[str, Any] = {"with": given["other"], "limit": 1}
    if "cursor" in given:
        after = _read_place(given)[0] - 1
    else:
        # One common row before the difference shows the state in which the rollouts diverge.
        after = max(0, (api.call(SIDE_BY_SIDE, given["rollout"], query=query)["diverges_at"] or 1) - 2)
    page = api.call(SIDE_BY_SIDE, given["rollout"], query={**query, "after": after, "limit": _AT_ONCE})
    rows = list(_fitting(page["results"]))
    reached = rows[-1]["number"] if rows else page["total"]
    return {
        **{name: page[name] for name in ("rollouts", "rewards", "diverges_at", "total", "left_out")},
        "rows": rows,
        "next_cursor": f"{reached + 1}.0" if reached < page["total"] else None,
    }


def _fitting(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    left = PART_BYTES
    for row in rows:
        shown = {
            **pick(row, ("number", "same")),
            **{side: row[side] and {**_head(row[side]), "text": _excerpt(row[side])} for side in ("one", "other")},
        }
        left -= _size(shown)
        if left < 0 and row is not rows[0]:
            return
        yield shown


def _excerpt(step: dict[str, Any]) -> Whole:
    return Whole(_cut_to(shorten(_clean(step["text"]), _SHOWN_OF_A_STEP), PART_BYTES // 3))


def _head(step: dict[str, Any]) -> dict[str, Any]:
    head = {**pick(step, ("number", "seq", "kind")), "name": shorten(step["name"], 100)}
    return {**head, "error": shorten(step["error"], 100)} if step["error"] else head


def _task(api: Api, given: Arguments) -> dict[str, Any]:
    offset = _read_place(given)[1]
    task = api.call(TASK, given["task"])
    text = _clean(orjson.dumps(task.pop("row"), option=orjson.OPT_INDENT_2).decode())
    part = _cut_to(text[offset:], PART_BYTES)
    end = offset + len(part)
    place = f"1.{end}" if end < len(text) else None
    return {**task, "characters": len(text), "from_character": offset, "json": Whole(part), "next_cursor": place}


def _read_place(given: Arguments) -> tuple[int, int]:
    found = _PLACE.fullmatch(given.get("cursor", "1.0"))
    if found is None or found[1] == "0":
        raise ToolError("cursor: Give `next_cursor` of the previous reply, or leave it out.")
    return int(found[1]), int(found[2])


def _clean(text: str) -> str:
    """Redact again before cutting: patterns may have been added since, and half a credential is not recognised."""
    return fresh_redactor().redact_text(text)[0]


def _cut_to(text: str, size: int) -> str:
    """Return the longest start of the text that takes at most `size` bytes as JSON."""
    low, high = 0, min(len(text), max(0, size))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _size(text[:middle]) <= size else (low, middle - 1)
    return text[:low]


def _size(value: Any) -> int:
    return len(orjson.dumps(value, default=str))


LIST_ROLLOUTS = Tool(
    name="list_rollouts",
    title="List rollouts",
    description="List rollouts, filtered and sorted. A rollout is one run of the agent on a task. `q` is a filter as "
    "on the rollouts page, for example `reward:<0.5 stop:max_steps -flag:truncated tool:search tag:algebra "
    'text:"cannot find" cause:12`.',
    operations=(LIST,),
    mapped_arguments=(
        *("collection", "task", "status", "stop_reason", "error_kind", "flagged"),
        *("reward_min", "reward_max", "q", "ordering", "cursor", "limit"),
    ),
    own_arguments=PAGE,
    listed=_LISTED,
)
READ_ROLLOUT = Tool(
    name="read_rollout",
    title="Read a rollout",
    description="Read a rollout without its trace: reward components, error, newest comments and review flags.",
    operations=(SHOW, COMMENTS, FLAGS),
    own_arguments={"rollout": ROLLOUT},
    required=("rollout",),
    run=_show,
)
READ_TRACE = Tool(
    name="read_trace",
    title="Read a trace in parts",
    description="Read the trace of a rollout as steps: prompt, reasoning, replies, calls, results, errors and the "
    "verdict. A reply has about 12 KB; pass `next_cursor` as `cursor` for the next part. Long steps continue there.",
    operations=(STEPS,),
    mapped_arguments=("attempt",),
    own_arguments={"rollout": ROLLOUT, "cursor": CURSOR},
    required=("rollout",),
    run=_trace,
)
COMPARE_ROLLOUTS = Tool(
    name="compare_rollouts",
    title="Compare rollouts",
    description="Compare the steps of two rollouts of one task side by side. The reply starts at the step where they "
    "diverge (`diverges_at`; null if all steps are the same). Long steps are cut; read_trace has them whole.",
    operations=(SIDE_BY_SIDE,),
    renamed_arguments={"other": "with"},
    own_arguments={"rollout": {**ROLLOUT, "description": "Id of the first rollout."}, "cursor": CURSOR},
    required=("rollout", "other"),
    run=_compare,
)
READ_TASK = Tool(
    name="read_task",
    title="Read a task",
    description="Read a task: its split, tags and uploaded row with prompt and expected answer, as JSON in parts.",
    operations=(TASK,),
    own_arguments={"task": id_schema("task"), "cursor": CURSOR},
    required=("task",),
    run=_task,
)
TOOLS = (LIST_ROLLOUTS, READ_ROLLOUT, READ_TRACE, COMPARE_ROLLOUTS, READ_TASK)
