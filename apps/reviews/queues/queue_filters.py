"""Filters of items and reviews, for pages, API, files and commands."""

from collections.abc import Callable, Mapping
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet

from apps.gym.pairs.verdicts import mirror
from apps.reviews.models import ItemRollout, Queue, QueueItem, Review
from apps.reviews.queues.item_states import DISPUTED, in_state
from apps.rollouts.models import Rollout
from apps.tasks.models import Task

KINDS: dict[str, str] = {**dict(Queue.Kind.choices), "score": "score outside queues"}

HIDDEN = frozenset({"collection", "rollout", "task", "task_number", "text", "verdict", "is_repeat"})
"""Filters that would reveal what a queue hides, for example repeats or the collection.

For annotators, they match only scores outside queues.
"""


def filter_reviews(reviews: QuerySet[Review], wanted: Mapping[str, Any], *, reads_all: bool) -> QuerySet[Review]:
    """Return reviews that match all filters. None and empty strings are ignored."""
    for name, value in _drop_empty(wanted).items():
        reviews = reviews.filter(_REVIEW_CONDITIONS[name](value))
        if name in HIDDEN and not reads_all:
            reviews = reviews.filter(queue__isnull=True)
    return reviews


def filter_items(items: QuerySet[QueueItem], wanted: Mapping[str, Any]) -> QuerySet[QueueItem]:
    """Return items that match all filters. `reviewer`, `verdict` and `skipped` must match the same review."""
    given = _drop_empty(wanted)
    if "state" in given:
        items = in_state(items, given.pop("state"))
    reviews = Review.objects.filter(item=OuterRef("pk"))
    skipped = given.pop("skipped", None)
    review_filters = {name: given.pop(name) for name in ["reviewer", "verdict"] if name in given}
    for question, value in review_filters.items():
        reviews = reviews.filter(_REVIEW_CONDITIONS[question](value))
    if skipped is not None:
        leaves = Exists(reviews.filter(status=Review.Status.SKIPPED))
        items = items.filter(leaves if skipped else ~leaves)
    if review_filters and not skipped:
        items = items.filter(Exists(reviews))
    for name, value in given.items():
        items = items.filter(_ITEM_CONDITIONS[name](value))
    return items


def _drop_empty(wanted: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in wanted.items() if value is not None and value != ""}


def _of_verdict(verdict: str) -> Q:
    """Return a condition on the verdict relative to the item's order of rollouts, however they were shown."""
    as_shown, swapped = Q(is_swapped=False, choice=verdict), Q(is_swapped=True, choice=mirror(verdict))
    return _active(as_shown | swapped)


def _active(wanted: Q) -> Q:
    """Return a condition on submitted answers. Withdrawn reviews are excluded because they are drafts."""
    return Q(status__in=[Review.Status.SUBMITTED, Review.Status.REPLACED]) & wanted


def _of_collection(pk: int) -> Q:
    """Return a condition on reviews of at least one rollout of the collection."""
    among = ItemRollout.objects.filter(item=OuterRef("item"), rollout__collection=pk)
    return Q(rollout__collection=pk) | Q(Exists(among))


def _of_rollout(pk: int) -> Q:
    return Q(rollout=pk) | Q(Exists(ItemRollout.objects.filter(item=OuterRef("item"), rollout=pk)))


def _of_tasks(tasks: QuerySet[Task]) -> Q:
    """Return a condition on reviews of these tasks.

    Uses subqueries: a join would combine every review with both of its tasks.
    """
    items = QueueItem.objects.filter(task__in=tasks.values("pk")).values("pk")
    outside_queues = Rollout.objects.filter(pk=OuterRef("rollout"), task__in=tasks.values("pk"))
    return Q(item__in=items) | Q(Exists(outside_queues), item__isnull=True)


def _prompt_or_id_contains(task: str, text: str) -> Q:
    return Q(**{f"{task}prompt_excerpt__icontains": text}) | Q(**{f"{task}external_id__icontains": text})


_REVIEW_CONDITIONS: dict[str, Callable[[Any], Q]] = {
    "queue": lambda pk: Q(queue=pk),
    "item": lambda pk: Q(item=pk),
    "collection": _of_collection,
    "rollout": _of_rollout,
    "task": lambda pk: _of_tasks(Task.objects.filter(pk=pk)),
    "task_number": lambda number: _of_tasks(Task.objects.filter(index=number - 1)),
    "text": lambda text: _of_tasks(Task.objects.filter(_prompt_or_id_contains("", text))),
    "reviewer": lambda name: Q(reviewer__username=name),
    "kind": lambda kind: Q(queue__isnull=True) if kind == "score" else Q(queue__kind=kind),
    "status": lambda status: Q(status=status),
    "choice": lambda choice: _active(Q(choice=choice)),
    "verdict": _of_verdict,
    "confidence": lambda confidence: _active(Q(confidence=confidence)),
    "could_see_results": lambda wanted: Q(could_see_results=wanted),
    "is_adjudication": lambda wanted: Q(is_adjudication=wanted),
    "is_repeat": lambda wanted: Q(repeat_of__isnull=not wanted),
}
_ITEM_CONDITIONS: dict[str, Callable[[Any], Q]] = {
    "queue": lambda pk: Q(queue=pk),
    "task": lambda pk: Q(task=pk),
    "task_number": lambda number: Q(task__index=number - 1),
    "text": lambda text: _prompt_or_id_contains("task__", text),
    "is_repeated": lambda wanted: Q(is_repeated=wanted),
    "disputed": lambda wanted: DISPUTED if wanted else ~DISPUTED,
}
REVIEW_FILTERS = frozenset(_REVIEW_CONDITIONS)
ITEM_FILTERS = frozenset({*_ITEM_CONDITIONS, "state", "reviewer", "verdict", "skipped"})
