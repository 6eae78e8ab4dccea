"""Provenance of pairs: a verdict in words, and the opinion of each review behind it."""

from datetime import datetime
from typing import Any, Literal

import msgspec
from django.db.models import Prefetch

from apps.pairs.models import PreferencePair
from apps.reviews.models import PairVerdict, Review

Said = Literal["chosen", "rejected", "equal", "both_bad"]


class Opinion(msgspec.Struct, frozen=True, kw_only=True):
    """The current opinion of one review.

    `said` is the preferred side; None if withdrawn. `is_later` is True if it was submitted after the
    pair was built; it may have replaced an earlier opinion.
    """

    review: int
    reviewer: str | None
    """None for a deleted user."""
    said: Said | None
    strength: int
    is_adjudication: bool
    status: str
    is_later: bool
    submitted_at: datetime | None
    queue: int | None
    queue_name: str
    item: int | None


def describe_verdict(pair: PreferencePair) -> str:
    """Return the verdict and its reviewers, as of when the pair was built. Empty for pairs by reward."""
    if pair.source != PreferencePair.Source.VERDICT:
        return ""
    said, agreeing, total = "much better" if pair.strength > 1 else "better", pair.agreeing, pair.reviewers
    people = "1 reviewer" if total == 1 else f"{total} reviewers"
    reviewers = people if agreeing is None or agreeing == total else f"{agreeing} of {people}"
    if not pair.adjudicated:
        return f"{said} according to {reviewers}"
    if agreeing is None:
        return f"{said} according to the adjudicator"
    agree = "agrees" if total == 1 else "agree"
    return f"{said} according to the adjudicator; {reviewers} {agree}"


def provenance_columns(pair: PreferencePair) -> dict[str, Any]:
    """Return the provenance columns of an exported row.

    Unknown values are left out: loaders infer the wrong column type from nulls.
    """
    # Older pairs have no lengths.
    known = pair.chosen_length or pair.rejected_length
    lengths = {"chosen_length": pair.chosen_length, "rejected_length": pair.rejected_length} if known else {}
    return {
        "pair_source": str(pair.source),
        "pair_strength": pair.strength,
        "pair_reviewers": pair.reviewers,
        "pair_agreeing": pair.agreeing or 0,
        "pair_adjudicated": pair.adjudicated,
        **lengths,
    }


def read_opinions(pair: PreferencePair) -> list[Opinion]:
    """Return the opinions behind the verdict: votes by time, then the adjudication. Deleted reviews are left out."""
    low, high = sorted((pair.chosen_id, pair.rejected_id))
    of_the_two = Prefetch("verdicts", PairVerdict.objects.filter(low=low, high=high), to_attr="of_the_two")
    reviews = Review.objects.filter(pk__in=pair.reviews).select_related("reviewer", "queue")
    ordered = reviews.order_by("is_adjudication", "submitted_at", "pk").prefetch_related(of_the_two)
    return [_opinion(pair, each) for each in ordered]


def _opinion(pair: PreferencePair, review: Review) -> Opinion:
    verdicts: list[PairVerdict] = review.of_the_two  # type: ignore[attr-defined]
    made_at = pair.pair_set.finished_at or pair.pair_set.created_at
    return Opinion(
        review=review.pk,
        reviewer=review.reviewer.username if review.reviewer else None,
        said=_side(pair, verdicts[0]) if verdicts else None,
        strength=verdicts[0].strength if verdicts else 0,
        is_adjudication=review.is_adjudication,
        status=review.status,
        is_later=review.submitted_at is not None and review.submitted_at > made_at,
        submitted_at=review.submitted_at,
        queue=review.queue_id,
        queue_name=review.queue.name if review.queue else "",
        item=review.item_id,
    )


def _side(pair: PreferencePair, verdict: PairVerdict) -> Said:
    if verdict.outcome in (PairVerdict.Outcome.EQUAL, PairVerdict.Outcome.BOTH_BAD):
        return "equal" if verdict.outcome == PairVerdict.Outcome.EQUAL else "both_bad"
    winner = verdict.low_id if verdict.outcome == PairVerdict.Outcome.LOW else verdict.high_id
    return "chosen" if winner == pair.chosen_id else "rejected"


def describe_opinion(opinion: Opinion) -> str:
    """Return the opinion in words, with a note if it was replaced or submitted later."""
    better = "much better" if opinion.strength > 1 else "better"
    words = {"chosen": f"chosen is {better}", "rejected": f"rejected is {better}", "both_bad": "both bad"}
    said = "withdrawn" if opinion.said is None else words.get(opinion.said, opinion.said)
    if opinion.status == Review.Status.REPLACED:
        return f"{said}, replaced by a later adjudication"
    return f"{said} (reviewed after the pair was built)" if opinion.is_later else said
