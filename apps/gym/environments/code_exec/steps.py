"""The steps of exercises.

Each is a function whose docstring is its text in the exercise, with `{n}` for its number.

Solutions contain the source of these functions, so each is self-contained and imports what it needs.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,var-annotated"
# ruff: noqa: E501


def keep_multiples(values, n):
    """keep only the numbers that are divisible by {n}"""
    return [value for value in values if value % n == 0]


def drop_multiples(values, n):
    """drop the numbers that are divisible by {n}"""
    return [value for value in values if value % n != 0]


def keep_above(values, n):
    """keep only the numbers greater than {n}"""
    return [value for value in values if value > n]


def times(values, n):
    """multiply each number by {n}"""
    return [value * n for value in values]


def plus(values, n):
    """add {n} to each number"""
    return [value + n for value in values]


def times_place(values, n):
    """multiply each number by its place in the list, where the first place is {n}"""
    return [value * place for place, value in enumerate(values, n)]


def running_sums(values, n):
    """replace each number by {n} plus the sum of itself and all numbers before it"""
    sums, total = [], n
    for value in values:
        total += value
        sums.append(total)
    return sums


def differences(values, n):
    """replace the list by the differences between each number and the one {n} places before it, in order; those without one are dropped"""
    return [values[at] - values[at - n] for at in range(n, len(values))]


def every_nth(values, n):
    """keep the first number and then every {n}th one after it"""
    return values[::n]


def rotate(values, n):
    """move the first number to the end of the list, {n} times in all"""
    if not values:
        return values
    at = n % len(values)
    return values[at:] + values[:at]


def clamp(values, n):
    """replace each number below -{n} by -{n} and each above {n} by {n}"""
    return [max(-n, min(n, value)) for value in values]


def flip_above(values, n):
    """change the sign of each number that is greater than {n}"""
    return [-value if value > n else value for value in values]


def window_maxima(values, n):
    """replace the list by the greatest number of each {n} neighbours, from left to right; a list of fewer becomes empty"""
    return [max(values[at : at + n]) for at in range(len(values) - n + 1)]


def turn_blocks(values, n):
    """cut the list into blocks of {n}, where the last may be shorter, and reverse each block in its place"""
    return [value for at in range(0, len(values), n) for value in values[at : at + n][::-1]]


def modulo(values, n):
    """replace each number by its remainder modulo {n}, from 0 to {n} - 1"""
    return [value % n for value in values]


def sort_by_remainder(values, n):
    """sort the numbers by their remainder modulo {n}; those with the same remainder by size, smallest first"""
    return sorted(values, key=lambda value: (value % n, value))


def at_most_times(values, n):
    """keep at most the first {n} of numbers that are equal, and the order of all that stay"""
    seen = {}
    kept = []
    for value in values:
        seen[value] = seen.get(value, 0) + 1
        if seen[value] <= n:
            kept.append(value)
    return kept


def digit_sums(values, n):
    """replace each number by the sum of the digits that its absolute value has in base {n}"""
    sums = []
    for value in values:
        rest, total = abs(value), 0
        while rest:
            total += rest % n
            rest //= n
        sums.append(total)
    return sums


def smaller_before(values, n):
    """replace each number by how many numbers before it are smaller than it by {n} or more"""
    return [sum(value - other >= n for other in values[:at]) for at, value in enumerate(values)]


# ── results ──


def total(values):
    """the sum of the numbers, 0 for none"""
    return sum(values)


def spread(values):
    """the difference between the greatest and the smallest number, 0 for none"""
    return max(values) - min(values) if values else 0


def distinct(values):
    """how many different numbers there are"""
    return len(set(values))


def alternating(values):
    """the first number minus the second plus the third minus the fourth and so on, 0 for none"""
    return sum(value if at % 2 == 0 else -value for at, value in enumerate(values))


def itself(values):
    """the list"""
    return values


def backwards(values):
    """the list in reverse order"""
    return values[::-1]


def in_order(values):
    """the list sorted from the smallest to the greatest number"""
    return sorted(values)


def most_frequent(values):
    """the number that is there most often, the smallest of them where several are, and None for an empty list"""
    return min(values, key=lambda value: (-values.count(value), value)) if values else None


def longest_rise(values):
    """the length of the longest run of neighbours in which each number is greater than the one before, 0 for none"""
    best = length = 0
    for at, value in enumerate(values):
        length = length + 1 if at and value > values[at - 1] else 1
        best = max(best, length)
    return best


def inversions(values):
    """how many pairs of numbers there are in which the earlier is greater than the later"""
    return sum(values[first] > values[second] for second in range(len(values)) for first in range(second))


def counts(values):
    """a dictionary that gives, for each number written as text, how often it is there"""
    found = {}
    for value in values:
        found[str(value)] = found.get(str(value), 0) + 1
    return found


def rising_subsequence(values):
    """the length of the longest strictly increasing subsequence, whose numbers need not be neighbours, 0 for none"""
    best = []
    for at, value in enumerate(values):
        best.append(1 + max((best[before] for before in range(at) if values[before] < value), default=0))
    return max(best, default=0)


NUMBERED = [
    keep_multiples,
    drop_multiples,
    keep_above,
    times,
    plus,
    times_place,
    running_sums,
    differences,
    every_nth,
    rotate,
    clamp,
    flip_above,
    window_maxima,
    turn_blocks,
    modulo,
    sort_by_remainder,
    at_most_times,
    digit_sums,
    smaller_before,
]
RETURNED = [
    total,
    spread,
    distinct,
    alternating,
    itself,
    backwards,
    in_order,
    most_frequent,
    longest_rise,
    inversions,
    counts,
    rising_subsequence,
]
