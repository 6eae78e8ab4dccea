"""Find user names that look like the name of another user."""

import re
import unicodedata

_ALIKE = str.maketrans(
    "\u0430\u0432\u0435\u043a\u043c\u043d\u043e\u0440\u0441\u0442\u0443\u0445\u0455\u0456\u0458\u0501\u051b\u051d\u04bb\u04cf"
    "\u03b1\u03b3\u03b9\u03ba\u03bd\u03bf\u03c1\u03c4\u03c5\u03c7\u0131\u0251\u0261\u2113l10"
    "\u1d00\u0299\u1d04\u1d05\u1d07\u0262\u029c\u026a\u1d0a\u1d0b\u029f"
    "\u1d0d\u0274\u1d0f\u1d18\u0280\ua731\u1d1b\u1d1c\u1d20\u1d21\u028f\u1d22",
    "abekmhopctyxsijdqwhiayikvoptuxiagiiioabcdeghijkimnoprstuvwyz",
)
"""Letters of other scripts, small capitals, and the Latin letters that they look like. I, l and 1 look alike."""
_ACCENTS = re.compile(r"(?<=[a-z])[\u0300-\u036f]+")


def simplify_name(name: str) -> str:
    """Return the name with letters that look alike made equal. Equal results look alike."""
    letters = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", name).casefold()).translate(_ALIKE)
    return _ACCENTS.sub("", letters).replace("rn", "m").replace("vv", "w")


def find_mixed_alphabets(name: str) -> str:
    """Return why the name mixes alphabets, or an empty string."""
    first = ""
    for letter in name:
        alphabet = unicodedata.name(letter, "").partition(" ")[0] if letter.isalpha() else ""
        if alphabet not in ("LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU"):
            continue
        if first and alphabet != first:
            return f"The letter “{letter}” is {alphabet.title()}, but others are {first.title()}. Use one alphabet."
        first = alphabet
    return ""
