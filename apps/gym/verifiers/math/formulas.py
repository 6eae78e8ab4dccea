"""Read an answer as one formula in plain LaTeX, and say in what formulas differ that a computer algebra calls equal.

math-verify ignores the case of letters, units, bases, primes and kinds of brackets, multiplies the letters of words,
subtracts the parts of dates, and rounds to decimals. `find_difference` looks at the written formulas instead.
"""

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from apps.gym.answer_texts import plain_characters

_CHARACTERS = str.maketrans({
    "×": r"\times ", "·": r"\cdot ", "÷": "/", "±": r"\pm ", "∞": r"\infty ", "π": r"\pi ", "θ": r"\theta ",
    "α": r"\alpha ", "β": r"\beta ", "γ": r"\gamma ", "λ": r"\lambda ", "μ": r"\mu ", "ω": r"\omega ", "φ": r"\phi ",
    "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "≈": r"\approx ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ",
    "∅": r"\emptyset ", "°": r"^\circ ", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}", "→": r"\to ",
    "\N{ANGLE}": r"\angle ", "∫": r"\int ", "∑": r"\sum ",
})  # fmt: skip
_ROOT = re.compile(r"√\s*(?:\(([^()]*)\)|(\w+))")
_LAYOUT = re.compile(
    r"\\(?:left|right|[bB]igg?[lrm]?|displaystyle|q?quad|mathrm(?=\{[a-zA-Z]\}))(?![a-zA-Z])|(?<!\\)\\[,;:! ]|~"
)
_SPELLINGS = {r"\dfrac": r"\frac", r"\tfrac": r"\frac", r"\leq": r"\le", r"\geq": r"\ge", r"\neq": r"\ne",
              r"\varnothing": r"\emptyset", r"\lbrace": r"\{", r"\rbrace": r"\}", r"\pmod": r"\pmod"}  # fmt: skip
_SPELLED = re.compile(r"\\[a-zA-Z]+")
_BOLD = re.compile(r"(\*\*|__|\*)(.+)\1", re.DOTALL)
_MIXED = re.compile(r"(-?\d{1,60}) (\d{1,60})/(\d{1,60})")
_CURRENCY = re.compile(r"^\\?[$€£¥]\s*(?=[\d.-])|(?<=\d)\s*[€£¥]$")
_POWERS = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "bn": 9, "trillion": 12}
_NUMBER_WORD = re.compile(
    rf"(?<=\d)\s*(?:\\(?:text|mathrm|textrm|mbox)\{{)?\s*((?i:{'|'.join(_POWERS)}))s?\s*\}}?(?![a-zA-Z])"
)
_SPACES_BESIDE_SIGNS = re.compile(r"\s+(?![a-zA-Z])|(?<![a-zA-Z])\s+")
MAX_FORMULA = 10_000
"""Maximum characters of an expression: more than any answer needs, and few enough for the parser."""


def read_formula(text: str) -> str:
    """Return an answer as a formula in plain LaTeX.

    Unicode becomes LaTeX (√3, x², ½, ≤). Final full stops, bold, spaces, `\\left` and currency signs are left out.
    3 1/2 becomes a mixed number, 42 million becomes 42 × 10^6.
    """
    text = text.strip()
    if text.isascii() and text.removeprefix("-").isdigit():
        return text  # Fast path: the usual answer.
    if not text.isascii():
        text = _ROOT.sub(lambda match: rf"\sqrt{{{match[1] or match[2]}}}", plain_characters(text)).translate(
            _CHARACTERS
        )
    if bold := _BOLD.fullmatch(text):
        text = bold[2]
    if "\\" in text or "~" in text:
        text = _SPELLED.sub(lambda match: _SPELLINGS.get(match[0], match[0]), _LAYOUT.sub(" ", text)).strip()
    if not text.endswith(".."):
        text = text.rstrip(" .;,")
    text = _CURRENCY.sub("", text)
    if mixed := _MIXED.fullmatch(text):
        text = rf"{mixed[1]}\frac{{{mixed[2]}}}{{{mixed[3]}}}"
    if text[:1].isdigit():
        text = _NUMBER_WORD.sub(lambda match: rf"\times 10^{{{_POWERS[match[1].lower()]}}}", text)
    return " ".join(text.split())


def squeeze(formula: str) -> str:
    r"""Return a formula without spaces that mean nothing and without braces around one character."""
    return _SPACES_BESIDE_SIGNS.sub("", re.sub(r"\{(\w)\}", r" \1", formula)).strip()


# Words and units ---------------------------------------------------------------------------------------------------

_TEXT = re.compile(r"\\(?:text(?:bf|it|rm|tt)?|mathrm|mbox|operatorname)\s*\{([^{}]*)\}")
_COMMAND = re.compile(r"\\[a-zA-Z]+")
_UNITS = {
    name: unit
    for unit, names in {
        "m": "m meter meters metre metres",
        "cm": "cm centimeter centimeters centimetre centimetres",
        "mm": "mm millimeter millimeters",
        "km": "km kilometer kilometers kilometre kilometres",
        "in": "inch inches",
        "ft": "ft foot feet",
        "yd": "yd yard yards",
        "mi": "mile miles",
        "g": "g gram grams",
        "kg": "kg kilogram kilograms",
        "mg": "mg milligram milligrams",
        "lb": "lb lbs pound pounds",
        "s": "s sec second seconds",
        "min": "min mins minute minutes",
        "h": "h hr hrs hour hours",
        "day": "day days",
        "week": "week weeks",
        "month": "month months",
        "year": "yr year years",
        "l": "l liter liters litre litres",
        "ml": "ml milliliter milliliters",
        "j": "j joule joules",
        "kj": "kj kilojoule kilojoules",
        "n": "newton newtons",
        "w": "w watt watts",
        "kw": "kw kilowatt kilowatts",
        "v": "v volt volts",
        "hz": "hz hertz",
        "mph": "mph",
        "cent": "cent cents",
        "dollar": "dollar dollars usd",
        "euro": "euro euros eur",
    }.items()
    for name in names.split()
}
_PLAIN_UNIT = re.compile(
    r"(?<=[\d.}])\s+((?:[a-zA-Z]{1,12}(?:\^\{?-?\d\}?)?)(?:\s*[/ ]\s*[a-zA-Z]{1,12}(?:\^\{?-?\d\}?)?){0,2})$"
)
_TEXT_UNIT = re.compile(
    r"(?<=[\d.}])\s*\\(?:text|mathrm|textrm|mbox)\s*\{([^{}]*)\}((?:\^\{?-?\d\}?)?)(?:\s*/\s*\\(?:text|mathrm)\{([^{}]*)\})?$"
)


def split_unit(formula: str) -> tuple[str, str]:
    """Return a formula without the unit at its end, and the unit in its usual form; empty without a known unit."""
    if not (formula[-1:].isalpha() or formula.endswith("}") or "^" in formula):
        return formula, ""
    found = _TEXT_UNIT.search(formula)
    words = f"{found[1]}{found[2]}{'/' + found[3] if found[3] else ''}" if found else ""
    if not found and (found := _PLAIN_UNIT.search(formula)):
        words = found[1]
    unit = _read_unit(words) if found else ""
    return (formula[: found.start()].strip(), unit) if found and unit else (formula, "")


def _read_unit(words: str) -> str:
    """Return km/h for "kilometers per hour", cm^2 for "square cm"; empty for other words."""
    words = re.sub(r"\b(?:square|sq)\.? ([a-z]+)", r"\1^2", words.strip().lower())
    words = re.sub(r"\bcubic ([a-z]+)", r"\1^3", words)
    parts = re.split(r"\s*(?:/|\bper\b|\s)\s*", words.replace("{", "").replace("}", "").rstrip("."))
    known = []
    for part in parts:
        name, _, power = part.partition("^")
        if name not in _UNITS:
            return ""
        known.append(_UNITS[name] + (f"^{power}" if power else ""))
    return "/".join(known)


# Differences -------------------------------------------------------------------------------------------------------

_NAME = re.compile(
    r"(?:\\frac\{d\w?\}\{d\w\}|(?:\\angle ?)?[a-zA-Z]{1,3}|\\[a-zA-Z]+(?:\{\w+\})?)"
    r"(?:_\{?\w+\}?)?'{0,3}\s*(?:\([a-zA-Z, ]*\))?"
)
EQUALS = re.compile(r"(?<![<>!=:])=(?!=)")
_OUTSIDE = re.compile(rf"[\[\](){{}},]|{EQUALS.pattern}")
_LITERAL = re.compile(r"\d+(?: ?[-:] ?\d+)+|\d+(?:/\d+){2,}")
_DATE = re.compile(r"\d+(?:[-/:]\d+){2,}")
_BASE = re.compile(r"(\w+?)_\{?(\d+)\}?")
_RELATION = re.compile(r"\\(?:le|ge|ne|equiv|in|notin|subset|subseteq)(?![a-z])|[<>]")
_SAME_RELATION = {">": "<", r"\ge": r"\le"}
_DIFFERENTIAL = re.compile(r"(?:(?<![a-zA-Z\\])d|\\partial )[a-zA-Z](?![a-zA-Z])")
_GROUPING = re.compile(r"\\?[\[\](){}]|,|\\[a-zA-Z]+")
_CLOSING = ("]", ")", "}", r"\}")


def find_difference(expected: str, answer: str, *, relations_as_sets: bool = False) -> str:
    """Return in what two formulas of `read_formula` differ that math-verify may call equal; empty if in nothing.

    With `relations_as_sets`, 1 < x ≤ 2 is the interval (1, 2].
    """
    left_out = {"a relation sign", "the kind of brackets"} if relations_as_sets else ()
    rules = ((name, differ) for name, differ in _DIFFERENCES.items() if name not in left_out)
    return next((name for name, differ in rules if differ(expected, answer)), "")


def split_equation(formula: str) -> tuple[str, str]:
    """Return the two sides of one equation; two empty texts for other formulas."""
    depth, signs = 0, []
    for token in _OUTSIDE.finditer(formula):
        if token[0] in ("=", ","):
            signs += [token] if not depth else []
        else:
            depth += 1 if token[0] in "([{" else -1
    if len(signs) != 1 or signs[0][0] != "=":
        return "", ""
    return formula[: signs[0].start()].strip(), formula[signs[0].end() :].strip()


def without_name(formula: str) -> str:
    """Return the right side of x = 5, f(x) = 5 or dy/dx = 5. Other formulas are unchanged."""
    left, right = split_equation(formula)
    return right if left and _NAME.fullmatch(left) else formula


def _differ_in_case(expected: str, answer: str) -> bool:
    wanted, given = _letters(expected), _letters(answer)
    return any(one.swapcase() in given for one in wanted - given) or any(
        one.swapcase() in wanted for one in given - wanted
    )


def _letters(formula: str) -> set[str]:
    bare = _COMMAND.sub(" ", _TEXT.sub(" ", without_name(split_unit(formula)[0])))
    return {one for one in re.sub(r"(?<=\d)[eE](?=[+-]?\d)", "", bare) if one.isalpha()}


def _differ_in_relations(expected: str, answer: str) -> bool:
    wanted, given = (
        Counter(_SAME_RELATION.get(one, one) for one in _RELATION.findall(text)) for text in (expected, answer)
    )
    return wanted != given and bool(given)


def _differ_as_literals(expected: str, answer: str) -> bool:
    """A date, a time, a score or a ratio is no calculation."""
    is_literal = _LITERAL.fullmatch(expected) or _DATE.fullmatch(answer)
    return bool(is_literal) and squeeze(expected) != squeeze(answer)


def _differ_in_order_of_letters(expected: str, answer: str) -> bool:
    """Words and names such as BADC are no products. Two or three small letters are."""
    wanted, given = (squeeze(_TEXT.sub(r"\1", text)) for text in (expected, answer))
    is_word = wanted.isalpha() and (len(wanted) > 3 or (wanted.isupper() and len(wanted) > 1) or wanted != expected)
    return is_word and sorted(wanted) == sorted(given) and wanted != given


def _differ_in_bases(expected: str, answer: str) -> bool:
    """A number without a base has the base of the question."""
    wanted, given = (_BASE.fullmatch(text) for text in (expected, answer))
    if not wanted and not given:
        return False
    number, base = wanted.groups() if wanted else (expected, None)
    other, other_base = given.groups() if given else (answer, None)
    return number != other or (None not in (base, other_base) and base != other_base)


def _differ_in_differentials(expected: str, answer: str) -> bool:
    """SymPy calls all equations with dy/dx equal: y is a name, so its derivative is 0."""
    wanted, given = (_DIFFERENTIAL.findall(text) for text in (expected, answer))
    is_equation = "=" in expected and "=" in answer
    return bool(wanted and given) and (wanted != given or is_equation)


def _differ_in_primes(expected: str, answer: str) -> bool:
    return _count_primes(expected) != _count_primes(answer)


def _count_primes(formula: str) -> int:
    bare = _TEXT.sub("", formula)
    return bare.count("'") + bare.count(r"\prime")


def _differ_in_brackets(expected: str, answer: str) -> bool:
    """Points, intervals, sets and lists are different things. A set may be written without its braces."""
    return _groups(expected) != _groups(answer)


def _groups(formula: str) -> Counter[str]:
    """Return the brackets around commas, such as "()" or "[)". Braces of commands do not count."""
    found: Counter[str] = Counter()
    opened: list[list[Any]] = []
    for sign in _GROUPING.findall(formula):
        if sign == ",":
            if opened:
                opened[-1][1] = True
        elif sign in _CLOSING:
            if opened:
                start, has_comma = opened.pop()
                found.update([start + sign] if has_comma and start not in ("{", r"\{") else [])
        elif sign[-1] in "[({":
            opened.append([sign, False])
    return found


def _differ_in_units(expected: str, answer: str) -> bool:
    wanted, given = split_unit(expected)[1], split_unit(answer)[1]
    return bool(wanted and given) and wanted != given


_DIFFERENCES: dict[str, Callable[[str, str], bool]] = {
    "upper and lower case": _differ_in_case,
    "a relation sign": _differ_in_relations,
    "a date, a time, a score or a ratio": _differ_as_literals,
    "the order of letters": _differ_in_order_of_letters,
    "the base": _differ_in_bases,
    "a derivative": _differ_in_differentials,
    "a prime": _differ_in_primes,
    "the kind of brackets": _differ_in_brackets,
    "the unit": _differ_in_units,
}


def are_close(expected: Any, answer: Any, tolerance: float) -> bool:
    """Return False if the numbers of two values of SymPy differ by more than `tolerance` × the expected number.

    math-verify rounds to decimals, so it calls all very small numbers equal. Values without numbers are close.
    """
    from sympy import Eq, FiniteSet, Interval, MatrixBase, Tuple, UnevaluatedExpr

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
    # math-verify reads 50 % as 50 or 0.5, and marks the hundredth.
    is_percent = [one.has(UnevaluatedExpr) for one in (expected, answer)]
    wanted, given = (one.doit().evalf() for one in (expected, answer))
    factors = (1.0,) if is_percent[0] == is_percent[1] else (1.0, 0.01, 100.0)
    return expected == answer or any(
        bool(abs(wanted * factor - given) <= tolerance * abs(wanted * factor)) for factor in factors
    )
