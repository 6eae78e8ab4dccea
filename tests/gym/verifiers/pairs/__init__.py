"""Tables of expected answers, replies and rewards, one file for each verifier."""

import re
from pathlib import Path
from typing import NamedTuple

_LINE = re.compile(
    r"(?P<reward>[01](?:\.\d+)?)(?P<mark>[*~]?) (?P<expected>.*?) (?P<arrow>[←⇐])"
    r"(?: (?P<reply>.*?))?(?:  # (?P<reason>.*))?"
)


class Pair(NamedTuple):
    """One line. `convention` is its heading, `shown` is True if the documentation shows it.

    `problem` says why a right answer gets 0.
    """

    convention: str
    expected: str
    answer: str
    reply: str
    reward: float
    shown: bool
    problem: str


def read_answers() -> list[str]:
    """Return the expected answers whose changed copies are tried."""
    lines = Path(__file__).with_name("expected_answers.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def read_pairs(verifier: str) -> list[Pair]:
    """Return the pairs of a verifier, none if it has no table."""
    convention, found = "", []
    path = Path(__file__).parent / f"{verifier}.txt"
    for line in path.read_text().splitlines() if path.exists() else []:
        if line.startswith("## "):
            convention = line[3:]
        elif line and not line.startswith("# "):
            match = _LINE.fullmatch(line)
            assert match, line
            answer = (match["reply"] or "").replace("⏎", "\n")
            reply = answer if match["arrow"] == "⇐" else f"\\boxed{{{answer}}}"
            reward, is_shown = float(match["reward"]), match["mark"] == "*"
            found.append(Pair(convention, match["expected"], answer, reply, reward, is_shown, match["reason"] or ""))
    return found
