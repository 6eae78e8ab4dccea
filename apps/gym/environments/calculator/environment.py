"""Calculator: one tool that evaluates arithmetic; the final answer must be the expected number."""

from typing import Any, ClassVar

from apps.gym.arithmetic import CalculationError, evaluate
from apps.gym.environments.protocol import BuiltinEnvironment, ToolRefused, read_single_text
from apps.gym.rewards import Reward
from apps.gym.traces.items import Tool
from apps.gym.verifiers.math.numeric import Numeric

CALCULATOR_TOOL: Tool = {
    "type": "function",
    "name": "calculator",
    "description": "Evaluate an arithmetic expression with + - * / // % ** and parentheses.",
    "parameters": {
        "type": "object",
        "properties": {"expression": {"type": "string", "description": "For example (3 + 4) * 12"}},
        "required": ["expression"],
        "additionalProperties": False,
    },
    "strict": True,
}

_NUMERIC = Numeric()


class Calculator(BuiltinEnvironment):
    """One tool, whose output is `{"result": number}`."""

    name: ClassVar[str] = "calculator"
    description: ClassVar[str] = (
        "One tool: calculator(expression). Reward 1.0 if the boxed answer (without a box, the last number of the "
        "last line) equals the row's expected_answer."
    )
    tools: ClassVar[list[Tool]] = [CALCULATOR_TOOL]
    needs: ClassVar[frozenset[str]] = frozenset({"expected_answer"})

    def calculator(self, arguments: dict[str, Any]) -> str:
        wanted = 'the calculator takes one argument, {"expression": "text"}'
        expression = read_single_text(arguments, "expression", wanted)
        try:
            result = evaluate(expression)
        except CalculationError as error:
            raise ToolRefused("calculation_error", str(error)) from None
        # Python's repr of a number is valid JSON, also for integers of more than 64 bits.
        return f'{{"result": {result!r}}}'

    def verify(self, response: dict[str, Any]) -> Reward:
        return _NUMERIC.verify(self.row, response)
