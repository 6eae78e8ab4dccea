"""Copies of an expected answer with one small change, to find out whether a verifier tells them apart."""

import re
from collections.abc import Iterator
from typing import NamedTuple

_COMMAND = re.compile(r"\\[a-zA-Z]+\s*(?:\{[a-zA-Z ]*\})?|\\.")
_KEPT = re.compile(r"(?<=\d)[eE](?=[+-]?\d)|^\s*(?:\w|\w'?\(\w\))(?=\s*=)|\\(?:text|mathrm|mbox)\{[^{}]*\}|\(\w\)")
_RELATIONS = {"<": r"\le ", ">": "<", r"\le": "<", r"\leq": "<", r"\ge": ">", r"\geq": ">", r"\ne": "=", r"\neq": "="}
_RELATION = re.compile(r"\\(?:leq?|geq?|neq?)(?![a-zA-Z])|[<>]")
_BRACKETS = {"(": "[", "[": "(", r"\{": "(", ")": "]", "]": ")", r"\}": ")"}
_BRACKET = re.compile(r"\\[{}]|[()\[\]]")
_UNITS = {"cm": "m", "km": "m", "m": "cm", "kg": "g", "hours": "minutes", "minutes": "hours", "dollars": "cents"}
_UNIT = re.compile(rf"(?<=[\d\s{{])(?:{'|'.join(_UNITS)})(?![a-zA-Z])")


class NearMiss(NamedTuple):
    """`kind` names the change: a sign, a digit, an exponent, the case, the order, a relation, a bracket, a unit."""

    kind: str
    answer: str


def make_near_misses(expected: str) -> Iterator[NearMiss]:
    """Yield wrong copies of an expected answer with one change each, without repeats.

    Changes that keep an answer right are left out: −0, 1E3 for 1e3, other names on the left side of an equation, the
    case of words, and the order of a set.
    """
    seen = {expected}
    for near in _changes(expected):
        if near.answer not in seen:
            seen.add(near.answer)
            yield near


def _changes(text: str) -> Iterator[NearMiss]:
    if any(one in "123456789" for one in text):
        yield NearMiss("sign", text[1:] if text.startswith("-") else f"-{text}")
        yield NearMiss("relation", rf"\neq {text}")
    kept = [range(*match.span()) for pattern in (_COMMAND, _KEPT) for match in pattern.finditer(text)]
    for place, sign in enumerate(text):
        if any(place in span for span in kept):
            continue
        before, after = text[:place], text[place + 1 :]
        if sign in "+-" and place:
            yield NearMiss("sign", before + "-+"[sign == "-"] + after)
        elif sign.isdecimal():
            kind = "exponent" if re.search(r"(?:\^\{?|\d[eE])[+-]?\d*$", before) else "digit"
            for step in range(1, 10):
                yield NearMiss(kind, f"{before}{(int(sign) + step) % 10}{after}")
        elif sign.isalpha():
            yield NearMiss("case", before + sign.swapcase() + after)
            if after[:1].isalpha() and after[0] != sign:
                yield NearMiss("order", before + after[0] + sign + after[1:])
    if match := re.search(r"(?<=\()([^,()\[\]{}]+),([^,()\[\]{}]+)", text):
        swapped = f"{match[2].strip()}, {match[1].strip()}"
        yield NearMiss("order", text[: match.start()] + swapped + text[match.end() :])
    for kind, pattern, others in (
        ("relation", _RELATION, _RELATIONS),
        ("bracket", _BRACKET, _BRACKETS),
        ("unit", _UNIT, _UNITS),
    ):
        for found in pattern.finditer(text):
            yield NearMiss(kind, text[: found.start()] + others[found[0]] + text[found.end() :])
