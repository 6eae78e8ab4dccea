"""Let a judge model score the attempt by a rubric, alone or as a component of a hybrid."""

from typing import Annotated, Any, ClassVar

from msgspec import Meta

from apps.gym.errors import VerifierError
from apps.gym.judging.judge import Judgement
from apps.gym.judging.prompts import final_answer, find_placeholders, readable_prompt, readable_trace
from apps.gym.rewards import Reward
from apps.gym.traces.items import TaskRow, dump_json, input_items
from apps.gym.verifiers.protocol import JudgedVerifier


async def judge_attempt(row: TaskRow, response: dict[str, Any], judgement: Judgement, *, rubric: str = "") -> Reward:
    """Return the verdict's reward, also as the component `judge`.

    The row's own rubric overrides the given one, which overrides the judge's.

    Raises JudgeError, and VerifierError if the row lacks what the question needs.
    """
    settings, rubric = judgement.settings, judgement.rubric(_read_rubric(row) or rubric)
    named, limit = find_placeholders(rubric), settings.max_characters
    task = readable_prompt(input_items(row), limit)
    expected, answer = _read_expected(row), final_answer(response["output"])
    if settings.question == "score":
        sections = {"task": task}
        if expected or "expected_answer" in named:
            sections["expected_answer"] = _require(expected)
        if settings.reads == "answer" or "answer" in named:
            sections["answer"] = answer
        if settings.reads == "trace" or "trace" in named:
            sections["trace"] = readable_trace(response["output"], limit)
        verdict = await judgement.score(rubric=rubric, **sections)
        said = verdict.said if isinstance(verdict.said, str) else f"{verdict.said:g}"
        return _reward(verdict.value, said, verdict.explanation, {settings.scale.key: verdict.said})
    if "trace" in named:
        raise VerifierError(
            "the rubric uses {trace}, but this judge compares answers. Remove {trace} from the rubric"
        ).permanent()
    if settings.question == "equal":
        found = await judgement.equal(rubric=rubric, task=task, a=answer, b=_require(expected))
        said = "equal" if found.equal else "different"
        return _reward(float(found.equal), said, found.explanation, {"equal": found.equal, "orders_agree": True})
    compared = await judgement.compare(rubric=rubric, task=task, a=answer, b=_require(expected))
    worth = settings.worth
    value, said = {"a": (worth.win, "win"), "b": (worth.loss, "loss"), "tie": (worth.tie, "tie")}[compared.winner]
    return _reward(value, said, compared.explanation, {"comparison": said, "orders_agree": True})


async def judge_assertions(
    assertions: list[str], row: TaskRow, response: dict[str, Any], judgement: Judgement, reward: Reward
) -> Reward:
    """Return the reward times the component `nl_assertion`: 1.0 if the trace meets every assertion. Raises JudgeError.

    Without assertions, the reward is returned unchanged.
    """
    if not assertions:
        return reward
    limit = judgement.settings.max_characters
    sections = {"task": readable_prompt(input_items(row), limit), "trace": readable_trace(response["output"], limit)}
    failed = [f"not met: {each}" for each in assertions if not await judgement.meets(each, **sections)]
    met = float(not failed)
    return Reward(
        value=(reward.value or 0.0) * met,
        components={**reward.components, "nl_assertion": met},
        explanation="; ".join([reward.explanation, *failed]),
    )


def _reward(value: float, said: str, explanation: str, details: dict[str, Any]) -> Reward:
    told = f"{said}: {explanation}" if explanation else said
    return Reward(value=value, components={"judge": value}, explanation=told, details=details)


def _read_rubric(row: TaskRow) -> str:
    """Return the row's own rubric, or an empty text. Raises VerifierError if it is not text."""
    rubric = row.get("rubric")
    if rubric is None:
        return ""
    if not isinstance(rubric, str):
        raise VerifierError("the task row's `rubric` must be text").permanent()
    return rubric.strip()


def _read_expected(row: TaskRow) -> str:
    """Return the row's reference answer as text, or an empty text."""
    given = row.get("reference_answer")
    given = row.get("expected_answer") if given is None else given
    if given is None:
        return ""
    return given if isinstance(given, str) else dump_json(given)


def _require(expected: str) -> str:
    if not expected:
        raise VerifierError("the task row has no `expected_answer`, which the judge needs").permanent()
    return expected


class LLMJudge(JudgedVerifier, frozen=True, kw_only=True, tag="llm_judge"):
    """The judge's score, scaled to 0–1: (score − low) ÷ (high − low). With named verdicts, each verdict has its own
    reward.

    When comparing with the expected answer: 1.0 for better, 0.5 for tie, 0.0 for worse; or 1.0 for equal and 0.0 for
    different.

    The environment sets the judge model, the question, the scale, and whether the judge reads the final answer or
    the whole trace. The row's `rubric` overrides the rubric set here, which overrides the environment's. If the row
    has a `reference_answer` or `expected_answer`, the judge sees it. A judge that fails, or contradicts itself when
    the answers are swapped, gives a `judge_error`.

    Range: 0.0 to 1.0, or that of the named verdicts. Component: `judge`.
    """

    title: ClassVar[str] = "LLM judge"
    rubric: Annotated[
        str,
        Meta(
            title="Rubric",
            description="Placeholders: {task}, {expected_answer}, {answer} and {trace}. Default: the "
            "rubric of the environment.",
            max_length=20_000,
        ),
    ] = ""

    async def judge(self, row: TaskRow, response: dict[str, Any], judgement: Judgement) -> Reward:
        return await judge_attempt(row, response, judgement, rubric=self.rubric)
