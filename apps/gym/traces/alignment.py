"""Align the steps of several attempts at one task: common steps, the first difference, and matching positions.

Other attempts are aligned with the first one, independently; additional steps are placed in between.
"""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from apps.gym.traces.events import EnvironmentTurn, ErrorRaised, ModelCall, Prompt, ToolResult, TraceUnion, Verification
from apps.gym.traces.items import Item, item_type, read_json, text_of
from apps.gym.traces.word_differences import common_ends

SAME, ALIKE = 3_000_001, 1_000_000
"""SAME is the score of two equal steps, ALIKE of two different steps of one kind.

SAME is three times ALIKE plus one, so that ties prefer more equal steps. Other steps are not aligned.
"""


class Step(NamedTuple):
    """One message, call, result or verdict. `seq` is the number of its event, `error` its error."""

    kind: str
    name: str
    text: str
    seq: int = 0
    error: str = ""

    def is_like(self, other: "Step") -> bool:
        return (self.kind, self.name) == (other.kind, other.name)

    def is_same(self, other: "Step") -> bool:
        return self.is_like(other) and self.text == other.text and self.error == other.error


Row = tuple[Step | None, ...]
"""One aligned step: each attempt's step or None, in the order of the attempts."""


_KINDS: dict[type, str] = {Prompt: "prompt", ModelCall: "reply", EnvironmentTurn: "environment"}
"""The kind of the steps of these events, unless an item has a kind of its own."""


def steps_of(events: Sequence[tuple[int, TraceUnion]]) -> list[Step]:
    """Return the steps of (seq, event) pairs. Sessions and judge calls are not steps."""
    steps: list[Step] = []
    for seq, event in events:
        match event:
            case Prompt() | ModelCall() | EnvironmentTurn():
                steps += [_item_step(item, seq, _KINDS[type(event)]) for item in event.items]
            case ToolResult():
                steps.append(Step("result", event.name, _normal_json(event.output), seq, event.error))
            case Verification():
                steps.append(Step("verdict", "", _verdict(event), seq))
            case ErrorRaised():
                steps.append(Step("error", event.kind, event.message, seq, event.kind))
    return steps


def align(attempts: Sequence[Sequence[Step]]) -> list[Row]:
    """Return the rows in order; each column is one attempt. Takes quadratic time where attempts differ."""
    if not attempts:
        return []
    first, others = attempts[0], attempts[1:]
    # `between[n]` has the steps of the other attempts before step `n` of the first, `beside[n]` those aligned with it.
    between: list[list[list[Step]]] = [[[] for _ in others] for _ in range(len(first) + 1)]
    beside: list[list[Step | None]] = [[None] * len(others) for _ in first]
    for column, other in enumerate(others):
        place = 0
        for mine, theirs in _align_two(first, other):
            if mine is None and theirs is not None:
                between[place][column].append(theirs)
            elif mine is not None:
                beside[place][column] = theirs
                place += 1
    rows: list[Row] = []
    for place in range(len(first) + 1):
        rows += _extra_rows(between[place])
        if place < len(first):
            rows.append((first[place], *beside[place]))
    return rows


def is_common(row: Row) -> bool:
    """Return True if all attempts have the same step here."""
    first = row[0]
    return first is not None and all(step is not None and step.is_same(first) for step in row)


def count_common(rows: Sequence[Row]) -> int:
    """Return the number of common rows before the attempts diverge."""
    return next((index for index, row in enumerate(rows) if not is_common(row)), len(rows))


def _extra_rows(columns: list[list[Step]]) -> list[Row]:
    """Return rows for steps that only other attempts have at one position. Steps of one kind share a row."""
    rows: list[Row] = []
    left = [list(column) for column in columns]
    while any(left):
        lead = next(column[0] for column in left if column)
        taken = [column.pop(0) if column and column[0].is_like(lead) else None for column in left]
        rows.append((None, *taken))
    return rows


def _align_two(mine: Sequence[Step], theirs: Sequence[Step]) -> list[tuple[Step | None, Step | None]]:
    start, end = common_ends(mine, theirs, Step.is_same)
    middle = _align_middle(mine[start : len(mine) - end], theirs[start : len(theirs) - end])
    tail = zip(mine[len(mine) - end :], theirs[len(theirs) - end :], strict=True)
    return [*zip(mine[:start], theirs[:start], strict=True), *middle, *tail]


def _align_middle(mine: Sequence[Step], theirs: Sequence[Step]) -> list[tuple[Step | None, Step | None]]:
    """Return the alignment with the highest score (Needleman and Wunsch 1970, without gap penalty)."""
    # Kinds and equality as numbers, because there are far more comparisons than steps.
    kinds: dict[object, int] = {}
    whole: dict[object, int] = {}
    mine_keys, their_keys = ([_key(step, kinds, whole) for step in each] for each in (mine, theirs))
    worth = [[0] * (len(theirs) + 1) for _ in range(len(mine) + 1)]
    for i in range(len(mine) - 1, -1, -1):
        row, below = worth[i], worth[i + 1]
        kind, same = mine_keys[i]
        right = 0
        for j in range(len(theirs) - 1, -1, -1):
            under = below[j]
            best = under if under > right else right
            other_kind, other_same = their_keys[j]
            if kind == other_kind:
                paired = below[j + 1] + (SAME if same == other_same else ALIKE)
                best = paired if paired > best else best
            row[j] = right = best
    aligned: list[tuple[Step | None, Step | None]] = []
    i = j = 0
    while i < len(mine) or j < len(theirs):
        pair = 0
        if i < len(mine) and j < len(theirs) and mine_keys[i][0] == their_keys[j][0]:
            pair = SAME if mine_keys[i] == their_keys[j] else ALIKE
        if pair and worth[i][j] == pair + worth[i + 1][j + 1]:
            aligned.append((mine[i], theirs[j]))
            i, j = i + 1, j + 1
        elif j == len(theirs) or (i < len(mine) and worth[i][j] == worth[i + 1][j]):
            aligned.append((mine[i], None))
            i += 1
        else:
            aligned.append((None, theirs[j]))
            j += 1
    return aligned


def _key(step: Step, kinds: dict[object, int], whole: dict[object, int]) -> tuple[int, int]:
    """Assign equal first numbers to similar steps, and equal second numbers to equal steps."""
    kind = kinds.setdefault((step.kind, step.name), len(kinds))
    return kind, whole.setdefault((kind, step.text, step.error), len(whole))


def _item_step(item: Item, seq: int, where: str) -> Step:
    kind = item_type(item)
    if kind == "message":
        role = str(item.get("role", ""))
        return Step(where, role, text_of(item) or _json(item.get("content")), seq)
    if kind == "reasoning":
        return Step("reasoning", "", text_of(item) or "unknown", seq)
    if kind == "function_call":
        arguments = item.get("arguments", "")
        return Step("call", str(item.get("name", "")), _normal_json(arguments), seq)
    if kind == "function_call_output":
        return Step("result", "", _normal_json(item.get("output", "")), seq)
    return Step(where, kind, _json(item), seq)


def _verdict(event: Verification) -> str:
    lines = [f"reward {event.reward}", *(f"{name} {value}" for name, value in sorted(event.components.items()))]
    return "\n".join([*lines, event.explanation] if event.explanation else lines)


def _normal_json(given: Any) -> str:
    """Return JSON with sorted keys, so that equal values compare equal. Text that is no JSON is returned unchanged."""
    if isinstance(given, str):
        text = str(given)
        given = read_json(text, default=text)
        if not isinstance(given, dict | list):
            return str(given) if isinstance(given, str) else _json(given)
        try:
            return _fields(given) if isinstance(given, dict) else _written(given)
        except TypeError:
            return text  # nested deeper than orjson can write
    return _json(given)


def _fields(given: dict[str, Any]) -> str:
    """Return an object with text values as one line per key, with decoded texts. Return other objects as JSON."""
    if not any(isinstance(value, str) for value in given.values()):
        return _written(given)
    return "\n".join(f"{key}:{_field(value)}" for key, value in sorted(given.items()))


def _field(value: Any) -> str:
    if isinstance(value, str) and "\n" in value:
        return f"\n{value}"
    # Texts that look like other JSON stay encoded, so that 1 and "1" differ.
    is_plain = isinstance(value, str) and value not in ("", "null") and read_json(value, default=None) is None
    return f" {value}" if is_plain else f" {_written(value)}"


def _json(value: Any) -> str:
    try:
        return _written(value)
    except TypeError:
        try:
            return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
        except RecursionError:
            return "(nested too deeply to be compared)"


def _written(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS, default=str).decode()
