"""Score an attempt by a judge: from a task row and a response to a reward."""

from typing import Any

from apps.gym.errors import VerifierError
from apps.gym.judging.judge import Judgement
from apps.gym.judging.judge_rubrics import find_placeholders
from apps.gym.judging.prompts import final_answer, readable_prompt, readable_trace
from apps.gym.rewards import Reward
from apps.gym.traces.items import TaskRow, dump_json, input_items


async def judge_attempt(row: TaskRow, response: dict[str, Any], judgement: Judgement, *, rubric: str = "") -> Reward:
    """The reward is what the verdict is worth, and the component `judge` too. The row's own rubric goes before the one
    given here, and that before the judge's.

    Raises JudgeError, and VerifierError where the row lacks what the question needs.
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
        raise VerifierError("the rubric names {trace}, but answers are compared, not traces").lasting()
    if settings.question == "equal":
        found = await judgement.equal(rubric=rubric, task=task, a=answer, b=_require(expected))
        said = "equal" if found.equal else "different"
        return _reward(float(found.equal), said, found.explanation, {"equal": found.equal, "orders_agree": True})
    compared = await judgement.compare(rubric=rubric, task=task, a=answer, b=_require(expected))
    worth = settings.worth
    value, said = {"a": (worth.win, "win"), "b": (worth.loss, "loss"), "tie": (worth.tie, "tie")}[compared.winner]
    return _reward(value, said, compared.explanation, {"comparison": said, "orders_agree": True})


def _reward(value: float, said: str, explanation: str, details: dict[str, Any]) -> Reward:
    told = f"{said}: {explanation}" if explanation else said
    return Reward(value=value, components={"judge": value}, explanation=told, details=details)


def _read_rubric(row: TaskRow) -> str:
    """The row's own rubric, or nothing. Raises VerifierError when it is no text."""
    rubric = row.get("rubric")
    if rubric is None:
        return ""
    if not isinstance(rubric, str):
        raise VerifierError("the task row's `rubric` is no text").lasting()
    return rubric.strip()


def _read_expected(row: TaskRow) -> str:
    """The row's reference answer as text, or nothing."""
    given = row.get("reference_answer")
    given = row.get("expected_answer") if given is None else given
    if given is None:
        return ""
    return given if isinstance(given, str) else dump_json(given)


def _require(expected: str) -> str:
    if not expected:
        raise VerifierError("the judge is to compare with `expected_answer`, and the task row has none").lasting()
    return expected
