"""Twenty questions: the user thinks of one of the row's candidates, and answers questions until a guess is made."""

from typing import Any, ClassVar

from apps.gym.environments.protocol import unknown_tool
from apps.gym.environments.turn_environments import all_replies
from apps.gym.environments.twenty_questions.game import Questions
from apps.gym.environments.twenty_questions.things import THINGS
from apps.gym.errors import EnvironmentFault
from apps.gym.redaction.shortening import cut
from apps.gym.rewards import Reward
from apps.gym.traces.items import Item, TaskRow, Tool, assistant_text, message

_MOST = 100


class TwentyQuestions:
    name: ClassVar[str] = "twenty_questions"
    description: ClassVar[str] = (
        "A scripted user thinks of the row's secret and answers yes or no, most_questions times. 1.0 when the "
        "one guess "
        "is right."
    )
    tools: ClassVar[list[Tool]] = []
    needs: ClassVar[frozenset[str]] = frozenset({"secret", "most_questions"})
    quick: ClassVar[bool] = True
    asks_judge: ClassVar[bool] = False
    takes_turns: ClassVar[bool] = True

    def __init__(self, row: TaskRow, *, seed: int) -> None:
        self.row = row
        self.seed = seed
        self._questions: Questions | None = None

    def call_tool(self, name: str, arguments: dict[str, Any]) -> str:
        raise unknown_tool(name, self.tools)

    def respond(self, items: list[Item]) -> list[Item] | None:
        if self._questions is None:
            self._questions = self._begin()
        answer = self._questions.hear(assistant_text(items))
        return None if answer is None else [message("user", answer)]

    def verify(self, response: dict[str, Any]) -> Reward:
        """The replies are heard again: no state is needed but the row."""
        questions = self._begin()
        for reply in all_replies(response):
            questions.hear(reply)
        right = float(questions.right)
        told = f"guessed {cut(questions.guess, 80)!r}" if questions.guess else "made no guess"
        return Reward(
            value=right,
            components={
                "right": right,
                "understood": questions.understood / questions.asked if questions.asked else 0.0,
                "questions": float(questions.asked),
            },
            explanation=f"{told} after {questions.understood} answers; it was {questions.secret!r}",
        )

    def _begin(self) -> Questions:
        secret, most = self.row.get("secret"), self.row.get("most_questions")
        if not isinstance(secret, str) or secret not in THINGS:
            raise EnvironmentFault("the task row's `secret` must be one of the things that the user knows").lasting()
        if not isinstance(most, int) or isinstance(most, bool) or not 1 <= most <= _MOST:
            raise EnvironmentFault(f"the task row's `most_questions` must be a number from 1 to {_MOST}").lasting()
        return Questions(secret, most)
