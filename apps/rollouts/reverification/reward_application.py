"""Write the new rewards of a reverification to the rollouts, each in one transaction with its trace and counters."""

from django.db import transaction
from django.db.models import F, Max
from django.utils import timezone

from apps.accounts.job_retries import progress_fields
from apps.gym.redaction.redactor import count_marks
from apps.gym.traces.events import decode_event, event_kind
from apps.rollouts.engine.trace_redaction import add_counts
from apps.rollouts.figure_marks import mark_changed
from apps.rollouts.models import Collection, Reverification, ReverifiedReward, Rollout, TraceEvent
from apps.rollouts.notifications import announce_collection
from apps.rollouts.reverification.ownership import Owner
from apps.rollouts.search.word_index import mark_unindexed

CHUNK = 100
"""Rollouts per transaction."""

Fate = ReverifiedReward.Fate


def write_rewards(owner: Owner) -> None:
    """Write all new rewards. Raise FencedOut or Leaving."""
    collection_id = owner.row.collection_id
    left = owner.row.rewards.filter(changed=True, fate="").order_by("pk")
    while chunk := list(left[:CHUNK]):
        with transaction.atomic():
            fates = [_apply_one(reward, collection_id) for reward in chunk]
            tasks = Rollout.objects.filter(pk__in=[reward.rollout_id for reward in chunk]).values_list(
                "task", flat=True
            )
            mark_changed((collection_id, task_id) for task_id in tasks)
            applied = fates.count(Fate.APPLIED)
            owner.write(**progress_fields(), applied=F("applied") + applied, stale=F("stale") + len(fates) - applied)
        owner.pause_here()
    owner.write(state=Reverification.State.APPLIED, finished_at=timezone.now())
    announce_collection(collection_id)


def _apply_one(reward: ReverifiedReward, collection_id: int) -> str:
    """Set the new reward, unless the rollout changed since it was verified."""
    as_it_was = Rollout.objects.filter(pk=reward.rollout_id, attempt=reward.attempt, status=reward.old_status)
    was = {"reward__isnull": True} if reward.old_reward is None else {"reward": reward.old_reward}
    changed = as_it_was.filter(**was).update(
        status=Rollout.Status.COMPLETED,
        reward=reward.new_reward,
        masked="",
        components=reward.new_components,
        stop_reason=reward.stop_reason,
        answer=reward.answer,
        error_kind="",
        error_message="",
    )
    fate = Fate.APPLIED if changed else Fate.STALE
    ReverifiedReward.objects.filter(pk=reward.pk).update(fate=fate)
    if changed:
        _append_events(reward)
        had_failed = int(reward.old_status == Rollout.Status.FAILED)
        Collection.objects.filter(pk=collection_id).update(
            failed=F("failed") - had_failed,
            completed=F("completed") + had_failed,
            rewarded=F("rewarded") + int(reward.old_reward is None),
            reward_sum=F("reward_sum") + (reward.new_reward or 0.0) - (reward.old_reward or 0.0),
        )
    return fate


def _append_events(reward: ReverifiedReward) -> None:
    events = TraceEvent.objects.filter(rollout=reward.rollout_id, attempt=reward.attempt)
    first = (events.aggregate(last=Max("seq"))["last"] or 0) + 1
    if found := count_marks(reward.events):
        rollout = Rollout.objects.only("redactions").get(pk=reward.rollout_id)
        counts = add_counts(rollout.redactions, found)
        Rollout.objects.filter(pk=reward.rollout_id).update(redactions=counts, flagged=True)
    TraceEvent.objects.bulk_create(
        TraceEvent(
            rollout_id=reward.rollout_id,
            attempt=reward.attempt,
            seq=first + place,
            kind=event_kind(decode_event(payload)),
            payload=payload,
        )
        for place, payload in enumerate(reward.events.splitlines())
    )
    mark_unindexed([reward.rollout_id])
