"""Deal rounds in which good play reaches a result that other play hardly ever reaches."""

import random
from collections.abc import Callable

from apps.gym.environments.blackjack.blackjack_rules import FULL, RANKS, Action, Round, basic_strategy, count

CARDS = 14
"""Of each round. Nobody draws more often: the dealer stops at 17, and players who go on are over 21 before."""
_BY_CHANCE = 0.04


def deal(dice: random.Random, rounds: int) -> tuple[list[list[str]], int]:
    """Rounds, and what basic strategy makes of them: more won than lost. Playing at random reaches it in one of 25
    attempts at most; neither who always stands nor who always hits reaches it."""
    while True:
        dealt = [_deal_round(dice) for _ in range(rounds)]
        target = _play_all(dealt, basic_strategy)
        if target > 0 and _chance(dealt, target) <= _BY_CHANCE:
            always = (_play_all(dealt, player) for player in _SIMPLE)
            if max(always) < target:
                return dealt, target


def _always_hit(cards: list[str], shown: str) -> Action:
    return "hit"


def _always_stand(cards: list[str], shown: str) -> Action:
    return "stand"


_Decide = Callable[[list[str], str], Action]
_SIMPLE: tuple[_Decide, ...] = (_always_hit, _always_stand)


def _play_all(dealt: list[list[str]], decide: _Decide) -> int:
    return sum(_play(cards, decide) for cards in dealt)


def _deal_round(dice: random.Random) -> list[str]:
    """Neither side has 21 with two cards: there would be nothing to decide."""
    while True:
        cards = dice.choices(RANKS, k=CARDS)
        if FULL not in (count(cards[:2]).total, count(cards[2:4]).total):
            return cards


def _play(cards: list[str], decide: _Decide) -> int:
    played = Round(cards)
    while played.result is None:
        played.act(decide(played.player, played.shown))
    return played.result


def _chance(dealt: list[list[str]], target: int) -> float:
    """How likely the target is for who throws a coin each time."""
    totals = {0: 1.0}
    for cards in dealt:
        after: dict[int, float] = {}
        for result, part in _results(cards).items():
            for total, chance in totals.items():
                after[total + result] = after.get(total + result, 0.0) + part * chance
        totals = after
    return sum(chance for total, chance in totals.items() if total >= target)


def _results(cards: list[str]) -> dict[int, float]:
    """How likely each result is: who stands after n cards comes to it with a chance of one in two to the n + 1."""
    found: dict[int, float] = {}
    chance, hits = 1.0, 0
    while True:
        played = Round(cards)
        for _ in range(hits):
            played.act("hit")
        ended = played.result is not None
        if not ended:
            played.act("stand")
            chance /= 2
        result = played.result or 0
        found[result] = found.get(result, 0.0) + chance
        if ended:
            return found
        hits += 1
