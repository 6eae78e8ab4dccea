"""Efficiency: how much of a budget of steps, tool calls and tokens an attempt left unused."""

from collections.abc import Iterator
from itertools import groupby
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from apps.gym.rewards import Reward
from apps.gym.traces.items import TaskRow, function_calls, item_type
from apps.gym.verifiers.protocol import Problem, Verifier, permanent_error

_Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class Efficiency(Verifier, frozen=True, kw_only=True, tag="efficiency"):
    """1.0 within every budget, less beyond it: the mean over the budgets of max(0, 1 − excess ÷ (tolerance × budget)).

    The excess is the use beyond the budget. With a tolerance of 1.0, twice the budget gives 0.0; with 0.0, any excess
    does. Steps are turns (model replies). Tokens are input and output of all calls. If the model reports no token
    counts, a token budget gives no reward: `verifier_error`.

    It does not check the answer: combine it in a hybrid with a `required` verifier of the answer.

    Range: 0.0 to 1.0. Components, for the given budgets: `steps`, `tool_calls`, `tokens`, `output_tokens`.
    """

    title: ClassVar[str] = "Efficiency budget"
    steps: Annotated[_Count, Meta(title="Steps")] | None = None
    tool_calls: Annotated[_Count, Meta(title="Tool calls")] | None = None
    tokens: Annotated[_Count, Meta(title="Input and output tokens")] | None = None
    output_tokens: Annotated[_Count, Meta(title="Output tokens")] | None = None
    tolerance: Annotated[
        float,
        Meta(
            ge=0,
            le=100,
            title="Tolerance",
            description="Excess at which the reward is 0.0, as a share of the budget. 1.0 is twice the budget.",
        ),
    ] = 1.0

    @property
    def budgets(self) -> dict[str, int]:
        given = {name: getattr(self, name) for name in ("steps", "tool_calls", "tokens", "output_tokens")}
        return {name: budget for name, budget in given.items() if budget is not None}

    def find_problems(self) -> Iterator[Problem]:
        if not self.budgets:
            yield "", "has no budget. Give steps, tool_calls, tokens or output_tokens"

    def verify(self, row: TaskRow, response: dict[str, Any]) -> Reward:
        used = _use(response)
        for name in self.budgets:
            if used[name] is None:
                raise permanent_error(f"the model reports no {name.replace('_', ' ')}. Remove their budget")
        parts = {name: self._score(used[name] or 0, budget) for name, budget in self.budgets.items()}
        told = ", ".join(f"{used[name]:,} of {most:,} {name.replace('_', ' ')}" for name, most in self.budgets.items())
        return Reward(
            value=sum(parts.values()) / len(parts), components=parts, explanation=told, details={"used": used}
        )

    def _score(self, used: int, budget: int) -> float:
        over = max(0, used - budget)
        slack = budget * self.tolerance
        return 1.0 if not over else max(0.0, 1.0 - over / slack) if slack else 0.0


def _use(response: dict[str, Any]) -> dict[str, int | None]:
    """Return the usage, with None for unknown counts.

    A count of 0 is unknown, because no model reads or writes zero tokens.
    """
    output = [item for item in response.get("output") or [] if isinstance(item, dict)]
    steps = _count_steps(output)
    usage = response.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    read, written = _count(usage.get("input_tokens")), _count(usage.get("output_tokens"))
    if written == 0 and steps:
        written = None
    return {
        "steps": steps,
        "tool_calls": len(function_calls(output)),
        "tokens": read + written if read and written is not None else None,
        "output_tokens": written,
    }


def _count(given: object) -> int | None:
    return given if isinstance(given, int) and not isinstance(given, bool) and given >= 0 else None


def _count_steps(output: list[dict[str, Any]]) -> int:
    """Count the uninterrupted runs of model output between its inputs: tool outputs and observations."""
    inputs = (
        item_type(item) == "function_call_output" or item.get("role") in ("user", "system", "developer")
        for item in output
    )
    return sum(not is_input for is_input, _ in groupby(inputs))
