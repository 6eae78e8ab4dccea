"""Verifiers of tool calls: by name, arguments and order, by one argument, and by form."""

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from apps.gym.redaction.shortening import cut
from apps.gym.rewards import Reward
from apps.gym.traces.items import TaskRow, item_type
from apps.gym.verifiers.answer_extraction import excerpt
from apps.gym.verifiers.protocol import Verifier, permanent_error
from apps.gym.verifiers.tools.expected_calls import Call, calls_expected, calls_made, count_pairs, same

_MAX_COMPARED = 40_000
"""Maximum pairs of calls to compare all: the time grows with pairs times calls."""


class ToolCalls(Verifier, frozen=True, kw_only=True, tag="tool_calls"):
    """1.0 if all expected calls were made, and no others unless extra calls are allowed, otherwise 0.0.
    With `score: fraction`, the reward is the share of expected calls made.

    Each call matches at most one expected call. `score`: with `all`, 1.0 if all expected calls were made, otherwise
    0.0; with `fraction`, matched ÷ expected. If extra calls are not allowed, an extra call gives 0.0 with `all`, and
    `fraction` is matched ÷ the larger of expected and made. `order`: with `any`, calls are paired so that the most
    match; with `exact`, calls are in the expected sequence; with `in_order`, others may be in between. `arguments`:
    `subset` compares the expected arguments and ignores others, `exact` allows no others, `names` compares only the
    tool. Whole numbers are compared exactly, other numbers to a relative 1e-12. Without expected calls, the reward is
    1.0 if no call was made or extra calls are allowed, otherwise 0.0.

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
        bool, Meta(title="Lenient comparison", description="Ignore case; the number 3 equals the text 3, but not 03")
    ] = False
    allow_more: Annotated[bool, Meta(title="Allow extra calls")] = False
    score: Annotated[Literal["all", "fraction"], Meta(title="Score")] = "all"

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
                return self._most(expected, made, arguments)

    def _most(self, expected: list[Call], made: list[Call], arguments: str) -> int:
        """Return the most pairs of an expected and a made call that match, with each call in at most one pair."""
        if len(expected) * len(made) <= _MAX_COMPARED:
            return count_pairs(
                len(expected), len(made), lambda index, at: self._equal(expected[index], made[at], arguments)
            )
        # Far more calls than in any data set. Those with the most arguments choose first.
        free = list(made)
        for wanted in sorted(expected, key=lambda call: -len(call.arguments or ())):
            at = next((at for at, call in enumerate(free) if self._equal(wanted, call, arguments)), None)
            if at is not None:
                del free[at]
        return len(made) - len(free)

    def _longest(self, expected: list[Call], made: list[Call], arguments: str) -> int:
        """Return the length of the longest common subsequence."""
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


_NOT_GIVEN = object()
"""Not null: a call that leaves an argument out does not pass null."""


class CallArgument(Verifier, frozen=True, kw_only=True, tag="call_argument"):
    """1.0 if the named argument of the last (or first, or any) call of the tool has the expected value, otherwise
    0.0.

    Values are compared as JSON: lists in order, whole numbers exactly, other numbers to a relative 1e-12. A missing
    value does not match, except that an expected empty list matches if the tool was never called.

    Range: 0.0 or 1.0. Components: `call_argument`, and for lists `overlap` (the share of expected values that were
    given, in any order).
    """

    title: ClassVar[str] = "Tool call argument"
    tool: Annotated[str, Meta(title="Tool", min_length=1, max_length=256)]
    argument: Annotated[str, Meta(title="Argument", min_length=1, max_length=256)]
    expected_field: Annotated[str, Meta(title="Field of the expected value", min_length=1)] = "expected_answer"
    which: Annotated[Literal["last", "first", "any"], Meta(title="Which call")] = "last"

    def verify(self, row: TaskRow, response: dict[str, Any]) -> Reward:
        if self.expected_field not in row:
            raise permanent_error(f"the task row has no `{self.expected_field}`, which this verifier needs")
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


class ToolCallForm(Verifier, frozen=True, kw_only=True, tag="tool_call_form"):
    """Σ weight × component of `correctness`, `schema_valid` and `format`, each 1.0 or 0.0.

    `correctness`: a call has the expected name and all expected arguments. `schema_valid`: the arguments of the first
    call are an object with all properties that the schema of its tool requires. If the task declares tools, the
    called tool must be one of them. `format`: exactly one call and no message.

    Range: 0.0 to 3.0 with weights of 1. Components: `correctness`, `schema_valid`, `format`.
    """

    title: ClassVar[str] = "Tool call correctness and format"
    expected_field: Annotated[
        str, Meta(title="Field of the expected call", min_length=1, description='{"name": …, "arguments": {…}}')
    ] = "expected_call"
    correctness: Annotated[float, Meta(ge=-1e6, le=1e6, title="Weight of correctness")] = 1.0
    schema_valid: Annotated[float, Meta(ge=-1e6, le=1e6, title="Weight of valid arguments")] = 1.0
    format: Annotated[float, Meta(ge=-1e6, le=1e6, title="Weight of the format")] = 1.0

    def verify(self, row: TaskRow, response: dict[str, Any]) -> Reward:
        expected = calls_expected(row, self.expected_field)
        if len(expected) != 1:
            raise permanent_error(f"the task row's `{self.expected_field}` must be one call, not {len(expected)}")
        made = calls_made(response)
        wanted = expected[0]
        speaks = any(item_type(item) == "message" for item in response.get("output") or [])
        found = {
            "correctness": float(any(_holds(wanted, call) for call in made)),
            "schema_valid": float(bool(made) and _has_required(row, made[0])),
            "format": float(len(made) == 1 and not speaks),
        }
        told = ", ".join(f"{name} {value:g}" for name, value in found.items())
        return Reward(
            value=sum(getattr(self, name) * value for name, value in found.items()),
            components=found,
            explanation=f"{told}; expected {wanted.shown()}",
            details={"predicted_calls": [{"name": call.name, "arguments": call.arguments} for call in made]},
        )


def _holds(wanted: Call, call: Call) -> bool:
    if call.name != wanted.name or call.arguments is None:
        return False
    given = call.arguments
    return all(name in given and same(value, given[name]) for name, value in (wanted.arguments or {}).items())


def _has_required(row: TaskRow, call: Call) -> bool:
    tools = (row.get("responses_create_params") or {}).get("tools") or []
    schemas = {tool.get("name"): tool.get("parameters") or {} for tool in tools}
    if schemas and call.name not in schemas:
        return False
    schema = schemas.get(call.name, {})
    return call.arguments is not None and all(name in call.arguments for name in schema.get("required") or [])
