"""Derive wrong queries from a correct one: change a comparison, a condition, an order or a number.

A task is useful only if its databases distinguish the correct query from each of these. Mutants are made from the words
of the query alone, so this works for the queries of `databases`, not for any SQL.
"""

import re
from collections.abc import Iterator

_WORD = re.compile(r"'[^']*'|\w+(?:\.\w+)?|<=|>=|<>|\S")
_TURNED = {
    ">": (">=", "<"),
    ">=": (">", "<"),
    "<": ("<=", ">"),
    "<=": ("<", ">"),
    "MAX": ("MIN", "SUM"),
    "MIN": ("MAX", "SUM"),
    "SUM": ("COUNT", "MAX"),
    "AVG": ("MAX", "MIN"),
    "DESC": ("ASC",),
    "ASC": ("DESC",),
    "OR": ("AND",),
    "DISTINCT": ("",),
    "NOT": ("",),
    "LEFT": ("",),
    "IS": ("IS NOT",),
}
_CLAUSES = {"WHERE", "HAVING", "ON"}
_ENDS = {"WHERE", "HAVING", "GROUP", "ORDER", "LIMIT", "JOIN", "LEFT", ")"}
_COUNTED = re.compile(r"(LIMIT|HAVING COUNT \([^()]*\) [<>=]+) (\d+)")
_BETWEEN = re.compile(r"(\S+) BETWEEN (\S+) AND (\S+)")
_PERIOD = re.compile(r"(\S+) LIKE '([\d-]+)-%'")


def list_mutants(query: str) -> list[str]:
    """Return each mutant once, without the query itself."""
    words = _WORD.findall(query)
    right = " ".join(words)
    made = [*_bend_periods(right), *_bend_numbers(right), *_turn(words), *_drop_conditions(words), *_unsort(words)]
    return [mutant for mutant in dict.fromkeys(" ".join(one.split()) for one in made) if mutant != right]


def _turn(words: list[str]) -> Iterator[str]:
    for at, word in enumerate(words):
        others = _TURNED.get(word, ())
        if words[at + 1 : at + 4] == ["(", "SELECT", "AVG"]:
            # No row equals an average exactly.
            others = others[1:]
        for other in others:
            yield _put(words, at, at + 1, other)


def _bend_numbers(text: str) -> Iterator[str]:
    for found in _COUNTED.finditer(text):
        for step in (-1, 1):
            yield f"{text[: found.start(2)]}{int(found[2]) + step}{text[found.end() :]}"


def _bend_periods(text: str) -> Iterator[str]:
    """Leave out the first or last day of a period, or one of its bounds."""
    for found in _BETWEEN.finditer(text):
        column, first, last = found.groups()
        narrower = (f"> {first} AND {column} <= {last}", f">= {first} AND {column} < {last}")
        for other in (*narrower, f">= {first}", f"<= {last}"):
            yield f"{text[: found.start()]}{column} {other}{text[found.end() :]}"
    for found in _PERIOD.finditer(text):
        column, period = found.groups()
        for other in (f">= '{period}'", f"< '{period}-99'"):
            yield f"{text[: found.start()]}{column} {other}{text[found.end() :]}"


def _drop_conditions(words: list[str]) -> Iterator[str]:
    """Drop each condition of a WHERE, HAVING or ON with several conditions, and each side of an OR."""
    for at, word in enumerate(words):
        if word in _CLAUSES:
            end = _end(words, at + 1)
            parts = _split(words, at + 1, end)
            if len(parts) == 1 and word != "ON":
                yield _put(words, at, end, "")
            for part in parts if len(parts) > 1 else []:
                yield _put(words, at + 1, end, " AND ".join(_tell(words, *one) for one in parts if one != part))
        if word == "OR":
            first = max(place for place in range(at) if words[place] == "(")
            last = _end(words, at)
            yield _put(words, at, last, "")
            yield _put(words, first + 1, at + 1, "")


def _unsort(words: list[str]) -> Iterator[str]:
    """Drop an order, or break ties differently. Ascending ids are the natural order of rows."""
    for at, word in enumerate(words[:-1]):
        if (word, words[at + 1]) != ("ORDER", "BY"):
            continue
        end = _end(words, at + 2)
        terms = _split(words, at + 2, end, by=",")
        for first, last in terms:
            if words[last - 1] not in ("ASC", "DESC"):
                yield _put(words, last, last, "DESC")
            if len(terms) > 1 and not words[last - 1].endswith("id"):
                yield _put(words, at + 2, end, ", ".join(_tell(words, *one) for one in terms if one[0] != first))
        if len(terms) == 1:
            yield _put(words, at, end, "")


def _end(words: list[str], at: int) -> int:
    """Return the end of the clause at this position: the next clause or the closing bracket."""
    depth = 0
    for place in range(at, len(words)):
        if depth == 0 and words[place] in _ENDS:
            return place
        depth += (words[place] == "(") - (words[place] == ")")
    return len(words)


def _split(words: list[str], at: int, end: int, *, by: str = "AND") -> list[tuple[int, int]]:
    """Return the parts between two positions as ranges. The AND of a BETWEEN does not separate parts."""
    depth, parts, begin, between = 0, [], at, False
    for place in range(at, end):
        word = words[place]
        depth += (word == "(") - (word == ")")
        between = between or (word == "BETWEEN" and depth == 0)
        if word == by and depth == 0:
            if not between:
                parts.append((begin, place))
                begin = place + 1
            between = False
    return [*parts, (begin, end)]


def _put(words: list[str], first: int, last: int, other: str) -> str:
    return " ".join([*words[:first], other, *words[last:]])


def _tell(words: list[str], first: int, last: int) -> str:
    return " ".join(words[first:last])
