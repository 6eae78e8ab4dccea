"""Verify mechanical edits of expected answers with `math`, and sort the edits that it accepts.

`python -m scripts.try_edited_answers` edits the answers of `tests/gym/verifiers/pairs/expected_answers.txt`. It prints
the number of edits by kind, then each accepted one: "equal" if SymPy's own parser finds the same value, otherwise
"look", since only a person can tell.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Iterator

from apps.gym.errors import VerifierError
from apps.gym.verifiers.near_misses import NearMiss, make_near_misses
from apps.gym.verifiers.registry import read_verifier
from apps.gym.verifiers.verification import verify_attempt
from tests.gym.verifiers.pairs import read_answers

_TOKEN = re.compile(r"\\[a-zA-Z]+|\\.|.", re.DOTALL)
_ADDED = (
    "{}0",
    "{}.5",
    "2{}",
    "{}^2",
    "{}'",
    "{}!",
    r"{}\%",
    r"{}\text{{ million}}",
    r"{}+C",
    r"\sqrt{{{}}}",
    r"\pm {}",
)
_OTHERS = {r"\sin": r"\cos", r"\cup": r"\cap", r"\ln": r"\log", r"\frac": r"\binom", r"\pi": "e", r"\infty": "0"}


def make_edits(expected: str) -> Iterator[NearMiss]:
    """Yield changed copies without repeats: near misses, a token left out, two swapped, or something added."""
    seen = {expected}
    for edit in (*make_near_misses(expected), *_edit_tokens(expected)):
        if edit.answer.strip() and edit.answer not in seen:
            seen.add(edit.answer)
            yield edit


def _edit_tokens(expected: str) -> Iterator[NearMiss]:
    tokens = _TOKEN.findall(expected)
    for place, token in enumerate(tokens):
        before, after = tokens[:place], tokens[place + 1 :]
        if token.isspace():
            continue
        yield NearMiss("left out", "".join(before + after))
        if after and not after[0].isspace():
            yield NearMiss("swapped", "".join([*before, after[0], token, *after[1:]]))
        if token in _OTHERS:
            yield NearMiss("command", "".join([*before, _OTHERS[token], *after]))
    for form in _ADDED:
        yield NearMiss("added", form.format(expected))


def have_same_value(expected: str, answer: str) -> bool:
    """Return True if SymPy reads both as expressions whose difference is zero."""
    from sympy import Expr, simplify
    from sympy.parsing.latex import parse_latex

    try:
        one, other = (parse_latex(text, backend="lark") for text in (expected, answer))
        return isinstance(one, Expr) and isinstance(other, Expr) and simplify(one - other) == 0
    except Exception:
        return False


async def main() -> None:
    verifier = read_verifier({"type": "math"})
    tried: Counter[str] = Counter()
    accepted: dict[str, list[str]] = {"equal": [], "look": [], "no verdict": []}
    answers = read_answers()
    for expected in answers:
        for edit in make_edits(expected):
            tried[edit.kind] += 1
            content = [{"type": "output_text", "text": f"\\boxed{{{edit.answer}}}", "annotations": []}]
            response = {"output": [{"type": "message", "role": "assistant", "content": content}]}
            row = {"expected_answer": expected}
            found = f"{edit.kind}: {expected} ← {edit.answer}"
            try:
                reward = await verify_attempt(verifier, row, response, most_seconds=10, whose="edited answers")
            except VerifierError as problem:
                accepted["no verdict"].append(f"{found} ({problem})")
                continue
            if reward.value:
                accepted["equal" if have_same_value(expected, edit.answer) else "look"].append(found)
    print(f"{len(answers)} expected answers, {tried.total()} edits: {dict(tried.most_common())}")
    for name, found_all in accepted.items():
        print(f"\n{name}: {len(found_all)}", *found_all, sep="\n  ")


if __name__ == "__main__":
    asyncio.run(main())
