"""The interface of a text-to-SQL database."""

import random
from calendar import monthrange
from collections.abc import Callable, Sequence
from typing import NamedTuple

Rows = list[tuple[object, ...]]
_ENDS = (3, 6, 9, 12)


class Question(NamedTuple):
    """A question and its query. `ordered` is True if the question asks for an order."""

    text: str
    sql: str
    ordered: bool = False


class Phrase(NamedTuple):
    """A value that has one wording in the question and another in the query."""

    text: str
    sql: str


class QuestionKind(NamedTuple):
    """Question and query with placeholders, which are filled with random values.

    `draws` has the options of each value, or a function that draws it. The values are drawn in this order.
    """

    text: str
    sql: str
    draws: dict[str, Sequence[object] | Callable[[random.Random], object]]
    ordered: bool = False

    def draw(self, dice: random.Random) -> Question:
        drawn = {
            name: options(dice) if callable(options) else dice.choice(options) for name, options in self.draws.items()
        }
        return Question(self.text.format(**drawn), self.sql.format(**drawn), self.ordered)


class Database(NamedTuple):
    """A database. `fill` returns the rows of each table; `questions` are listed by level, 1 to 3."""

    about: str
    schema: str
    fill: Callable[[random.Random], dict[str, Rows]]
    questions: dict[int, tuple[QuestionKind, ...]]


def day(dice: random.Random, first: int, last: int) -> str:
    """Return a date between these years, sometimes a year before or after.

    Half of the dates are the first or last day of a quarter, like the periods of questions: an off-by-one in a bound
    should change the result.
    """
    year = dice.choice((first - 1, last + 1)) if dice.random() < 0.1 else dice.randint(first, last)
    if dice.random() < 0.5:
        month, begins = dice.choice(((1, True), (4, True), (7, True), (10, True), *((end, False) for end in _ENDS)))
        return first_day(year, month) if begins else last_day(year, month)
    month = dice.randint(1, 12)
    return f"{year}-{month:02}-{dice.randint(1, monthrange(year, month)[1]):02}"


def first_day(year: int, month: int) -> str:
    return f"{year}-{month:02}-01"


def last_day(year: int, month: int) -> str:
    return f"{year}-{month:02}-{monthrange(year, month)[1]}"


def people(dice: random.Random, firsts: list[str], lasts: list[str], count: int) -> list[str]:
    """Return different names."""
    return dice.sample([f"{first} {last}" for first in firsts for last in lasts], count)


def months(first: int, last: int, column: str, *, least: int = 1) -> Callable[[random.Random], Phrase]:
    """Return a function that draws a period of at least `least` quarters of one year."""

    def draw(dice: random.Random) -> Phrase:
        year, end = dice.randint(first, last), dice.choice(_ENDS[least - 1 :])
        begin = dice.randrange(1, end - 3 * (least - 1), 3)
        return Phrase(
            f"from month {begin} to month {end} of {year}",
            f"{column} BETWEEN '{first_day(year, begin)}' AND '{last_day(year, end)}'",
        )

    return draw
