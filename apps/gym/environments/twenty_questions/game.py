"""One game: the scripted user's answers, and whether the guess was right."""

import re

from apps.gym.environments.twenty_questions.things import PROPERTIES, THINGS

_GUESS = re.compile(r"\bguess\W{0,4}:\s*([^\n]*)", re.IGNORECASE)
_HEARD = 4_000
"""Characters of a reply, its last: each is looked through for many words."""
_NOT = re.compile(r"\b(?:not|no|never|without)\b|n't\b", re.IGNORECASE)
_WORDS = {name: re.compile(rf"\b(?:{words})\b", re.IGNORECASE) for name, (_, words) in PROPERTIES.items()}


class Questions:
    """`asked` counts the replies that the user has answered; the guess is the last."""

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
        """The user's answer, or None at the end: after a guess, and after a reply when there are no questions left."""
        if self.is_over():
            return None
        self.asked += 1
        reply = reply[-_HEARD:]
        if (guess := read_guess(reply)) is not None:
            self.guess = guess
            return None
        if self.asked > self.most:
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
    """What follows the last "Guess:", in small letters and without an article; None where nothing is guessed."""
    guesses = _GUESS.findall(reply)
    if not guesses:
        return None
    plain = re.sub(r"[^\w\s-]", "", str(guesses[-1])).lower().strip()
    return re.sub(r"^(?:it is |its )?(?:an? |the )?", "", plain).strip()


def read_properties(reply: str) -> list[str]:
    """The properties that the reply asks for."""
    asked = _question(reply)
    return [name for name, words in _WORDS.items() if words.search(asked)]


def _question(reply: str) -> str:
    """The one sentence of the reply that asks; all of it where none does, or several do."""
    asked = [part for part in re.split(r"(?<=[?.!])\s+|\n+", reply) if "?" in part]
    return asked[0] if len(asked) == 1 else reply
