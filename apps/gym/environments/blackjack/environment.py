"""Blackjack: each reply is hit or stand; the reward comes when the rounds end with the row's target or more."""

from typing import ClassVar

from apps.gym.environments.blackjack.blackjack_rules import RANKS
from apps.gym.environments.blackjack.game import BlackjackGame
from apps.gym.environments.turn_environments import GameInTurns
from apps.gym.errors import EnvironmentFault
from apps.gym.rewards import Reward

_MOST_ROUNDS = 50
_CARDS = range(4, 31)


class Blackjack(GameInTurns[BlackjackGame]):
    name: ClassVar[str] = "blackjack"
    description: ClassVar[str] = (
        "A game in the style of Gymnasium: each reply is hit or stand. 1.0 when the rounds end with the row's "
        "target or "
        "more; rounds won, less rounds lost."
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
            raise EnvironmentFault(f"the task row's `rounds` {told}").lasting()
        if not isinstance(target, int) or isinstance(target, bool):
            raise EnvironmentFault("the task row's `target` must be a whole number").lasting()
        return BlackjackGame(rounds, target)


def _is_round(cards: object) -> bool:
    return isinstance(cards, list) and len(cards) in _CARDS and all(card in RANKS for card in cards)
