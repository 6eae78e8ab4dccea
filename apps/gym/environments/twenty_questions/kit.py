"""Tasks, players and cases of twenty questions: secrets, a good and a random questioner."""

import random

from apps.gym.environments.task_generation import Case, Difficulty, Kit, Move, Seen, ask, say
from apps.gym.environments.twenty_questions.things import PROPERTIES, THINGS
from apps.gym.traces.items import TaskRow, item_type, text_of


def best_question(possible: list[str]) -> str | None:
    """Return the property that splits the candidates most evenly, or None if no question distinguishes them."""

    def evenness(name: str) -> int:
        have = sum(name in THINGS[thing] for thing in possible)
        return min(have, len(possible) - have)

    best = max(PROPERTIES, key=evenness)
    return best if evenness(best) else None


def questions_needed(secret: str, candidates: list[str]) -> int | None:
    """Return the number of questions that identify the secret, or None if another candidate has the same properties."""
    possible, count = list(candidates), 0
    while len(possible) > 1:
        asked = best_question(possible)
        if asked is None:
            return None
        possible = keep(possible, asked, asked in THINGS[secret])
        count += 1
    return count


def keep(possible: list[str], asked: str, yes: bool) -> list[str]:
    return [thing for thing in possible if (asked in THINGS[thing]) == yes]


_CANDIDATES: dict[Difficulty, int] = {"easy": 24, "medium": 48, "hard": 96}
_SPARE: dict[Difficulty, int] = {"easy": 13, "medium": 6, "hard": 3}
"""Questions beyond the number needed, up to twenty in all."""


def _prompt(candidates: list[str], most: int) -> str:
    return (
        f"I am thinking of one of these: {', '.join(candidates)}.\n\nFind out which. You may ask {most} questions "
        "that I "
        "can answer with yes or no, one in each reply, about one of these:\n\n"
        + "\n".join(f"- {question}" for question, _ in PROPERTIES.values())
        + "\n\nThen make your one guess, as in: Guess: unicorn"
    )


def make_task(dice: random.Random, difficulty: Difficulty) -> TaskRow:
    while True:
        candidates = dice.sample(sorted(THINGS), _CANDIDATES[difficulty])
        secret = dice.choice(candidates)
        needed = questions_needed(secret, candidates)
        if needed is not None:
            most = min(20, needed + _SPARE[difficulty])
            return {
                "responses_create_params": ask(_prompt(candidates, most)),
                "candidates": candidates,
                "secret": secret,
                "most_questions": most,
            }


def _solve(seen: Seen) -> Move:
    """Solve from the answers alone, without looking at the secret."""
    possible: list[str] = seen.row["candidates"]
    answers = [text_of(item) for item in seen.items if item_type(item) == "message" and item.get("role") == "user"]
    for answer in answers[1:]:
        asked = best_question(possible)
        if asked is not None:
            possible = keep(possible, asked, answer.startswith("Yes"))
    asked = best_question(possible)
    return Move(text=PROPERTIES[asked][0] if asked else f"Guess: {possible[0]}")


def _guess(seen: Seen) -> Move:
    if seen.dice.random() < 0.3:
        return Move(text=f"Guess: {seen.dice.choice(seen.row['candidates'])}")
    return Move(text=seen.dice.choice(list(PROPERTIES.values()))[0])


def _cases() -> list[Case]:
    candidates = ["cat", "oak", "spoon"]
    row: TaskRow = {
        "responses_create_params": ask(_prompt(candidates, 2)),
        "candidates": candidates,
        "secret": "oak",
        "most_questions": 2,
    }
    right, wrong = "It must be a tree. Guess: the Oak!", "Guess: cat"
    every = f"Guess: {', '.join(candidates)}"
    return [
        Case(name="asked, then guessed", kind="full reward", row=row, play=say("Is it a plant?", right), reward=1.0),
        Case(
            name="guessed after the last", kind="full reward", row=row, play=say("Metal?", "Wood?", right), reward=1.0
        ),
        Case(name="a wrong guess", kind="zero reward", row=row, play=say(wrong, right), reward=0.0),
        Case(name="guessed too late", kind="zero reward", row=row, play=say("Fur?", "Fur?", "Fur?", right), reward=0.0),
        Case(name="every candidate", kind="malformed", row=row, play=say(every), reward=0.0),
        Case(name="two questions at once", kind="malformed", row=row, play=say("Is it red? Is it green?"), reward=0.0),
    ]


KIT = Kit(make_task=make_task, solve=_solve, guess=_guess, cases=_cases, max_steps=25, identity_fields=("secret",))
