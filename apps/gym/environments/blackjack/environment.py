"""Blackjack: each reply is hit or stand; the reward is 1 if the rounds end with at least the row's target."""

import re
from typing import ClassVar

from apps.gym.environments.blackjack.blackjack_rules import ACTIONS, RANKS, Action, Round, basic_strategy, count
from apps.gym.environments.protocol import Transition, TurnBasedGame
from apps.gym.errors import EnvironmentFault
from apps.gym.rewards import Reward

MOST_MISTAKES = 3
_ACTION = re.compile(r"\b(hit|stand)\b", re.IGNORECASE)


class BlackjackGame:
    """A game of several rounds. `decisions` counts decisions, `book` those that equal basic strategy."""

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
    """Return the action named in the last line, or None if it names none or both.

    The end of a fence does not count as a line.
    """
    lines = [line for line in reply.splitlines() if re.search(r"\w", line)]
    named = {word.lower() for word in _ACTION.findall(lines[-1])} if lines else set()
    return next((action for action in ACTIONS if named == {action}), None)


_MOST_ROUNDS = 50
_CARDS = range(4, 31)


class Blackjack(TurnBasedGame[BlackjackGame]):
    name: ClassVar[str] = "blackjack"
    description: ClassVar[str] = (
        "A game with Gymnasium-style steps: each reply is hit or stand. Reward 1.0 if the result (rounds won minus "
        "rounds lost) reaches the row's target."
    )
    needs: ClassVar[frozenset[str]] = frozenset({"rounds", "target"})

    def score(self, game: BlackjackGame) -> Reward:
        return Reward(
            value=float(game.reached),
            components={
                "reached": float(game.reached),
                "result": float(game.net),
                "by_the_book": game.book / game.decisions if game.decisions else 0.0,
            },
            explanation=f"{game.net:+} after {len(game.results)} rounds; {game.target:+} was wanted",
        )

    def begin(self) -> BlackjackGame:
        rounds, target = self.row.get("rounds"), self.row.get("target")
        if not isinstance(rounds, list) or not 1 <= len(rounds) <= _MOST_ROUNDS or not all(map(_is_round, rounds)):
            told = (
                f"must be 1 to {_MOST_ROUNDS} lists of {_CARDS.start} to {_CARDS.stop - 1} cards of {', '.join(RANKS)}"
            )
            raise EnvironmentFault(f"the task row's `rounds` {told}").permanent()
        if not isinstance(target, int) or isinstance(target, bool):
            raise EnvironmentFault("the task row's `target` must be a whole number").permanent()
        return BlackjackGame(rounds, target)


def _is_round(cards: object) -> bool:
    return isinstance(cards, list) and len(cards) in _CARDS and all(card in RANKS for card in cards)
