"""Precision and recall of the answers of a scan, against reviews in blind queues."""

from collections import Counter, defaultdict
from collections.abc import Container
from typing import Any

import msgspec
from django.db.models import QuerySet

from apps.gym.metrics.clustered_intervals import Z_95, wilson
from apps.reviews.models import Queue, Review, Rubric
from apps.rollouts.models import Scan, ScanAnswer

_BOOLEAN = ["yes", "no"]
Rows = list[tuple[int, dict[str, Any]]]
"""Reviews: rollout and scores."""


class AnswerAccuracy(msgspec.Struct, frozen=True, kw_only=True):
    """One answer.

    `found` counts the rollouts with this answer of the scan, `present` those with this answer of the reviewers, and
    `right` those with both. Shares and 95 % intervals are None without rollouts.
    """

    answer: str
    found: int
    present: int
    right: int
    precision: float | None
    precision_interval: tuple[float, float] | None
    recall: float | None
    recall_interval: tuple[float, float] | None


class CriterionAccuracy(msgspec.Struct, frozen=True, kw_only=True):
    """Agreement with one criterion of a rubric. `ties` counts rollouts left out because reviewers disagree equally."""

    rubric: str
    criterion: str
    label: str
    rollouts: int
    reviews: int
    ties: int
    answers: list[AnswerAccuracy]


class Accuracy(msgspec.Struct, frozen=True, kw_only=True):
    criteria: list[CriterionAccuracy]


def read_accuracy(scan: Scan) -> Accuracy:
    """Return the accuracy against each criterion whose answers the scan can give, with at most three queries.

    Only the first reviews of people who could not see results count. The answer of most reviewers of a rollout is taken
    as true.
    """
    choices = [choice.lower() for choice in scan.judge_question.choices]
    reviews = find_blind_reviews().filter(rollout__scan_answers__scan=scan)
    rows = read_scores(reviews)
    answered = scan.answers.filter(state=ScanAnswer.State.ANSWERED, rollout__in=reviews.values("rollout"))
    said = {rollout: answer.lower() for rollout, answer in answered.values_list("rollout", "answer")}
    found = []
    for rubric in Rubric.objects.filter(pk__in=rows):
        for criterion in rubric.criteria:
            if set(_names(criterion)) & set(choices):
                truth, ties, number = take_majority(criterion["key"], rows[rubric.pk], said)
                found.append(
                    CriterionAccuracy(
                        rubric=rubric.slug,
                        criterion=criterion["key"],
                        label=criterion["label"],
                        rollouts=len(truth),
                        reviews=number,
                        ties=ties,
                        answers=[_measure(choice, truth, said) for choice in choices],
                    )
                )
    return Accuracy(criteria=[each for each in found if each.rollouts])


def find_blind_reviews() -> QuerySet[Review]:
    """Return the first reviews of people who could not see results, in blind queues, in the order of their ids."""
    blind = Queue.objects.blind().values("pk")
    return Review.objects.independent().filter(queue__in=blind, could_see_results=False, seq=None).order_by("pk")


def read_scores(reviews: QuerySet[Review]) -> dict[int, Rows]:
    """Return the rollout and scores of each review, by the id of its rubric."""
    rows: dict[int, Rows] = defaultdict(list)
    for pk, rollout, scores in reviews.exclude(queue__rubric=None).values_list("queue__rubric", "rollout", "scores"):
        rows[pk].append((rollout, scores))
    return rows


def _names(criterion: dict[str, Any]) -> list[str]:
    choices = _BOOLEAN if criterion["kind"] == "boolean" else criterion.get("choices", [])
    return [choice.lower() for choice in choices]


def take_majority(key: str, rows: Rows, said: Container[int]) -> tuple[dict[int, str], int, int]:
    """Return the answer of most reviewers by rollout in `said`, the number of ties, and the number of reviews."""
    votes: dict[int, Counter[str]] = defaultdict(Counter)
    for rollout, scores in rows:
        if key in scores and rollout in said:
            given = scores[key]
            votes[rollout][_BOOLEAN[not given] if isinstance(given, bool) else str(given).lower()] += 1
    truth = {}
    for rollout, counted in votes.items():
        (answer, most), *others = counted.most_common(2)
        if not others or others[0][1] < most:
            truth[rollout] = answer
    return truth, len(votes) - len(truth), sum(counted.total() for counted in votes.values())


def _measure(answer: str, truth: dict[int, str], said: dict[int, str]) -> AnswerAccuracy:
    found = {rollout for rollout in truth if said[rollout] == answer}
    present = {rollout for rollout, true in truth.items() if true == answer}
    right = len(found & present)
    precision, precision_interval = _share(right, len(found))
    recall, recall_interval = _share(right, len(present))
    return AnswerAccuracy(
        answer=answer,
        found=len(found),
        present=len(present),
        right=right,
        precision=precision,
        precision_interval=precision_interval,
        recall=recall,
        recall_interval=recall_interval,
    )


def _share(right: int, size: int) -> tuple[float | None, tuple[float, float] | None]:
    return (right / size, wilson(right / size, size, Z_95)) if size else (None, None)
