"""Find the units and other words of a formula."""

import re

NUMBER_WORDS = {"hundred": 2, "thousand": 3, "million": 6, "mn": 6, "billion": 9, "bn": 9, "trillion": 12}
"""Powers of ten by name."""
CALCULATING = (
    r"cos|crore|cubed|divided|dozens?|factorial|hal(?:f|ves?)|hundred(?:th)?s?|lakh|least|less?|ln|log|minus?|mod|more|most"
    r"|not|over|percent|plus?|quadrillion|sin|sqrt|squared|tan|(?:ten|four|fif|six|eigh)ths?|thirds?|thousand(?:th)?s?"
    r"|times?|wrong"
    r"|(?:[mbtr]|quint|sext)illion(?:th)?s?|bn|mn|mln|mil|mio|tn|trn|bil|mrd|kk|kilo|mega|giga|gross|basis|tens|ppm|bps|mille"
)
"""A pattern of words, perhaps without a last s, that make another number of the one before them."""
_GROUPS_OF_UNITS = """
m meter meters metre metres, cm centimeter centimeters centimetre centimetres, mm millimeter millimeters,
km kilometer kilometers kilometre kilometres, inch inches, ft foot feet, yd yard yards, mile miles mi, g gram grams,
kg kilogram kilograms, mg milligram milligrams, lb lbs pound pounds, s sec second seconds, min mins minute minutes,
h hr hrs hour hours, day days, week weeks, month months, year yr years, L l liter liters litre litres,
mL ml milliliter milliliters, J joule joules, kJ kilojoule kilojoules, N newton newtons, W watt watts,
kW kilowatt kilowatts, V volt volts, Hz hz hertz, mph, cent cents, dollar dollars usd, euro euros eur, gbp, yen jpy,
degree degrees deg, rad radian radians, am, pm, bc bce, ad ce, north, south, east, west, A, C, K, T, F, M, Pa, kPa, mol,
eV
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
TEXT_WITH_POWER = re.compile(
    r"\\(?:text(?:bf|it|rm|tt)?|mathrm|mbox)\s*\{([^{}]*(?:\{[^{}]*\}[^{}]*)?)\}(\^\{?-?\d\}?)?"
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


def find_words(formula: str) -> list[str]:
    """Return the words in `\\text` and the unit at the end, each unit in its usual form."""
    formula = re.sub(r"\^\s*\{?\\circ\}?", r"\\text{ degree }", formula)
    parts = [f"{found[1]}{found[2] or ''}" for found in TEXT_WITH_POWER.finditer(formula)]
    if found := _PLAIN_UNIT.search(formula) or _CLOSE_UNIT.search(formula):
        parts.append(found[1])
    words = re.sub(r"\s*(?:/|\bper\b)\s*", " /", _usual_powers(" ".join(parts)))
    return [_usual(word) for word in re.split(r"[\s·,;:]+|\\[,; ]", words) if word not in ("", "/")]


def _usual(word: str) -> str:
    name, _, power = word.removeprefix("/").partition("^")
    name = _lookup(name) or (name.lower().removesuffix("s") if len(name) > 3 else name)
    return "/" * word.startswith("/") + (f"{name}^{power}" if power else name)
