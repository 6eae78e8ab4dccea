"""What comes with blackjack: rounds that can be won, who plays by the book, who throws a coin, and cases."""

import random

from apps.gym.environments.blackjack.blackjack_rules import ACTIONS, basic_strategy
from apps.gym.environments.blackjack.dealing import deal
from apps.gym.environments.task_generation import Case, Difficulty, Kit, Move, Seen, ask, say
from apps.gym.traces.items import TaskRow

_ROUNDS: dict[Difficulty, int] = {"easy": 5, "medium": 7, "hard": 10}


def _prompt(rounds: int, target: int) -> str:
    return (
        f"You are playing {rounds} rounds of blackjack. A round won counts +1, a round lost -1. Your result must be "
        f"{target:+} or more in the end. An ace counts 1 or 11, and J, Q and K count 10. More than 21 loses at "
        "once. The "
        "dealer draws up to 16 and stands on every 17. You can hit (take a card) or stand; there is no doubling and no "
        "splitting. Reply with one action on the last line, hit or stand; you will then see what comes of it."
    )


def make_task(dice: random.Random, difficulty: Difficulty) -> TaskRow:
    rounds, target = deal(dice, _ROUNDS[difficulty])
    return {"responses_create_params": ask(_prompt(len(rounds), target)), "rounds": rounds, "target": target}


def _solve(seen: Seen) -> Move:
    """By what is seen alone: no card that lies face down."""
    hand, rest = seen.observation.rsplit("Your hand: ", 1)[1].split(" (", 1)
    shown = rest.split("The dealer shows ")[1].rstrip(".")
    return Move(text=f"By the book: {basic_strategy(hand.split(), shown)}.")


def _guess(seen: Seen) -> Move:
    return Move(text=seen.dice.choice(ACTIONS))


def _cases() -> list[Case]:
    # 16 against a 10: the book hits and gets 21; the dealer has 20.
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


KIT = Kit(make_task=make_task, solve=_solve, guess=_guess, cases=_cases, max_steps=100, told_apart_by=("rounds",))
