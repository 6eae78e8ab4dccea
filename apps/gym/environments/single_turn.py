"""Environments without tools, in which a verifier scores a single reply."""

from typing import Any, ClassVar

from apps.gym.environments.protocol import BuiltinEnvironment
from apps.gym.rewards import Reward
from apps.gym.verifiers.hybrid import Hybrid, Part
from apps.gym.verifiers.llm_judge import LLMJudge
from apps.gym.verifiers.protocol import Verifier
from apps.gym.verifiers.text import exact_match
from apps.gym.verifiers.text.multiple_choice import MultipleChoice


class ExactMatch(BuiltinEnvironment):
    name: ClassVar[str] = "exact_match"
    description: ClassVar[str] = (
        "No tools. The boxed answer, otherwise the last line, must equal the row's expected_answer after normalisation."
    )
    needs: ClassVar[frozenset[str]] = frozenset({"expected_answer"})

    def verify(self, response: dict[str, Any]) -> Reward:
        return exact_match.ExactMatch().verify(self.row, response)


class Mcqa(BuiltinEnvironment):
    name: ClassVar[str] = "mcqa"
    description: ClassVar[str] = (
        "No tools. The letter in the last box must be the row's expected_answer, one of its options. Generated "
        "tasks have sixteen options, so guessing gives 1/16 on average."
    )
    verifier: ClassVar[Verifier] = MultipleChoice()
    needs: ClassVar[frozenset[str]] = verifier.needs


class StructuredOutput(BuiltinEnvironment):
    """Multiply form and content: valid JSON with wrong values gets 0, and so do correct values that violate the schema.

    Otherwise trivial objects would get a partial reward.
    """

    name: ClassVar[str] = "structured_output"
    description: ClassVar[str] = (
        "No tools. The JSON of the reply must match the row's schema_str exactly and contain the values of its "
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


class Judged(BuiltinEnvironment):
    name: ClassVar[str] = "judged"
    description: ClassVar[str] = (
        "No tools. A judge model scores the final answer or the whole trace by the rubric of the environment or "
        "the row, or compares the answer with the row's reference_answer or expected_answer."
    )
    needs: ClassVar[frozenset[str]] = frozenset()
    asks_judge: ClassVar[bool] = True
    verifier: ClassVar[Verifier | None] = LLMJudge()
