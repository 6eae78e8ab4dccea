"""Combine all verdicts about two rollouts into one outcome, across queues."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from apps.reviews.models import PairVerdict, Review
from apps.rollouts.models import Collection

How = Literal["adjudicated", "majority", "single", "split"]
Outcome = Literal["low", "high", "equal", "both_bad", "split"]

RolloutPair = tuple[int, int, int, int]
"""(lower rollout id, higher rollout id, collection of the lower, collection of the higher)."""
_COLUMNS = (
    *("low_id", "high_id", "low__collection_id", "high__collection_id", "review__submitted_at", "review_id"),
    *("outcome", "strength", "review__reviewer_id", "review__is_adjudication"),
)


class CombinedVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The combined verdict about two rollouts, `low` (lower id) and `high`.

    `outcome` is `split` without a majority and without an adjudication. `strength` is 2 for much better, 1 for better,
    0 without a winner. `reviewers` counts the reviewers, `agreeing` those who agree with the outcome; neither includes
    the adjudicator.
    """

    low: int
    high: int
    outcome: Outcome
    strength: int
    how: How
    reviewers: int
    agreeing: int
    reviews: list[int]
    """Ids of the reviews behind the outcome, including the adjudication."""
    low_collection: int
    high_collection: int

    @property
    def winner(self) -> int | None:
        return {"low": self.low, "high": self.high}.get(self.outcome)

    @property
    def loser(self) -> int | None:
        return {"low": self.high, "high": self.low}.get(self.outcome)


def read_verdicts(
    collection: Collection | None = None,
    *,
    rollout_ids: Iterable[int] | None = None,
    touching: Iterable[int] | None = None,
) -> dict[tuple[int, int], CombinedVerdict]:
    """Return the combined verdicts by (lower id, higher id), with one query.

    Restrict them to pairs with at least one rollout in `collection` or in `touching`, or with both in `rollout_ids`.
    Hidden repeats do not count. Of several verdicts by the same reviewer, the last one counts. The last adjudication
    overrides all votes.
    """
    verdicts = PairVerdict.objects.filter(review__status=Review.Status.SUBMITTED, review__repeat_of__isnull=True)
    if rollout_ids is not None:
        wanted = list(rollout_ids)
        verdicts = verdicts.filter(low__in=wanted, high__in=wanted)
    rows = verdicts.order_by().values_list(*_COLUMNS)
    # A union, because a condition with OR would scan all verdicts.
    if collection is not None:
        rows = rows.filter(low__collection=collection).union(rows.filter(high__collection=collection))
    elif touching is not None:
        either = list(touching)
        rows = rows.filter(low__in=either).union(rows.filter(high__in=either))
    found: dict[RolloutPair, list[tuple[Any, ...]]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row[4:6]):
        found[row[:4]].append(row[5:])
    return {pair[:2]: _decide(pair, verdicts) for pair, verdicts in sorted(found.items())}


def _decide(pair: RolloutPair, verdicts: list[tuple[Any, ...]]) -> CombinedVerdict:
    """Combine verdicts given as (review, outcome, strength, reviewer, is adjudication), in order of time."""
    low, high, low_collection, high_collection = pair
    # Reviews of deleted users count separately.
    latest = {
        person if person is not None else -review: (outcome, strength, review)
        for review, outcome, strength, person, adjudicates in verdicts
        if not adjudicates
    }
    votes = list(latest.values())
    final = next((each for each in reversed(verdicts) if each[4]), None)
    outcome: Outcome
    how: How
    if final is not None:
        outcome, strength, how = final[1], final[2], "adjudicated"
    else:
        outcome, strength = _majority(votes)
        how = "split" if outcome == "split" else "single" if len(votes) == 1 else "majority"
    return CombinedVerdict(
        low=low,
        high=high,
        outcome=outcome,
        strength=strength,
        how=how,
        reviewers=len(votes),
        agreeing=sum(one == outcome for one, _, _ in votes),
        low_collection=low_collection,
        high_collection=high_collection,
        reviews=sorted([*(review for _, _, review in votes), *([final[0]] if final else [])]),
    )


def _majority(votes: list[tuple[Outcome, int, int]]) -> tuple[Outcome, int]:
    """Return the outcome with the most votes, and its strength: 2 if at least half of its votes say "much better"."""
    counted = Counter(outcome for outcome, _, _ in votes).most_common(2)
    if len(counted) == 2 and counted[0][1] == counted[1][1]:
        return "split", 0
    outcome, number = counted[0]
    strengths = [strength for one, strength, _ in votes if one == outcome]
    if outcome not in ("low", "high"):
        return outcome, 0
    return outcome, 2 if 2 * strengths.count(2) >= number else 1
