"""Say in what two formulas differ that a computer algebra calls equal.

math-verify ignores the case of letters, units, bases, primes and kinds of brackets, multiplies the letters of words,
and subtracts the parts of dates. `find_difference` looks at the written formulas instead.
"""

import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from apps.gym.verifiers.math.formulas import RELATION, TEXT, squeeze, without_name
from apps.gym.verifiers.math.units import CALCULATING, find_words, split_unit

_COMMAND = re.compile(r"\\[a-zA-Z]+")
_CALCULATES = re.compile(rf"[kB]|(?i:{CALCULATING})").fullmatch
_COMPOUND = re.compile(r"\d\s*(?:\\text\{[^{}]*\}|[a-z]{2,}|\\?\$)\s*\d")
_PROGRAM = re.compile(r"0[xXbBoO]\w+")
_LITERAL = re.compile(r"(?:(?:\d+(?: ?[-:] ?\d+)+|\d+(?:/\d+){2,}|0\d/\d+)(?:, ?(?!$)|$))+")
_DATE = re.compile(r"\d+(?:[-/:]\d+){2,}")
_DOTS = re.compile(r",\s*(?:\\[lc]?dots|\.\.\.|…)")
"""1, 4, 9, … is not the set of these three."""
_VECTOR = re.compile(r"\\(?:vec|nabla|mathbf|boldsymbol)(?![a-z])")
_PRODUCT = re.compile(r"\\(?:times|cdot)(?![a-z])")
_PRIME = re.compile(r"'|\\prime(?![a-z])|\^\{?(?:T|\\top)(?![a-z])")
_BASE = re.compile(r"(\w+?)_\{?(\d+)\}?")
_BASED = re.compile(r"(?<![\w.])(\d+)_\{?(\d+)\}?")
_APPLIED = re.compile(r"(?<![a-zA-Z\\])([fghFGHT])'*(\^\{?-1\}?)?'*\(")
"""A letter that names a function by convention. SymPy takes it for a factor."""
_SAME_RELATION = {">": "<", r"\ge": r"\le"}
_DIFFERENTIAL = re.compile(r"(?:(?<![a-zA-Z\\])d|\\partial )[a-zA-Z](?![a-zA-Z])")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_GROUPING = re.compile(r"\\?[\[\](){}]|,|\\[a-zA-Z]+")
_CLOSING = ("]", ")", "}", r"\}")


def find_difference(expected: str, answer: str, *, relations_as_sets: bool = False) -> str:
    """Return in what two formulas of `read_formula` differ that math-verify may call equal; empty if in nothing.

    With `relations_as_sets`, 1 < x ≤ 2 is the interval (1, 2].
    """
    left_out = {"a relation sign", "the kind of brackets or the number of values"} if relations_as_sets else ()
    rules = ((name, differ) for name, differ in _DIFFERENCES.items() if name not in left_out)
    return next((name for name, differ in rules if differ(expected, answer)), "")


def _differ_in_case(expected: str, answer: str) -> bool:
    wanted, given = _letters(expected), _letters(answer)
    folded = Counter(one.casefold() for one in wanted | given)
    return any(folded[one.casefold()] > 1 for one in wanted ^ given)


def _letters(formula: str) -> set[str]:
    """Return the letters of a formula, and the names of its commands, such as Greek letters."""
    formula = found[1] if (found := TEXT.fullmatch(formula)) else formula
    bare = re.sub(r"(?<=\d)[eE](?=[+-]?\d)", "", TEXT.sub(" ", without_name(split_unit(formula)[0])))
    return {*_COMMAND.findall(bare), *filter(str.isalpha, _COMMAND.sub(" ", bare))}


def _differ_in_relations(expected: str, answer: str) -> bool:
    wanted, given = (
        Counter(_SAME_RELATION.get(one, one) for one in RELATION.findall(text)) for text in (expected, answer)
    )
    return wanted != given and bool(given)


def _differ_as_literals(expected: str, answer: str) -> bool:
    """A date, a time, a score or a ratio is no calculation, and 5 ft 3 in and 0xFF are no products."""
    is_literal = bool(_LITERAL.fullmatch(expected) or _DATE.fullmatch(answer)) or any(
        _COMPOUND.search(one) or _PROGRAM.fullmatch(one) for one in (expected, answer)
    )
    return is_literal and squeeze(expected) != squeeze(answer)


def _differ_in_order_of_letters(expected: str, answer: str) -> bool:
    """Words and names such as BADC are no products. Two or three small letters are."""
    wanted, given = (squeeze(TEXT.sub(r"\1", text)).removeprefix(r"\angle ") for text in (expected, answer))
    if expected.startswith(r"\angle ") and given == wanted[::-1]:
        return False
    is_word = wanted.isalpha() and (len(wanted) > 3 or (wanted.isupper() and len(wanted) > 1) or wanted != expected)
    return is_word and sorted(wanted) == sorted(given) and wanted != given


def _differ_in_bases(expected: str, answer: str) -> bool:
    """An answer without a base has the base of the question."""
    wanted, given = (_BASE.fullmatch(text) for text in (expected, answer))
    if not wanted and not given:
        return Counter(_BASED.findall(expected)) != Counter(_BASED.findall(answer))
    number, base = wanted.groups() if wanted else (expected, None)
    other, other_base = given.groups() if given else (answer, None)
    # An expected number without a base is decimal.
    return number != other or (base is None and given is not None) or (other_base is not None and base != other_base)


def _differ_in_functions(expected: str, answer: str) -> bool:
    """f^{-1}(x) is not 1/f(x), and f(x + 1) is no product."""
    wanted, given = (_APPLIED.findall(text) for text in (expected, answer))
    inverses = [sorted(name for name, inverse in found if inverse) for found in (wanted, given)]
    known, other = ({name for name, _ in found} for found in (wanted, given))
    is_product = any(name in answer for name in known - other) or any(name in expected for name in other - known)
    return inverses[0] != inverses[1] or is_product


def _differ_in_differentials(expected: str, answer: str) -> bool:
    wanted, given = (sorted(_DIFFERENTIAL.findall(text)) for text in (expected, answer))
    return bool(wanted and given) and wanted != given


def _differ_in_number(marks: re.Pattern[str], expected: str, answer: str) -> bool:
    wanted, given = (len(marks.findall(TEXT.sub("", text))) for text in (expected, answer))
    return wanted != given


def _differ_in_brackets(expected: str, answer: str) -> bool:
    """Points, intervals, sets and lists are different things. A set needs no braces, and x > 3 is an interval."""
    is_interval = bool(RELATION.search(expected)) and not RELATION.search(answer)
    wanted, given = _groups(expected), _groups(answer)
    lengths = {wanted.pop(",", 0), given.pop(",", 0)}
    return not is_interval and (wanted != given or len(lengths - {0}) > 1)


def _groups(formula: str) -> Counter[str]:
    """Count the brackets around commas, such as "()" or "[)", and the commas outside. Braces do not count."""
    found: Counter[str] = Counter()
    opened: list[list[Any]] = []
    for sign in _GROUPING.findall(_THOUSANDS.sub("", formula)):
        if sign == ",":
            if opened:
                opened[-1][1] = True
            else:
                found[","] += 1
        elif sign in _CLOSING:
            if opened:
                start, has_comma = opened.pop()
                found.update([start + sign] if has_comma and start not in ("{", r"\{") else [])
                is_nested = start in ("[", r"\{") and any(one[0] in ("[", r"\{") for one in opened)
                found.update(["nested"] if is_nested else [])
        elif sign[-1] in "[({":
            opened.append([sign, False])
    return found


def _differ_in_products(expected: str, answer: str) -> bool:
    """Vectors have two products, and the order of the factors counts in one of them."""
    if not _VECTOR.search(expected + answer):
        return False
    wanted, given = (_PRODUCT.findall(text) for text in (expected, answer))
    return wanted != given or (r"\times" in wanted and squeeze(expected) != squeeze(answer))


def _differ_in_words(expected: str, answer: str) -> bool:
    """Units and other words: one side may have more of them, or none, but not other ones or another order."""
    wanted, given = find_words(expected), find_words(answer)
    if Counter(filter(_CALCULATES, wanted)) != Counter(filter(_CALCULATES, given)):
        return True
    if sorted(wanted) == sorted(given):
        return wanted != given
    return not (set(wanted) <= set(given) or set(given) <= set(wanted))


_DIFFERENCES: dict[str, Callable[[str, str], bool]] = {
    "upper and lower case": _differ_in_case,
    "a relation sign": _differ_in_relations,
    "a date, a time, a score or a ratio": _differ_as_literals,
    "the order of letters": _differ_in_order_of_letters,
    "the base": _differ_in_bases,
    "a function": _differ_in_functions,
    "a derivative": _differ_in_differentials,
    "a prime or a transpose": partial(_differ_in_number, _PRIME),
    "the kind of brackets or the number of values": _differ_in_brackets,
    "the unit or another word": _differ_in_words,
    "dots": partial(_differ_in_number, _DOTS),
    "the product of vectors": _differ_in_products,
}
