"""Evaluate arithmetic safely, from Python's syntax tree restricted to numbers and seven operators.

Any text returns a number or raises CalculationError, in bounded time and memory.
"""

import ast
import math
import operator
import re
from collections.abc import Callable

MAX_LENGTH = 500
MAX_DEPTH = 250
MAX_EXPONENT = 1_000
MAX_DIGITS = 1_000

_MAX_BITS = int(MAX_DIGITS * math.log2(10)) + 1
_UNEXPECTED = re.compile(r"[^0-9eE_.+\-*/%() ]")
_TYPOGRAPHY = str.maketrans({"×": "*", "÷": "/", "−": "-", "\t": " ", "\n": " ", "\r": " ", "\u00a0": " "})


class CalculationError(Exception):
    """Raised when an expression has no value. The message explains why to its author."""


def evaluate(expression: str) -> int | float:
    """Return the value of an expression of + - * / // % **, parentheses, integers and decimals.

    Raises CalculationError.
    """
    try:
        return _value(_parse(expression).body, 0)
    except ZeroDivisionError:
        raise CalculationError("division by zero") from None
    except OverflowError:
        raise CalculationError("the result is too large") from None
    except RecursionError:
        raise CalculationError("the expression is nested too deeply") from None


def _parse(expression: str) -> ast.Expression:
    if len(expression) > MAX_LENGTH:
        raise CalculationError(f"the expression is longer than {MAX_LENGTH} characters")
    text = expression.translate(_TYPOGRAPHY).strip()
    if not text:
        raise CalculationError("the expression is empty")
    # Checked before parsing: without letters and quotes the parser meets no names, strings or calls, and cannot warn.
    if unexpected := _UNEXPECTED.search(text):
        hint = {"^": "; a power is written **", ",": "; write 1234, not 1,234"}.get(unexpected[0], "")
        raise CalculationError(f"unexpected character {unexpected[0]!r}{hint}")
    try:
        return ast.parse(text, mode="eval")
    except (SyntaxError, ValueError):
        raise CalculationError("the expression is not valid arithmetic") from None
    except MemoryError:
        raise CalculationError("the expression is nested too deeply") from None


def _value(node: ast.expr, depth: int) -> int | float:
    if depth > MAX_DEPTH:
        raise CalculationError("the expression is nested too deeply")
    match node:
        case ast.Constant(value=int() | float() as number):
            return _bounded(number)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, depth + 1)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand, depth + 1)
        case ast.BinOp(op=ast.Pow(), left=left, right=right):
            return _power(_value(left, depth + 1), _value(right, depth + 1))
        case ast.BinOp(op=op, left=left, right=right) if apply := _OPERATORS.get(type(op)):
            return _bounded(apply(_value(left, depth + 1), _value(right, depth + 1)))
    raise CalculationError("only numbers, + - * / // % ** and parentheses are understood")


_OPERATORS: dict[type[ast.operator], Callable[[int | float, int | float], int | float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def _power(base: int | float, exponent: int | float) -> int | float:
    if abs(exponent) > MAX_EXPONENT:
        raise CalculationError(f"the exponent is larger than {MAX_EXPONENT}")
    # Checked before computing: 10**1000**2 would have a million digits.
    if isinstance(base, int) and isinstance(exponent, int) and (base.bit_length() - 1) * exponent > _MAX_BITS:
        raise CalculationError(f"the result has more than {MAX_DIGITS} digits")
    result = base**exponent
    if isinstance(result, complex):
        raise CalculationError("this power of a negative number is not real")
    return _bounded(result)


def _bounded(number: int | float) -> int | float:
    if isinstance(number, int):
        if number.bit_length() > _MAX_BITS:
            raise CalculationError(f"a number has more than {MAX_DIGITS} digits")
    elif not math.isfinite(number):
        raise CalculationError("the result is too large")
    return number
