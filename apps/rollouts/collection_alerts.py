"""Alerts about collections, recorded in the transaction that ends or pauses them."""

from collections.abc import Iterable
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone

from apps.alerts.event_outbox import find_subscriptions, record_event
from apps.alerts.models import EventKind
from apps.rollouts.models import Collection

MIN_ENDED = 20
"""Ended rollouts from which the share of failed ones counts; a collection with fewer counts when it has ended."""


def record_ended(collection_ids: Iterable[int]) -> None:
    """Record that these collections are completed or cancelled, and whether their rewards moved."""
    ended = Collection.objects.filter(pk__in=collection_ids)
    for collection in ended:
        record_event(
            EventKind.COLLECTION_ENDED,
            # A collection can end again after failed rollouts are retried.
            key=f"{collection.pk} {_ended_at(collection)}",
            text=f"Collection {collection.label} is {collection.state}: {collection.completed} completed, "
            f"{collection.failed} failed, {collection.cancelled} cancelled",
            page=("collection_detail", collection.pk),
            **_facts(collection),
        )
        _record_reward_change(collection)
    record_failure_shares(ended)


def record_paused(collection_ids: Iterable[int], reason: Collection.PauseReason) -> None:
    """Record that the calling transaction paused these collections."""
    kind = EventKind.BUDGET_REACHED if reason.value.startswith("max_") else EventKind.COLLECTION_PAUSED
    for collection in Collection.objects.filter(pk__in=collection_ids):
        record_event(
            kind,
            # The state changes in one transaction only, so the time of the pause identifies it.
            key=f"{collection.pk} {timezone.now().isoformat()}",
            text=f"Collection {collection.label} is paused: {reason.label}",
            page=("collection_detail", collection.pk),
            reason=reason.value,
            **_facts(collection),
        )


def record_failure_shares(collections: QuerySet[Collection]) -> None:
    """Record each collection whose share of failed rollouts reached the threshold of a subscription."""
    thresholds = sorted({one.min_failure_share for one in find_subscriptions(EventKind.FAILURE_SHARE)})
    for collection in collections.filter(failed__gt=0) if thresholds else ():
        counted = collection.completed + collection.failed
        share = collection.failed / counted
        if counted >= MIN_ENDED or collection.is_finished:
            for threshold in [one for one in thresholds if one <= share]:
                _record_failure_share(collection, share, threshold)


def _record_failure_share(collection: Collection, share: float, threshold: float) -> None:
    record_event(
        EventKind.FAILURE_SHARE,
        key=f"{collection.pk} {threshold}",
        text=f"Collection {collection.label}: {share:.0%} of its rollouts failed",
        page=("collection_detail", collection.pk),
        wants=lambda subscription: subscription.min_failure_share == threshold,
        failure_share=share,
        **_facts(collection),
    )


def _record_reward_change(collection: Collection) -> None:
    """Compare the mean reward with the previous collection of the same dataset, environment, agent and model."""
    reward = collection.mean_reward
    if reward is None or collection.state != Collection.State.COMPLETED:
        return
    same = {name: getattr(collection, name) for name in ("dataset_id", "environment_id", "agent_id", "policy_model_id")}
    earlier = Collection.objects.present().filter(**same, state=Collection.State.COMPLETED, rewarded__gt=0)
    previous = earlier.filter(finished_at__lt=collection.finished_at).exclude(pk=collection.pk)
    if (last := previous.order_by("-finished_at").first()) is None or last.mean_reward is None:
        return
    change = reward - last.mean_reward
    record_event(
        EventKind.REWARD_MOVED,
        key=f"{collection.pk} {_ended_at(collection)}",
        text=f"Collection {collection.label}: mean reward {reward:.3f}, {change:+.3f} since {last.label}",
        page=("collection_detail", collection.pk),
        # An unchanged reward never matches, not even a threshold of 0.
        wants=lambda subscription: change != 0 and abs(change) >= subscription.min_reward_change,
        previous=last.pk,
        change=change,
        **_facts(collection),
    )


def _ended_at(collection: Collection) -> str:
    assert collection.finished_at is not None
    return collection.finished_at.isoformat()


def _facts(collection: Collection) -> dict[str, Any]:
    return {
        "collection": collection.pk,
        "name": collection.name,
        "state": collection.state,
        "total": collection.total,
        "completed": collection.completed,
        "failed": collection.failed,
        "cancelled": collection.cancelled,
        "mean_reward": collection.mean_reward,
        "cost": collection.known_cost,
    }
