"""A judge model scores the attempt by a rubric: alone, or as one component of a hybrid."""

from typing import Annotated, Any, ClassVar

from msgspec import Meta

from apps.gym.errors import VerifierError
from apps.gym.judging.judge import Judgement
from apps.gym.judging.judge_scoring import judge_attempt
from apps.gym.rewards import Reward
from apps.gym.traces.items import TaskRow
from apps.gym.verifiers.protocol import Verifier


class LLMJudge(Verifier, frozen=True, kw_only=True, tag="llm_judge"):
    """(score − low) ÷ (high − low) of the judge's score, or the reward that its named verdict stands for; where it
    compares with the expected answer, 1.0 for better, 0.5 for even and 0.0 for worse, or 1.0 for equal and 0.0 for not.

    The environment's judge model is asked; its settings hold the question, the scale, and whether it reads the final
    answer or the whole trace. The row's `rubric` goes before the one here, and that before the environment's. The row's
    `reference_answer` or `expected_answer` is shown to the judge where there is one. A judge that fails, or contradicts
    itself when what it compares is swapped, is a `judge_error`.

    Range: 0.0 to 1.0, or that of the named verdicts. Component: `judge`.
    """

    title: ClassVar[str] = "LLM judge"
    rubric: Annotated[
        str,
        Meta(
            title="Rubric",
            description="May name {task}, {expected_answer}, {answer} and {trace}; left out: the environment's rubric",
            max_length=20_000,
        ),
    ] = ""

    def verify(self, row: TaskRow, response: dict[str, Any]) -> Reward:
        raise VerifierError("only a judge model can say that, and none was asked").lasting()

    async def ask(self, row: TaskRow, response: dict[str, Any], judgement: Judgement) -> Reward:
        """Lets JudgeError through."""
        return await judge_attempt(row, response, judgement, rubric=self.rubric)
