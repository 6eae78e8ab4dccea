"""Twenty questions: the user thinks of one of the row's candidates, and answers questions until the model guesses."""

import re
from typing import Any, ClassVar

from apps.gym.environments.protocol import BuiltinEnvironment, all_replies
from apps.gym.environments.twenty_questions.things import PROPERTIES, THINGS
from apps.gym.errors import EnvironmentFault
from apps.gym.redaction.shortening import cut
from apps.gym.rewards import Reward
from apps.gym.traces.items import Item, TaskRow, assistant_text, message

_GUESS = re.compile(r"\bguess\W{0,4}:\s*([^\n]*)", re.IGNORECASE)
_HEARD = 4_000
"""Number of characters read at the end of a reply: each text is searched for many words."""
_NOT = re.compile(r"\b(?:not|no|never|without)\b|n't\b", re.IGNORECASE)
_WORDS = {name: re.compile(rf"\b(?:{words})\b", re.IGNORECASE) for name, (_, words) in PROPERTIES.items()}


class Questions:
    """One game. `asked` counts the replies that the user has answered, including the guess."""

    def __init__(self, secret: str, most: int) -> None:
        self.secret = secret
        self.most = most
        self.asked = 0
        self.understood = 0
        self.guess: str | None = None

    @property
    def right(self) -> bool:
        return self.guess == self.secret

    def is_over(self) -> bool:
        return self.guess is not None or self.asked > self.most

    def hear(self, reply: str) -> str | None:
        """Return the user's answer, or None at the end: after a guess, or a reply when no questions are left."""
        if self.is_over():
            return None
        self.asked += 1
        reply = reply[-_HEARD:]
        self.guess = read_guess(reply)
        if self.is_over():
            return None
        answer = self._answer(reply)
        left = self.most - self.asked
        more = f"You have {left} {'question' if left == 1 else 'questions'} left." if left else "Now you must guess."
        return f"{answer} {more}"

    def _answer(self, reply: str) -> str:
        named = read_properties(reply)
        if len(named) > 1:
            return "One thing at a time, please."
        if not named:
            return "I do not understand that question."
        if _NOT.search(_question(reply)):
            return "Please ask without a no or a not."
        self.understood += 1
        return "Yes." if named[0] in THINGS[self.secret] else "No."


def read_guess(reply: str) -> str | None:
    """Return the text after the last "Guess:", in lower case and without an article, or None without a guess."""
    guesses = _GUESS.findall(reply)
    if not guesses:
        return None
    plain = re.sub(r"[^\w\s-]", "", str(guesses[-1])).lower().strip()
    return re.sub(r"^(?:it is |its )?(?:an? |the )?", "", plain).strip()


def read_properties(reply: str) -> list[str]:
    """Return the properties that the reply asks about."""
    asked = _question(reply)
    return [name for name, words in _WORDS.items() if words.search(asked)]


def _question(reply: str) -> str:
    """Return the only question of the reply, or the whole reply if there is none or more than one."""
    asked = [part for part in re.split(r"(?<=[?.!])\s+|\n+", reply) if "?" in part]
    return asked[0] if len(asked) == 1 else reply


_MOST = 100


class TwentyQuestions(BuiltinEnvironment):
    name: ClassVar[str] = "twenty_questions"
    description: ClassVar[str] = (
        "A scripted user knows a secret and answers questions with yes or no. The task row sets the secret and the "
        "maximum number of questions. Reward 1.0 if the single guess is right."
    )
    needs: ClassVar[frozenset[str]] = frozenset({"secret", "most_questions"})
    takes_turns: ClassVar[bool] = True

    def __init__(self, row: TaskRow) -> None:
        super().__init__(row)
        self._questions: Questions | None = None

    def respond(self, items: list[Item]) -> list[Item] | None:
        if self._questions is None:
            self._questions = self._begin()
        answer = self._questions.hear(assistant_text(items))
        return None if answer is None else [message("user", answer)]

    def verify(self, response: dict[str, Any]) -> Reward:
        """Replay the replies, so that only the row is needed."""
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
            raise EnvironmentFault("the task row's `secret` must be one of the things that the user knows").permanent()
        if not isinstance(most, int) or isinstance(most, bool) or not 1 <= most <= _MOST:
            raise EnvironmentFault(f"the task row's `most_questions` must be a number from 1 to {_MOST}").permanent()
        return Questions(secret, most)
