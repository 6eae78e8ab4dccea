"""Make a pair set that was ordered: claim it, go through its collections chunk by chunk, store the pairs. Fenced, so
that each is made once."""

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import timedelta

from django.db import DatabaseError, transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.utils import timezone

from apps.accounts.disk_space import Place, check_space, is_disk_full
from apps.accounts.job_retries import claimed, is_due, put_back, wait_for_retry
from apps.gym import process_exit
from apps.gym.pairs.pair_rule import read_rule
from apps.gym.redaction.shortening import cut_clean
from apps.pairs.models import PairDecision, PairSet, PreferencePair
from apps.pairs.pair_counts import NewPair, PairMaker

logger = logging.getLogger(__name__)

QUIET = timedelta(minutes=5)
"""A pair set without a sign of life for so long has lost its maker."""
MAX_ATTEMPTS = 3
ROWS = 2_000
DELETED_PAIRS = 500

State = PairSet.State


class _FencedOut(Exception):
    """Somebody else has taken it over, or cancelled it."""


def make_pair_set(*, pair_set: PairSet) -> PairSet:
    """Make it here and now, to its end; of two that do, one does it."""
    attempt = _claim(pair_set.pk)
    if attempt is not None:
        _make(pair_set.pk, attempt)
    pair_set.refresh_from_db()
    return pair_set


def make_pair_set_to_its_end(*, pair_set: PairSet) -> PairSet:
    """Make it here and now, and try again after transient database errors."""
    while True:
        make_pair_set(pair_set=pair_set)
        if pair_set.is_settled or not wait_for_retry(pair_set):
            return pair_set


def make_queued_pair_set() -> bool:
    """Background job: make one queued pair set; says whether there was one."""
    _requeue_quiet()
    pair_set = PairSet.objects.filter(is_due(), state=State.QUEUED).order_by("id").first()
    if pair_set is None:
        return False
    make_pair_set(pair_set=pair_set)
    return True


def _claim(pair_set_id: int) -> int | None:
    """The number of the new attempt, or None where it is not to be made (any more)."""
    with transaction.atomic():
        queued = PairSet.objects.filter(pk=pair_set_id, state=State.QUEUED)
        if not queued.update(state=State.MAKING, attempt=F("attempt") + 1, **claimed()):
            return None
        return PairSet.objects.values_list("attempt", flat=True).get(pk=pair_set_id)


def _requeue_quiet() -> None:
    quiet = PairSet.objects.filter(state=State.MAKING, touched_at__lt=timezone.now() - QUIET)
    # Asked first: this comes every second, and an UPDATE that finds nothing still takes SQLite's write lock.
    if not quiet.exists():
        return
    quiet.filter(attempt__lt=MAX_ATTEMPTS).update(state=State.QUEUED)
    quiet.filter(attempt__gte=MAX_ATTEMPTS).update(
        state=State.FAILED, message=f"Its worker was lost {MAX_ATTEMPTS} times.", finished_at=timezone.now()
    )


def _owned(pair_set_id: int, attempt: int) -> QuerySet[PairSet]:
    """The row, as long as this attempt is the one that makes it."""
    return PairSet.objects.filter(pk=pair_set_id, attempt=attempt, state=State.MAKING)


def _make(pair_set_id: int, attempt: int) -> None:
    owned = _owned(pair_set_id, attempt)
    try:
        pair_set = PairSet.objects.select_related("collection").get(pk=pair_set_id)
        _store_pairs(pair_set, owned)
    except process_exit.Leaving:
        # At once, and not as an attempt that was lost: the next worker need not wait until the row has gone quiet.
        owned.update(state=State.QUEUED, attempt=F("attempt") - 1)
        logger.info("pair set %s is left to another worker", pair_set_id)
    except _FencedOut:
        logger.info("pair set %s was taken over or cancelled", pair_set_id)
    except Exception as problem:
        if is_disk_full(problem):
            with suppress(DatabaseError):
                _delete_pairs(pair_set_id, owned)
        if put_back(owned, problem, state=State.QUEUED, attempt=F("attempt") - 1):
            return
        # The row is where people look for what went wrong; the log keeps the traceback.
        logger.exception("pair set %s failed", pair_set_id)
        message = cut_clean(f"{type(problem).__name__}: {problem}", 500)
        owned.update(state=State.FAILED, message=message, touched_at=timezone.now(), finished_at=timezone.now())


def _delete_pairs(pair_set_id: int, owned: QuerySet[PairSet]) -> None:
    """Delete the pairs of an unfinished set. A nearly full disk has no room for one large transaction."""
    pairs = PreferencePair.objects.filter(pair_set=pair_set_id).order_by()
    while owned.exists() and (ids := list(pairs.values_list("pk", flat=True)[:DELETED_PAIRS])):
        PreferencePair.objects.filter(pk__in=ids).delete()


def _store_pairs(pair_set: PairSet, owned: QuerySet[PairSet]) -> None:
    # Those of an attempt that was lost: the same would come again.
    _delete_pairs(pair_set.pk, owned)
    collections = [pair_set.collection, *pair_set.further.order_by("pk")]
    maker = PairMaker(collections, read_rule(pair_set.rule), on_step=process_exit.check)
    before = _versions_before(pair_set)
    count = 0
    for found in maker.chunks():
        process_exit.check()
        check_space(Place.DATABASE)
        # The traces are read before the transaction begins: it would hold up every other writer on SQLite.
        with transaction.atomic():
            if not owned.update(touched_at=timezone.now(), considered=maker.considered, pair_count=count + len(found)):
                raise _FencedOut
            count += _store_chunk(pair_set, found, before)
    ready = owned.update(
        state=State.READY,
        considered=maker.considered,
        total=maker.considered,
        pair_count=count,
        counts=dict(maker.groups),
        excluded=dict(sorted(maker.excluded.items())),
        sources=dict(sorted(maker.sources.items())),
        touched_at=timezone.now(),
        finished_at=timezone.now(),
    )
    if not ready:
        raise _FencedOut


def _versions_before(pair_set: PairSet) -> list[int]:
    """Those whose decisions hold in this one, the latest first: a pair that the versions between them did not make is
    still the one that was decided of. What came before a version that forgot is forgotten."""
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
    """What was decided last of the same two, the same way round, at the same place."""
    new = {(row.chosen_id, row.rejected_id, row.turn): row for row in rows}
    same = PreferencePair.objects.filter(pair_set__in=before, chosen_id__in={chosen for chosen, _, _ in new})
    # Also those of which a decision was taken back, which is the last word on them.
    said = same.filter(
        ~Q(status=PreferencePair.Status.PROPOSED) | Exists(PairDecision.objects.filter(pair=OuterRef("pk")))
    )
    latest: dict[tuple[int, int, int | None], PreferencePair] = {}
    for pair in said:
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
