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
    "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "≈": r"\approx ",
    "≡": r"\equiv ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ",
    "∅": r"\emptyset ", "°": r"^\circ ", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}", "→": r"\to ",
    "\N{ANGLE}": r"\angle ", "∫": r"\int ", "∑": r"\sum ",
})  # fmt: skip
_ROOT = re.compile(r"√\s*(?:\(([^()]*)\)|(\w+))")
_LAYOUT = re.compile(
    r"\\(?:left|right|[bB]igg?[lrm]?|displaystyle|q?quad|mathrm(?=\{d\}))(?![a-zA-Z])|(?<!\\)\\[,;:! ]|~"
)
_SPELLINGS = {r"\dfrac": r"\frac", r"\tfrac": r"\frac", r"\leq": r"\le", r"\geq": r"\ge", r"\neq": r"\ne",
              r"\varnothing": r"\emptyset", r"\lbrace": r"\{", r"\rbrace": r"\}", r"\pmod": r"\pmod"}  # fmt: skip
_SPELLED = re.compile(r"\\[a-zA-Z]+")
_BOLD = re.compile(r"(\*\*|__|\*)(.+)\1", re.DOTALL)
_MIXED = re.compile(r"(-?\d{1,60}) (\d{1,60})/(\d{1,60})")
_NARROW = re.compile(r"\\!\s*")
_REPEATING = re.compile(r"(\d{0,30})\.(\d{0,30})\\(?:overline|bar|dot)\{?(\d{1,30})\}?")
_DOTS = re.compile(r"(\d{0,30}\.\d{0,30}?)(\d)\2{2,}(?:\.{3}|…|\s*\\l?dots)$")
_DEGREES = re.compile(r"(\\(?:sin|cos|tan|cot|sec|csc))\s*[({]?(\d{1,9}(?:\.\d{1,9})?)\s*\^\s*\{?\\circ\}?[)}]?")
_MODULO = re.compile(r"\(\s*\\?b?mod\s*\{?(\w+)\}?\s*\)")
_CURRENCY = re.compile(r"^(-?)\\?([$€£¥])\s*(\d.*)$|^(-?[\d.,{} ]*\d)\s*()([€£¥])$", re.DOTALL)
_MONEY = re.compile(r"(?<=\d)\s*(?:\\(?:text|mathrm)\{\s*)?([KMB])\}?$")
_LETTERS = {"K": "10^{3}", "M": "10^{6}", "B": "10^{9}"}
_CURRENCIES = {"$": "dollars", "€": "euros", "£": "gbp", "¥": "yen"}
_MULTIPLES = {
    "dozen": "12", "hundred": "10^{2}", "thousand": "10^{3}", "million": "10^{6}", "billion": "10^{9}",
    "bn": "10^{9}", "trillion": "10^{12}",
}  # fmt: skip
_NUMBER_WORD = re.compile(
    rf"(?<=\d)\s*(?:\\(?:text|mathrm|textrm|mbox)\{{)?\s*((?i:{'|'.join(_MULTIPLES)}))s?\s*\}}?(?![a-zA-Z])"
)
_AND = re.compile(r"(?<=[\w})\]]),?\s*(?:\\text\{\s*,?\s*(?:and|or)\s*\}|(?<=\s)(?:and|or)(?=\s))\s*(?=[\w\\(\[-])")
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
        text = _DEGREES.sub(r"\1(\2\\pi/180)", _REPEATING.sub(_as_fraction, _NARROW.sub("", text)))
        text = _SPELLED.sub(lambda match: _SPELLINGS.get(match[0], match[0]), _LAYOUT.sub(" ", text)).strip()
    text = _DOTS.sub(r"\1\\overline{\2}", text) if text.endswith(("...", "dots")) else text.rstrip(" .;,")
    if r"\overline{" in text:
        text = _REPEATING.sub(_as_fraction, text)
    if text.lstrip(r"-+\$€£¥ ")[:1].isdigit():
        text = _NUMBER_WORD.sub(lambda match: rf"\times {_MULTIPLES[match[1].lower()]}", text)
    text = _MODULO.sub(r"\\pmod{\1}", _CURRENCY.sub(_with_currency, text)).replace(r" \%", r"\%")
    if mixed := _MIXED.fullmatch(text):
        text = rf"{mixed[1]}\frac{{{mixed[2]}}}{{{mixed[3]}}}"
    if not _RELATION.search(text):
        text = _AND.sub(", ", text)
    return " ".join(text.split())


def _with_currency(match: re.Match[str]) -> str:
    sign, before, number, other, _, after = match.groups(default="")
    number = _MONEY.sub(lambda found: rf"\times {_LETTERS[found[1]]}", number)
    return rf"{sign}{number or other}\text{{ {_CURRENCIES[before or after]}}}"


def _as_fraction(match: re.Match[str]) -> str:
    whole, fixed, repeated = match.groups()
    bottom = (10 ** len(repeated) - 1) * 10 ** len(fixed)
    top = int(f"{whole}{fixed}{repeated}") - int(f"{whole}{fixed}" or "0")
    return rf"\frac{{{top}}}{{{bottom}}}"


def squeeze(formula: str) -> str:
    r"""Return a formula without spaces that mean nothing, without braces around one character, and without `\text`."""
    if r"\text" in formula:
        formula = " ".join(_TEXT.sub(r"\1", formula).split())
    return _SPACES_BESIDE_SIGNS.sub("", re.sub(r"\{(\w)\}", r" \1", formula.replace(r"\mid", ":"))).strip()


def are_same(expected: str, answer: str) -> bool:
    """Return True if two formulas are written alike. A word in `\\text` may begin with another case."""
    wanted, given = squeeze(expected), squeeze(answer)
    if wanted == given:
        return True
    is_word = wanted.isalpha() and wanted[1:].islower() and (len(wanted) > 2 or wanted in ("no", "No"))
    has_text = r"\text" in expected or r"\text" in answer
    return has_text and is_word and wanted[1:] == given[1:] and wanted[0].casefold() == given[0].casefold()


# Words and units ---------------------------------------------------------------------------------------------------

_TEXT = re.compile(r"\\(?:text(?:bf|it|rm|tt)?|mathrm|mbox|operatorname)\s*\{([^{}]*)\}")
_COMMAND = re.compile(r"\\[a-zA-Z]+")
_GROUPS_OF_UNITS = """
m meter meters metre metres, cm centimeter centimeters centimetre centimetres, mm millimeter millimeters,
km kilometer kilometers kilometre kilometres, inch inches, ft foot feet, yd yard yards, mile miles, g gram grams,
kg kilogram kilograms, mg milligram milligrams, lb lbs pound pounds, s sec second seconds, min mins minute minutes,
h hr hrs hour hours, day days, week weeks, month months, year yr years, l liter liters litre litres,
ml milliliter milliliters, j joule joules, kj kilojoule kilojoules, newton newtons, w watt watts,
kw kilowatt kilowatts, v volt volts, hz hertz, mph, cent cents, dollar dollars usd, euro euros eur, gbp, yen jpy,
degree degrees deg, rad radian radians, am, pm, bc bce, ad, north, south, east, west, J, N, W, V, A, C, K, T, F, M,
Pa, kPa, mol, eV, Hz, kJ, L
"""
_UNITS = {name: group.split()[0] for group in _GROUPS_OF_UNITS.split(",") for name in group.split()}
"""The usual form by name. The case of letters counts."""
_PLAIN_UNIT = re.compile(
    r"(?<=[\d.}])\s+((?:[a-zA-Z]{1,12}(?:\^\{?-?\d\}?)?)(?:\s*[/ ]\s*[a-zA-Z]{1,12}(?:\^\{?-?\d\}?)?){0,2})$"
)
_TEXT_UNIT = re.compile(
    r"(?<=[\d.}])\s*\\(?:text|mathrm|textrm|mbox)\s*\{([^{}]*)\}((?:\^\{?-?\d\}?)?)(?:\s*/\s*\\(?:text|mathrm)\{([^{}]*)\})?$"
)


_SYMBOL_UNIT = re.compile(
    r"\s*\^\s*\{?\\circ\}?(?:\s*(?:\\(?:text|mathrm)\{\s*[CF]\s*\}|[CF]))?$|(?<=[\d}])\s+\\Omega$"
    r"|(?<=[\d}])\s*\\mu\s*\\(?:text|mathrm)\{[^{}]*\}$"
    r"|(?<=\d)\s*\\frac\{\\(?:text|mathrm)\{[^{}]*\}\}\{\\(?:text|mathrm)\{[^{}]*\}(?:\^\{?\d\}?)?\}$"
)
_CLOSE_UNIT = re.compile(rf"(?<=[\d}}])({'|'.join(sorted(_UNITS, key=len, reverse=True))})$")
_TEXT_WITH_POWER = re.compile(
    r"\\(?:text(?:bf|it|rm|tt)?|mathrm|mbox)\s*\{([^{}]*(?:\{[^{}]*\}[^{}]*)?)\}(\^\{?-?\d\}?)?"
)
_CALCULATING = frozenset(
    {"more", "less", "least", "most", "lakh", "crore", "third", "half", "halve", "tenth", "hundredth"}
    | {"squared", "cubed", "factorial", "wrong", "not", "dozen"}
)


def split_unit(formula: str) -> tuple[str, str]:
    """Return a formula without the unit at its end, and the unit; empty without a known unit."""
    if not (formula[-1:].isalpha() or formula.endswith("}") or "^" in formula):
        return formula, ""
    if (found := _SYMBOL_UNIT.search(formula)) and found.start():
        return formula[: found.start()].strip(), found[0].strip()
    found = _TEXT_UNIT.search(formula) or _PLAIN_UNIT.search(formula)
    if found:
        words = "/".join(filter(None, found.groups()))
        parts = [part for part in re.split(r"[\s/]+|\bper\b", _usual_powers(words)) if part]
        if parts and all(_lookup(part.partition("^")[0]) for part in parts):
            return formula[: found.start()].strip(), words
    return formula, ""


def _usual_powers(words: str) -> str:
    """Return cm^2 for "square cm", without dots and braces."""
    words = re.sub(r"\b(?:square|sq)\.? ([a-z]+)", r"\1^2", words.strip())
    return re.sub(r"[{}.$~]", "", re.sub(r"\bcubic ([a-z]+)", r"\1^3", words))


def _lookup(name: str) -> str:
    """Return the usual form of a unit; empty if it is unknown. The case of short units counts: mW is not MW."""
    return _UNITS.get(name) or (_UNITS.get(name.lower(), "") if len(name) > 3 or name in ("AM", "PM") else "")


# Differences -------------------------------------------------------------------------------------------------------

_NAME = re.compile(
    r"(?:\([a-zA-Z](?:,\s*[a-zA-Z])+\)|\\frac\{d\w?\}\{d\w\}|(?:\\angle ?)?(?:[a-zA-Z]|[A-Z]{2,3})"
    r"|\\[a-zA-Z]+(?:\{\w+\})?)(?:_\{?\w+\}?)?'{0,3}\s*(?:\([a-zA-Z, ]*\))?"
)
_MEMBER = re.compile(r"^[a-zA-Z]\s*\\in(?![a-zA-Z])\s*(?=[(\[{]|\\\{|\\mathbb)")
EQUALS = re.compile(r"(?<![<>!=:])=(?!=)")
_OUTSIDE = re.compile(rf"[\[\](){{}},]|{EQUALS.pattern}")
_COMPOUND = re.compile(r"\d\s*(?:\\text\{[^{}]*\}|[a-z]{2,})\s*\d")
_PROGRAM = re.compile(r"0[xXbBoO]\w+")
_LITERAL = re.compile(r"\d+(?: ?[-:] ?\d+)+|\d+(?:/\d+){2,}")
_DATE = re.compile(r"\d+(?:[-/:]\d+){2,}")
_VECTOR = re.compile(r"\\(?:vec|nabla|mathbf|boldsymbol)(?![a-z])")
_PRODUCT = re.compile(r"\\(?:times|cdot)(?![a-z])")
_PRIME = re.compile(r"'|\\prime(?![a-z])|\^\{?(?:T|\\top)(?![a-z])")
_BASE = re.compile(r"(\w+?)_\{?(\d+)\}?")
_RELATION = re.compile(r"\\(?:le|ge|ne|equiv|in|notin|subset|subseteq)(?![a-z])|[<>]")
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
    return right if left and _NAME.fullmatch(left) else _MEMBER.sub("", formula)


def _differ_in_case(expected: str, answer: str) -> bool:
    wanted, given = _letters(expected), _letters(answer)
    folded = Counter(one.casefold() for one in wanted | given)
    return any(folded[one.casefold()] > 1 for one in wanted ^ given)


def _letters(formula: str) -> set[str]:
    """Return the letters of a formula, and the names of its commands, such as Greek letters."""
    formula = found[1] if (found := _TEXT.fullmatch(formula)) else formula
    bare = re.sub(r"(?<=\d)[eE](?=[+-]?\d)", "", _TEXT.sub(" ", without_name(split_unit(formula)[0])))
    return {*_COMMAND.findall(bare), *filter(str.isalpha, _COMMAND.sub(" ", bare))}


def _differ_in_relations(expected: str, answer: str) -> bool:
    wanted, given = (
        Counter(_SAME_RELATION.get(one, one) for one in _RELATION.findall(text)) for text in (expected, answer)
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
    wanted, given = (squeeze(_TEXT.sub(r"\1", text)) for text in (expected, answer))
    is_word = wanted.isalpha() and (len(wanted) > 3 or (wanted.isupper() and len(wanted) > 1) or wanted != expected)
    return is_word and sorted(wanted) == sorted(given) and wanted != given


def _differ_in_bases(expected: str, answer: str) -> bool:
    """An answer without a base has the base of the question."""
    wanted, given = (_BASE.fullmatch(text) for text in (expected, answer))
    if not wanted and not given:
        return False
    number, base = wanted.groups() if wanted else (expected, None)
    other, other_base = given.groups() if given else (answer, None)
    # An expected number without a base is decimal.
    return number != other or (base is None and given is not None) or (other_base is not None and base != other_base)


def _differ_in_differentials(expected: str, answer: str) -> bool:
    """SymPy calls all equations with dy/dx equal: y is a name, so its derivative is 0."""
    wanted, given = (_DIFFERENTIAL.findall(text) for text in (expected, answer))
    is_equation = "=" in expected and "=" in answer
    return bool(wanted and given) and (wanted != given or is_equation)


def _differ_in_primes(expected: str, answer: str) -> bool:
    return _count_primes(expected) != _count_primes(answer)


def _count_primes(formula: str) -> int:
    """Count the marks of derivatives and of transposed matrices."""
    return len(_PRIME.findall(_TEXT.sub("", formula)))


def _differ_in_brackets(expected: str, answer: str) -> bool:
    """Points, intervals, sets and lists are different things. A set needs no braces, and x > 3 is an interval."""
    is_interval = bool(_RELATION.search(expected)) and not _RELATION.search(answer)
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
    wanted, given = _words(expected), _words(answer)
    if not wanted or not given:
        return not _CALCULATING.isdisjoint([*wanted, *given])
    if sorted(wanted) == sorted(given):
        return wanted != given
    return not (set(wanted) <= set(given) or set(given) <= set(wanted))


def _words(formula: str) -> list[str]:
    """Return the words in `\\text` and the unit at the end, each unit in its usual form."""
    formula = re.sub(r"\^\s*\{?\\circ\}?", r"\\text{ degree }", formula)
    parts = [f"{found[1]}{found[2] or ''}" for found in _TEXT_WITH_POWER.finditer(formula)]
    if found := _PLAIN_UNIT.search(formula) or _CLOSE_UNIT.search(formula):
        parts.append(found[1])
    words = re.sub(r"\s*(?:/|\bper\b)\s*", " /", _usual_powers(" ".join(parts)))
    return [_usual(word) for word in re.split(r"[\s·,;:]+|\\[,; ]", words) if word not in ("", "/")]


def _usual(word: str) -> str:
    name, _, power = word.removeprefix("/").partition("^")
    name = _lookup(name) or (name.lower().removesuffix("s") if len(name) > 3 else name)
    return "/" * word.startswith("/") + (f"{name}^{power}" if power else name)


_DIFFERENCES: dict[str, Callable[[str, str], bool]] = {
    "upper and lower case": _differ_in_case,
    "a relation sign": _differ_in_relations,
    "a date, a time, a score or a ratio": _differ_as_literals,
    "the order of letters": _differ_in_order_of_letters,
    "the base": _differ_in_bases,
    "a derivative": _differ_in_differentials,
    "a prime or a transpose": _differ_in_primes,
    "the kind of brackets or the number of values": _differ_in_brackets,
    "the unit or another word": _differ_in_words,
    "the product of vectors": _differ_in_products,
}


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
