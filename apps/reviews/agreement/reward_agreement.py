"""Agreement of a collection's rewards with reviews in blind queues."""

from typing import Any

import msgspec

from apps.gym.metrics.agreement import area_under_curve
from apps.reviews.agreement.scan_accuracy import Rows, find_blind_reviews, read_scores, take_majority
from apps.reviews.models import Rubric
from apps.rollouts.models import Collection


class RewardAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """Agreement with one yes/no criterion of a rubric.

    The answer of most reviewers of a rollout counts; `ties` are left out. `same` rollouts are solved by reward and
    yes, or unsolved and no. `auc` is the probability that a rollout with yes has a higher reward than one with no, ties
    counted half; None without both.
    """

    rubric: str
    criterion: str
    label: str
    rollouts: int
    reviews: int
    ties: int
    same: int
    auc: float | None


def read_reward_agreement(collection: Collection) -> list[RewardAgreement]:
    """Return the agreement with each yes/no criterion that has reviews, with at most three queries."""
    rows = read_scores(find_blind_reviews().filter(rollout__collection=collection))
    if not rows:
        return []
    reviewed = {rollout for each in rows.values() for rollout, _ in each}
    rewards: dict[int, Any] = dict(collection.rollouts.rewarded().filter(pk__in=reviewed).values_list("pk", "reward"))
    return [
        _measure(rubric, criterion, rows[rubric.pk], rewards, collection.solve_threshold)
        for rubric in Rubric.objects.filter(pk__in=rows).order_by("pk")
        for criterion in rubric.criteria
        if criterion["kind"] == "boolean"
    ]


def _measure(
    rubric: Rubric, criterion: dict[str, Any], rows: Rows, rewards: dict[int, Any], threshold: float
) -> RewardAgreement:
    truth, ties, reviews = take_majority(criterion["key"], rows, rewards)
    return RewardAgreement(
        rubric=rubric.slug,
        criterion=criterion["key"],
        label=criterion["label"],
        rollouts=len(truth),
        reviews=reviews,
        ties=ties,
        same=sum((said == "yes") == (rewards[pk] >= threshold) for pk, said in truth.items()),
        auc=area_under_curve(
            [rewards[pk] for pk, said in truth.items() if said == "yes"],
            [rewards[pk] for pk, said in truth.items() if said == "no"],
        ),
    )
