"""What a database of this environment is."""

import random
from collections.abc import Callable
from typing import NamedTuple

Rows = list[tuple[object, ...]]


class Question(NamedTuple):
    """`ordered` where the question asks for an order."""

    text: str
    sql: str
    ordered: bool = False


Asks = Callable[[random.Random], Question]


class Database(NamedTuple):
    """`fill` gives the rows of each table; `questions` stand by level, 1 to 3."""

    about: str
    schema: str
    fill: Callable[[random.Random], dict[str, Rows]]
    questions: dict[int, tuple[Asks, ...]]


def day(dice: random.Random, first: int, last: int) -> str:
    return f"{dice.randint(first, last)}-{dice.randint(1, 12):02}-{dice.randint(1, 28):02}"


def people(dice: random.Random, firsts: list[str], lasts: list[str], count: int) -> list[str]:
    """Different names."""
    return dice.sample([f"{first} {last}" for first in firsts for last in lasts], count)


def months(dice: random.Random, first: int, last: int, column: str) -> tuple[str, str]:
    """Some months of one year, in words and as a condition."""
    year, begin = dice.randint(first, last), dice.randint(1, 7)
    end = begin + dice.randint(3, 5)
    return (
        f"from month {begin} to month {end} of {year}",
        f"{column} BETWEEN '{year}-{begin:02}-01' AND '{year}-{end:02}-31'",
    )
