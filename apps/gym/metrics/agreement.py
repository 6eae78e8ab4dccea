"""How far people agree: percent, Cohen's κ, Krippendorff's α.

A unit is what several people judged: the values that they gave it, by person. Who gave none is missing from it.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, Literal

Level = Literal["nominal", "ordinal", "interval"]
Unit = Mapping[Hashable, Any]


def percent_agreement(units: Iterable[Unit]) -> float | None:
    """Of every two people who judged the same unit, the share that said the same. None where nobody shared one."""
    same = total = 0
    for unit in units:
        for one, other in combinations(unit.values(), 2):
            total += 1
            same += one == other
    return same / total if total else None


def cohen_kappa(pairs: Iterable[tuple[Hashable, Hashable]]) -> float | None:
    """Of two people, from what both said of each unit (Cohen 1960, A Coefficient of Agreement for Nominal Scales).

    None without units, and where both always said the same one thing: there is no chance to correct for.
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
    """Cohen's κ of every two people who share units, and how many those are. People are in the order of their keys."""
    shared: dict[tuple[Hashable, Hashable], list[tuple[Hashable, Hashable]]] = defaultdict(list)
    for unit in units:
        people = sorted(unit, key=repr)
        for one, other in combinations(people, 2):
            shared[one, other].append((unit[one], unit[other]))
    return {pair: (cohen_kappa(said), len(said)) for pair, said in shared.items()}


def count_differences(units: Iterable[Unit]) -> Counter[tuple[Any, Any]]:
    """Of every two people who said different things of the same unit: what the two said, in the order of their text."""
    found: Counter[tuple[Any, Any]] = Counter()
    for unit in units:
        for one, other in combinations(unit.values(), 2):
            if one != other:
                first, second = sorted((one, other), key=str)
                found[first, second] += 1
    return found


def krippendorff_alpha(units: Iterable[Unit], level: Level = "nominal") -> float | None:
    """Of any number of people, with values missing (Krippendorff 2011, Computing Krippendorff's Alpha-Reliability).

    None where no unit has two values, and where all values are the same one: nothing varies that could be agreed on.
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
    """By the values that lie between two ranks, half of each end."""
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
    """Pearson's r; None of fewer than three, or where one side never varies."""
    if len(pairs) < 3:
        return None
    count = len(pairs)
    mean_x, mean_y = math.fsum(x for x, _ in pairs) / count, math.fsum(y for _, y in pairs) / count
    xx = math.fsum((x - mean_x) ** 2 for x, _ in pairs)
    yy = math.fsum((y - mean_y) ** 2 for _, y in pairs)
    xy = math.fsum((x - mean_x) * (y - mean_y) for x, y in pairs)
    return xy / math.sqrt(xx * yy) if xx > 0 and yy > 0 else None
