"""Turn a line of a NeMo Gym rollout file into an attempt with its events, or an error with its position.

Failures and task rows (also materialised inputs) are distinguished by their keys.
"""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import orjson

from apps.gym.json_constants import null_logprobs
from apps.gym.outcomes import STOP_REASONS, ErrorKind, mask_fields, read_nemo_gym_failure
from apps.gym.redaction.shortening import cut
from apps.gym.resources.verify_bodies import keep_small
from apps.gym.rewards import MAX_REWARD, REWARD_BOUNDS
from apps.gym.rollout_files.originals import read_original
from apps.gym.rollout_files.response_turns import CUTS, read_turns, why_cut
from apps.gym.rollout_files.stored_calls import StoredTrace, trace_events
from apps.gym.tasks.file_rows import RowRefused, expect, read_row
from apps.gym.tasks.materialised_tasks import flat_task, is_materialised
from apps.gym.tasks.parameters import PARAMS
from apps.gym.tasks.rollout_keys import OURS, PREFIXES, verifier_details
from apps.gym.tasks.task_rows import parse_line
from apps.gym.traces.events import (
    EnvironmentTurn,
    ErrorRaised,
    ModelCall,
    Prompt,
    SessionOpened,
    TraceUnion,
    Verification,
)
from apps.gym.traces.graph import main_line
from apps.gym.traces.items import Item, TaskRow, as_object, dump_json, function_calls, input_items, item_type, text_of

LineKind = Literal["task", "rollout", "failure"]

FAILURE_CLASS = "_ng_failure_class"
TASK_INDEX = "_ng_task_index"
ROLLOUT_INDEX = "_ng_rollout_index"


@dataclass(frozen=True, slots=True)
class StoredAttempt:
    """The attempt of a line. `reward` is None for a failure, for a masked row, and if verification was skipped."""

    events: list[TraceUnion]
    reward: float | None
    components: dict[str, float] = field(default_factory=dict)
    stop_reason: str = ""
    error_kind: ErrorKind | Literal[""] = ""
    error_message: str = ""
    model: str = ""


def line_kind(row: dict[str, Any]) -> LineKind:
    """Return the kind of a row."""
    if row.get(FAILURE_CLASS):
        return "failure"
    return "rollout" if "response" in row or "reward" in row else "task"


def read_object(line: bytes) -> dict[str, Any]:
    """Return the line as an object, parsed as strictly as an upload, except for logprobs; a materialised task flat.

    Raises RowRefused.
    """
    row = read_row(null_logprobs(line))[1]
    return flat_task(row) if is_materialised(row) else row


def plain_task(row: dict[str, Any]) -> TaskRow:
    """Return a row of materialised inputs without the fields that its rollout added."""
    return {key: value for key, value in row.items() if not key.startswith(PREFIXES)}


def join_steps(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with the last of its steps: Aviary's agents of NeMo Gym store the whole conversation at each.

    Any other row is returned unchanged. Raises RowRefused if a step does not continue the one before it.
    """
    response = as_object(row.get("response"))
    output = response.get("output")
    if not isinstance(output, list) or not output or not all(isinstance(step, list) for step in output):
        return row
    for number, (step, following) in enumerate(pairwise(output)):
        if following[: len(step)] != step:
            told = f"/response/output/{number + 1} must continue /response/output/{number}, since both are lists"
            raise RowRefused("wrong_type", told)
    return {**row, "response": {**response, "output": output[-1]}}


def check_task(task: TaskRow) -> None:
    """Raise RowRefused if the row is not a valid task."""
    parse_line(dump_json(task).encode())


def prompt_texts(task: TaskRow) -> tuple[str, ...]:
    """Return roles and texts of the prompt, comparable between a task row and a rollout row."""
    return tuple(_said(item) for item in input_items(task))


def read_attempt(
    row: dict[str, Any],
    task: TaskRow,
    *,
    environment: str,
    is_original: bool = False,
    numbered: bool = False,
    trace: StoredTrace | None = None,
) -> StoredAttempt:
    """Return the attempt of a row at `task`, with its events. Raises RowRefused.

    If `is_original`, the first event keeps the fields that other events cannot hold; if `numbered`, also the row's
    position in its run. The events of a `trace` replace those of the row's response.
    """
    failure = row.get(FAILURE_CLASS)
    reward = None if failure else _reward(row)
    response = _response(row, needed=not failure)
    params = {key: value for key, value in row[PARAMS].items() if value is not None}
    tools = params.get("tools") or []
    opened, prompt = SessionOpened(environment=environment, tools=tools), Prompt(items=input_items({PARAMS: params}))
    events: list[TraceUnion] = [opened, prompt]
    if trace is None:
        events += read_turns(response, params, seen=len(prompt.items))
    else:
        events = trace_events(trace, environment)
    model = str(response.get("model") or "")
    if failure:
        return _failed(row, events, str(failure), model)
    components, said = _components(row), {**verifier_details(row, task), **mask_fields(row)}
    details = keep_small(said)
    if is_original:
        cut = {key: value for key, value in said.items() if details[key] is not value}
        opened.original = read_original(row, events, cut=cut, numbered=numbered)
    stop_reason = _stop_reason(row, response, events)
    explanation = row.get("explanation")
    verified = Verification(
        reward=reward,
        components=components,
        details=details,
        explanation=explanation if isinstance(explanation, str) else "",
        stop_reason=stop_reason,
    )
    events.append(verified)
    return StoredAttempt(events, verified.counted_reward, components, stop_reason=stop_reason, model=model)


def judged_stop_reason(events: list[TraceUnion]) -> str:
    """Return how an attempt ended, derived from its trace alone."""
    events = main_line(events)
    calls = [event for event in events if isinstance(event, ModelCall)]
    if calls and calls[-1].finish_reason in {*CUTS, "context_length"}:
        return calls[-1].finish_reason
    if not calls or function_calls(calls[-1].items):
        return "max_steps"
    if any(isinstance(event, EnvironmentTurn) for event in events):
        return "environment_done"
    return "answered" if any(text_of(item).strip() for item in calls[-1].items) else "empty_reply"


def _said(item: Item) -> str:
    if item_type(item) == "message":
        role = "system" if item.get("role") == "developer" else item.get("role")
        return f"{role}: {text_of(item)}"
    bare = {key: value for key, value in item.items() if value is not None and key not in ("id", "status")}
    return orjson.dumps(bare, option=orjson.OPT_SORT_KEYS).decode()


def _reward(row: dict[str, Any]) -> float | None:
    if row.get("verification_skipped") is True:
        return None
    value = row.get("reward")
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= MAX_REWARD:
        shown = "is missing" if "reward" not in row else f"must be {REWARD_BOUNDS}, not {cut(str(value), 60)}"
        raise RowRefused("reward", f"/reward {shown}")
    return float(value)


def _response(row: dict[str, Any], *, needed: bool) -> dict[str, Any]:
    response = row.get("response")
    if response is None and not needed:
        return {"output": []}
    if not isinstance(response, dict):
        raise RowRefused("missing", "/response is missing: the Responses object of the attempt")
    output = expect(response.get("output"), list, "a list of items", "/response/output")
    for number, item in enumerate(output):
        if not isinstance(item, dict) or item_type(item) == "unknown":
            raise RowRefused("wrong_type", f"/response/output/{number} must be an item with a type")
    return response


def _components(row: dict[str, Any]) -> dict[str, float]:
    given = row.get("reward_components")
    if given is None:
        return {}
    expect(given, dict, "an object of numbers", "/reward_components")
    for name, value in given.items():
        if not isinstance(value, int | float) or not abs(value) <= MAX_REWARD:
            raise RowRefused("reward", f"/reward_components/{cut(name, 60)} must be {REWARD_BOUNDS}")
    return {name: float(value) for name, value in given.items()}


def _stop_reason(row: dict[str, Any], response: dict[str, Any], events: list[TraceUnion]) -> str:
    ours = row.get(OURS)
    told = ours.get("stop_reason") if isinstance(ours, dict) else None
    if told in STOP_REASONS:
        return str(told)
    return CUTS.get(why_cut(response), "") or judged_stop_reason(events)


def _failed(row: dict[str, Any], events: list[TraceUnion], failure: str, model: str) -> StoredAttempt:
    kind = read_nemo_gym_failure(failure, str(row.get("_ng_failure_stage") or row.get("stage") or ""))
    told = row.get("_ng_failure_judge_error") or row.get("failure_reason") or row.get("_ng_failure_message") or failure
    text = f"{failure}: {told}" if told != failure else failure
    events.append(ErrorRaised(kind=kind, message=text))
    return StoredAttempt(events, None, error_kind=kind, error_message=text, model=model)
