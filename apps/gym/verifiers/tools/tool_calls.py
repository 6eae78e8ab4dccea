"""Expected tool calls: those that were made are those of the task, by name, arguments and order."""

from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from apps.gym.redaction.shortening import cut
from apps.gym.rewards import Reward
from apps.gym.traces.items import TaskRow
from apps.gym.verifiers.protocol import Verifier
from apps.gym.verifiers.tools.expected_calls import Call, calls_expected, calls_made, same


class ToolCalls(Verifier, frozen=True, kw_only=True, tag="tool_calls"):
    """How many of the expected calls were made, each made call standing for one of them at most.

    `score` all: 1.0 when all were matched, else 0.0. fraction: matched ÷ expected, and where more calls are not allowed
    matched ÷ the larger of expected and made. `order` any: each expected call takes the first free call that matches.
    exact: the calls follow each other as expected. in_order: they come in that order, others may stand between. Of the
    arguments, subset compares those that are expected and lets others be, exact allows no others, names looks at the
    tool alone. A task that expects no call gives 1.0 when none was made.

    Range: 0.0 to 1.0. Components: `tool_calls`, and `tool_names` (the same, by name alone).
    """

    title: ClassVar[str] = "Expected tool calls"
    expected_field: Annotated[
        str,
        Meta(title="Field of the expected calls", min_length=1, description='A list of {"name": …, "arguments": {…}}'),
    ] = "expected_answers"
    order: Annotated[Literal["any", "in_order", "exact"], Meta(title="Order")] = "any"
    arguments: Annotated[Literal["subset", "exact", "names"], Meta(title="Arguments")] = "subset"
    relaxed: Annotated[
        bool, Meta(title="Relaxed values", description="Texts are alike in either case, and 3 is the text 3")
    ] = False
    allow_more: Annotated[bool, Meta(title="More calls are allowed")] = False
    score: Annotated[Literal["all", "fraction"], Meta(title="Score")] = "all"

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({self.expected_field})

    def verify(self, row: TaskRow, response: dict[str, Any]) -> Reward:
        expected, made = calls_expected(row, self.expected_field), calls_made(response)
        matched = self._match(expected, made, self.arguments)
        value = self._score(matched, expected, made)
        told = f"{matched} of {len(expected)} expected calls, {len(made)} made"
        return Reward(
            value=value,
            components={
                "tool_calls": value,
                "tool_names": self._score(self._match(expected, made, "names"), expected, made),
            },
            explanation=told if value == 1.0 else f"{told}: {_list(made)}; expected {_list(expected)}",
            details={"num_expected": len(expected), "num_predicted": len(made), "num_correct": matched},
        )

    def _score(self, matched: int, expected: list[Call], made: list[Call]) -> float:
        if not expected:
            return float(self.allow_more or not made)
        most = len(expected) if self.allow_more else max(len(expected), len(made))
        return matched / most if self.score == "fraction" else float(matched == most)

    def _match(self, expected: list[Call], made: list[Call], arguments: str) -> int:
        match self.order:
            case "exact":
                pairs = zip(expected, made, strict=False)
                return sum(self._equal(wanted, call, arguments) for wanted, call in pairs)
            case "in_order":
                return self._longest(expected, made, arguments)
            case "any":
                free = list(made)
                for wanted in expected:
                    for index, call in enumerate(free):
                        if self._equal(wanted, call, arguments):
                            del free[index]
                            break
                return len(made) - len(free)

    def _longest(self, expected: list[Call], made: list[Call], arguments: str) -> int:
        """The length of the longest common subsequence."""
        before = [0] * (len(made) + 1)
        for wanted in expected:
            row = [0]
            for index, call in enumerate(made):
                hit = before[index] + 1 if self._equal(wanted, call, arguments) else 0
                row.append(max(hit, before[index + 1], row[index]))
            before = row
        return before[-1]

    def _equal(self, wanted: Call, call: Call, arguments: str) -> bool:
        if wanted.name != call.name:
            return False
        if arguments == "names":
            return True
        if call.arguments is None or wanted.arguments is None:
            return False
        if arguments == "exact" and call.arguments.keys() != wanted.arguments.keys():
            return False
        return all(
            name in call.arguments and same(value, call.arguments[name], relaxed=self.relaxed)
            for name, value in wanted.arguments.items()
        )


def _list(calls: list[Call]) -> str:
    shown = ", ".join(cut(call.shown(), 200) for call in calls[:10])
    return f"{shown}{', …' if len(calls) > 10 else ''}" or "none"
