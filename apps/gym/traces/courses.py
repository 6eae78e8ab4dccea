"""The course of an attempt: what was done and what the environment answered, comparable with that of others.

Call ids are random in every attempt: calls are numbered by first appearance instead. What was thought is no action.
Arguments that mean the same are the same, however they are spaced; 1 and 1.0 are other arguments.
"""

import json
from hashlib import blake2b
from typing import Any, Literal

import msgspec

from apps.gym.traces.events import ModelCall, Prompt, TraceUnion
from apps.gym.traces.fingerprints import completion_fingerprint, prompt_fingerprint
from apps.gym.traces.items import BETWEEN_TEXTS, Item, is_by_model, item_type
from apps.gym.traces.messages import Dropped, flat_text

NoParting = Literal["same_actions", "states_differ"]
"""Why two courses have no first action that differs after the same state."""


class Step(msgspec.Struct, frozen=True):
    """A turn of the model, or one answer of its environment. `written` counts characters of the turn, thoughts too."""

    acts: bool
    digest: bytes
    written: int = 0


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """`completion` tells apart all that was said and thought, `actions` what was done alone."""

    prompt: str
    completion: str
    actions: bytes
    steps: tuple[Step, ...]

    @property
    def written(self) -> int:
        return sum(step.written for step in self.steps)


class Parting(msgspec.Struct, frozen=True):
    """Where two courses part: after `place` steps that are the same, in the turn of number `turn`, from 0."""

    place: int
    turn: int


def course_of(events: list[TraceUnion]) -> Course:
    numbers: dict[str, int] = {}
    steps: list[Step] = []
    for event in events:
        if isinstance(event, Prompt):
            # Calls of few-shot examples and of earlier turns keep their ids, which are the task's own.
            continue
        if isinstance(event, ModelCall):
            if event.items:
                steps.append(_turn(event.items, numbers))
        else:
            steps += [Step(False, _digest(_answer(item, numbers))) for item in event.new_items()]
    return Course(
        prompt=prompt_fingerprint(events),
        completion=completion_fingerprint(events),
        actions=_digest([step.digest.hex() for step in steps if step.acts]),
        steps=tuple(steps),
    )


def find_parting(one: Course, other: Course) -> Parting | NoParting:
    """The first action that differs after the same state. An environment that answered differently to the same actions
    is another state: what follows cannot be compared."""
    turn = 0
    for place, (mine, theirs) in enumerate(zip(one.steps, other.steps, strict=False)):
        if mine.acts == theirs.acts and mine.digest == theirs.digest:
            turn += mine.acts
            continue
        return Parting(place, turn) if mine.acts and theirs.acts else "states_differ"
    return "same_actions"


def meaning_of(arguments: object) -> str:
    """JSON with its keys in order, however it was written; what is none as it stands."""
    if not isinstance(arguments, str):
        return _json(arguments)
    try:
        # Not orjson: it reads integers of more than 64 bits as floats, which are other arguments.
        return _json(json.loads(arguments)) if arguments.strip() else "{}"
    except (ValueError, RecursionError):
        return arguments


def _turn(items: list[Item], numbers: dict[str, int]) -> Step:
    """Its text and its calls, in order; what it thought counts as written alone."""
    texts: list[str] = []
    calls: list[Any] = []
    written = 0
    for item in items:
        kind = item_type(item)
        if kind == "reasoning":
            written += len(_text(item.get("content"), by_model=True) or _text(item.get("summary"), by_model=True))
        elif kind == "function_call":
            arguments = item.get("arguments")
            calls.append([_number(item, numbers), item.get("name"), meaning_of(arguments)])
            written += len(arguments) if isinstance(arguments, str) else 0
        elif kind == "message":
            texts.append(_text(item.get("content"), by_model=is_by_model(item)))
            written += len(texts[-1])
        else:
            texts.append(_json(item))
    return Step(True, _digest([BETWEEN_TEXTS.join(filter(None, texts)), calls]), written)


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
    """As chat messages have it; what is no text is compared as it stands."""
    try:
        return flat_text(content, by_model=by_model)
    except Dropped:
        return _json(content)


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _digest(value: object) -> bytes:
    return blake2b(_json(value).encode("utf-8", "surrogatepass"), digest_size=16).digest()
