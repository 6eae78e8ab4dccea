"""Check the rollouts of a recheck in chunks, and write the changes that it found."""

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from apps.accounts.job_retries import progress_fields
from apps.exports.rechecks.stale_outputs import find_exports, mark_exports_made_meanwhile, mark_stale, mark_untyped
from apps.gym import process_exit
from apps.gym.redaction.shortening import cut_clean
from apps.gym.request_refusals import Refusal
from apps.gym.stored_rules import RULES
from apps.gym.traces.events import encode_event
from apps.rollouts.figure_marks import mark_changed
from apps.rollouts.models import Collection, Recheck, Rollout, RolloutChange, TraceEvent
from apps.rollouts.notifications import announce_collection
from apps.rollouts.rechecks.derivation import LINKS, MAIN_PATH, TOKENS, USAGE, derive_rollout
from apps.rollouts.rechecks.todays_rewards import VERDICT, can_verify, find_verdicts
from apps.rollouts.reverification.ownership import Owner
from apps.rollouts.reverification.reverification_jobs import queue_reverification
from apps.rollouts.reverification.reverification_spec import MAX_IDS, ReverificationOrder
from apps.rollouts.search.word_index import mark_unindexed

CHUNK = 100
"""Rollouts per transaction."""

Kind, Fate, State = RolloutChange.Kind, RolloutChange.Fate, Recheck.State


def work_on(owner: Owner) -> None:
    """Check rollouts, or write changes if a user has applied them. Raise FencedOut or Leaving."""
    recheck = Recheck.objects.select_related("collection").get(pk=owner.row.pk)
    if recheck.applies:
        _write_changes(owner, recheck)
    else:
        _check_rollouts(owner, recheck)


def select_ended(collection: Collection) -> Any:
    """Return the rollouts of a collection that a recheck covers."""
    ended = [Rollout.Status.COMPLETED, Rollout.Status.FAILED]
    return Rollout.objects.filter(collection=collection, status__in=ended).order_by("pk")


def _check_rollouts(owner: Owner, recheck: Recheck) -> None:
    is_imported = _is_imported(recheck.collection)
    verifies = not is_imported and can_verify(recheck.collection)
    ended = select_ended(recheck.collection).select_related(*["task"] * (is_imported or verifies))
    check = partial(_check_one, recheck, is_imported=is_imported, ends=Counter())
    while chunk := list(ended.filter(pk__gt=recheck.last_rollout)[:CHUNK]):
        changes = [change for rollout in chunk if (change := check(rollout))]
        changes = _add_verdicts(recheck, chunk, changes) if verifies else changes
        kinds = Counter(change.kind for change in changes)
        recheck.last_rollout = chunk[-1].pk
        with transaction.atomic():
            RolloutChange.objects.bulk_create(changes)
            owner.write(
                **progress_fields(),
                last_rollout=recheck.last_rollout,
                checked=F("checked") + len(chunk),
                outcomes=F("outcomes") + kinds[Kind.OUTCOME],
                untrainable=F("untrainable") + kinds[Kind.UNTRAINABLE],
                counts=F("counts") + kinds[Kind.COUNTS],
                to_verify=F("to_verify") + sum(change.needs_verification for change in changes),
            )
        owner.pause_here()
    exports = find_exports(recheck)
    if exports or recheck.changes.exists():
        owner.write(state=State.READY, exports=exports, finished_at=timezone.now())
    else:
        _complete(owner, recheck)


def _check_one(recheck: Recheck, rollout: Rollout, *, is_imported: bool, ends: Counter[int]) -> RolloutChange | None:
    process_exit.check()
    derived = derive_rollout(rollout, is_imported=is_imported, rules=recheck.collection.rules_version, ends=ends)
    if derived is None:
        return None
    return RolloutChange(
        recheck=recheck,
        rollout=rollout,
        attempt=rollout.attempt,
        kind=derived.kind,
        old=derived.old,
        new=derived.new,
        needs_verification=derived.needs_verification,
    )


def _add_verdicts(recheck: Recheck, chunk: list[Rollout], changes: list[RolloutChange]) -> list[RolloutChange]:
    """Return the changes with the rewards that today's verifier gives, of rollouts with the same conversation."""
    by_rollout = {change.rollout_id: change for change in changes}
    same = [one for one in chunk if one.pk not in by_rollout or by_rollout[one.pk].kind != Kind.OUTCOME]
    attempts = {one.pk: one.attempt for one in same}
    for rollout, (old, new) in find_verdicts(recheck.collection, same).items():
        empty = RolloutChange(recheck=recheck, rollout_id=rollout, attempt=attempts[rollout])
        change = by_rollout.setdefault(rollout, empty)
        change.kind, change.needs_verification = Kind.OUTCOME, True
        change.old, change.new = {**change.old, VERDICT: old}, {**change.new, VERDICT: new}
    return [by_rollout[one.pk] for one in chunk if one.pk in by_rollout]


def _write_changes(owner: Owner, recheck: Recheck) -> None:
    if not recheck.done:
        # Exports that were made since the check.
        recheck.exports, recheck.applied_from = find_exports(recheck), timezone.now()
        with transaction.atomic():
            owner.write(exports=recheck.exports, applied_from=recheck.applied_from)
            mark_untyped(recheck)
    left = recheck.changes.filter(fate="").order_by("pk")
    while chunk := list(left[:CHUNK]):
        process_exit.check()
        with transaction.atomic():
            applied = _write_chunk(recheck, chunk)
            owner.write(
                **progress_fields(), applied=F("applied") + applied, skipped=F("skipped") + len(chunk) - applied
            )
        owner.pause_here()
    message = _queue_reverifications(recheck)
    _complete(owner, recheck, message=message)


def _write_chunk(recheck: Recheck, chunk: list[RolloutChange]) -> int:
    """Update the rollouts of the changes, unless they changed since the check. Return the number of updated ones."""
    rows = Rollout.objects.select_for_update(of=("self",)).select_related("task")
    rollouts = rows.in_bulk([change.rollout_id for change in chunk])
    is_imported = _is_imported(recheck.collection)
    # Rollouts may have been deleted since the chunk was read.
    left = [one for one in chunk if one.rollout_id in rollouts]
    written = [one for one in left if _write_one(recheck, rollouts[one.rollout_id], one, is_imported=is_imported)]
    recheck.changes.filter(pk__in=[change.pk for change in chunk]).update(fate=Fate.SKIPPED)
    recheck.changes.filter(pk__in=[change.pk for change in written]).update(fate=Fate.APPLIED)
    mark_changed((recheck.collection_id, rollouts[change.rollout_id].task_id) for change in written)
    outcomes = [change for change in written if change.kind == Kind.OUTCOME]
    if outcomes:
        mark_unindexed([change.rollout_id for change in outcomes])
    if outcomes or any(TOKENS in one.new for one in written):
        mark_stale(recheck, [change.rollout_id for change in outcomes])
    rewards = [(one.old["reward"], one.new["reward"]) for one in outcomes if "reward" in one.new]
    failed = sum("status" in one.new for one in outcomes)
    Collection.objects.filter(pk=recheck.collection_id).update(
        completed=F("completed") - failed,
        failed=F("failed") + failed,
        **{name: F(name) + sum(one.new.get(name, 0) - one.old.get(name, 0) for one in written) for name in USAGE},
        rewarded=F("rewarded") + sum((new is not None) - (old is not None) for old, new in rewards),
        reward_sum=F("reward_sum") + sum((new or 0.0) - (old or 0.0) for old, new in rewards),
    )
    return len(written)


def _write_one(recheck: Recheck, rollout: Rollout, change: RolloutChange, *, is_imported: bool) -> bool:
    columns = _without(change.new, LINKS, MAIN_PATH, TOKENS, VERDICT)
    is_as_checked = all(getattr(rollout, name) == change.old[name] for name in columns)
    if rollout.attempt != change.attempt or not is_as_checked:
        return False
    if LINKS in change.new or is_imported:
        derived = derive_rollout(rollout, is_imported=is_imported, rules=recheck.collection.rules_version)
        # Notices may depend on the end tokens of other rollouts.
        if derived is None or _without(derived.new, "notices") != _without(change.new, "notices", VERDICT):
            return False
        stored = TraceEvent.objects.filter(rollout=rollout, attempt=rollout.attempt)
        for seq, event in derived.events.items():
            stored.filter(seq=seq).update(payload=encode_event(event))
    if columns:
        Rollout.objects.filter(pk=rollout.pk).update(**columns)
    return True


def _without(columns: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in columns.items() if name not in names}


def _queue_reverifications(recheck: Recheck) -> str:
    """Queue the verification of the rollouts whose verifier saw another conversation. Return why it is impossible."""
    changes = recheck.changes.filter(needs_verification=True, fate=Fate.APPLIED).order_by("pk")
    ids = list(changes.values_list("rollout", flat=True))
    # An earlier attempt may have queued some of them.
    for first in range(MAX_IDS * recheck.reverifications.count(), len(ids), MAX_IDS):
        filters = {"ids": ids[first : first + MAX_IDS]}
        try:
            queued = queue_reverification(
                ReverificationOrder(collection=recheck.collection, filters=filters), user=recheck.created_by
            )
        except Refusal as refusal:
            return cut_clean(f"{len(ids)} rollouts are not verified again: {refusal}", 500)
        recheck.reverifications.add(queued)
    return ""


def _complete(owner: Owner, recheck: Recheck, *, message: str = "") -> None:
    with transaction.atomic():
        owner.write(state=State.APPLIED, finished_at=timezone.now(), message=message)
        mark_exports_made_meanwhile(recheck)
        if recheck.rules == RULES and not recheck.changes.filter(fate=Fate.SKIPPED).exists():
            Collection.objects.filter(pk=recheck.collection_id).update(rules_version=RULES)
    announce_collection(recheck.collection_id)


def _is_imported(collection: Collection) -> bool:
    return "imported" in collection.snapshot
