"""Rounds one after the other, and the result so far."""

import re

from apps.gym.environments.blackjack.blackjack_rules import ACTIONS, Action, Round, basic_strategy, count
from apps.gym.environments.protocol import Transition

MOST_MISTAKES = 3
_ACTION = re.compile(r"\b(hit|stand)\b", re.IGNORECASE)


class BlackjackGame:
    """`book` counts the decisions, and those that basic strategy would have made."""

    def __init__(self, rounds: list[list[str]], target: int) -> None:
        self._rounds = [list(cards) for cards in rounds]
        self.target = target
        self.results: list[int] = []
        self.mistakes = 0
        self.decisions = 0
        self.book = 0
        self._round = Round(self._rounds[0])

    @property
    def net(self) -> int:
        return sum(self.results)

    @property
    def reached(self) -> bool:
        return len(self.results) == len(self._rounds) and self.net >= self.target

    def is_over(self) -> bool:
        return len(self.results) == len(self._rounds) or self.mistakes >= MOST_MISTAKES

    def look(self) -> str:
        hand = count(self._round.player)
        soft = "soft " if hand.soft else ""
        return (
            f"Round {len(self.results) + 1} of {len(self._rounds)}, result so far {self.net:+}, {self.target:+} "
            "wanted.\n"
            f"Your hand: {' '.join(self._round.player)} ({soft}{hand.total}). The dealer shows {self._round.shown}."
        )

    def step(self, reply: str) -> Transition:
        if self.is_over():
            return Transition("The game is over.", done=True)
        action = read_action(reply)
        if action is None:
            self.mistakes += 1
            told = "I see no single action on your last line. Reply with one word: hit, or stand."
            return Transition(f"{told}\n\n{self.look()}", done=self.is_over())
        self.decisions += 1
        self.book += action == basic_strategy(self._round.player, self._round.shown)
        played = self._round
        played.act(action)
        if played.result is None:
            return Transition(self.look(), done=False)
        self.results.append(played.result)
        told = _tell(played)
        if self.is_over():
            end = "reached" if self.reached else "missed"
            return Transition(f"{told}\n\nThe result is {self.net:+}: you {end} {self.target:+}.", done=True)
        self._round = Round(self._rounds[len(self.results)])
        return Transition(f"{told}\n\n{self.look()}", done=False)


def _tell(played: Round) -> str:
    mine, theirs = count(played.player).total, count(played.dealer).total
    words = {1: "You win.", 0: "Nobody wins.", -1: "You lose."}
    dealt = f"The dealer has {' '.join(played.dealer)} ({theirs})."
    return f"You have {' '.join(played.player)} ({mine}). {dealt} {words[played.result or 0]}"


def read_action(reply: str) -> Action | None:
    """The one action that the last line names; None where it names none, or both. The end of a fence is no line."""
    lines = [line for line in reply.splitlines() if re.search(r"\w", line)]
    named = {word.lower() for word in _ACTION.findall(lines[-1])} if lines else set()
    return next((action for action in ACTIONS if named == {action}), None)
