"""Question types with computed answers, and wrong options of the same form above and below."""

import itertools
import math
import random
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from typing import NamedTuple

from apps.gym.environments.wordlists import MONTHS

NAMES = ("Ana", "Bo", "Cem", "Dita", "Eli", "Fay", "Gus", "Hana", "Ivo", "Jun", "Kai", "Lea")


class Question(NamedTuple):
    """A question. `write(value)` returns the text of an option; `step` is the unit of distance of the wrong options."""

    text: str
    answer: int
    write: Callable[[int], str] = str
    step: int = 1
    least: int | None = None


Maker = Callable[[random.Random, int], Question]


def _expression(dice: random.Random, level: int) -> Question:
    terms = [f"{dice.randint(3, 9 * 4**level)} × {dice.randint(3, 6 * 2**level)}" for _ in range(level)]
    terms.append(str(dice.randint(11, 99 * level)))
    text = " + ".join(terms)
    answer = sum(math.prod(map(int, term.split(" × "))) for term in terms)
    return Question(f"What is {text}?", answer, step=dice.choice((1, 2, 10)))


def _percentage(dice: random.Random, level: int) -> Question:
    # Three changes of price still give whole cents.
    price, steps = dice.randint(1, 24) * 400, dice.choices((10, 20, 25, 40, 50), k=level)
    ways = dice.choices(("raised", "lowered"), k=level)
    value, told = price * 100, []
    for step, way in zip(steps, ways, strict=True):
        value = value * (100 + step if way == "raised" else 100 - step) // 100
        told.append(f"{way} by {step} %")
    text = f"A bicycle costs {price} euros. Its price is {', then '.join(told)}. What does it cost now?"
    return Question(text, value, _euros, dice.choice((100, 250, 500)), 0)


def _euros(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02} euros"


def _arrival(dice: random.Random, level: int) -> Question:
    leaves = dice.randint(0, 24 * 60 - 1)
    legs = [dice.randint(25, 60 + 140 * level) for _ in range(level)]
    told = [f"takes {minutes // 60} h {minutes % 60} min" for minutes in legs]
    waits = [dice.randint(5, 55) for _ in legs[1:]]
    text = f"A train leaves at {_clock(leaves)} and {told[0]}."
    for wait, leg in zip(waits, told[1:], strict=True):
        text += f" After a wait of {wait} min the next one leaves and {leg}."
    answer = leaves + sum(legs) + sum(waits)
    return Question(
        f"{text} When does {'it' if level == 1 else 'the last one'} arrive?", answer, _clock, dice.choice((1, 5, 10))
    )


def _clock(minutes: int) -> str:
    return f"{minutes // 60 % 24:02}:{minutes % 60:02}"


def _calendar(dice: random.Random, level: int) -> Question:
    first = date(2023, 1, 1).toordinal() + dice.randint(0, 1400)
    days = dice.randint(12, 60 * level**2)
    after = dice.random() < 0.5
    text = f"What date is {days} days {'after' if after else 'before'} {_day(first)}?"
    return Question(text, first + (days if after else -days), _day)


def _day(ordinal: int) -> str:
    day = date.min + timedelta(days=ordinal - 1)
    return f"{day.day} {MONTHS[day.month - 1]} {day.year}"


def _sequence(dice: random.Random, level: int) -> Question:
    value, step, growth = dice.randint(2, 40), dice.randint(3, 19), dice.randint(1, 6) if level > 1 else 0
    double = level == 3
    shown = [value]
    for _ in range(6):
        shown.append((shown[-1] * 2 if double else shown[-1]) + step)
        step += growth
    text = f"Which number comes next: {', '.join(map(str, shown[:-1]))}, …?"
    return Question(text, shown[-1], step=dice.choice((1, 2, 3)))


def _base(dice: random.Random, level: int) -> Question:
    number = dice.randint(16, 64 * 8**level)
    base, form = dice.choice(((2, "b"), (8, "o"), (16, "X")))
    if level > 1 and dice.random() < 0.5:
        text = f"How is the decimal number {number} written in base {base}?"
        return Question(text, number, lambda value: format(value, form), least=1)
    return Question(f"Which decimal number is {format(number, form)} in base {base}?", number, step=dice.choice((1, 2)))


def _speed(dice: random.Random, level: int) -> Question:
    speeds = [dice.randint(4, 30) * 3 for _ in range(level + 1)]
    minutes = [dice.randint(1, 9) * 20 for _ in speeds]
    legs = [f"{speed} km/h for {time} minutes" for speed, time in zip(speeds, minutes, strict=True)]
    answer = sum(speed * time // 60 for speed, time in zip(speeds, minutes, strict=True))
    text = f"A van drives at {', then at '.join(legs)}. How far does it get?"
    return Question(text, answer, lambda km: f"{km} km", dice.choice((1, 2, 5)), 0)


def _divisors(dice: random.Random, level: int) -> Question:
    factor = dice.randint(3, 9 * level)
    numbers = [factor * dice.randint(2, 8 * level) for _ in range(2 if level < 3 else 3)]
    told = " and ".join(map(str, numbers))
    if dice.random() < 0.5:
        text = f"What is the least common multiple of {told}?"
        return Question(text, math.lcm(*numbers), step=dice.choice((factor, 2, 6)), least=1)
    return Question(f"What is the greatest common divisor of {told}?", math.gcd(*numbers), least=1)


def _loop(dice: random.Random, level: int) -> Question:
    start, times, add, modulus = dice.randint(1, 9), dice.randint(3, 3 + 3 * level), dice.randint(2, 9), 97
    factor = dice.randint(2, 4) if level > 1 else 1
    code = f"x = {start}\nfor i in range({times}):\n    x = (x * {factor} + {add}{' + i' * (level > 2)}) % {modulus}"
    value = start
    for turn in range(times):
        value = (value * factor + add + turn * (level > 2)) % modulus
    return Question(f"What is x after this Python program?\n\n{code}", value, least=0)


def _ages(dice: random.Random, level: int) -> Question:
    cast = dice.sample(NAMES, level + 2)
    ages = [dice.randint(8, 40)]
    told = [f"{cast[0]} is {ages[0]} years old."]
    for before, name in itertools.pairwise(cast):
        gap = dice.randint(2, 17)
        older = ages[-1] <= gap + 3 or dice.random() < 0.6
        ages.append(ages[-1] + gap if older else ages[-1] - gap)
        told.append(f"{name} is {gap} years {'older' if older else 'younger'} than {before}.")
    first, *rest = told
    dice.shuffle(rest)
    text = " ".join([*rest, first]) if level > 1 else " ".join(told)
    return Question(f"{text} How old is {cast[-1]}?", ages[-1], least=1)


MAKERS: tuple[Maker, ...] = (
    _expression,
    _percentage,
    _arrival,
    _calendar,
    _sequence,
    _base,
    _speed,
    _divisors,
    _loop,
    _ages,
)


def near_answers(dice: random.Random, question: Question, count: int) -> list[int]:
    """Return wrong values around the answer.

    The number of smaller ones is random, so that the middle is no better guess than any other position.
    """
    below = dice.randint(0, count)
    if question.least is not None:
        below = min(below, (question.answer - question.least) // question.step)
    wrong = list(_away(dice, question, -1, below))
    return wrong + list(_away(dice, question, 1, count - len(wrong)))


def _away(dice: random.Random, question: Question, way: int, count: int) -> Iterator[int]:
    """Yield values at growing distances, each with a different text."""
    crowded = way < 0 and question.least is not None
    at = question.answer
    for _ in range(count):
        at += way * question.step * (1 if crowded else dice.randint(1, 3))
        yield at
