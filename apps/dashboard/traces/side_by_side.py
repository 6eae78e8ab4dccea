"""Compare rollouts of one task side by side: common steps, differences and outcomes."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from apps.dashboard.tables.rollouts.row_texts import add_texts
from apps.gym.redaction.shortening import shorten
from apps.gym.traces.alignment import Row, Step, align, count_common, is_common
from apps.gym.traces.word_differences import Part, compare_words
from apps.rollouts.models import Rollout
from apps.rollouts.rollout_steps import read_first_steps

SHOWN = 4_000
"""Maximum characters shown of a step. Longer texts link to the full step."""
LEAD = 200
"""Characters shown before the first difference of long texts."""
SHOWN_ANSWER = 600
"""Maximum characters shown of a final answer among the outcomes."""
COMPARED = 200_000
"""Maximum characters per page that are compared by word. Text beyond that is shown without comparison."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Step number `place` of one rollout.

    `parts` are its words; words that differ from the first rollout are marked `new` or `removed`. The first `before`
    characters, equal in all rollouts, and the `hidden` characters after the parts are not shown.
    """

    step: Step
    place: int
    parts: list[Part]
    before: int
    hidden: int

    @property
    def characters(self) -> int:
        return len(self.step.text)


@dataclass(frozen=True, slots=True)
class Line:
    """A row of the table: a step number and one cell per rollout, or a single cell if all are equal."""

    number: int
    kind: str
    name: str
    cells: list[Cell | None]
    is_common: bool

    @property
    def seq(self) -> int:
        """The step's number in the trace of the first rollout that has it."""
        return next(cell.step.seq for cell in self.cells if cell)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A property of each rollout as text; numbers also have the difference from the first rollout.

    `best` and `worst` are indexes into `values`, empty if all values are equal, if no value is better, or with
    only two values, where the difference is shown instead.
    """

    name: str
    values: list[float | str | None]
    form: str = "text"
    best: frozenset[int] = frozenset()
    worst: frozenset[int] = frozenset()

    @property
    def cells(self) -> list[tuple[float | str | None, float | None, str]]:
        """Return (value, difference from the first, "best" or "worst") for each rollout."""
        first = self.values[0]
        cells = []
        for place, value in enumerate(self.values):
            is_number = isinstance(value, float | int) and isinstance(first, float | int) and place > 0
            difference = float(value) - float(first) if is_number else None  # type: ignore[arg-type]
            rank = "best" if place in self.best else "worst" if place in self.worst else ""
            cells.append((value, difference or None, rank))
        return cells


@dataclass(frozen=True, slots=True)
class Comparison:
    """`common` are the lines before the first difference, `lines` the rest.

    `outcomes` are what the rollouts achieved, `facts` what they took. `left_out` counts the events of each rollout that
    were not compared.
    """

    rollouts: list[Rollout]
    outcomes: list[Outcome]
    facts: list[Outcome]
    common: list[Line]
    lines: list[Line]
    left_out: list[tuple[Rollout, int]]

    @property
    def divergence(self) -> Line | None:
        return self.lines[0] if self.lines else None


def compare_rollouts(rollouts: list[Rollout]) -> Comparison:
    read = [read_first_steps(rollout) for rollout in rollouts]
    common, lines = compare_steps([steps for steps, _ in read])
    return Comparison(
        rollouts=rollouts,
        outcomes=_outcomes(rollouts, [_find_answer(steps) for steps, _ in read]),
        facts=_facts(rollouts),
        common=common,
        lines=lines,
        left_out=[(rollout, left) for rollout, (_, left) in zip(rollouts, read, strict=True) if left],
    )


def compare_steps(columns: Sequence[Sequence[Step]]) -> tuple[list[Line], list[Line]]:
    """Return the lines before the first difference, and the lines from there on."""
    rows = align(columns)
    shared = count_common(rows)
    budget, lines = _Budget(), list[Line]()
    places = [0] * len(columns)
    for number, row in enumerate(rows, start=1):
        lines.append(_line(number, row, places, budget))
        places = [place + (step is not None) for place, step in zip(places, row, strict=True)]
    return lines[:shared], lines[shared:]


def find_start(texts: Sequence[str]) -> int:
    """Return the character at which the visible text starts.

    This is 0, or shortly before the first difference if the texts would otherwise look equal.
    """
    one, other = min(texts, default=""), max(texts, default="")
    if one == other:
        return 0
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return max(0, low - LEAD) if low + LEAD > SHOWN else 0


class _Budget:
    """The number of characters that may still be compared by word."""

    def __init__(self) -> None:
        self.left = COMPARED

    def compare(self, old: str, new: str) -> list[Part] | None:
        self.left -= len(old) + len(new)
        return compare_words(old, new) if self.left >= 0 else None


_ESCAPE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-_]")


def _without_escapes(row: Row) -> Row:
    """Return the texts without ANSI escapes, unless they differ only in these."""
    plain: Row = tuple(step and step._replace(text=_ESCAPE.sub("", step.text)) for step in row)
    return plain if is_common(plain) == is_common(row) else row


def _line(number: int, row: Row, places: Sequence[int], budget: _Budget) -> Line:
    row = _without_escapes(row)
    lead = next(step for step in row if step is not None)
    if is_common(row):
        return Line(number, lead.kind, lead.name, [_cell(lead, places[0], 0, None)], is_common=True)
    start = find_start([step.text for step in row if step is not None])
    texts = [None if step is None else step.text[start : start + SHOWN] for step in row]
    compared = [
        budget.compare(texts[0], text) if place and text is not None and texts[0] is not None else None
        for place, text in enumerate(texts)
    ]
    # With two rollouts, both sides mark their extra words. With more, all are compared to the first.
    if len(row) == 2 and compared[1] is not None:
        compared[0] = compared[1]
    cells = [
        None
        if step is None
        else _cell(step, places[column], start, compared[column], "new" if column == 0 else "removed")
        for column, step in enumerate(row)
    ]
    return Line(number, lead.kind, lead.name, cells, is_common=False)


def _cell(step: Step, place: int, start: int, parts: list[Part] | None, without: str = "") -> Cell:
    end = start + SHOWN
    shown = [part for part in parts if part.kind != without] if parts else [Part("same", step.text[start:end])]
    return Cell(step=step, place=place, parts=shown, before=start, hidden=max(0, len(step.text) - end))


def _find_answer(steps: Sequence[Step]) -> str:
    """Return the text of the last reply, which is the final answer."""
    return next((shorten(step.text, SHOWN_ANSWER) for step in reversed(steps) if step.kind == "reply"), "")


def _outcomes(rollouts: list[Rollout], answers: list[str]) -> list[Outcome]:
    add_texts(rollouts, {"why", "expected"})
    names = sorted({name for rollout in rollouts for name in rollout.components})
    numbers: list[Outcome] = [
        _ranked("Reward", [rollout.reward for rollout in rollouts], "reward"),
        *(_ranked(name, [rollout.components.get(name) for rollout in rollouts], "number") for name in names),
    ]
    texts = [
        Outcome("Final answer", [answer or None for answer in answers], "said"),
        Outcome("Expected answer", [getattr(rollout, "expected", None) or None for rollout in rollouts], "said"),
        Outcome("Explanation", [getattr(rollout, "why", None) or None for rollout in rollouts], "said"),
        Outcome("Stop reason", [rollout.stop_reason or rollout.error_kind or rollout.status for rollout in rollouts]),
    ]
    return [*numbers, *_given(texts)]


def _facts(rollouts: list[Rollout]) -> list[Outcome]:
    used = [sorted(rollout.tools) for rollout in rollouts]
    facts = [
        Outcome("Extracted answer", [getattr(rollout, "answered", None) or None for rollout in rollouts]),
        Outcome("Turns", [rollout.turns for rollout in rollouts], "count"),
        Outcome("Tool calls", [rollout.tool_calls for rollout in rollouts], "count"),
        Outcome("Tool errors", [rollout.tool_errors for rollout in rollouts], "count"),
        Outcome("Tools", [", ".join(tools) or None for tools in used]),
        Outcome("Input tokens", [rollout.input_tokens for rollout in rollouts], "count"),
        Outcome("Output tokens", [rollout.output_tokens for rollout in rollouts], "count"),
        Outcome("Duration", [rollout.duration for rollout in rollouts], "duration"),
        Outcome("Cost", [rollout.known_cost for rollout in rollouts], "usd"),
        Outcome("Model", [rollout.collection.policy_model.name for rollout in rollouts]),
        Outcome("Version", [rollout.model_version or None for rollout in rollouts]),
    ]
    return _given(facts)


def _given(outcomes: list[Outcome]) -> list[Outcome]:
    """Return the outcomes that at least one rollout has."""
    return [each for each in outcomes if any(value not in (None, 0, 0.0) for value in each.values)]


def _ranked(name: str, values: list[float | None], form: str) -> Outcome:
    known = [value for value in values if value is not None]
    best, worst = max(known, default=0.0), min(known, default=0.0)
    if best == worst or len(values) < 3:
        return Outcome(name, list(values), form)
    places = list(enumerate(values))
    return Outcome(
        name,
        list(values),
        form,
        best=frozenset(place for place, value in places if value == best),
        worst=frozenset(place for place, value in places if value == worst),
    )
