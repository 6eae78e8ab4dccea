"""Order preference pairs of collections: a version of a named pair set, which is made here and now or by a worker."""

from collections.abc import Sequence

from django.db import IntegrityError, transaction
from django.db.models import Max, ProtectedError
from django.utils import timezone

from apps.accounts.audit_log import record
from apps.accounts.models import User
from apps.gym.pairs.pair_rule import Rule, RuleRefused, check_rule, rule_digest, rule_fields
from apps.pairs.models import PairSet, PairSource
from apps.pairs.pair_set_jobs import make_pair_set, make_pair_set_to_its_end
from apps.policies.typed_texts import clean_typed
from apps.rollouts.models import Collection

AT_ONCE = 2_000
"""Rollouts of collections that are paired while their caller waits: about a second's work."""
MAX_COLLECTIONS = 50
MAX_NAME = 120


class PairingRefused(Exception):
    """The rule cannot pair anything, whatever the collections hold; `argument` is the one to change."""

    def __init__(self, message: str, argument: str = "") -> None:
        super().__init__(message)
        self.argument = argument


class PairSetInUse(Exception):
    """Something was made of it."""


class CannotCancel(Exception):
    """There is nothing left to cancel."""


def build_pairs(
    *,
    collection: Collection,
    further: Sequence[Collection] = (),
    rule: Rule | None = None,
    name: str = "",
    keeps_decisions: bool = True,
    user: User | None = None,
) -> PairSet:
    """Order and make, here and now, whatever it takes. Raises PairingRefused."""
    pair_set = queue_pair_set(
        collection=collection, further=further, rule=rule, name=name, keeps_decisions=keeps_decisions, user=user
    )
    return make_pair_set_to_its_end(pair_set=pair_set)


def order_pairs(
    *,
    collection: Collection,
    further: Sequence[Collection] = (),
    rule: Rule | None = None,
    name: str = "",
    keeps_decisions: bool = True,
    user: User | None = None,
) -> PairSet:
    """The same; of collections that are large a worker makes it, and `state` says when it is ready."""
    pair_set = queue_pair_set(
        collection=collection, further=further, rule=rule, name=name, keeps_decisions=keeps_decisions, user=user
    )
    return make_pair_set(pair_set=pair_set) if pair_set.total <= AT_ONCE else pair_set


def queue_pair_set(
    *,
    collection: Collection,
    further: Sequence[Collection] = (),
    rule: Rule | None = None,
    name: str = "",
    keeps_decisions: bool = True,
    user: User | None = None,
) -> PairSet:
    """A pair set that a worker makes, the next version of its name. Raises PairingRefused.

    `further` collections are paired with the first and with each other where attempts are at the same task and had the
    same prompt and tools. Without a name it is that of the collection.
    """
    rule = rule or Rule()
    others = check_collections(collection, further, rule)[1:]
    # Clean at once: its versions are found by what is stored.
    name = clean_typed(name.strip()) or f"collection {collection.pk}"
    if len(name) > MAX_NAME:
        raise PairingRefused(f"The name has at most {MAX_NAME} characters.", "name")
    for _ in range(3):
        try:
            with transaction.atomic():
                pair_set = PairSet.objects.create(
                    name=name,
                    version=_next_version(name),
                    collection=collection,
                    rule=rule_fields(rule),
                    rule_digest=rule_digest(rule),
                    margin=rule.margin,
                    min_chosen_reward=rule.min_chosen_reward,
                    keeps_decisions=keeps_decisions,
                    state=PairSet.State.QUEUED,
                    total=sum(one.total for one in (collection, *others)),
                    created_by=user,
                )
                PairSource.objects.bulk_create(PairSource(pair_set=pair_set, collection=one) for one in others)
                record(user=user, action="pair_set.create", target=pair_set, name=name, version=pair_set.version)
            return pair_set
        except IntegrityError:
            # Somebody else made a version of this name in the same moment: the next one is ours.
            continue
    raise PairingRefused("Others are making pairs under this name: try again.", "name")


def check_collections(collection: Collection, further: Sequence[Collection], rule: Rule) -> list[Collection]:
    """All of them, each once. Raises PairingRefused, also for the rule."""
    try:
        check_rule(rule)
    except RuleRefused as refusal:
        raise PairingRefused(str(refusal), refusal.field) from None
    collections = list(dict.fromkeys([collection, *further]))
    if len(collections) > MAX_COLLECTIONS:
        raise PairingRefused(f"A pair set is of at most {MAX_COLLECTIONS} collections.", "further")
    return collections


def _next_version(name: str) -> int:
    return int(PairSet.objects.filter(name=name).aggregate(last=Max("version"))["last"] or 0) + 1


def cancel_pair_set(*, pair_set: PairSet, user: User | None = None) -> PairSet:
    """Stop making it. Raises CannotCancel for one that has ended; cancelling twice is once."""
    open_ones = PairSet.objects.filter(pk=pair_set.pk, state__in=[PairSet.State.QUEUED, PairSet.State.MAKING])
    with transaction.atomic():
        if open_ones.update(state=PairSet.State.CANCELLED, finished_at=timezone.now()):
            record(user=user, action="pair_set.cancelled", target=pair_set)
    pair_set.refresh_from_db()
    if pair_set.state != PairSet.State.CANCELLED:
        raise CannotCancel(f"{pair_set.title} is {pair_set.state}: only one that is being made can be cancelled.")
    return pair_set


def delete_pair_set(*, pair_set: PairSet, user: User | None = None) -> None:
    """With its pairs and what was decided of them. Raises PairSetInUse where files were made of it."""
    if not pair_set.is_settled:
        raise PairSetInUse(f"{pair_set.title} is being made: cancel it first.")
    try:
        with transaction.atomic():
            record(user=user, action="pair_set.deleted", target=pair_set, pairs=pair_set.pair_count)
            pair_set.delete()
    except ProtectedError:
        number = pair_set.exports.count()
        made = "1 export was" if number == 1 else f"{number:,} exports were"
        raise PairSetInUse(f"{made} made of {pair_set.title}: delete what was made first.") from None
