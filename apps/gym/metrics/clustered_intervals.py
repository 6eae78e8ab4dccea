"""95 % intervals of means over tasks. Attempts at one task are not independent, so tasks are the unit of sampling."""

import math

Z_95 = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""
MIN_TASKS = 5
"""No interval is given for fewer tasks: it would not cover the true mean as often as it says."""
_RANGES = ((0.0, 1.0), (-1.0, 1.0))


def standard_error_from(squares: float, size: int, tasks: int) -> float | None:
    """Return the standard error of a mean clustered by task, or None for fewer than two tasks.

    `squares` is the sum of squared deviations of each task's sum of values, `size` the number of values.

    Deviations are summed per task before they are squared (Miller 2024, "Adding Error Bars to Evals",
    arXiv:2411.00640, section 2.2), and multiplied by n/(n−1), because the mean is estimated from the same n tasks.
    """
    return math.sqrt(max(squares, 0.0) * tasks / (tasks - 1)) / size if tasks > 1 else None


def mean_interval(
    *, mean: float, squares: float, size: int, tasks: int, low: float, high: float, is_binary: bool
) -> tuple[float, float] | None:
    """Return the 95 % interval of a mean clustered by task, or None for fewer than MIN_TASKS tasks.

    `squares`, `size` and `tasks` have the same meaning as in `standard_error_from`. All values are from `low` to
    `high`. `is_binary` is True if every value is 0 or 1.

    Values within 0 to 1, or −1 to 1, have a Wilson interval: its ends stay in the range, and near an end it is as
    skewed as the values. Its size is the effective number of independent values, m(1−m)/SE², and its quantile that of t
    with n−1 degrees of freedom (Korn and Graubard 1998, "Confidence Intervals for Proportions with Small Expected
    Number of Positive Counts Estimated from Survey Data"). One of the n tasks counts with the largest possible
    variance, m(1−m), because few tasks often show too little variance. Single attempts with values 0 or 1 have the
    plain Wilson interval (Wilson 1927). Other values have the interval mean ± t × SE.

    tests/gym/test_clustered_intervals.py simulates how often the intervals cover the true mean: at least 93 % from ten
    tasks.
    """
    error = standard_error_from(squares, size, tasks)
    if error is None or tasks < MIN_TASKS:
        return None
    quantile = t_quantile(tasks - 1)
    within = next(((start, end) for start, end in _RANGES if start <= low and high <= end), None)
    if within is None:
        return mean - quantile * error, mean + quantile * error
    start, end = within
    width = end - start
    share, error = (mean - start) / width, error / width
    if size == tasks and is_binary:
        ends = wilson(share, tasks, Z_95)
    elif largest := share * (1 - share):
        square = ((tasks - 1) * error**2 + largest / tasks) / tasks
        ends = wilson(share, largest / square, quantile)
    else:
        # All values are at one end of the range: each task counts once.
        ends = wilson(share, tasks, quantile)
    return start + width * ends[0], start + width * ends[1]


def wilson(share: float, size: float, quantile: float) -> tuple[float, float]:
    """Return the Wilson score interval of a share of `size` values. See Wilson 1927, "Probable Inference"."""
    squared = quantile**2 / size
    middle = (share + squared / 2) / (1 + squared)
    half = quantile * math.sqrt(max(0.0, share * (1 - share)) / size + squared / size / 4) / (1 + squared)
    return max(0.0, middle - half), min(1.0, middle + half)


def t_quantile(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's t. The error is below 0.001 from four degrees of freedom.

    See Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.7.5.
    """
    z = Z_95
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92_160,
    )
    return math.fsum(term / freedom**power for power, term in enumerate(terms))
