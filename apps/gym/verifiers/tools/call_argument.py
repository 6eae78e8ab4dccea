"""What a tool was last called with: the answer of tasks that end in a call, such as NeMo Gym's multi-step example."""

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from apps.gym.rewards import Reward
from apps.gym.traces.items import TaskRow
from apps.gym.verifiers.answer_extraction import excerpt
from apps.gym.verifiers.answering import refuse
from apps.gym.verifiers.protocol import Verifier
from apps.gym.verifiers.tools.expected_calls import calls_made, same

_NOT_GIVEN = object()
"""No null: a call that leaves an argument out does not give it one."""


class CallArgument(Verifier, frozen=True, kw_only=True, tag="call_argument"):
    """1.0 when the named argument of the last (or first, or any) call of the tool is the expected value, else 0.0.

    Values are compared as JSON: lists in their order, 1 is 1.0. A value that was never given is no match, except for an
    expected empty list, which a tool that was never called fulfils.

    Range: 0.0 or 1.0. Components: `call_argument`, and for lists `overlap` (the part of the expected values that is
    there, in any order).
    """

    title: ClassVar[str] = "Argument of a tool call"
    tool: Annotated[str, Meta(title="Tool", min_length=1, max_length=256)]
    argument: Annotated[str, Meta(title="Argument", min_length=1, max_length=256)]
    expected_field: Annotated[str, Meta(title="Field of the expected value", min_length=1)] = "expected_answer"
    which: Annotated[Literal["last", "first", "any"], Meta(title="Which call")] = "last"

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({self.expected_field})

    def verify(self, row: TaskRow, response: dict[str, Any]) -> Reward:
        if self.expected_field not in row:
            raise refuse(f"the task row has no `{self.expected_field}`, which this verifier needs")
        expected = row[self.expected_field]
        given = [
            (call.arguments or {}).get(self.argument, _NOT_GIVEN)
            for call in calls_made(response)
            if call.name == self.tool
        ]
        looked_at = {"last": given[-1:], "first": given[:1], "any": given}[self.which] or [[]]
        value = float(any(same(expected, one) for one in looked_at))
        components = {"call_argument": value}
        if isinstance(expected, list):
            components["overlap"] = max(_overlap(expected, one) for one in looked_at)
        if not given:
            shown = f"no call of {self.tool}"
        elif looked_at[-1] is _NOT_GIVEN:
            shown = f"{self.tool} was called without {self.argument}"
        else:
            shown = excerpt(msgspec.json.encode(looked_at[-1]).decode())
        return Reward(
            value=value,
            components=components,
            explanation=f"{shown}; expected {excerpt(msgspec.json.encode(expected).decode())}",
            details={"calls": len(given)},
        )


def _overlap(expected: list[Any], given: object) -> float:
    if not expected:
        return float(not given)
    free = list(given) if isinstance(given, list) else []
    hits = 0
    for value in expected:
        index = next((i for i, one in enumerate(free) if same(value, one)), None)
        if index is not None:
            hits += 1
            del free[index]
    return hits / len(expected)
