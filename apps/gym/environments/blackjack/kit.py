"""Tasks, players and cases of blackjack: winnable rounds, a basic-strategy player and a random player."""

import random
from collections.abc import Callable

from apps.gym.environments.blackjack.blackjack_rules import ACTIONS, FULL, RANKS, Action, Round, basic_strategy, count
from apps.gym.environments.task_generation import Case, Difficulty, Kit, Move, Seen, ask, say
from apps.gym.traces.items import TaskRow

CARDS = 14
"""Cards per round. No player draws more: the dealer stops at 17, and players bust before."""
_BY_CHANCE = 0.04


def deal(dice: random.Random, rounds: int) -> tuple[list[list[str]], int]:
    """Return rounds that basic strategy wins on balance, and its result as the target.

    Random play reaches the target in at most one of 25 attempts; always standing or always hitting never does.
    """
    while True:
        dealt = [_deal_round(dice) for _ in range(rounds)]
        target = _play_all(dealt, basic_strategy)
        is_rare = target > 0 and _chance(dealt, target) <= _BY_CHANCE
        if is_rare and all(_play_all(dealt, player) < target for player in _SIMPLE):
            return dealt, target


_Decide = Callable[[list[str], str], Action]
_SIMPLE: tuple[_Decide, ...] = (lambda cards, shown: "hit", lambda cards, shown: "stand")


def _play_all(dealt: list[list[str]], decide: _Decide) -> int:
    return sum(_play(cards, decide) for cards in dealt)


def _deal_round(dice: random.Random) -> list[str]:
    """Return the cards of a round in which neither side has 21 with two cards: it would need no decision."""
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
    """Return the probability that a player who chooses at random reaches the target."""
    totals = {0: 1.0}
    for cards in dealt:
        after: dict[int, float] = {}
        for result, part in _results(cards).items():
            for total, chance in totals.items():
                after[total + result] = after.get(total + result, 0.0) + part * chance
        totals = after
    return sum(chance for total, chance in totals.items() if total >= target)


def _results(cards: list[str]) -> dict[int, float]:
    """Return the probability of each result of a random player, who stands after n hits with probability 1/2^(n+1)."""
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


_ROUNDS: dict[Difficulty, int] = {"easy": 5, "medium": 7, "hard": 10}


def _prompt(rounds: int, target: int) -> str:
    return (
        f"You are playing {rounds} rounds of blackjack. A round won counts +1, a round lost -1. Your result must be "
        f"{target:+} or more in the end. An ace counts 1 or 11, and J, Q and K count 10. More than 21 loses at "
        "once. The "
        "dealer draws up to 16 and stands on every 17. You can hit (take a card) or stand; there is no doubling and no "
        "splitting. Reply with one action on the last line, hit or stand; you will then see the result."
    )


def make_task(dice: random.Random, difficulty: Difficulty) -> TaskRow:
    rounds, target = deal(dice, _ROUNDS[difficulty])
    return {"responses_create_params": ask(_prompt(len(rounds), target)), "rounds": rounds, "target": target}


def _solve(seen: Seen) -> Move:
    """Play basic strategy, from the visible cards only."""
    hand, rest = seen.observation.rsplit("Your hand: ", 1)[1].split(" (", 1)
    shown = rest.split("The dealer shows ")[1].rstrip(".")
    return Move(text=f"By the book: {basic_strategy(hand.split(), shown)}.")


def _cases() -> list[Case]:
    # 16 against a 10: basic strategy hits and gets 21; the dealer has 20.
    row: TaskRow = {
        "responses_create_params": ask(_prompt(1, 1)),
        "rounds": [["10", "6", "K", "Q", "5", "9", "9"]],
        "target": 1,
    }
    return [
        Case(name="hit to 21", kind="full reward", row=row, play=say("16 is not enough.\nHit!"), reward=1.0),
        Case(name="stand on 16", kind="zero reward", row=row, play=say("stand"), reward=0.0),
        Case(name="both at once", kind="malformed", row=row, play=say("hit or stand"), reward=0.0),
        Case(name="neither", kind="malformed", row=row, play=say("double"), reward=0.0),
        Case(name="none, then the right one", kind="malformed", row=row, play=say("double", "hit"), reward=1.0),
    ]


KIT = Kit(
    make_task=make_task,
    solve=_solve,
    guess=lambda seen: Move(text=seen.dice.choice(ACTIONS)),
    cases=_cases,
    max_steps=100,
    identity_fields=("rounds",),
)
