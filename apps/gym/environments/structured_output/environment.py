"""Structured output: no tools; the reply's JSON must fit the schema and tell what the text tells."""

from typing import Any, ClassVar

from apps.gym.environments.single_turn import SingleTurn
from apps.gym.rewards import Reward
from apps.gym.verifiers.hybrid import Hybrid, Part
from apps.gym.verifiers.protocol import Verifier


class StructuredOutput(SingleTurn):
    """A product: an object that fits the schema and tells something else is worth nothing, and neither is the reverse.
    What fits any schema, such as a false for every truth value, would else be worth a part."""

    name: ClassVar[str] = "structured_output"
    description: ClassVar[str] = (
        "No tools. The JSON of the reply must fit the row's schema_str, closed, and hold the values of its "
        "expected_output."
    )
    verifier: ClassVar[Verifier] = Hybrid(
        combine="product",
        components=[
            Part(name="form", verifier={"type": "json_schema", "closed": True}),
            Part(name="content", verifier={"type": "final_state", "expected_field": "expected_output"}),
        ],
    )
    needs: ClassVar[frozenset[str]] = frozenset({"schema_str", "expected_output"})

    def verify(self, response: dict[str, Any]) -> Reward:
        return self.verifier.verify(self.row, response)
