"""A judge model scores the attempt by a rubric: alone, or as one component of a hybrid."""

from typing import Annotated, Any, ClassVar

from msgspec import Meta

from apps.gym.errors import VerifierError
from apps.gym.items import TaskRow, dump_json, input_items
from apps.gym.judging.judge import Hearing
from apps.gym.judging.prompts import final_answer, readable_prompt, readable_trace
from apps.gym.rewards import Reward
from apps.gym.verifiers.protocol import Verifier


class LLMJudge(Verifier, frozen=True, kw_only=True, tag="llm_judge"):
    """(score − low) ÷ (high − low) of the judge's score, or the reward that its named verdict stands for.

    The environment's judge model is asked; its settings hold the scale, and whether it reads the final answer or the
    whole trace. The row's `rubric` goes before the one here, and that before the environment's. The row's
    `reference_answer` or `expected_answer` is shown to the judge where there is one. A judge that fails is a
    `judge_error`.

    Range: 0.0 to 1.0, or that of the named verdicts. Component: `judge`.
    """

    title: ClassVar[str] = "LLM judge"
    rubric: Annotated[
        str,
        Meta(title="Rubric", description="Left out: the environment's rubric", max_length=20_000),
    ] = ""

    def verify(self, row: TaskRow, response: dict[str, Any]) -> Reward:
        raise VerifierError("only a judge model can say that, and none was asked").lasting()

    async def ask(self, row: TaskRow, response: dict[str, Any], hearing: Hearing) -> Reward:
        """Lets JudgeError through."""
        limit, output = hearing.settings.max_characters, response["output"]
        whole = hearing.settings.reads == "trace"
        verdict = await hearing.score(
            task=readable_prompt(input_items(row), limit),
            attempt=readable_trace(output, limit) if whole else final_answer(output),
            reference=_reference(row),
            rubric=_row_rubric(row) or self.rubric,
        )
        said = verdict.said if isinstance(verdict.said, str) else f"{verdict.said:g}"
        return Reward(
            value=verdict.value,
            components={"judge": verdict.value},
            explanation=f"{said}: {verdict.explanation}" if verdict.explanation else said,
            details={hearing.settings.scale.key: verdict.said},
        )


def _row_rubric(row: TaskRow) -> str:
    """The row's own rubric, or nothing. Raises VerifierError when it is no text."""
    rubric = row.get("rubric")
    if rubric is None:
        return ""
    if not isinstance(rubric, str):
        raise VerifierError("the task row's `rubric` is no text").lasting()
    return rubric.strip()


def _reference(row: TaskRow) -> str:
    """The row's reference answer as text, or nothing."""
    given = row.get("reference_answer")
    given = row.get("expected_answer") if given is None else given
    if given is None:
        return ""
    return given if isinstance(given, str) else dump_json(given)
