"""Distributions of numbers, stored as packed arrays that can be combined without sorting again."""

import math
import statistics
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from apps.gym.metrics.clustered_intervals import mean_interval
from apps.gym.metrics.pass_at_k import sample_std


class Distribution(msgspec.Struct, array_like=True, frozen=True):
    """Sorted distinct numbers, as arrays in native byte order.

    `values` are the numbers (float64), and `passed` the cumulative counts (int64). `sums` has an associated float64 sum
    per number, or is empty. `squares` is the sum of squared deviations from the mean.
    """

    values: bytes = b""
    passed: bytes = b""
    total: float = 0.0
    squares: float = 0.0
    sums: bytes = b""

    @property
    def size(self) -> int:
        return memoryview(self.passed).cast("q")[-1] if self.passed else 0

    @property
    def mean(self) -> float:
        return self.total / self.size


def distribute(rows: Iterable[tuple[float, int, float]]) -> Distribution:
    """Return the distribution of rows (number, count, associated sum) with distinct numbers."""
    ordered = sorted(rows)
    size, passed = 0, array("q")
    for _, count, _ in ordered:
        size += count
        passed.append(size)
    if not size:
        return Distribution()
    total = math.fsum(value * count for value, count, _ in ordered)
    mean = total / size
    return Distribution(
        values=array("d", [value for value, _, _ in ordered]).tobytes(),
        passed=passed.tobytes(),
        total=total,
        squares=math.fsum(count * (value - mean) ** 2 for value, count, _ in ordered),
        sums=array("d", [each for _, _, each in ordered]).tobytes() if any(each for _, _, each in ordered) else b"",
    )


class Numbers:
    """The union of several distributions."""

    def __init__(self, parts: Iterable[Distribution]) -> None:
        self._parts = [part for part in parts if part.size]
        self._values = [memoryview(part.values).cast("d") for part in self._parts]
        self._passed = [memoryview(part.passed).cast("q") for part in self._parts]
        self.size = sum(part.size for part in self._parts)

    @property
    def mean(self) -> float:
        return math.fsum(part.total for part in self._parts) / self.size

    @property
    def low(self) -> float:
        return min(values[0] for values in self._values)

    @property
    def high(self) -> float:
        return max(values[-1] for values in self._values)

    @property
    def is_binary(self) -> bool:
        """Return True if every number is 0 or 1."""
        return all(len(values) <= 2 and all(value in (0.0, 1.0) for value in values) for values in self._values)

    @property
    def std(self) -> float | None:
        """Return the sample standard deviation, or None for fewer than two numbers."""
        # Deviations are from each part's own mean: the one-pass formula loses precision for close numbers.
        mean = self.mean
        squares = math.fsum(part.squares + part.size * (part.mean - mean) ** 2 for part in self._parts)
        return sample_std(self.size, squares)

    @property
    def median(self) -> float:
        return statistics.mean((self._at((self.size - 1) // 2), self._at(self.size // 2)))

    def interval(self, squares: float, tasks: int) -> tuple[float, float] | None:
        """Return the 95 % interval of the mean, see `mean_interval`. None without numbers."""
        if not self.size:
            return None
        return mean_interval(
            mean=self.mean,
            squares=squares,
            size=self.size,
            tasks=tasks,
            low=self.low,
            high=self.high,
            is_binary=self.is_binary,
        )

    def bars(self, place: Callable[[float], int]) -> Iterator["Bar"]:
        """Yield the numbers of each part grouped by `place(number)`, which must be non-decreasing."""
        for part, values, passed in zip(self._parts, self._values, self._passed, strict=True):
            sums = memoryview(part.sums).cast("d") if part.sums else None
            start = before = 0
            while start < len(values):
                index = place(values[start])
                end = bisect_right(values, index, lo=start, key=place)
                yield Bar(
                    place=index,
                    low=values[start],
                    high=values[end - 1],
                    count=passed[end - 1] - before,
                    total=math.fsum(sums[start:end]) if sums else 0.0,
                )
                start, before = end, passed[end - 1]

    def _at(self, position: int) -> float:
        """Return the number at this position of the sorted union, by binary search."""
        windows: Sequence[tuple[int, int]] = [(0, len(values)) for values in self._values]
        while True:
            largest = max(range(len(windows)), key=lambda part: windows[part][1] - windows[part][0])
            pivot = self._values[largest][sum(windows[largest]) // 2]
            cuts = [
                (bisect_left(values, pivot, *window), bisect_right(values, pivot, *window))
                for values, window in zip(self._values, windows, strict=True)
            ]
            if position < self._count([low for low, _ in cuts]):
                windows = [(start, low) for (start, _), (low, _) in zip(windows, cuts, strict=True)]
            elif position < self._count([high for _, high in cuts]):
                return pivot
            else:
                windows = [(high, end) for (_, end), (_, high) in zip(windows, cuts, strict=True)]

    def _count(self, ends: Sequence[int]) -> int:
        """Return how many numbers precede these positions of the parts."""
        return sum(passed[end - 1] for passed, end in zip(self._passed, ends, strict=True) if end)


class Bar(msgspec.Struct, frozen=True):
    """The numbers of one part that fall into one bin: lowest, highest, count, and total of their sums."""

    place: int
    low: float
    high: float
    count: int
    total: float
