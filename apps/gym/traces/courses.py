"""The course of an attempt: actions and observations, comparable across attempts.

Call ids are random, so calls are numbered by first appearance. Reasoning is not an action. Arguments with equal JSON
values are equal, whatever the spacing; 1 and 1.0 differ.
"""

import hashlib
import json
from hashlib import blake2b
from itertools import takewhile
from typing import Any, Literal

import msgspec
import orjson

from apps.gym.traces.events import ModelCall, Prompt, ToolResult, TraceUnion, tool_offers
from apps.gym.traces.items import (
    TEXT_SEPARATOR,
    Item,
    TaskRow,
    function_calls,
    input_items,
    is_by_model,
    item_type,
    message,
    pair_results,
)
from apps.gym.traces.messages import flat_text
from apps.gym.trainability import Dropped

_IGNORED_KEYS = {"id", "task_id", "uuid", "external_id", "_ng_task_index", "split", "tags", "agent_ref"}
_RANDOM_KEYS = {"id", "status", "call_id"}


def prompt_fingerprint(events: list[TraceUnion]) -> str:
    """Return the fingerprint of the prompt's items and the tools of the last call."""
    prompt = [event.items for event in events if isinstance(event, Prompt)]
    return _fingerprint([prompt, tool_offers(events)[-1:]])


def completion_fingerprint(events: list[TraceUnion]) -> str:
    """Return the fingerprint of everything after the prompt. Random ids are replaced by numbers."""
    numbers: dict[str, int] = {}
    items = [item for event in events if not isinstance(event, Prompt) for item in event.new_items()]
    return _fingerprint([_canonical(item, numbers) for item in items])


def question_fingerprint(row: TaskRow) -> str:
    """Return the fingerprint of the prompt of a task. Equal prompts in different formats have equal fingerprints.

    Id, answer, sampling and tools do not count. If the prompt has no text, because a template or the environment asks,
    the row's other fields count, except ids, split, tags and agent.
    """
    instructions = row["responses_create_params"].get("instructions")
    opening = [message("system", instructions)] if isinstance(instructions, str) and instructions else []
    numbers: dict[str, int] = {}
    items = [*opening, *input_items(row)]
    if all(item_type(item) == "message" and not item.get("content") for item in items):
        return _fingerprint({key: value for key, value in row.items() if key not in _IGNORED_KEYS})
    return _fingerprint([_shown(item, numbers) for item in items])


def _shown(item: Item, numbers: dict[str, int]) -> Any:
    """Return a message as role and text in a normal form; other items unchanged, with numbered calls."""
    if item_type(item) != "message":
        return _canonical(item, numbers)
    role = "system" if item.get("role") == "developer" else item.get("role")
    content = item.get("content")
    if not isinstance(content, list):
        return [role, content]
    texts = [text for part in content if isinstance(text := part.get("text") if isinstance(part, dict) else part, str)]
    return [role, "".join(texts) if len(texts) == len(content) else content]


def _canonical(item: Item, numbers: dict[str, int]) -> dict[str, Any]:
    kept = {key: value for key, value in item.items() if key not in _RANDOM_KEYS}
    if "call_id" in item:
        kept["call"] = numbers.setdefault(str(item["call_id"]), len(numbers))
    return kept


def _fingerprint(value: object) -> str:
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()


NoDivergence = Literal["same_actions", "states_differ"]
"""Why two courses have no first action that differs after the same state."""


class Step(msgspec.Struct, frozen=True):
    """A turn of the model, or one answer of its environment.

    `written` counts the characters of the turn, including reasoning.
    """

    acts: bool
    digest: bytes
    written: int = 0


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """The course of an attempt. `completion` identifies text and reasoning, `actions` only actions."""

    prompt: str
    completion: str
    actions: bytes
    steps: tuple[Step, ...]

    @property
    def written(self) -> int:
        return sum(step.written for step in self.steps)


class Divergence(msgspec.Struct, frozen=True):
    """The point where two courses diverge: after `place` equal steps, in turn number `turn`, from 0."""

    place: int
    turn: int


def course_of(events: list[TraceUnion]) -> Course:
    numbers: dict[str, int] = {}
    steps: list[Step] = []
    turns: list[tuple[list[Item], list[tuple[Item, str]]]] = [([], [])]
    for event in events:
        if isinstance(event, Prompt):
            # Calls of few-shot examples and of earlier turns keep their ids, which belong to the task.
            continue
        if isinstance(event, ModelCall):
            if event.items:
                turns.append((event.items, []))
        else:
            tool = event.name if isinstance(event, ToolResult) else ""
            turns[-1][1].extend((item, tool) for item in event.new_items())
    for items, answers in turns:
        steps += [_turn(items, numbers)] if items else []
        steps += [Step(False, _digest(_answer(item, numbers))) for item in _in_call_order(items, answers)]
    return Course(
        prompt=prompt_fingerprint(events),
        completion=completion_fingerprint(events),
        actions=_digest([step.digest.hex() for step in steps if step.acts]),
        steps=tuple(steps),
    )


def _in_call_order(items: list[Item], answers: list[tuple[Item, str]]) -> list[Item]:
    """Return the answers to a turn, each with its tool, with the results in the order of the turn's calls."""
    results = list(takewhile(lambda one: item_type(one[0]) == "function_call_output", answers))
    calls = [(str(one.get("call_id")), str(one.get("name"))) for one in function_calls(items)]
    paired = pair_results(calls, [(str(item.get("call_id")), tool) for item, tool in results])
    order = sorted(range(len(results)), key=lambda one: paired.get(one, len(calls)))
    return [answers[one][0] for one in [*order, *range(len(results), len(answers))]]


def find_divergence(one: Course, other: Course) -> Divergence | NoDivergence:
    """Return the first action that differs after the same state.

    If an environment answered the same actions differently, the states differ, and later steps cannot be compared.
    """
    turn = 0
    for place, (mine, theirs) in enumerate(zip(one.steps, other.steps, strict=False)):
        if mine.acts == theirs.acts and mine.digest == theirs.digest:
            turn += mine.acts
            continue
        return Divergence(place, turn) if mine.acts and theirs.acts else "states_differ"
    return "same_actions"


def canonical_arguments(arguments: object) -> str:
    """Return JSON with sorted keys; other text unchanged."""
    if not isinstance(arguments, str):
        return _json(arguments)
    try:
        # Not orjson, which reads integers of more than 64 bits as floats: those would be different arguments.
        return _json(json.loads(arguments)) if arguments.strip() else "{}"
    except (ValueError, RecursionError):
        return arguments


def _turn(items: list[Item], numbers: dict[str, int]) -> Step:
    """Return the step of a turn: its text and calls in order. Reasoning only counts for the length."""
    texts: list[str] = []
    calls: list[Any] = []
    written = 0
    for item in items:
        kind = item_type(item)
        if kind == "reasoning":
            written += len(_text(item.get("content"), by_model=True) or _text(item.get("summary"), by_model=True))
        elif kind == "function_call":
            arguments = item.get("arguments")
            calls.append([_number(item, numbers), item.get("name"), canonical_arguments(arguments)])
            written += len(arguments) if isinstance(arguments, str) else 0
        elif kind == "message":
            texts.append(_text(item.get("content"), by_model=is_by_model(item)))
            written += len(texts[-1])
        else:
            texts.append(_json(item))
    return Step(True, _digest([TEXT_SEPARATOR.join(filter(None, texts)), calls]), written)


def _answer(item: Item, numbers: dict[str, int]) -> list[Any]:
    kind = item_type(item)
    if kind == "function_call_output":
        return [kind, _number(item, numbers), _text(item.get("output"))]
    if kind == "message":
        role = "system" if item.get("role") == "developer" else item.get("role")
        return [kind, role, _text(item.get("content"))]
    return [_json(item)]


def _number(item: Item, numbers: dict[str, int]) -> int:
    return numbers.setdefault(str(item.get("call_id")), len(numbers))


def _text(content: object, *, by_model: bool = False) -> str:
    """Return the text as in chat messages; content other than text is compared unchanged."""
    try:
        return flat_text(content, by_model=by_model)
    except Dropped:
        return _json(content)


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _digest(value: object) -> bytes:
    return blake2b(_json(value).encode("utf-8", "surrogatepass"), digest_size=16).digest()
