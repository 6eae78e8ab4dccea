"""Progress of a queue, and agreement between its reviewers, in a constant number of queries."""

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator
from typing import Any

import msgspec
from django.db.models import Count, ExpressionWrapper, F, FloatField, Sum

from apps.gym.metrics.agreement import (
    Level,
    Unit,
    count_differences,
    kappa_of_pairs,
    krippendorff_alpha,
    percent_agreement,
)
from apps.gym.rubric_criteria import score_level
from apps.reviews.models import PairVerdict, Queue, QueueItem, Review
from apps.reviews.queues.hidden_items import is_whole
from apps.reviews.queues.item_states import DISPUTED, State, in_state


def find_independent_reviews(queue: Queue, *, could_see_results: bool | None = None) -> Any:
    reviews = Review.objects.filter(queue=queue).independent()
    return reviews if could_see_results is None else reviews.filter(could_see_results=could_see_results)


def find_verdicts(queue: Queue, *, could_see_results: bool | None = None) -> Any:
    reviews = find_independent_reviews(queue, could_see_results=could_see_results)
    return PairVerdict.objects.filter(review__in=reviews.values("pk"))


_ON_A_SCALE = {("low", 2): -2, ("low", 1): -1, ("equal", 0): 0, ("high", 1): 1, ("high", 2): 2}
"""An ordinal scale of verdicts. "Both bad" is missing because it does not rank the two."""
_SIDES = {"low": "one side better", "high": "the other side better", "equal": "equal", "both_bad": "both bad"}
"""Sides are named relative to each other, because "low" and "high" mean nothing to readers."""
_DIFFERENCES = 10


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question with its answers per unit. `scale` has the level of measurement, if the answers are ordered."""

    name: str
    units: list[Unit]
    scale: tuple[Level, list[Unit]] | None
    is_verdict: bool = False


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """Agreement on one question.

    `kappas` has (reviewer, reviewer, κ or None, shared units). `scale` is α of ordered values: ordinal for verdicts,
    interval for numbers. `nominal` is α of unordered values, or of the outcome without its strength. `differences` has
    (answer, other answer, number of reviewer pairs), most frequent first.
    """

    name: str
    units: int
    percent: float | None
    kappa: float | None
    nominal: float | None
    scale: float | None
    kappas: list[tuple[str, str, float | None, int]]
    differences: list[tuple[str, str, int]]


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of items and reviews. `wanted` is the total number of reviews, once all items are done.

    Items with a deleted rollout are not assigned; unfinished ones count only as `lost`. `repeats` is the total number
    of hidden repeats, which `reviews` and `wanted` leave out.
    """

    items: int
    finished: int
    begun: int
    disputed: int
    adjudicated: int
    reviews: int
    wanted: int
    lost: int
    repeats: int

    @property
    def share(self) -> float:
        return min(1.0, self.finished / self.items) if self.items else 0.0


def read_progress(queue: Queue) -> Progress:
    """Return the progress of a queue, with one query."""
    rows = QueueItem.objects.filter(queue=queue).annotate(whole=is_whole("pk"))
    every = list(rows.values_list("done", "doubt", "is_adjudicated", "is_repeated", "whole"))
    items = [each[:4] for each in every if each[4] or each[0] >= queue.overlap or each[2]]
    wanted = [(done if settled else max(done, queue.overlap), again) for done, _, settled, again in items]
    return Progress(
        items=len(items),
        finished=sum(done >= queue.overlap or settled for done, _, settled, _ in items),
        begun=sum(done > 0 for done, *_ in items),
        disputed=sum(doubt > 0 and done > 1 and not settled for done, doubt, settled, _ in items),
        adjudicated=sum(settled for _, _, settled, _ in items),
        reviews=sum(done for done, *_ in items),
        wanted=sum(number for number, _ in wanted),
        lost=len(every) - len(items),
        repeats=sum(number for number, again in wanted if again),
    )


def read_agreement(queue: Queue, *, could_see_results: bool | None = None) -> list[Agreement]:
    """Return the agreement on verdicts, or on each criterion, without hidden repeats and adjudications."""
    return [_agreement(each) for each in _questions(queue, could_see_results)]


def read_agreed(queues: Iterable[Queue]) -> dict[int, float]:
    """Return the share of reviewer pairs with equal answers on the same item, by queue.

    Runs one query on the counts of each item. Queues without items that two users reviewed are left out.
    """
    twos = ExpressionWrapper(F("done") * (F("done") - 1) / 2.0, output_field=FloatField())
    items = QueueItem.objects.filter(queue__in=list(queues), done__gt=1).values("queue")
    rows = items.annotate(agreed=Sum((1.0 - F("doubt")) * twos), compared=Sum(twos))
    return {row["queue"]: row["agreed"] / row["compared"] for row in rows}


def count_disputed(queues: Iterable[Queue]) -> dict[int, int]:
    """Return the number of disputed items by queue, with one query."""
    items = in_state(QueueItem.objects.filter(queue__in=list(queues)), State.DISPUTED).order_by()
    return dict(items.values_list("queue").annotate(number=Count("pk")))


def read_disputed(queue: Queue, *, limit: int = 200) -> list[QueueItem]:
    """Return items with disagreement and without adjudication, most disputed first."""
    items = QueueItem.objects.filter(DISPUTED, queue=queue)
    return list(items.select_related("task__version__dataset").order_by("-doubt", "pk")[:limit])


def _questions(queue: Queue, could_see_results: bool | None) -> Iterator[Question]:
    if queue.kind != Queue.Kind.RUBRIC:
        # Rankings may share two rollouts: each ranking is a separate opinion.
        rows = find_verdicts(queue, could_see_results=could_see_results).values_list(
            "review__item", "low_id", "high_id", "outcome", "strength", "review__reviewer__username"
        )
        answers: dict[Hashable, dict[Hashable, Any]] = defaultdict(dict)
        placed: dict[Hashable, dict[Hashable, Any]] = defaultdict(dict)
        for *unit, outcome, strength, person in rows:
            answers[tuple(unit)][person or ""] = outcome
            if (outcome, strength) in _ON_A_SCALE:
                placed[tuple(unit)][person or ""] = _ON_A_SCALE[outcome, strength]
        scale: tuple[Level, list[Unit]] = ("ordinal", list(placed.values()))
        yield Question(name="verdict", units=list(answers.values()), scale=scale, is_verdict=True)
    if queue.rubric is None:
        return
    opinions = find_independent_reviews(queue, could_see_results=could_see_results)
    reviews = list(opinions.values_list("item_id", "reviewer__username", "scores"))
    for criterion in queue.rubric.criteria:
        if not (level := score_level(criterion)):
            continue
        units: dict[Hashable, dict[Hashable, Any]] = defaultdict(dict)
        for item_id, person, scores in reviews:
            if criterion["key"] in scores:
                units[item_id][person or ""] = scores[criterion["key"]]
        shared: list[Unit] = list(units.values())
        yield Question(
            name=criterion["label"], units=shared, scale=("interval", shared) if level == "interval" else None
        )


def _agreement(question: Question) -> Agreement:
    units, scale = question.units, question.scale
    pairs = kappa_of_pairs(units)
    weighed = [(kappa, number) for kappa, number in pairs.values() if kappa is not None]
    total = sum(number for _, number in weighed)
    return Agreement(
        name=question.name,
        units=sum(len(unit) > 1 for unit in units),
        percent=percent_agreement(units),
        kappa=math.fsum(kappa * number for kappa, number in weighed) / total if total else None,
        nominal=krippendorff_alpha(units),
        scale=krippendorff_alpha(scale[1], scale[0]) if scale else None,
        kappas=[(str(one), str(other), kappa, number) for (one, other), (kappa, number) in sorted(pairs.items())],
        differences=_differences(question),
    )


def _differences(question: Question) -> list[tuple[str, str, int]]:
    counted: Counter[tuple[str, str]] = Counter()
    for (one, other), number in count_differences(question.units).items():
        words = (str(one), str(other))
        if question.is_verdict:
            sides = sorted((_SIDES[one], _SIDES[other]), key=list(_SIDES.values()).index)
            # A difference that names only "the other side" is shown as "one side".
            words = (_SIDES["low"] if sides[0] == _SIDES["high"] else sides[0], sides[1])
        counted[words] += number
    return [(one, other, number) for (one, other), number in counted.most_common(_DIFFERENCES)]
