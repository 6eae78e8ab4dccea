"""Workplace: twenty tools over four small databases, which must in the end be as the request wants them."""

from typing import Any, ClassVar

import orjson

from apps.gym.environments.protocol import ToolRefused
from apps.gym.environments.workplace.office import Office
from apps.gym.environments.workplace.office_differences import compare
from apps.gym.environments.workplace.office_tools import TOOLS, use_tool
from apps.gym.errors import VerifierError
from apps.gym.rewards import Reward
from apps.gym.traces.items import Item, TaskRow, Tool, assistant_text, dump_json, function_calls


class Workplace:
    name: ClassVar[str] = "workplace"
    description: ClassVar[str] = (
        "Twenty tools over e-mail, calendar, contacts and tasks. 1.0 when these are in the end as the row's "
        "expected_calls would leave them, and nothing else has changed."
    )
    tools: ClassVar[list[Tool]] = TOOLS
    needs: ClassVar[frozenset[str]] = frozenset({"databases", "expected_calls"})
    quick: ClassVar[bool] = True
    asks_judge: ClassVar[bool] = False

    def __init__(self, row: TaskRow, *, seed: int) -> None:
        self.row = row
        self.seed = seed
        self._office: Office | None = None

    def call_tool(self, name: str, arguments: dict[str, Any]) -> str:
        if self._office is None:
            self._office = Office(self.row)
        return dump_json(use_tool(self._office, name, arguments))

    def respond(self, items: list[Item]) -> list[Item] | None:
        return None

    def verify(self, response: dict[str, Any]) -> Reward:
        """The calls are made again, as they stand in the response: no state is needed but the row."""
        output = list(response.get("output") or [])
        office, used = Office(self.row), set()
        for name, arguments in answered_calls(output):
            try:
                use_tool(office, name, arguments)
                used.add(name)
            except ToolRefused:
                continue
        found = compare(Office(self.row), self._expect(), office)
        # Nothing to do is only known to who has looked, and said.
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
            raise VerifierError(f"the task row's `expected_calls` cannot be made: {problem}").lasting() from None
        if not isinstance(calls, list) or not (calls or self.row.get("must_read")):
            told = "`expected_calls` must be a list of calls, or empty beside a `must_read`"
            raise VerifierError(f"the task row's {told}").lasting()
        return office


def answered_calls(output: list[Item]) -> list[tuple[str, dict[str, Any]]]:
    """In their order. One without an output was never made."""
    answered = {item.get("call_id") for item in output if item.get("type") == "function_call_output"}
    calls = []
    for call in function_calls(output):
        try:
            arguments = orjson.loads(str(call.get("arguments") or "{}"))
        except orjson.JSONDecodeError:
            continue
        if call.get("call_id") in answered and isinstance(arguments, dict):
            calls.append((str(call.get("name")), arguments))
    return calls
