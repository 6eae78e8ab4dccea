"""majority@k: the score of the most frequent answer of several attempts."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from apps.gym.answer_texts import MAX_NORMALIZED, extract_answer, normalize_answer
from apps.gym.redaction.shortening import cut
from apps.gym.traces.items import Item, assistant_text

MAX_ANSWER = 200
_KEPT = 160


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
    text = normalize_answer(text)
    if len(text) <= MAX_ANSWER:
        return text
    checksum = hashlib.blake2b(text.encode(errors="replace"), digest_size=16).hexdigest()
    return f"{cut(text[:MAX_NORMALIZED], _KEPT)}…{checksum}"


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
    return _curve(answers, k)[k - 1]


def _curve(answers: Sequence[Answers], max_k: int) -> tuple[float, ...]:
    """Return majority@k for k = 1 to `max_k`."""
    voting = tuple(sorted((answer.attempts, answer.solved) for answer in answers if answer.votes and answer.attempts))
    return _majorities(voting, sum(answer.attempts for answer in answers if not answer.votes), max_k)


@lru_cache(maxsize=10_000)
def _majorities(voting: tuple[tuple[int, int], ...], silent: int, max_k: int) -> tuple[float, ...]:
    """Count draws by (drawn so far, winners, sum of their scores) for every number of votes that may win."""
    totals = [0.0] * max_k
    for height in range(1, min(max_k, max((count for count, _ in voting), default=0)) + 1):
        # (drawn, winners) → number of ways, and the sum of the winners' scores over them
        ways: dict[tuple[int, int], tuple[int, float]] = {(0, 0): (1, 0.0)}
        for count, solved in voting:
            ways = _draw(ways, count, solved / count, height, max_k)
        for (drawn, winners), (number, scores) in ways.items():
            if winners and number:
                for rest in range(min(silent, max_k - drawn) + 1):
                    totals[drawn + rest - 1] += scores / winners * math.comb(silent, rest)
    size = silent + sum(count for count, _ in voting)
    return tuple(total / math.comb(size, k) for k, total in enumerate(totals, start=1))


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
    """Return majority@k for k = 1 to MAX_MAJORITY averaged over groups, as `mean_pass_at_k` does."""
    totals, groups = [0.0] * MAX_MAJORITY, [0] * MAX_MAJORITY
    for shape, count in shapes.items():
        max_k = min(sum(answer.attempts for answer in shape), MAX_MAJORITY)
        for place, score in enumerate(_curve(shape, max_k)):
            totals[place] += score * count
            groups[place] += count
    return {
        k: total / count for k, total, count in zip(range(1, MAX_MAJORITY + 1), totals, groups, strict=True) if count
    }
