"""Reviews in words, with their rollouts."""

from collections.abc import Sequence
from typing import Any

from django.db.models import Prefetch, QuerySet

from apps.gym.pairs.verdicts import CONFIDENCE
from apps.reviews.models import ItemRollout, Queue, QueueItem, Review, Rubric
from apps.reviews.queues.item_states import find_states, occupies_slot, with_held
from apps.rollouts.models import Rollout

LABELS = "ABCDEF"
_ENTRIES = ItemRollout.objects.select_related("rollout").only("item", "place", "rollout__reward", "rollout__status")
_UNREAD = (
    "item__task__row_json",
    "item__task__tags_text",
    "rollout__task__row_json",
    "rollout__task__tags_text",
    "queue__instructions",
)


def describe_review(review: Review, rollouts: Sequence[int], rubric: Rubric | None = None) -> str:
    """Return the verdict in words, with rollouts in the order of the page and scores in the order of the rubric."""
    labels = dict(zip(rollouts, LABELS, strict=False))
    if review.choice:
        side = {"a": 0, "b": 1}.get(review.choice[0]) if review.choice not in {"both_bad", "equal"} else None
        if side is None:
            return review.choice.replace("_", " ")
        much = " much" if review.choice.endswith("much") else ""
        return f"{labels.get(review.arrangement[side], '?')}{much} better"
    if review.ranks:
        ranked = sorted(zip(review.ranks, review.arrangement, strict=True))
        return ", ".join(f"{rank}. {labels.get(one, '?')}" for rank, one in ranked)
    # Some databases do not keep the order of keys in an object.
    asked = rubric.keys if rubric else []
    told = [*(key for key in asked if key in review.scores), *(key for key in review.scores if key not in asked)]
    return ", ".join(f"{key}: {_score(review.scores[key])}" for key in told)


def for_review_rows(reviews: QuerySet[Review]) -> QuerySet[Review]:
    """Prefetch everything that `tell_review` needs, with two queries."""
    rows = with_held(reviews).select_related("reviewer", "queue", "rubric", "item__task", "rollout__task")
    return rows.defer(*_UNREAD).prefetch_related(Prefetch("item__entries", _ENTRIES))


def tell_review(review: Review) -> dict[str, Any]:
    """Return the row of a review. Its rollouts are (label, rollout) in the item's order, which `said` refers to."""
    about = review.item or review.rollout
    rollouts = _labelled(review.item) if review.item else [("", review.rollout)] if review.rollout else []
    return {
        "review": review,
        "said": _said(review, [each.pk for _, each in rollouts], review.rubric),
        "sure": _sure(review),
        "task": about.task if about else None,
        "rollouts": rollouts,
    }


def tell_own(review: Review) -> tuple[Review, str, str]:
    """Return the review with its verdict and confidence in words, with the sides as the reviewer saw them."""
    return review, _said(review, review.arrangement, review.rubric), _sure(review)


def for_item_rows(items: QuerySet[QueueItem]) -> QuerySet[QueueItem]:
    """Prefetch everything that `tell_item` needs, with three queries."""
    reviews = with_held(Review.objects.select_related("reviewer")).defer("draft", "note").order_by("pk")
    rows = items.select_related("task").defer("task__row_json", "task__tags_text")
    return rows.prefetch_related(Prefetch("entries", _ENTRIES), Prefetch("reviews", reviews))


def tell_item(item: QueueItem, *, queue: Queue) -> dict[str, Any]:
    """Return the row of an item. `holders` are its open reviews."""
    rollouts = _labelled(item)
    ids = [each.pk for _, each in rollouts]
    reviews = list(item.reviews.all())
    begun = {Review.Status.OPEN, Review.Status.LAPSED}
    held = sum(occupies_slot(each) for each in reviews)
    return {
        "item": item,
        "states": find_states(item, overlap=queue.overlap, held=held, present=len(rollouts)),
        "said": [(each, _said(each, ids, queue.rubric)) for each in reviews if each.status not in begun],
        "holders": [each for each in reviews if getattr(each, "is_held", False)],
        "rollouts": rollouts,
    }


def _score(value: Any) -> str:
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


def _said(review: Review, rollouts: Sequence[int], rubric: Rubric | None) -> str:
    """Return the verdict in words; empty for open and withdrawn reviews."""
    told = review.status in {Review.Status.SUBMITTED, Review.Status.REPLACED}
    return describe_review(review, rollouts, rubric) if told else ""


def _sure(review: Review) -> str:
    return CONFIDENCE.get(review.confidence or 0, "")


def _labelled(item: QueueItem) -> list[tuple[str, Rollout]]:
    rollouts = [each.rollout for each in sorted(item.entries.all(), key=lambda each: each.place)]
    return [("", each) for each in rollouts] if item.size == 1 else list(zip(LABELS, rollouts, strict=False))
