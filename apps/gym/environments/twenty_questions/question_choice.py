"""Ask well: each question splits what is still possible as evenly as any can."""

from apps.gym.environments.twenty_questions.things import PROPERTIES, THINGS


def best_question(possible: list[str]) -> str | None:
    """The property to ask for; None where no question tells them apart."""

    def evenness(name: str) -> int:
        have = sum(name in THINGS[thing] for thing in possible)
        return min(have, len(possible) - have)

    best = max(PROPERTIES, key=evenness)
    return best if evenness(best) else None


def questions_needed(secret: str, candidates: list[str]) -> int | None:
    """How many questions lead to the secret alone; None where it has a twin."""
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
