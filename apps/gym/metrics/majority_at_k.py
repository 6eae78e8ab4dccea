"""majority@k: what many attempts at a task answer together."""

import hashlib
import math
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from apps.gym.redaction.shortening import cut
from apps.gym.traces.items import Item, assistant_text
from apps.gym.verifiers.answer_extraction import extract_answer

MAX_ANSWER = 200
_KEPT = 160
_NORMALIZED = 64 * 1024
"""Characters that are compared in their normal form. What follows is compared as it is: splitting a text of megabytes
into words takes many times its memory."""


class Answers(NamedTuple):
    """How many attempts at a task gave the same answer, and how many of them were solved; or gave none."""

    attempts: int
    solved: int
    votes: bool = True


MAX_MAJORITY = 64
"""The largest k of majority@k: counting its draws costs the square of it."""


def comparable_answer(said: list[Item], details: Mapping[str, Any]) -> str:
    """The answer of an attempt, such that two that mean the same are often equal; empty without one.

    What the verifier extracted where it says so, else what the last turn `said`: its last box, or its last line without
    a label. Case, white space, width of letters and a full stop at the end do not count. At most MAX_ANSWER characters:
    of a longer one the beginning and a checksum.
    """
    if "extracted_answer" in details:
        extracted = details["extracted_answer"]
        text = "" if extracted is None else str(extracted)
    else:
        text = extract_answer(assistant_text(said)) or ""
    head, rest = text[:_NORMALIZED], text[_NORMALIZED:]
    text = " ".join(unicodedata.normalize("NFKC", head).casefold().split()).removesuffix(".") + rest
    if len(text) <= MAX_ANSWER:
        return text
    return (
        f"{cut(text[:_NORMALIZED], _KEPT)}…{hashlib.blake2b(text.encode(errors='replace'), digest_size=16).hexdigest()}"
    )


def majority_at_k(answers: Sequence[Answers], k: int) -> float:
    """The score of the answer that most of k attempts give, averaged over all ways to draw k of the group.

    `answers` has every attempt of the group: how many gave an answer, and how many of those were solved, its score.
    An attempt without an answer (`votes` False) has no vote; among answers with equally many votes each is as likely to
    be taken, and where nobody votes the score is 0. This is self-consistency (Wang et al. 2022, arXiv:2203.11171), made
    independent of the order of the attempts. Exact, by counting draws; needs 1 ≤ k ≤ the group's size.
    """
    size = sum(answer.attempts for answer in answers)
    if not 1 <= k <= size:
        raise ValueError(f"majority@{k} of {size} attempts is not defined")
    voting = tuple(sorted((answer.attempts, answer.solved) for answer in answers if answer.votes and answer.attempts))
    return _majority(voting, size - sum(count for count, _ in voting), k)


@lru_cache(maxsize=10_000)
def _majority(voting: tuple[tuple[int, int], ...], silent: int, k: int) -> float:
    """For every height that the winners may have, draws are counted by (drawn so far, winners, their scores' sum)."""
    total = 0.0
    for height in range(1, min(k, max((count for count, _ in voting), default=0)) + 1):
        # (drawn, winners) → ways, and the sum of the winners' scores over these ways
        ways: dict[tuple[int, int], tuple[int, float]] = {(0, 0): (1, 0.0)}
        for count, solved in voting:
            ways = _draw(ways, count, solved / count, height, k)
        for (drawn, winners), (number, scores) in ways.items():
            if winners and number:
                total += scores / winners * math.comb(silent, k - drawn)
    return total / math.comb(silent + sum(count for count, _ in voting), k)


def _draw(
    ways: dict[tuple[int, int], tuple[int, float]], count: int, score: float, height: int, k: int
) -> dict[tuple[int, int], tuple[int, float]]:
    """One answer more, of which at most `height` are drawn; it wins where it is exactly that many."""
    grown: dict[tuple[int, int], tuple[int, float]] = {}
    for (drawn, winners), (number, scores) in ways.items():
        for taken in range(min(count, height, k - drawn) + 1):
            wins = taken == height
            times = math.comb(count, taken)
            place = (drawn + taken, winners + wins)
            before = grown.get(place, (0, 0.0))
            grown[place] = (
                before[0] + number * times,
                before[1] + (scores + number * score * wins) * times,
            )
    return grown


def mean_majority_at_k(shapes: Mapping[tuple[Answers, ...], int]) -> dict[int, float]:
    """majority@k for k = 1, 2, 4, … up to MAX_MAJORITY averaged over groups, as `mean_pass_at_k` does."""
    sizes = {shape: sum(answer.attempts for answer in shape) for shape in shapes}
    largest = min(max(sizes.values(), default=0), MAX_MAJORITY)
    averages: dict[int, float] = {}
    k = 1
    while k <= largest:
        eligible = [shape for shape, size in sizes.items() if size >= k]
        total = sum(majority_at_k(shape, k) * shapes[shape] for shape in eligible)
        averages[k] = total / sum(shapes[shape] for shape in eligible)
        k *= 2
    return averages
