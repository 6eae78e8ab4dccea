"""Measures of agreement between people: percent, Cohen's κ, Krippendorff's α.

A unit maps each person who judged an item to their value. People without a value are not in it.
"""

import math
import statistics
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, Literal

Level = Literal["nominal", "ordinal", "interval"]
Unit = Mapping[Hashable, Any]


def percent_agreement(units: Iterable[Unit]) -> float | None:
    """Return the share of reviewer pairs with equal answers on the same unit. None without shared units."""
    same = total = 0
    for unit in units:
        for one, other in combinations(unit.values(), 2):
            total += 1
            same += one == other
    return same / total if total else None


def cohen_kappa(pairs: Iterable[tuple[Hashable, Hashable]]) -> float | None:
    """Return Cohen's κ of two people, from both values of each unit.

    See Cohen 1960, A Coefficient of Agreement for Nominal Scales.

    None without units, and if all values are equal: there is no chance agreement to correct for.
    """
    counts = Counter(pairs)
    total = counts.total()
    if not total:
        return None
    rows: Counter[Hashable] = Counter()
    columns: Counter[Hashable] = Counter()
    for (one, other), number in counts.items():
        rows[one] += number
        columns[other] += number
    observed = sum(number for (one, other), number in counts.items() if one == other) / total
    expected = sum(rows[value] * columns[value] for value in rows) / total**2
    return None if math.isclose(expected, 1.0) else (observed - expected) / (1.0 - expected)


def kappa_of_pairs(units: Sequence[Unit]) -> dict[tuple[Hashable, Hashable], tuple[float | None, int]]:
    """Return Cohen's κ of every two people with shared units, and the number of those units.

    People are sorted by key.
    """
    shared: dict[tuple[Hashable, Hashable], list[tuple[Hashable, Hashable]]] = defaultdict(list)
    for unit in units:
        people = sorted(unit, key=repr)
        for one, other in combinations(people, 2):
            shared[one, other].append((unit[one], unit[other]))
    return {pair: (cohen_kappa(said), len(said)) for pair, said in shared.items()}


def count_differences(units: Iterable[Unit]) -> Counter[tuple[Any, Any]]:
    """Count the pairs of different values that two people gave to the same unit, each pair sorted as text."""
    found: Counter[tuple[Any, Any]] = Counter()
    for unit in units:
        for one, other in combinations(unit.values(), 2):
            if one != other:
                first, second = sorted((one, other), key=str)
                found[first, second] += 1
    return found


def krippendorff_alpha(units: Iterable[Unit], level: Level = "nominal") -> float | None:
    """Return the α of any number of people, with missing values.

    See Krippendorff 2011, Computing Krippendorff's Alpha-Reliability.

    None if no unit has two values, or if all values are equal: without variation, agreement is undefined.
    """
    coincidences: dict[tuple[Any, Any], float] = defaultdict(float)
    for unit in units:
        counted = Counter(unit.values())
        size = counted.total()
        if size < 2:
            continue
        for one, number in counted.items():
            for other, others in counted.items():
                coincidences[one, other] += number * (others - (one == other)) / (size - 1)
    totals: dict[Any, float] = defaultdict(float)
    for (one, _), weight in coincidences.items():
        totals[one] += weight
    pairable = sum(totals.values())
    if len(totals) < 2:
        return None
    distance = _DISTANCES[level](totals)
    observed = sum(weight * distance(one, other) for (one, other), weight in coincidences.items())
    expected = sum(totals[one] * totals[other] * distance(one, other) for one in totals for other in totals)
    return 1.0 - (pairable - 1) * observed / expected


Distance = Callable[[Any, Any], float]


def _nominal(totals: Mapping[Any, float]) -> Distance:
    return lambda one, other: float(one != other)


def _ordinal(totals: Mapping[Any, float]) -> Distance:
    """Return the ordinal distance: the number of values between two ranks, counting half of each end."""
    below, ranks = 0.0, dict[Any, float]()
    for value in sorted(totals):
        ranks[value] = below + totals[value] / 2
        below += totals[value]
    return lambda one, other: (ranks[one] - ranks[other]) ** 2


def _interval(totals: Mapping[Any, float]) -> Distance:
    return lambda one, other: float(one - other) ** 2


_DISTANCES: dict[Level, Callable[[Mapping[Any, float]], Distance]] = {
    "nominal": _nominal,
    "ordinal": _ordinal,
    "interval": _interval,
}


def correlate(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Return Pearson's r, or None for fewer than three pairs or if one side never varies."""
    if len(pairs) < 3:
        return None
    try:
        return statistics.correlation(*zip(*pairs, strict=True))
    except statistics.StatisticsError:
        return None


def area_under_curve(positives: Sequence[float], negatives: Sequence[float]) -> float | None:
    """Return the probability that a positive is above a negative, ties counted half. None without either.

    See Hanley and McNeil 1982, The Meaning and Use of the Area under a ROC Curve.
    """
    if not positives or not negatives:
        return None
    below = sorted(negatives)
    wins = sum(bisect_left(below, one) + bisect_right(below, one) for one in positives)
    return wins / (2 * len(positives) * len(negatives))
