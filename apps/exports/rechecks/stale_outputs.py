"""Find the pairs, exports and reviews that used rollouts whose outcome a recheck changes, and mark them as stale."""

from collections import Counter, defaultdict
from pathlib import Path

import msgspec
from django.db.models import Q, QuerySet
from django.utils import timezone

from apps.exports.export_filters import Filters
from apps.exports.export_folders import is_one_file
from apps.exports.export_selection import choose_rollouts
from apps.exports.exported_pairs import find_refusal
from apps.exports.models import Export
from apps.gym.exporters.registry import FORMATS, find_format
from apps.gym.training_ledger import Ledger
from apps.pairs.models import PairSet, PreferencePair
from apps.reviews.models import Review, RewardOverride
from apps.rollouts.models import Collection, Recheck, Rollout, RolloutChange
from apps.rollouts.rechecks.derivation import TOKENS

_WRITTEN = (Export.State.READY, Export.State.WRITING)


def find_rollouts(recheck: Recheck) -> QuerySet[Rollout]:
    """Return the rollouts whose outcome changes. Other changes make nothing stale."""
    changes = recheck.changes.filter(kind=RolloutChange.Kind.OUTCOME).exclude(fate=RolloutChange.Fate.SKIPPED)
    return Rollout.objects.filter(pk__in=changes.order_by().values("rollout"))


def find_left_out(recheck: Recheck) -> QuerySet[Rollout]:
    """Return the rollouts with stored tokens that exports of GymWeb 0.2.0 have, and later ones leave out."""
    changes = recheck.changes.filter(new__has_key=TOKENS).exclude(fate=RolloutChange.Fate.SKIPPED)
    return Rollout.objects.filter(pk__in=changes.order_by().values("rollout"))


def find_pairs(recheck: Recheck) -> QuerySet[PreferencePair]:
    """Return the pairs with a side whose outcome changes."""
    sides = find_rollouts(recheck).order_by().values("pk")
    return PreferencePair.objects.filter(Q(chosen__in=sides) | Q(rejected__in=sides))


def find_reviews(recheck: Recheck) -> QuerySet[Review]:
    """Return the reviews of rollouts whose outcome changes. A recheck never changes them."""
    ids = find_rollouts(recheck).order_by().values("pk")
    of_items = Q(item__in=Review.objects.filter(item__entries__rollout__in=ids).order_by().values("item"))
    return Review.objects.filter(of_items | Q(rollout__in=ids))


def find_overrides(recheck: Recheck) -> QuerySet[RewardOverride]:
    """Return the active overrides of rollouts whose outcome changes. A recheck never changes them."""
    return RewardOverride.objects.filter(rollout__in=find_rollouts(recheck).order_by().values("pk"), ended_at=None)


def find_exports(recheck: Recheck) -> list[int]:
    """Return the ids of the exports that used a rollout whose outcome or tokens change, or lack column types.

    An export stores no list of its rollouts, so its selection runs again. Call it before the changes are written.
    """
    untyped = find_untyped(recheck)
    outcomes, left_out = find_rollouts(recheck), find_left_out(recheck)
    if not outcomes.exists() and not left_out.exists():
        return untyped
    of_pairs = PairSet.objects.filter(pairs__in=find_pairs(recheck)).order_by().values("pk")
    own = Q(collection=recheck.collection_id, pair_set=None)
    exports = Export.objects.filter(own | Q(pair_set__in=of_pairs), state__in=_WRITTEN, format__in=FORMATS)
    used = {
        export.pk
        for export in exports
        if _uses(export, recheck, outcomes) or (_has_all_tokens(export) and _uses(export, recheck, left_out))
    }
    return sorted(used.union(untyped))


def _has_all_tokens(export: Export) -> bool:
    """Return True for an export with tokens that nothing was left out of."""
    return FORMATS[export.format].has_tokens and str(export.manifest.get("gymweb_version", "")).startswith("0.2.0")


def find_untyped(recheck: Recheck) -> list[int]:
    """Return the ids of the exports of the collection whose card lacks the types of its columns.

    Earlier versions wrote such cards for rows with any fields of their tasks.
    """
    return [export.pk for export in _untyped() if export.collection_id == recheck.collection_id]


def collections_to_recheck() -> QuerySet[Collection]:
    """Return the collections under earlier rules, and those with exports without column types."""
    untyped = [export.collection_id for export in _untyped()]
    present = Collection.objects.present().filter(traces_deleted_at=None)
    return Collection.objects.under_earlier_rules() | present.filter(pk__in=untyped)


def _untyped() -> list[Export]:
    slugs = [slug for slug, format in FORMATS.items() if format.open_columns]
    exports = Export.objects.filter(format__in=slugs, state=Export.State.READY, rows__gt=0, stale_at=None)
    found = exports.exclude(manifest__has_key="columns").only("collection_id", "path").order_by("pk")
    return [export for export in found if not is_one_file(Path(export.path))]


def mark_untyped(recheck: Recheck) -> None:
    """Mark the exports whose card lacks the types of its columns as stale."""
    marks = {"stale_at": timezone.now(), "stale_reason": "Its card has no column types. Export again."}
    Export.objects.filter(pk__in=find_untyped(recheck)).update(**marks)


def _uses(export: Export, recheck: Recheck, rollouts: QuerySet[Rollout]) -> bool:
    format, filters = find_format(export.format), msgspec.convert(export.filters, Filters)
    if export.pair_set_id is not None:
        pairs = find_pairs(recheck).filter(pair_set=export.pair_set_id).select_related("chosen__task", "rejected")
        # The missing traces are the last reason that is checked.
        return any(find_refusal(pair, filters, defaultdict(list), Counter()) == "no_trace" for pair in pairs)
    changed, tasks = set(rollouts.values_list("pk", flat=True)), rollouts.order_by().values("task")
    chunks = choose_rollouts(export.collection, filters, format=format, ledger=Ledger(), tasks=tasks)
    used = (one for chunk in chunks for chosen in chunk for one in (*chosen.rollouts, *chosen.attempted))
    return any(one.id in changed and one.finished_at and one.finished_at <= export.touched_at for one in used)


def mark_exports_made_meanwhile(recheck: Recheck) -> None:
    """Mark the exports that were made while the changes were written: they may have old and new values."""
    if recheck.applied_from is None or not find_rollouts(recheck).exists():
        return
    of_pairs = PairSet.objects.filter(pairs__in=find_pairs(recheck)).order_by().values("pk")
    used = Q(collection=recheck.collection_id, pair_set=None) | Q(pair_set__in=of_pairs)
    made = Export.objects.filter(used, created_at__gte=recheck.applied_from, stale_at=None)
    made.update(stale_at=timezone.now(), stale_reason=f"Recheck #{recheck.pk} changed rollouts while it was made.")


def mark_stale(recheck: Recheck, rollouts: list[int]) -> None:
    """Mark the pairs of these rollouts with their sets, and the exports of the recheck, in the caller's transaction."""
    now, reason = timezone.now(), f"Recheck #{recheck.pk} changed rollouts that it used."
    marks = {"stale_at": now, "stale_reason": reason}
    pairs = PreferencePair.objects.filter(Q(chosen__in=rollouts) | Q(rejected__in=rollouts))
    sets = PairSet.objects.filter(pk__in=pairs.order_by().values("pair_set"))
    for stale in (pairs, sets, Export.objects.filter(pk__in=recheck.exports)):
        stale.filter(stale_at=None).update(**marks)
