"""Build queued pair sets: claim one, read its collections in chunks, store the pairs.

Fencing keeps a stalled process from writing to a pair set that another one has claimed.
"""

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress

from django.db import DatabaseError, transaction
from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from apps.accounts.disk_space import Place, check_space, is_disk_full
from apps.accounts.job_declarations import background_job
from apps.accounts.job_retries import is_due, wait_for_retry
from apps.gym import process_exit
from apps.gym.pairs.pair_rule import read_rule
from apps.pairs.models import PairDecision, PairSet, PreferencePair
from apps.pairs.pair_counts import NewPair, PairMaker
from apps.tasks.fenced_jobs import Attempt, claim, requeue_unresponsive

logger = logging.getLogger(__name__)

ROWS = 2_000
DELETED_PAIRS = 500

State = PairSet.State


def make_pair_set(*, pair_set: PairSet) -> PairSet:
    """Build the pair set in this process, unless another process has claimed it."""
    queued = PairSet.objects.filter(state=State.QUEUED)
    if attempt := claim(queued, pair_set.pk, doing=State.MAKING, queued=State.QUEUED):
        with attempt.store_errors():
            _build(attempt)
    pair_set.refresh_from_db()
    return pair_set


def make_pair_set_with_retries(*, pair_set: PairSet) -> PairSet:
    """Build the pair set in this process, retrying after transient database errors."""
    while True:
        make_pair_set(pair_set=pair_set)
        if pair_set.is_settled or not wait_for_retry(pair_set):
            return pair_set


@background_job(waiting=lambda: PairSet.objects.filter(state__in=[State.QUEUED, State.MAKING]))
def make_queued_pair_set() -> bool:
    """Background job: build one queued pair set. Return True if there was one."""
    requeue_unresponsive(PairSet.objects.filter(state=State.MAKING), queued=State.QUEUED)
    pair_set = PairSet.objects.filter(is_due(), state=State.QUEUED).order_by("id").first()
    if pair_set is None:
        return False
    make_pair_set(pair_set=pair_set)
    return True


def _build(attempt: Attempt) -> None:
    try:
        _store_pairs(PairSet.objects.select_related("collection").get(pk=attempt.pk), attempt)
    except Exception as problem:
        if is_disk_full(problem):
            with suppress(DatabaseError):
                _delete_pairs(attempt)
        raise


def _delete_pairs(attempt: Attempt) -> None:
    """Delete the pairs of an unfinished set in batches: one large transaction may not fit on a nearly full disk."""
    pairs = PreferencePair.objects.filter(pair_set=attempt.pk).order_by()
    while attempt.owned.exists() and (ids := list(pairs.values_list("pk", flat=True)[:DELETED_PAIRS])):
        PreferencePair.objects.filter(pk__in=ids).delete()


def _store_pairs(pair_set: PairSet, attempt: Attempt) -> None:
    # Pairs that a crashed attempt left behind.
    _delete_pairs(attempt)
    collections = [pair_set.collection, *pair_set.further.order_by("pk")]
    maker = PairMaker(collections, read_rule(pair_set.rule), on_step=process_exit.check)
    before = _versions_before(pair_set)
    count = 0
    for found in maker.chunks():
        process_exit.check()
        check_space(Place.DATABASE)
        # Traces are read outside the transaction, which blocks all other writers on SQLite.
        with transaction.atomic():
            attempt.write(considered=maker.ledger.considered, pair_count=count + len(found))
            count += _store_chunk(pair_set, found, before)
    attempt.write(
        state=State.READY,
        considered=maker.ledger.considered,
        total=maker.ledger.considered,
        pair_count=count,
        counts=dict(maker.groups),
        excluded=maker.ledger.counts(),
        sources=dict(sorted(maker.sources.items())),
        finished_at=timezone.now(),
    )


def _versions_before(pair_set: PairSet) -> list[int]:
    """Return the ids of the earlier versions whose decisions are carried over, latest first.

    A decision is carried over even if a version in between lacks the pair. A version that does not keep decisions ends
    the chain.
    """
    found: list[int] = []
    keeps = pair_set.keeps_decisions
    earlier = PairSet.objects.filter(name=pair_set.name, version__lt=pair_set.version, state=State.READY)
    for pk, keeps_decisions in earlier.order_by("-version").values_list("pk", "keeps_decisions"):
        if not keeps:
            break
        found.append(pk)
        keeps = keeps_decisions
    return found


def _store_chunk(pair_set: PairSet, found: list[NewPair], before: Sequence[int]) -> int:
    rows = PreferencePair.objects.bulk_create((_row(pair_set, new) for new in found), batch_size=ROWS)
    if before and rows:
        _carry_decisions(rows, before)
    return len(rows)


def _carry_decisions(rows: Iterable[PreferencePair], before: Sequence[int]) -> None:
    """Copy the latest decision about each pair with the same chosen and rejected rollout and turn."""
    new = {(row.chosen_id, row.rejected_id, row.turn): row for row in rows}
    same = PreferencePair.objects.filter(pair_set__in=before, chosen_id__in={chosen for chosen, _, _ in new})
    # Include withdrawn decisions: a withdrawal may be the latest state.
    decided = same.filter(
        ~Q(status=PreferencePair.Status.PROPOSED) | Exists(PairDecision.objects.filter(pair=OuterRef("pk")))
    )
    latest: dict[tuple[int, int, int | None], PreferencePair] = {}
    for pair in decided:
        key = (pair.chosen_id, pair.rejected_id, pair.turn)
        if key in new and (key not in latest or before.index(pair.pair_set_id) < before.index(latest[key].pair_set_id)):
            latest[key] = pair
    old = {pair.pk: pair for pair in latest.values() if pair.status != PreferencePair.Status.PROPOSED}
    last = {one.pair_id: one for one in PairDecision.objects.filter(pair_id__in=old).order_by("id")}
    carried = []
    for pk, pair in old.items():
        row = new[pair.chosen_id, pair.rejected_id, pair.turn]
        row.status = pair.status
        decision = last.get(pk)
        carried.append(
            PairDecision(
                pair=row,
                status=pair.status,
                reason=decision.reason if decision else "",
                user_id=decision.user_id if decision else None,
                carried=True,
            )
        )
    PreferencePair.objects.bulk_update([decision.pair for decision in carried], ["status"], batch_size=ROWS)
    PairDecision.objects.bulk_create(carried, batch_size=ROWS)


def _row(pair_set: PairSet, new: NewPair) -> PreferencePair:
    pair, sides = new.pair, {"chosen": new.chosen, "rejected": new.rejected}
    return PreferencePair(
        pair_set=pair_set,
        task_id=new.task_id,
        chosen_id=pair.chosen,
        rejected_id=pair.rejected,
        margin=pair.margin,
        source=pair.source,
        strength=pair.strength,
        reviewers=pair.reviewers,
        agreement=pair.agreement,
        adjudicated=pair.adjudicated,
        reviews=list(pair.reviews),
        turn=pair.turn,
        chosen_reward=new.chosen.reward,
        rejected_reward=new.rejected.reward,
        verifier_rewards={name: side.verifier_reward for name, side in sides.items() if side.overridden},
        chosen_length=pair.chosen_length,
        rejected_length=pair.rejected_length,
        same_answer=bool(new.chosen.answer) and new.chosen.answer == new.rejected.answer,
    )
