"""Compare the values of SymPy that math-verify reads."""

from typing import Any


def can_be_equal(expected: Any, answer: Any) -> bool:
    """Return False if only one of two values of SymPy is an equation, other than a name or a sum of names = a value.

    math-verify compares the right side of the equation: x^2 - 5x + 6 = 0 would be 0.
    """
    from sympy import Abs, Add, Eq, Symbol

    if not isinstance(expected, Eq) and not isinstance(answer, Eq):
        return True
    if isinstance(expected, Eq):
        return isinstance(answer, Eq) and answer.lhs != answer.rhs
    left = answer.lhs
    is_sum = isinstance(left, Add) and all(isinstance(one, Symbol) for one in left.args)
    return is_sum or isinstance(left, Symbol | Abs) or not left.free_symbols


def are_close(expected: Any, answer: Any, tolerance: float) -> bool:
    """Return False if the numbers of two values of SymPy differ by more than `tolerance` × the expected number.

    math-verify rounds to decimals, so it calls all very small numbers equal. Values without numbers are close.
    """
    from sympy import Eq, FiniteSet, Float, Interval, MatrixBase, Tuple, UnevaluatedExpr

    if isinstance(expected, Eq) and isinstance(answer, Eq) and expected.lhs != answer.lhs:
        return True
    expected, answer = (one.rhs if isinstance(one, Eq) else one for one in (expected, answer))
    if isinstance(expected, FiniteSet) and isinstance(answer, FiniteSet):
        return all(any(are_close(one, other, tolerance) for other in answer.args) for one in expected.args)
    if all(isinstance(one, MatrixBase | Tuple | Interval) for one in (expected, answer)):
        pairs = zip(
            *(one.flat() if isinstance(one, MatrixBase) else one.args for one in (expected, answer)), strict=False
        )
        return all(are_close(one, other, tolerance) for one, other in pairs)
    if not all(getattr(one, "is_number", False) for one in (expected, answer)):
        return True
    if all(one.is_rational and not one.has(Float, UnevaluatedExpr) for one in (expected, answer)):
        return bool(expected.doit() == answer.doit())
    # math-verify reads 50 % as 50 or 0.5, and marks the hundredth.
    is_percent = [one.has(UnevaluatedExpr) for one in (expected, answer)]
    wanted, given = (one.doit().evalf() for one in (expected, answer))
    factors = (1.0,) if is_percent[0] == is_percent[1] else (1.0, 0.01, 100.0)
    return expected == answer or any(
        bool(abs(wanted * factor - given) <= tolerance * abs(wanted * factor)) for factor in factors
    )
