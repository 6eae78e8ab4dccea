"""Final state: compare the environment's final state with the task's expected one."""

import json
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

import orjson
from msgspec import Meta

from apps.gym.rewards import Reward
from apps.gym.traces.items import Item, TaskRow, assistant_text, named_calls, pair_results, read_json
from apps.gym.verifiers.answer_extraction import excerpt
from apps.gym.verifiers.protocol import Problem, Verifier, permanent_error
from apps.gym.verifiers.structured.json_finder import find_json
from apps.gym.verifiers.tools.expected_calls import arrange, same

_ABSENT = object()


class FinalState(Verifier, frozen=True, kw_only=True, tag="final_state"):
    """1.0 if the final state has all expected values, otherwise 0.0. With `score: fraction`, the reward is the share
    of values that match.

    The state is the last JSON output of the named tool; without a tool, the JSON of the last message. `score`: with
    `all`, 1.0 if everything matches, otherwise 0.0; with `fraction`, matching values ÷ expected values, counted at the
    leaves of objects. Objects are compared key by key; other keys are allowed unless `exact` is on. An empty expected
    object needs an object. Lists are compared as a whole, in order unless order is ignored, which also holds for lists
    inside lists. Whole numbers are compared exactly, other numbers to a relative 1e-12. A missing state gives 0.0.

    Range: 0.0 to 1.0. Component: `final_state`.
    """

    title: ClassVar[str] = "Final state"
    tool: Annotated[
        str,
        Meta(title="Tool that returns the state", max_length=256, description="Default: the JSON of the last message"),
    ] = ""
    expected_field: Annotated[str, Meta(title="Field of the expected state", min_length=1)] = "expected_state"
    score: Annotated[Literal["all", "fraction"], Meta(title="Score")] = "all"
    exact: Annotated[bool, Meta(title="Allow only the expected keys")] = False
    any_order: Annotated[bool, Meta(title="Lists in any order")] = False

    def find_problems(self) -> Iterator[Problem]:
        if self.exact and self.score == "fraction":
            yield "/exact", "needs `score` to be all"

    def verify(self, row: TaskRow, response: dict[str, Any]) -> Reward:
        if self.expected_field not in row:
            raise permanent_error(f"the task row has no `{self.expected_field}`, which this verifier needs")
        expected, state = row[self.expected_field], self._state(response.get("output") or [])
        if state is _ABSENT:
            return Reward(value=0.0, components={"final_state": 0.0}, explanation="the attempt left no state to check")
        ends = list(self._compare(expected, state, ""))
        wrong = [place for place, right in ends if not right]
        part = (len(ends) - len(wrong)) / len(ends) if ends else 1.0
        value = part if self.score == "fraction" else float(not wrong)
        told = f"{len(ends) - len(wrong)} of {len(ends)} values as expected"
        return Reward(
            value=value,
            components={"final_state": value},
            explanation=f"{told}; not {excerpt(', '.join(wrong))}" if wrong else told,
            details={"state": _keep(state), "wrong": wrong[:50]},
        )

    def _state(self, output: list[Item]) -> Any:
        if not self.tool:
            text = next(filter(None, (assistant_text([item]) for item in reversed(output))), "")
            return find_json(text, _ABSENT) if text else _ABSENT
        calls, results = named_calls(output), [one for one in output if one.get("type") == "function_call_output"]
        paired = pair_results(calls, [(str(one.get("call_id", "")), "") for one in results])
        own = (results[number] for number in sorted(paired, reverse=True) if calls[paired[number]][1] == self.tool)
        states = (read_json(str(one.get("output")), _ABSENT) for one in own)
        return next((state for state in states if state is not _ABSENT), _ABSENT)

    def _compare(self, expected: Any, state: Any, at: str) -> Iterator[tuple[str, bool]]:
        """Yield each leaf of the expected state, with whether it matches."""
        if not isinstance(expected, dict):
            yield at or "/", self._equal(expected, state)
            return
        if not expected:
            yield at or "/", isinstance(state, dict)
        if not isinstance(state, dict):
            state = {}
        for key, value in expected.items():
            yield from self._compare(value, state.get(key, _ABSENT), f"{at}/{key}")
        if self.exact:
            # Databases cannot store a key with half a surrogate pair.
            others = (key.encode(errors="replace").decode() for key in state if key not in expected)
            yield from ((f"{at}/{key}", False) for key in others)

    def _equal(self, expected: Any, state: Any) -> bool:
        if self.any_order and isinstance(expected, list) and isinstance(state, list):
            _, expected = arrange(expected)
            try:
                _, state = arrange(state)
            except RecursionError:
                # Deeper than the expected value, so not equal.
                return False
        return state is not _ABSENT and same(expected, state)


def _keep(state: Any) -> Any:
    """Return the state for the trace, or a note if it is too large or cannot be stored.

    A model may write integers of more than 64 bits, half a surrogate pair, a number beyond all floats (1e999), or too
    many levels.
    """
    try:
        json.dumps(state, allow_nan=False)
        return state if len(orjson.dumps(state)) <= 4_000 else "left out: too large"
    except (TypeError, ValueError, RecursionError):
        return "left out: it cannot be stored"
