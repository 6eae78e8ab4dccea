"""Run one step on an upgraded database, and print its result as JSON: `python -m tests.rollouts.kept.steps STEP`."""

# ruff: noqa: E402

import json
import os
import sys
from datetime import timedelta
from typing import Any

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gymweb.settings")
django.setup()

from django.db.models import QuerySet
from django.utils import timezone

from apps.exports.manifests import with_staleness
from apps.exports.models import Export
from apps.exports.rechecks import rollout_changes
from apps.exports.rechecks.recheck_jobs import apply_recheck, continue_recheck, queue_recheck
from apps.exports.rechecks.stale_outputs import find_overrides, find_pairs
from apps.pairs.models import PairSet, PreferencePair
from apps.reviews.models import RewardOverride
from apps.rollouts.metrics.trainable_rollouts import read_trainability
from apps.rollouts.models import Collection, Recheck, Rollout, RolloutChange, TraceEvent
from apps.rollouts.reverification.ownership import Owner


def expected() -> dict[str, str]:
    """Return the kinds that the server told of the rollouts when they ran, by rollout.

    The import took the mark for a field of the task.
    """
    verified = TraceEvent.objects.filter(kind="verification").select_related("rollout__task")
    details = {one.rollout: {**one.rollout.task.row, **one.fields.get("details", {})} for one in verified}
    return {str(rollout.pk): told.get("expected", "") for rollout, told in details.items()}


def check() -> dict[str, Any]:
    """Recheck every collection."""
    rechecks = [queue_recheck(collection=one) for one in Collection.objects.order_by("pk")]
    while continue_recheck():
        pass
    of_them = Recheck.objects.filter(pk__in=[one.pk for one in rechecks])
    return {
        "names": dict(Collection.objects.values_list("pk", "name")),
        "states": {one.collection.name: one.state for one in of_them},
        "kinds": {change.rollout_id: change.kind for change in RolloutChange.objects.filter(recheck__in=of_them)},
        "exports": sorted(pk for one in of_them for pk in one.exports),
        "pairs": [pair.pk for one in of_them for pair in find_pairs(one)],
        "overrides": [override.rollout_id for one in of_them for override in find_overrides(one)],
        "earlier": Collection.objects.under_earlier_rules().count(),
    }


def apply() -> dict[str, Any]:
    """Apply all rechecks that are ready."""
    for recheck in Recheck.objects.filter(state="ready"):
        apply_recheck(recheck=recheck)
    while continue_recheck():
        pass
    return state()


def apply_and_die() -> None:
    """Apply with a worker that dies after its first chunk of one rollout."""
    rollout_changes.CHUNK = 1
    for recheck in Recheck.objects.filter(state="ready"):
        apply_recheck(recheck=recheck)

    def die(owner: Owner) -> None:
        print("{}", flush=True)
        os._exit(9)

    Owner.pause_here = die  # type: ignore[method-assign]
    continue_recheck()


def resume() -> dict[str, Any]:
    """Continue after the lost worker, whose last heartbeat was long ago."""
    Recheck.objects.filter(state="running").update(touched_at=timezone.now() - timedelta(hours=1))
    return apply()


def state() -> dict[str, Any]:
    """Return what the database holds."""

    def stale(rows: QuerySet[Any]) -> list[int]:
        return list(rows.exclude(stale_at=None).order_by("pk").values_list("pk", flat=True))

    rollouts = Rollout.objects.order_by("pk")
    return {
        "rewards": dict(rollouts.values_list("pk", "reward")),
        "masked": dict(rollouts.exclude(masked="").values_list("pk", "masked")),
        "tokens": {one.pk: [one.sampled_tokens, one.trainable_tokens] for one in rollouts if one.sampled_tokens},
        "sums": {one.name: [one.rewarded, one.reward_sum, one.rules_version] for one in Collection.objects.all()},
        "used": {one.name: read_trainability(one).used for one in Collection.objects.all()},
        "stale": {
            "pairs": stale(PreferencePair.objects),
            "sets": stale(PairSet.objects),
            "exports": stale(Export.objects),
        },
        "manifests": [one.pk for one in Export.objects.order_by("pk") if "stale" in with_staleness(one)],
        "accepted": PreferencePair.objects.filter(status="accepted").count(),
        "overrides": RewardOverride.objects.filter(ended_at=None).count(),
        "rechecks": {
            one.collection.name: [one.state, one.applied, one.skipped] for one in Recheck.objects.order_by("pk")
        },
    }


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]]()))
