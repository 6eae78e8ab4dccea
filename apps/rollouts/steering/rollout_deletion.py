"""Delete some rollouts of a finished collection, with traces and comments.

Works like the deletion of a collection; the collection stays and updates its counters.
"""

import math
from typing import Any

from django.db.models import F, Q

from apps.accounts.models import User
from apps.gym.outcomes import ERROR_KINDS, STOP_REASONS
from apps.gym.request_refusals import Refusal
from apps.rollouts.figure_marks import mark_changed
from apps.rollouts.models import Collection, CollectionDeletion, Rollout, RolloutQuerySet, UnindexedRollout
from apps.rollouts.notifications import announce_collection
from apps.rollouts.search.filters.filter_grammar import Filter, FilterRefused
from apps.rollouts.search.filters.filter_parser import parse_filter
from apps.rollouts.search.filters.filter_sql import apply_filter
from apps.rollouts.search.filters.query_time_limit import FilterTooSlow, limit_query_time
from apps.rollouts.steering.deletion_steps import delete_in_chunks, start_deletion
from apps.tasks.deletion_jobs import find_references, refuse_losses

MAX_IDS = 1000
ENDED = (Rollout.Status.COMPLETED, Rollout.Status.FAILED, Rollout.Status.CANCELLED)
_EXACT: dict[str, tuple[str, ...]] = {
    "status": tuple(map(str, ENDED)),
    "error_kind": ERROR_KINDS,
    "stop_reason": STOP_REASONS,
}
_BOUNDS = {"min_reward": "reward__gte", "max_reward": "reward__lte"}
_WORDS = "q"
"""A rollout filter (apps/rollouts/search/filters/)."""
_FLAGS = {"flagged": Q(flagged=True), "lacks_usage": Q(calls_without_usage__gt=0)}


class RemovalRefused(Refusal):
    """Raised if the selection is invalid; `argument` is the invalid part, or empty."""


def queue_rollout_deletion(
    *, collection: Collection, chosen: dict[str, Any], user: User | None = None
) -> CollectionDeletion:
    """Start a deletion of the rollouts that `chosen` selects.

    It has `ids`, or any of `status`, `error_kind`, `stop_reason`, `min_reward`, `max_reward`, `flagged`, `lacks_usage`
    and the filter `q`, combined with AND.

    Raise RemovalRefused, CannotSteer for an unfinished collection, StillInUse if pairs or exports use it, and
    AlreadyBeingDeleted.
    """
    rollouts = chosen_rollouts(collection, chosen)
    try:
        with limit_query_time(Filter(), always=_WORDS in chosen):
            number = rollouts.count()
    except FilterTooSlow:
        raise RemovalRefused(
            "Counting the matches took too long, so nothing was deleted. Use a narrower filter.", _WORDS
        ) from None
    if not number:
        raise RemovalRefused("No finished rollouts of this collection match.")
    refuse_made_of(collection)
    return start_deletion(
        collection,
        name=f"{number:,} rollout{'' if number == 1 else 's'} of {collection.label}",
        total=number,
        action="collection.rollouts_deleted",
        user=user,
        chosen=chosen,
    )


def chosen_rollouts(collection: Collection, chosen: dict[str, Any]) -> RolloutQuerySet:
    """Return the finished rollouts that match. Raise RemovalRefused."""
    known = ["ids", *_EXACT, *_BOUNDS, *_FLAGS, _WORDS]
    if unknown := sorted(set(chosen) - set(known)):
        raise RemovalRefused(f"Unknown selection: {', '.join(unknown)}: by {', '.join(known)}.", unknown[0])
    if not chosen:
        raise RemovalRefused("Select rollouts. To delete all of them, delete the collection.")
    rollouts: RolloutQuerySet = Rollout.objects.filter(collection=collection, status__in=ENDED)
    for name, value in chosen.items():
        if name == "ids":
            rollouts = rollouts.filter(pk__in=_ids(value))
        elif name == _WORDS:
            rollouts = _in_words(rollouts, collection, value)
        elif name in _FLAGS:
            if not isinstance(value, bool):
                raise RemovalRefused(f"{name} must be true or false.", name)
            rollouts = rollouts.filter(_FLAGS[name]) if value else rollouts.exclude(_FLAGS[name])
        elif name in _EXACT:
            if value not in _EXACT[name]:
                raise RemovalRefused(f"{name} is one of {', '.join(_EXACT[name])}.", name)
            rollouts = rollouts.filter(**{name: value})
        else:
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise RemovalRefused(f"{name} must be a finite number.", name)
            rollouts = rollouts.filter(**{_BOUNDS[name]: value})
    return rollouts


def _in_words(rollouts: RolloutQuerySet, collection: Collection, value: object) -> RolloutQuerySet:
    if not isinstance(value, str) or not value.strip():
        raise RemovalRefused("q must not be empty. Give a filter, for example reward:<0.1.", _WORDS)
    try:
        parsed = parse_filter(value)
    except FilterRefused as refusal:
        raise RemovalRefused(f"At character {refusal.start + 1}: {refusal}", _WORDS) from None
    if parsed.asks_for("text") and UnindexedRollout.objects.filter(rollout__collection=collection).exists():
        # A text that is excluded cannot be checked in rollouts that are not indexed.
        raise RemovalRefused(
            "The text index of this collection is not complete. Wait, or use a filter without text search.", _WORDS
        )
    return apply_filter(rollouts, parsed)


def _ids(value: object) -> list[int]:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_IDS:
        raise RemovalRefused(f"ids must be a list of 1 to {MAX_IDS:,} rollout numbers.", "ids")
    if not all(isinstance(one, int) and not isinstance(one, bool) and 0 < one < 2**63 for one in value):
        raise RemovalRefused("ids must be rollout numbers.", "ids")
    return value


def refuse_made_of(collection: Collection) -> None:
    """Raise StillInUse if exports or pairs use rollouts of the collection."""
    references = {**find_references(collection), **_pair_sets(collection)}
    refuse_losses(references, collection.label)


def remove_rollouts(deletion: CollectionDeletion, collection: Collection) -> None:
    """Carry out the deletion in short transactions; after each, the figures of the collection are correct."""
    refuse_made_of(collection)
    delete_in_chunks(
        deletion, lambda: chosen_rollouts(collection, deletion.chosen), lambda ids: _remove(collection, ids)
    )
    announce_collection(collection.pk)


def _remove(collection: Collection, ids: list[int]) -> int:
    # Exclude rollouts that were queued again just before.
    ended = Rollout.objects.select_for_update().filter(pk__in=ids, status__in=ENDED)
    rows = list(ended.values_list("pk", "status", "reward", "task"))
    Rollout.objects.filter(pk__in=[pk for pk, *_ in rows]).delete()
    mark_changed((collection.pk, task_id) for *_, task_id in rows)
    by_status = {name: sum(status == name for _, status, *_ in rows) for name in map(str, ENDED)}
    rewards = [reward for _, _, reward, _ in rows if reward is not None]
    Collection.objects.filter(pk=collection.pk).update(
        total=F("total") - len(rows),
        **{name: F(name) - count for name, count in by_status.items()},
        rewarded=F("rewarded") - len(rewards),
        reward_sum=F("reward_sum") - math.fsum(rewards),
    )
    return len(rows)


def _pair_sets(collection: Collection) -> dict[str, int]:
    """Return the number of pair sets by name.

    They are deleted with a collection, but not one rollout of a pair without the other.

    They belong to a higher app, so they are found through foreign keys.
    """
    for relation in Collection._meta.related_objects:
        if relation.related_model._meta.model_name == "pairset":
            either = Q(collection=collection) | Q(further=collection)
            count = relation.related_model._base_manager.filter(either).distinct().count()
            name = relation.related_model._meta.verbose_name if count == 1 else "pair sets"
            return {str(name): count} if count else {}
    return {}
