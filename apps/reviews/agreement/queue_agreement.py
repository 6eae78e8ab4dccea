"""How far a queue is, and how far people agree with each other.

A fixed number of queries, whatever the size of the queue.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator
from typing import Any

import msgspec
from django.db.models import ExpressionWrapper, F, FloatField, Sum

from apps.gym.metrics.agreement import (
    Level,
    Unit,
    count_differences,
    kappa_of_pairs,
    krippendorff_alpha,
    percent_agreement,
)
from apps.gym.rubric_criteria import score_level
from apps.reviews.agreement.opinions import find_opinions, find_verdicts
from apps.reviews.models import Queue, QueueItem
from apps.reviews.queues.hidden_items import is_whole
from apps.reviews.queues.item_states import DISPUTED

_ON_A_SCALE = {("low", 2): -2, ("low", 1): -1, ("equal", 0): 0, ("high", 1): 1, ("high", 2): 2}
"""Both bad says nothing about which is better: it is missing from the scale."""
_SIDES = {"low": "one side", "high": "the other side", "equal": "equal", "both_bad": "both bad"}
"""Which rollout is the low one of the two means nothing to a reader: a side is one side, unless two sides differ."""
_DIFFERENCES = 10


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked: what people said of each unit, and what of it is ordered, with its level."""

    name: str
    units: list[Unit]
    scale: tuple[Level, list[Unit]] | None
    is_verdict: bool = False


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """Of one question. `kappas` has (reviewer, reviewer, κ or None, units that both judged); `scale` is α of what is
    ordered, ordinal for verdicts and interval for numbers; `nominal` is α of what is not, or of the outcome alone.
    `differences` has (what one said, what another said, how many twos did), the most frequent first."""

    name: str
    units: int
    percent: float | None
    kappa: float | None
    nominal: float | None
    scale: float | None
    kappas: list[tuple[str, str, float | None, int]]
    differences: list[tuple[str, str, int]]


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """Of the items, and of the reviews that are wanted: `overlap` for each item that nobody adjudicated. Those that
    lost a rollout are given to nobody: what is unfinished of them is `lost`, and in no other number."""

    items: int
    finished: int
    begun: int
    disputed: int
    adjudicated: int
    reviews: int
    wanted: int
    lost: int

    @property
    def share(self) -> float:
        return min(1.0, self.finished / self.items) if self.items else 0.0


def read_progress(queue: Queue) -> Progress:
    """One query."""
    rows = QueueItem.objects.filter(queue=queue).annotate(whole=is_whole("pk"))
    every = list(rows.values_list("done", "doubt", "is_adjudicated", "whole"))
    items = [
        (done, doubt, settled) for done, doubt, settled, whole in every if whole or done >= queue.overlap or settled
    ]
    return Progress(
        items=len(items),
        finished=sum(done >= queue.overlap or settled for done, _, settled in items),
        begun=sum(done > 0 for done, _, _ in items),
        disputed=sum(doubt > 0 and done > 1 and not settled for done, doubt, settled in items),
        adjudicated=sum(settled for _, _, settled in items),
        reviews=sum(done for done, _, _ in items),
        wanted=sum(done if settled else max(done, queue.overlap) for done, _, settled in items),
        lost=len(every) - len(items),
    )


def read_agreement(queue: Queue, *, could_see_results: bool | None = None) -> list[Agreement]:
    """Between people: of verdicts, or of each criterion of the rubric, without hidden repeats and adjudications."""
    return [_agreement(each) for each in _questions(queue, could_see_results)]


def read_agreed(queues: Iterable[Queue]) -> dict[int, float]:
    """By queue, of every two people who judged the same item, the share that said the same: one query, from what each
    item keeps. Queues in which nobody judged what somebody else had are not in it."""
    twos = ExpressionWrapper(F("done") * (F("done") - 1) / 2.0, output_field=FloatField())
    items = QueueItem.objects.filter(queue__in=list(queues), done__gt=1).values("queue")
    rows = items.annotate(agreed=Sum((1.0 - F("doubt")) * twos), compared=Sum(twos))
    return {row["queue"]: row["agreed"] / row["compared"] for row in rows}


def read_disputed(queue: Queue, *, limit: int = 200) -> list[QueueItem]:
    """Return items on which reviewers disagree and that have no adjudication, the most disputed first."""
    items = QueueItem.objects.filter(DISPUTED, queue=queue)
    return list(items.select_related("task__version__dataset").order_by("-doubt", "pk")[:limit])


def _questions(queue: Queue, could_see_results: bool | None) -> Iterator[Question]:
    if queue.kind != Queue.Kind.RUBRIC:
        # Two rankings may share two rollouts: each ranking is a separate opinion.
        rows = find_verdicts(queue, could_see_results=could_see_results).values_list(
            "review__item", "low_id", "high_id", "outcome", "strength", "review__reviewer__username"
        )
        said: dict[Hashable, dict[Hashable, Any]] = defaultdict(dict)
        placed: dict[Hashable, dict[Hashable, Any]] = defaultdict(dict)
        for *unit, outcome, strength, person in rows:
            said[tuple(unit)][person or ""] = outcome
            if (outcome, strength) in _ON_A_SCALE:
                placed[tuple(unit)][person or ""] = _ON_A_SCALE[outcome, strength]
        scale: tuple[Level, list[Unit]] = ("ordinal", list(placed.values()))
        yield Question(name="verdict", units=list(said.values()), scale=scale, is_verdict=True)
    if queue.rubric is None:
        return
    opinions = find_opinions(queue, could_see_results=could_see_results)
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
            # Of two sides the first is any of them; beside what is no side, so is the only one.
            words = (_SIDES["low"] if sides[0] == _SIDES["high"] else sides[0], sides[1])
        counted[words] += number
    return [(one, other, number) for (one, other), number in counted.most_common(_DIFFERENCES)]
