"""Student's t distribution."""

import math


def lower_tail(value: float, freedom: int) -> float:
    """Return P(T ≤ value) of Student's t, by the regularised incomplete beta function (Abramowitz and Stegun, 26.7.1).

    A value of ±infinity gives 1 or 0.
    """
    from mpmath import betainc  # imported here, because a server needs it rarely

    tail = 0.5 * float(betainc(freedom / 2, 0.5, 0, freedom / (freedom + value**2), regularized=True))
    return tail if value < 0 else 1 - tail


def mean_below_zero(size: int, mean: float, squares: float) -> float:
    """Return the p-value of the one-sided t-test that the true mean is below zero (Student 1908).

    `squares` is the sum of squared deviations of the `size` values, at least two, from their `mean`.
    """
    error = math.sqrt(squares / (size - 1) / size)
    if error:
        return lower_tail(mean / error, size - 1)
    return 0.0 if mean < 0 else 1.0
