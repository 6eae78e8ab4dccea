"""Rules of the scripted policy model: find arithmetic in a prompt, and answer small questions."""

import math
import re
from collections.abc import Callable

from apps.gym.arithmetic import CalculationError, evaluate
from apps.gym.image_data import ImageRefused, read_data_url

_MAX_CHARACTERS = 8000  # from the end of the prompt, where the question is

_NUMBER = r"\d{1,40}(?:,\d{3}){0,12}(?:\.\d{1,40})?"
# Bounded quantifiers keep matching linear for prompts of only brackets or blanks.
_OPERAND = rf"[(\s+−-]{{0,20}}{_NUMBER}[)\s]{{0,20}}"
_EXPRESSION = re.compile(rf"(?<![\w.,]){_OPERAND}(?:(?:\*\*|//|[-+*/%×÷−^]){_OPERAND})+(?!\w)")
_EXPONENT = re.compile(r"\^\{(\d+)\}")
_DATE = re.compile(r"\b\d{4}-\d{2}-\d{2}\b|\b\d{1,2}/\d{1,2}/\d{4}\b")
_OPERATOR_WORDS = [
    (re.compile(rf"(?<!\d)({_NUMBER})\s{{0,9}}{words}\s*(?={_NUMBER})", re.IGNORECASE), rf"\1 {sign} ")
    for words, sign in [
        (r"\bplus\b", "+"),
        (r"\bminus\b", "-"),
        (r"(?:\btimes\b|\bmultiplied\s+by\b|x)", "*"),
        (r"(?:\bdivided\s+by\b|\bover\b)", "/"),
        (r"\bto\s+the\s+power\s+of\b", "**"),
        (r"\bmod(?:ulo)?\b", "%"),
    ]
]


def find_expressions(text: str) -> list[str]:
    """Return the arithmetic expressions in a text, in order, in the calculator's notation.

    Expressions that cannot be evaluated are left out.
    """
    text = _EXPONENT.sub(r"^\1", text[-_MAX_CHARACTERS:])
    plain = _DATE.sub(" ", text.replace("\\times", "*").replace("\\div", "/").replace("\\cdot", "*").replace("$", " "))
    for pattern, sign in _OPERATOR_WORDS:
        plain = pattern.sub(sign, plain)
    found = (_normalize(match[0]) for match in _EXPRESSION.finditer(plain))
    return [expression for expression in found if compute(expression) is not None]


def _normalize(text: str) -> str:
    """Return the expression in the calculator's notation, without unbalanced outer brackets."""
    expression = " ".join(text.replace(",", "").replace("^", "**").split())
    while expression.count(")") > expression.count("(") and expression.endswith(")"):
        expression = expression[:-1].rstrip()
    while expression.count("(") > expression.count(")") and expression.startswith("("):
        expression = expression[1:].lstrip()
    return expression


def compute(expression: str) -> str | None:
    """Return the value of an expression as text, or None if it cannot be evaluated."""
    try:
        return number_text(evaluate(expression))
    except CalculationError:
        return None


def number_text(number: int | float) -> str:
    if isinstance(number, float) and number.is_integer() and abs(number) < 1e15:
        number = int(number)
    return str(number) if isinstance(number, int) else f"{number:.10g}"


def combine(values: list[str], prompt: str) -> str:
    """Combine the values by a word in the prompt, for example "sum" or "largest".

    Without such a word, return a comma-separated list.
    """
    if len(values) == 1:
        return values[0]
    numbers = [float(value) for value in values]
    for words, join in _COMBINING_WORDS:
        if words.search(prompt):
            return number_text(join(numbers))
    return ", ".join(values)


_COMBINING_WORDS: list[tuple[re.Pattern[str], Callable[[list[float]], float]]] = [
    (re.compile(r"\b(?:sum|total|together|add)\b", re.IGNORECASE), sum),
    (re.compile(r"\b(?:product|multiply)\b", re.IGNORECASE), math.prod),
    (re.compile(r"\b(?:difference|subtract)\b", re.IGNORECASE), lambda numbers: numbers[0] - sum(numbers[1:])),
    (re.compile(r"\b(?:larger|largest|greater|greatest|bigger|maximum)\b", re.IGNORECASE), max),
    (re.compile(r"\b(?:smaller|smallest|less|least|minimum)\b", re.IGNORECASE), min),
]

_CAPITALS = {
    "argentina": "Buenos Aires",
    "australia": "Canberra",
    "austria": "Vienna",
    "belgium": "Brussels",
    "brazil": "Brasília",
    "canada": "Ottawa",
    "chile": "Santiago",
    "china": "Beijing",
    "cuba": "Havana",
    "denmark": "Copenhagen",
    "egypt": "Cairo",
    "ethiopia": "Addis Ababa",
    "finland": "Helsinki",
    "france": "Paris",
    "germany": "Berlin",
    "ghana": "Accra",
    "greece": "Athens",
    "hungary": "Budapest",
    "iceland": "Reykjavik",
    "india": "New Delhi",
    "indonesia": "Jakarta",
    "ireland": "Dublin",
    "italy": "Rome",
    "japan": "Tokyo",
    "kenya": "Nairobi",
    "mexico": "Mexico City",
    "morocco": "Rabat",
    "the netherlands": "Amsterdam",
    "netherlands": "Amsterdam",
    "new zealand": "Wellington",
    "nigeria": "Abuja",
    "norway": "Oslo",
    "peru": "Lima",
    "poland": "Warsaw",
    "portugal": "Lisbon",
    "romania": "Bucharest",
    "south korea": "Seoul",
    "spain": "Madrid",
    "sweden": "Stockholm",
    "switzerland": "Bern",
    "thailand": "Bangkok",
    "turkey": "Ankara",
    "ukraine": "Kyiv",
    "the united kingdom": "London",
    "the united states": "Washington, D.C.",
    "vietnam": "Hanoi",
}
_ELEMENTS = {
    "carbon": "C",
    "copper": "Cu",
    "gold": "Au",
    "helium": "He",
    "hydrogen": "H",
    "iron": "Fe",
    "lead": "Pb",
    "nitrogen": "N",
    "oxygen": "O",
    "potassium": "K",
    "silver": "Ag",
    "sodium": "Na",
    "tin": "Sn",
    "tungsten": "W",
    "zinc": "Zn",
}
_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
_QUOTES = "\"'“”‘’`"
_WORD = rf"[{_QUOTES}]?(\w+)[{_QUOTES}]?"
_QUOTED_WORD = rf"(?:the\s+word\s+)?{_WORD}"


def _neighbour(word: str, step: int) -> str | None:
    for cycle in (_DAYS, _MONTHS):
        lower = [one.lower() for one in cycle]
        if word.lower() in lower:
            return cycle[(lower.index(word.lower()) + step) % len(cycle)]
    return None


def _sorted_words(text: str) -> str:
    words = [word.strip(f" {_QUOTES}.?!") for word in re.split(r",|;|\band\b|\s(?=\w+$)", text)]
    return ", ".join(sorted((word for word in words if word), key=str.lower))


_RULES: list[tuple[re.Pattern[str], Callable[[re.Match[str]], str | None]]] = [
    (
        re.compile(r"capital(?:\s+city)?\s+of\s+([A-Za-z ]+?)\s*(?:[?.!,\n]|$)", re.IGNORECASE),
        lambda found: _CAPITALS.get(found[1].lower()),
    ),
    (
        re.compile(r"(?:chemical\s+)?symbol\s+(?:of|for)\s+(?:the\s+element\s+)?([A-Za-z]+)", re.IGNORECASE),
        lambda found: _ELEMENTS.get(found[1].lower()),
    ),
    (
        re.compile(
            rf"(?:spell|write)\s+{_QUOTED_WORD}\s+(?:backwards?|in\s+reverse)|reverse\s+{_QUOTED_WORD}", re.IGNORECASE
        ),
        lambda found: (found[1] or found[2])[::-1],
    ),
    (
        re.compile(
            rf"how\s+many\s+(?:times\s+does\s+(?:the\s+letter\s+)?{_WORD}\s+(?:appear|occur)s?\s+in"
            rf"|{_WORD}'?s\s+are\s+(?:there\s+)?in)\s+{_QUOTED_WORD}",
            re.IGNORECASE,
        ),
        lambda found: _occurrences(found[1] or found[2], found[3]),
    ),
    (
        re.compile(
            rf"how\s+many\s+(letters|vowels|characters)\s+(?:are\s+(?:there\s+)?in|does)\s+{_QUOTED_WORD}",
            re.IGNORECASE,
        ),
        lambda found: str(
            sum(letter in "aeiou" for letter in found[2].lower()) if found[1].lower() == "vowels" else len(found[2])
        ),
    ),
    (
        re.compile(rf"(first|last)\s+letter\s+of\s+{_QUOTED_WORD}", re.IGNORECASE),
        lambda found: found[2][0 if found[1].lower() == "first" else -1],
    ),
    (
        re.compile(r"sort\s+(?:these|the\s+following|the)\s+words[^:\n]*:\s*([^\n]+)", re.IGNORECASE),
        lambda found: _sorted_words(found[1]),
    ),
    (
        re.compile(
            rf"{_QUOTED_WORD}\s+in\s+(upper|lower)\s*case|(upper|lower)\s*case\s+(?:of|for)\s+{_QUOTED_WORD}",
            re.IGNORECASE,
        ),
        lambda found: _recased(found[1] or found[4], found[2] or found[3]),
    ),
    (
        re.compile(rf"\b(?:day|month)\s+(?:comes\s+)?(?:right\s+)?(after|before)\s+{_WORD}", re.IGNORECASE),
        lambda found: _neighbour(found[2], 1 if found[1].lower() == "after" else -1),
    ),
]


def _occurrences(letter: str, word: str) -> str | None:
    return str(word.lower().count(letter.lower())) if len(letter) == 1 else None


def _recased(word: str, case: str) -> str:
    return word.upper() if case.lower() == "upper" else word.lower()


def answer_question(text: str) -> str | None:
    """Return the answer of the first matching rule, or None."""
    for pattern, rule in _RULES:
        found = pattern.search(text[-_MAX_CHARACTERS:])
        answer = rule(found) if found else None
        if answer:
            return answer
    return None


def answer_about_images(prompt: str, images: list[str]) -> str | None:
    """Return the number of the images, or the width or height of the last one in pixels, or None."""
    asked = prompt[-_MAX_CHARACTERS:].lower()
    if not images:
        return None
    if "how many images" in asked:
        return str(len(images))
    try:
        last = read_data_url(images[-1])
    except ImageRefused:
        return None
    measures = {"wide": last.width, "width": last.width, "high": last.height, "height": last.height}
    return next((str(measure) for word, measure in measures.items() if word in asked), None)
