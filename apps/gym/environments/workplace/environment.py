"""Workplace: twenty tools over four small tables, whose final state must be as the request demands."""

from collections import Counter
from typing import Any, ClassVar, NamedTuple

from apps.gym.environments.protocol import BuiltinEnvironment, ToolRefused
from apps.gym.environments.workplace.office import TABLES, Office, Record
from apps.gym.environments.workplace.office_tools import TOOLS, use_tool
from apps.gym.errors import VerifierError
from apps.gym.rewards import Reward
from apps.gym.traces.items import TaskRow, Tool, answered_calls, assistant_text, dump_json
from apps.gym.verifiers.text.exact_match import normalise

_SETS = frozenset({"to", "attendees"})
Changes = Counter[str]


class Comparison(NamedTuple):
    """Changes from the initial office: how many were wanted, made as wanted, and unwanted."""

    wanted: int
    made: int
    unwanted: int

    @property
    def same(self) -> bool:
        return self.wanted == self.made and not self.unwanted


def compare(before: Office, expected: Office, given: Office) -> Comparison:
    wanted, found = _changes(before, expected), _changes(before, given)
    made = (wanted & found).total()
    return Comparison(wanted.total(), made, found.total() - made)


def _changes(before: Office, after: Office) -> Changes:
    changes: Changes = Counter()
    for table in TABLES:
        old, new = before.tables[table], after.tables[table]
        for id in old.keys() | new.keys():
            one, other = old.get(id), new.get(id)
            if one is other:
                continue
            if one is not None and other is not None and _key(one) != _key(other):
                changes[f"{table} {id} {_key(other)}"] += 1
            elif other is None:
                changes[f"{table} {id} deleted"] += 1
            elif one is None:
                changes[f"{table} new {_key({**other, 'id': ''})}"] += 1
    return changes


def _key(record: Record) -> str:
    """Return a record as comparable text: normalised texts, and people in any order."""
    return dump_json(
        {
            name: sorted(value) if name in _SETS else normalise(value) if isinstance(value, str) else value
            for name, value in sorted(record.items())
        }
    )


class Workplace(BuiltinEnvironment):
    name: ClassVar[str] = "workplace"
    description: ClassVar[str] = (
        "Twenty tools for e-mail, calendar, contacts and tasks. Reward 1.0 if the final data is the same as after "
        "the row's expected_calls."
    )
    tools: ClassVar[list[Tool]] = TOOLS
    needs: ClassVar[frozenset[str]] = frozenset({"databases", "expected_calls"})

    def __init__(self, row: TaskRow) -> None:
        super().__init__(row)
        self._office: Office | None = None

    def call_tool(self, name: str, arguments: dict[str, Any]) -> str:
        if self._office is None:
            self._office = Office(self.row)
        return dump_json(use_tool(self._office, name, arguments))

    def verify(self, response: dict[str, Any]) -> Reward:
        """Replay the calls of the response, so that only the row is needed."""
        output = list(response.get("output") or [])
        office, used = Office(self.row), set()
        for name, arguments in answered_calls(output):
            try:
                use_tool(office, name, arguments)
                used.add(name)
            except ToolRefused:
                continue
        found = compare(Office(self.row), self._expect(), office)
        # If nothing needs to change, the model must have read the data and written an answer.
        looked = not found.wanted and bool(used & set(self.row.get("must_read") or [])) and bool(assistant_text(output))
        value = float(found.same and (found.wanted > 0 or looked))
        part = found.made / found.wanted if found.wanted else float(looked)
        told = f"{found.made} of {found.wanted} wanted changes made, {found.unwanted} unwanted"
        return Reward(
            value=value,
            components={"state": value, "wanted_changes": part, "no_unwanted_changes": float(not found.unwanted)},
            explanation=told,
        )

    def _expect(self) -> Office:
        office, calls = Office(self.row), self.row.get("expected_calls")
        try:
            for call in calls if isinstance(calls, list) else []:
                use_tool(office, call["name"], call["arguments"])
        except (ToolRefused, KeyError, TypeError, AttributeError) as problem:
            raise VerifierError(f"the task row's `expected_calls` cannot be made: {problem}").permanent() from None
        if not isinstance(calls, list) or not (calls or self.row.get("must_read")):
            told = "`expected_calls` must be a list of calls, or empty beside a `must_read`"
            raise VerifierError(f"the task row's {told}").permanent()
        return office
