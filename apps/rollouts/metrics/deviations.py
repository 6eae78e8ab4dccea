"""Sums of squared deviations per task from a mean. They can be shifted to another mean and added up."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec


class Deviations(msgspec.Struct, array_like=True, frozen=True):
    """Sums over tasks, where t is the total of a task, n its number of values, and d = t − n × center.

    `squares` is the sum of d², `products` of d × n, and `weights` of n².
    """

    center: float = 0.0
    squares: float = 0.0
    products: float = 0.0
    weights: float = 0.0

    @classmethod
    def read(cls, center: float, sums: Sequence[Any]) -> "Deviations":
        """Create from the columns of `deviations_sql`."""
        return cls(center, *(float(each or 0.0) for each in sums))

    def about(self, mean: float) -> "Deviations":
        """Return the deviations from another mean.

        Precise if the mean is close to the center: t − n × mean = d + n × (center − mean).
        """
        off = self.center - mean
        return Deviations(
            mean,
            self.squares + 2 * off * self.products + off * off * self.weights,
            self.products + off * self.weights,
            self.weights,
        )

    @classmethod
    def combine(cls, parts: Iterable["Deviations"]) -> "Deviations":
        """Add up the deviations of several parts, relative to the center of the first non-empty part."""
        known = [part for part in parts if part.weights]
        if not known:
            return cls()
        moved = [part.about(known[0].center) for part in known]
        return cls(
            known[0].center,
            math.fsum(part.squares for part in moved),
            math.fsum(part.products for part in moved),
            math.fsum(part.weights for part in moved),
        )


def deviations_sql(total: str, size: str, center: str) -> str:
    """Return the SQL columns of the sums.

    Deviations are taken before squaring, for precision with large, close values.
    """
    off = f"({total} - {size} * {center})"
    return f"SUM({off} * {off}), SUM({off} * {size}), SUM({size} * {size})"
