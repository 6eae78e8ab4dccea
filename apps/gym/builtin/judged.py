"""Judged: no tools; a judge model scores the attempt by a rubric."""

from typing import Any, ClassVar

from apps.gym.builtin.protocol import unknown_tool
from apps.gym.errors import VerifierError
from apps.gym.items import Item, TaskRow, Tool, dump_json, input_items
from apps.gym.judging.judge import Hearing
from apps.gym.judging.prompts import final_answer, readable_prompt, readable_trace
from apps.gym.rewards import Reward


class Judged:
    name: ClassVar[str] = "judged"
    description: ClassVar[str] = (
        "No tools. A judge model scores the final answer, or the whole trace, by the environment's rubric or the row's "
        "own; the row's reference_answer or expected_answer is shown to it where there is one."
    )
    tools: ClassVar[list[Tool]] = []
    needs: ClassVar[frozenset[str]] = frozenset()
    quick: ClassVar[bool] = True
    asks_judge: ClassVar[bool] = True

    def __init__(self, row: TaskRow, *, seed: int) -> None:
        self.row = row
        self.seed = seed

    def call_tool(self, name: str, arguments: dict[str, Any]) -> str:
        raise unknown_tool(name, self.tools)

    def respond(self, items: list[Item]) -> list[Item] | None:
        return None

    def verify(self, response: dict[str, Any]) -> Reward:
        raise VerifierError("only a judge model can score this environment's attempts")

    async def judge(self, response: dict[str, Any], hearing: Hearing) -> Reward:
        limit, output = hearing.settings.max_characters, response["output"]
        whole = hearing.settings.reads == "trace"
        verdict = await hearing.score(
            task=readable_prompt(input_items(self.row), limit),
            attempt=readable_trace(output, limit) if whole else final_answer(output),
            reference=_reference(self.row),
            rubric=_rubric(self.row),
        )
        said = verdict.said if isinstance(verdict.said, str) else f"{verdict.said:g}"
        return Reward(
            value=verdict.value,
            components={"judge": verdict.value},
            explanation=f"{said}: {verdict.explanation}" if verdict.explanation else said,
            details={hearing.settings.scale.key: verdict.said},
        )


def _rubric(row: TaskRow) -> str:
    """The row's own rubric, or nothing. Raises VerifierError when it is no text."""
    rubric = row.get("rubric")
    if rubric is None:
        return ""
    if not isinstance(rubric, str):
        raise VerifierError("the task row's `rubric` is no text")
    return rubric.strip()


def _reference(row: TaskRow) -> str:
    """The row's reference answer as text, or nothing."""
    given = row.get("reference_answer")
    given = row.get("expected_answer") if given is None else given
    if given is None:
        return ""
    return given if isinstance(given, str) else dump_json(given)
