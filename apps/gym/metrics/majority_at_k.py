"""majority@k: the score of the most frequent answer of several attempts."""

import hashlib
import math
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from apps.gym.metrics.pass_at_k import powers_of_two
from apps.gym.redaction.shortening import cut
from apps.gym.traces.items import Item, assistant_text
from apps.gym.verifiers.answer_extraction import extract_answer

MAX_ANSWER = 200
_KEPT = 160
_NORMALIZED = 64 * 1024
"""Maximum characters to normalise.

The rest is compared as is, because splitting megabytes into words takes many times their memory.
"""


class Answers(NamedTuple):
    """The number of attempts at a task with the same answer, and how many were solved.

    `votes` is False for no answer.
    """

    attempts: int
    solved: int
    votes: bool = True


MAX_MAJORITY = 64
"""The largest k of majority@k, because its cost is quadratic."""


def comparable_answer(said: list[Item], details: Mapping[str, Any]) -> str:
    """Return an attempt's answer, normalised so that equivalent answers are often equal.

    Empty without one.

    It is the verifier's extracted answer if there is one, else the last box or unlabelled last line of `said`, the last
    turn. Case, white space, character width and a final full stop are ignored. Answers over MAX_ANSWER characters
    become their beginning and a checksum.
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
    """Return the score of the most frequent answer of k attempts, averaged over all draws of k from the group.

    `answers` covers all attempts of the group: for each answer the number of attempts, and the number solved, which is
    its score. An attempt without an answer (`votes` False) does not vote. Answers with equal votes are equally likely;
    without votes the score is 0. This is self-consistency (Wang et al. 2022, arXiv:2203.11171), independent of the
    order of attempts, and exact by counting draws. Needs 1 ≤ k ≤ size of the group.
    """
    size = sum(answer.attempts for answer in answers)
    if not 1 <= k <= size:
        raise ValueError(f"majority@{k} of {size} attempts is not defined")
    voting = tuple(sorted((answer.attempts, answer.solved) for answer in answers if answer.votes and answer.attempts))
    return _majority(voting, size - sum(count for count, _ in voting), k)


@lru_cache(maxsize=10_000)
def _majority(voting: tuple[tuple[int, int], ...], silent: int, k: int) -> float:
    """Count draws by (drawn so far, winners, sum of their scores) for every number of votes that may win."""
    total = 0.0
    for height in range(1, min(k, max((count for count, _ in voting), default=0)) + 1):
        # (drawn, winners) → number of ways, and the sum of the winners' scores over them
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
    """Return the ways with one more answer, drawn at most `height` times. It wins if drawn exactly that often."""
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
    """Return majority@k for k = 1, 2, 4, … up to MAX_MAJORITY averaged over groups, as `mean_pass_at_k` does."""
    sizes = {shape: sum(answer.attempts for answer in shape) for shape in shapes}
    averages: dict[int, float] = {}
    for k in powers_of_two(min(max(sizes.values(), default=0), MAX_MAJORITY)):
        eligible = [shape for shape, size in sizes.items() if size >= k]
        total = sum(majority_at_k(shape, k) * shapes[shape] for shape in eligible)
        averages[k] = total / sum(shapes[shape] for shape in eligible)
    return averages
