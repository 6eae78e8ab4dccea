"""Read an answer as one formula in plain LaTeX, and split equations."""

import re

from apps.gym.answer_texts import plain_characters
from apps.gym.verifiers.math.units import NUMBER_WORDS

_CHARACTERS = str.maketrans({
    "×": r"\times ", "·": r"\cdot ", "÷": "/", "±": r"\pm ", "∞": r"\infty ", "π": r"\pi ", "θ": r"\theta ",
    "α": r"\alpha ", "β": r"\beta ", "γ": r"\gamma ", "λ": r"\lambda ", "μ": r"\mu ", "ω": r"\omega ", "φ": r"\phi ",
    "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "≈": r"\approx ",
    "≡": r"\equiv ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ",
    "∅": r"\emptyset ", "°": r"^\circ ", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}", "→": r"\to ",
    "\N{ANGLE}": r"\angle ", "∂": r"\partial ", "∫": r"\int ", "∑": r"\sum ",
})  # fmt: skip
_ROOT = re.compile(r"([√∛∜])\s*(?:\(([^()]*)\)|(\w+))")
_ROOTS = {"√": "", "∛": "[3]", "∜": "[4]"}
_LAYOUT = re.compile(
    r"\\(?:left|right|[bB]igg?[lrm]?|displaystyle|q?quad|mathrm(?=\{[dei]\}))(?![a-zA-Z])|(?<!\\)\\[,;:! ]|~"
)
_SUBSCRIPT = re.compile(r"(?<=[a-zA-Z}'])_(\{)?\\(?:text|math)(?:rm|it|bf)?\{\s*(\w+)\s*\}(?(1)\})")
_VECTOR = re.compile(r"(?<=.)\\mathbf(?=\{[a-zA-Z]\})|\\mathbf(?=\{[a-zA-Z]\}.)")
_BARE_ROOT = re.compile(r"\\sqrt\s*(\\[dt]?frac\s*(?:\{[^{}]*\}|\d)(?:\{[^{}]*\}|\d)|\\pi)(?![a-z])")
_SPELLINGS = {r"\dfrac": r"\frac", r"\tfrac": r"\frac", r"\leq": r"\le", r"\geq": r"\ge", r"\neq": r"\ne",
              r"\varnothing": r"\emptyset", r"\lbrace": r"\{", r"\rbrace": r"\}", r"\not=": r"\ne"}  # fmt: skip
_SPELLED = re.compile(r"\\not=|\\[a-zA-Z]+")
_BOLD = re.compile(r"(\*\*|__|\*)(.+)\1", re.DOTALL)
_WRAPPED = re.compile(r"\\(text|math(?:rm|bf))\{\s*(\d[^{}]*|[a-zA-Z])\}")
_MIXED = re.compile(r"(-?\d{1,60}) (\d{1,60})/(\d{1,60})")
_NARROW = re.compile(r"\\!\s*")
_REPEATING = re.compile(r"(\d{0,30})\.(\d{0,30})\\(?:overline|bar|dot)\{?(\d{1,30})\}?")
_DOTS = re.compile(r"(\d{0,30}\.\d{0,30}?)(\d)\2{2,}(?:\.{3}|…|\s*\\l?dots)$")
_LETTER_O = re.compile(r"(?<=\d)\s*\^\s*(\{)?\s*(?:o|\\(?:text|mathrm)\{\s*o\s*\})\s*(?(1)\})(?![a-z])")
_QUOTIENT = re.compile(r"(?<![a-zA-Z\\])((?:d|\\partial )[a-zA-Z])\s*/\s*((?:d|\\partial )[a-zA-Z])(?![a-zA-Z])")
_EXPECTATION = re.compile(r"(?<![a-zA-Z}])([A-Z]\s*\[[^\[\]]*\]|E\s*\([^()]*[A-Z][^()]*\))\s*(?=\^)")
_DEGREES = re.compile(r"(\\(?:sin|cos|tan|cot|sec|csc))\s*[({]?(\d{1,9}(?:\.\d{1,9})?)\s*\^\s*\{?\\circ\}?[)}]?")
_MODULO = re.compile(r"\(\s*(?:\\(?:text|mathrm)\{\s*|\\?b?)mod[{}\s]*(\w+)\s*\}?\s*\)")
_MODULO_AT_END = re.compile(r"\s*\\b?mod\s+(\w+)$")
_THOUSANDS = re.compile(r"^([^=\d]*=\s*-?\d{1,3}(?:,\d{3})+)(?=\.\d|$)")
_APPROXIMATELY = re.compile(r"^\\approx\s*(?=[-\d\\$])")
_CURRENCY = re.compile(r"^(-?)\\?([$€£¥])\s*(\d.*)$|^(-?[\d.,{} ]*\d)\s*()([€£¥])$", re.DOTALL)
_MONEY = re.compile(r"(?<=\d)\s*(?:\\(?:text|mathrm)\{\s*)?([KMB])\}?$")
_LETTERS = {"K": "10^{3}", "M": "10^{6}", "B": "10^{9}"}
_CURRENCIES = {"$": "dollars", "€": "euros", "£": "gbp", "¥": "yen"}
_MULTIPLES = {"dozen": "12"} | {word: f"10^{{{power}}}" for word, power in NUMBER_WORDS.items()}
_NUMBER_WORD = re.compile(
    rf"(?<=\d)\s*(?:\\(?:text|mathrm|textrm|mbox)\{{)?\s*((?i:{'|'.join(_MULTIPLES)}))s?\s*\}}?(?![a-zA-Z])"
)
_PERCENT = re.compile(r"(?<=\d)\s*(?:\\(?:text|mathrm|mbox)\{)?\s*per ?cent\s*\}?$", re.IGNORECASE)
_AND = re.compile(r"(?<=[\w})\]]),?\s*(?:\\text\{\s*,?\s*(?:and|or)\s*\}|(?<=\s)(?:and|or)(?=\s))\s*(?=[\w\\(\[-])")
_SPACES_BESIDE_SIGNS = re.compile(r"\s+(?![a-zA-Z])|(?<![a-zA-Z])\s+")
TEXT = re.compile(r"\\(?:text(?:bf|it|rm|tt)?|mathrm|mbox|operatorname)\s*\{([^{}]*)\}")
"""A text within a formula."""
RELATION = re.compile(r"\\(?:le|ge|ne|equiv|in|notin|subset|subseteq)(?![a-z])|[<>]")
"""Relations other than =."""
_NAME = re.compile(
    r"(?:\((?:[a-zA-Z]|\\[a-z]+)(?:,\s*(?:[a-zA-Z]|\\[a-z]+))+\)|\\frac\{d\w?\}\{d\w\}"
    r"|(?:\\angle ?)?(?:[a-zA-Z]|[A-Z]{2,3})"
    r"|\\[a-zA-Z]+(?:\{\w+\})?)(?:_\{?\w+\}?)?'{0,3}\s*(?:\([a-zA-Z, ]*\))?"
)
_NAMED = re.compile(r"([a-zA-Z]|\\[a-z]+)\s*=\s*([^=]+)")
_NEXT_NAME = re.compile(r",\s*(?=(?:[a-zA-Z]|\\[a-z]+)\s*=)")
_MEMBER = re.compile(r"^[a-zA-Z]\s*\\in(?![a-zA-Z])\s*(?=[(\[{]|\\\{|\\mathbb)")
EQUALS = re.compile(r"(?<![<>!=:])=(?!=)")
_OUTSIDE = re.compile(rf"[\[\](){{}},]|{EQUALS.pattern}")
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
        text = _ROOT.sub(
            lambda match: rf"\sqrt{_ROOTS[match[1]]}{{{match[2] or match[3]}}}", plain_characters(text)
        ).translate(_CHARACTERS)
    if "^" in text:
        # math-verify reads E[X]^2 as the product of E and X^2.
        text = _EXPECTATION.sub(r"(\1)", _LETTER_O.sub(r"^\\circ ", text))
    if bold := _BOLD.fullmatch(text) or _WRAPPED.fullmatch(text):
        text = bold[2]
    if "\\" in text or "~" in text:
        text = _DEGREES.sub(r"\1(\2\\pi/180)", _REPEATING.sub(_as_fraction, _NARROW.sub("", text)))
        text = _SPELLED.sub(lambda match: _SPELLINGS.get(match[0], match[0]), _LAYOUT.sub(" ", text)).strip()
        text = _VECTOR.sub(r"\\vec", _SUBSCRIPT.sub(r"_{\2}", _BARE_ROOT.sub(r"\\sqrt{\1}", text)))
    text = _DOTS.sub(r"\1\\overline{\2}", text) if text.endswith(("...", "dots")) else text.rstrip(" .;,。")
    if r"\overline{" in text:
        text = _REPEATING.sub(_as_fraction, text)
    if text.lstrip(r"-+\$€£¥ ")[:1].isdigit():
        text = _NUMBER_WORD.sub(lambda match: rf"\times {_MULTIPLES[match[1].lower()]}", _PERCENT.sub(r"\%", text))
    if "," in text:
        text = _THOUSANDS.sub(lambda match: match[1].replace(",", ""), text)
    if "\\" in text:
        text = _APPROXIMATELY.sub("", _MODULO_AT_END.sub(r" \\pmod{\1}", text))
    text = _MODULO.sub(r"\\pmod{\1}", _CURRENCY.sub(_with_currency, text)).replace(r" \%", r"\%")
    if mixed := _MIXED.fullmatch(text):
        text = rf"{mixed[1]}\frac{{{mixed[2]}}}{{{mixed[3]}}}"
    if "/" in text:
        text = _QUOTIENT.sub(r"\\frac{\1}{\2}", text)
    if not RELATION.search(text):
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
        formula = " ".join(TEXT.sub(r"\1", formula).split())
    return _SPACES_BESIDE_SIGNS.sub("", re.sub(r"\{(\w)\}", r" \1", formula.replace(r"\mid", ":"))).strip()


def are_same(expected: str, answer: str) -> bool:
    """Return True if two formulas are written alike. A word in `\\text` may begin with another case."""
    wanted, given = squeeze(expected), squeeze(answer)
    if wanted == given:
        return True
    is_word = wanted[1:].islower() and re.fullmatch(r"[^\W\d_]{2}(?: ?[^\W\d_])+|[nN]o", wanted)
    has_text = r"\text" in expected or r"\text" in answer
    return has_text and bool(is_word) and wanted[1:] == given[1:] and wanted[0].casefold() == given[0].casefold()


def rename_capitals(*formulas: str) -> list[str]:
    """Return formulas with other names for the capitals whose small letter occurs too. math-verify reads M as m."""
    letters = set(_SPELLED.sub(" ", " ".join(formulas)))
    both = sorted(one for one in letters if "A" <= one <= "Z" and one.lower() in letters)
    names = dict(zip(both, (one for one in "bhkpqruvwyzcs" if not {one, one.upper()} & letters), strict=False))
    return [re.sub(r"\\[a-zA-Z]+|[A-Z]", lambda found: names.get(found[0], found[0]), one) for one in formulas]


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


def as_point(formula: str, other: str) -> str:
    """Return x = 1, y = 2 as the point (1, 2) if the other formula is one: (1, 2) or (x, y) = (1, 2).

    The names must be in the order of the other formula, otherwise in that of the alphabet.
    """
    if not other.startswith("(") or not other.endswith(")"):
        return formula
    found = [_NAMED.fullmatch(part) for part in _NEXT_NAME.split(formula)]
    names = [match[1] for match in found if match]
    left = split_equation(other)[0]
    in_order = squeeze(left) == f"({','.join(names)})" if left else names == sorted(set(names))
    if len(found) < 2 or len(names) < len(found) or not in_order:
        return formula
    return f"({', '.join(match[2] for match in found if match)})"


def without_name(formula: str) -> str:
    """Return the right side of x = 5, f(x) = 5 or dy/dx = 5. Other formulas are unchanged."""
    left, right = split_equation(formula)
    return right if left and _NAME.fullmatch(left) else _MEMBER.sub("", formula)
