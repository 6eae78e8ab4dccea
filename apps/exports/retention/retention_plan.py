"""Apply a retention rule. A dry run returns the plan that a run applies."""

from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from apps.accounts.models import User
from apps.exports.retention.collection_uses import EXPORTS, PAIR_SETS, QUEUES, REVIEWS, find_uses
from apps.exports.retention.retention_rule import COLLECTIONS, TRACES, RetentionRule
from apps.gym.request_refusals import Refusal
from apps.rollouts.models import Collection, CollectionDeletion, Rollout
from apps.rollouts.steering.collection_deletion import queue_collection_deletion
from apps.rollouts.steering.controls import CannotSteer
from apps.rollouts.steering.trace_deletion import queue_trace_deletion, rollouts_with_traces
from apps.rollouts.trace_sizes import measure_traces
from apps.tasks.deletion_jobs import UNFINISHED_DELETIONS, AlreadyBeingDeleted, StillInUse

MEGABYTE = 1024**2
_ONLY_FOR_TRACES = {
    "ignore_exports": "A collection with exports can lose only its traces. Choose “Only traces”, or delete its "
    "exports first.",
    "ignore_pair_sets": "A collection with pair sets can lose only its traces. Choose “Only traces”, or delete its "
    "pair sets first.",
}


class RetentionRefused(Refusal):
    """Raised if the rule is invalid. `argument` is the invalid option."""


@dataclass(frozen=True, slots=True)
class MatchingCollection:
    """A collection that matches the rule.

    `uses` counts the objects that protect it. If it is empty, the collection or its traces are deleted. `rollouts` is
    the number of rollouts that are deleted, or that lose their traces.
    """

    collection: Collection
    rollouts: int
    events: int
    bytes: int
    uses: dict[str, int]


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """The matching collections, oldest first."""

    deleted: list[MatchingCollection]
    kept: list[MatchingCollection]

    @property
    def rollouts(self) -> int:
        return sum(each.rollouts for each in self.deleted)

    @property
    def events(self) -> int:
        return sum(each.events for each in self.deleted)

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.deleted)


def plan_retention(rule: RetentionRule) -> RetentionPlan:
    """Return what the rule deletes and keeps now. Changes nothing. Raise RetentionRefused."""
    _check_rule(rule)
    matching = list(_matching(rule))
    uses = find_uses(each.pk for each in matching)
    ignored = _ignored_uses(rule)
    found = [
        _measure(rule, each, {name: count for name, count in uses[each.pk].items() if name not in ignored})
        for each in matching
    ]
    large = [each for each in found if each.bytes >= (rule.min_megabytes or 0) * MEGABYTE]
    if rule.what == TRACES:
        large = [each for each in large if each.rollouts]
    return RetentionPlan([each for each in large if not each.uses], [each for each in large if each.uses])


def apply_retention(rule: RetentionRule, *, user: User | None = None) -> list[CollectionDeletion]:
    """Queue the deletions of the plan for workers. Collections that are used meanwhile stay. Raise RetentionRefused."""
    plan = plan_retention(rule)
    ignored = _ignored_uses(rule)
    queue = queue_trace_deletion if rule.what == TRACES else queue_collection_deletion
    deletions = []
    for each in plan.deleted:
        # Skip a collection that changed after the plan was made.
        with suppress(CannotSteer, StillInUse, AlreadyBeingDeleted), transaction.atomic():
            locked = Collection.objects.select_for_update().get(pk=each.collection.pk)
            if not find_uses([locked.pk])[locked.pk].keys() - ignored:
                deletions.append(queue(collection=locked, user=user))
    return deletions


def _check_rule(rule: RetentionRule) -> None:
    for option, problem in _ONLY_FOR_TRACES.items():
        if rule.what == COLLECTIONS and getattr(rule, option):
            raise RetentionRefused(problem, option)


def _ignored_uses(rule: RetentionRule) -> set[str]:
    options = {
        EXPORTS: rule.ignore_exports,
        PAIR_SETS: rule.ignore_pair_sets,
        QUEUES: rule.ignore_queues,
        REVIEWS: rule.ignore_reviews,
    }
    return {name for name, is_ignored in options.items() if is_ignored}


def _matching(rule: RetentionRule) -> QuerySet[Collection]:
    before = timezone.now() - timedelta(days=rule.older_than_days)
    finished = [Collection.State.COMPLETED, Collection.State.CANCELLED]
    busy = CollectionDeletion.objects.filter(collection=OuterRef("pk"), state__in=UNFINISHED_DELETIONS)
    rows = Collection.objects.present().filter(~Exists(busy), state__in=finished, finished_at__lte=before)
    if rule.archived:
        rows = rows.filter(archived_at__isnull=rule.archived == "unarchived")
    if rule.collections:
        rows = rows.filter(pk__in=[each.pk for each in rule.collections])
    return rows.order_by("finished_at", "pk")


def _measure(rule: RetentionRule, collection: Collection, uses: dict[str, int]) -> MatchingCollection:
    rollouts = Rollout.objects.filter(collection=collection).order_by()
    size = measure_traces(rollouts.values("pk"))
    count = rollouts_with_traces(collection).count() if rule.what == TRACES else rollouts.count()
    return MatchingCollection(collection, count, size.events, size.bytes, uses)
