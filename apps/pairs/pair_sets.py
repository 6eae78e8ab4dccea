"""Create versions of named pair sets, built immediately or by a worker."""

from dataclasses import dataclass, field
from typing import Annotated

from django.db import IntegrityError, transaction
from django.db.models import Max, ProtectedError
from django.utils import timezone

from apps.accounts.audit_log import record, update_row
from apps.accounts.models import User
from apps.gym.pairs.pair_rule import Rule, RuleRefused, check_rule, rule_digest, rule_fields
from apps.gym.request_refusals import Refusal
from apps.gym.specs import Option, described
from apps.pairs.models import PairSet, PairSource
from apps.pairs.pair_set_jobs import make_pair_set, make_pair_set_with_retries
from apps.policies.redacted_fields import redact_input
from apps.rollouts.models import Collection
from apps.rollouts.steering.trace_deletion import explain_deleted_traces

AT_ONCE = 2_000
"""Maximum rollouts to pair within a request: about a second of work."""
MAX_COLLECTIONS = 50
MAX_NAME = 120


class PairingRefused(Refusal, code="pairing-refused"):
    """Raised if the rule is invalid. `argument` is the field to change."""


class PairSetInUse(Refusal, status=409, code="in-use"):
    """Raised if other objects use the pair set."""


class CannotCancel(Refusal, status=409, code="cannot-cancel"):
    """Raised if the pair set is not being built any more."""


@dataclass(frozen=True, kw_only=True)
class PairOrder:
    """A request for a pair set. Rollouts of all its collections are paired with each other."""

    collection: Collection = field(metadata=described("Collection", "Collection whose rollouts form pairs"))
    further: Annotated[
        list[Collection],
        Option(
            "Additional collections",
            "Pairs rollouts of the same task across these collections if prompt and tools are equal",
            length=MAX_COLLECTIONS,
        ),
    ] = field(default_factory=list)
    rule: Rule = field(default_factory=Rule)
    name: Annotated[
        str,
        Option(
            "Name",
            "Default: named after the collection. An existing name creates its next version.",
            length=MAX_NAME,
        ),
    ] = ""
    keeps_decisions: Annotated[
        bool, Option("Keep decisions", "Keep decisions on pairs that the previous version has too")
    ] = True


def build_pairs(order: PairOrder, *, user: User | None = None) -> PairSet:
    """Build the pair set in this process and wait for it. Raise PairingRefused."""
    return make_pair_set_with_retries(pair_set=queue_pair_set(order, user=user))


def order_pairs(order: PairOrder, *, user: User | None = None) -> PairSet:
    """Build a small pair set in this process, or queue a large one for a worker.

    `state` is `ready` when it is complete.
    """
    pair_set = queue_pair_set(order, user=user)
    return make_pair_set(pair_set=pair_set) if pair_set.total <= AT_ONCE else pair_set


def queue_pair_set(order: PairOrder, *, user: User | None = None) -> PairSet:
    """Queue the next version of the named pair set for a worker. Raise PairingRefused."""
    collections, rule = check_collections(order), order.rule
    # Redact the name first: versions are looked up by the stored name.
    name = redact_input(order.name.strip()) or f"collection {order.collection.pk}"
    if len(name) > MAX_NAME:
        raise PairingRefused(f"The name has at most {MAX_NAME} characters.", "name")
    for _ in range(3):
        try:
            with transaction.atomic():
                pair_set = PairSet.objects.create(
                    name=name,
                    version=_next_version(name),
                    collection=order.collection,
                    rule=rule_fields(rule),
                    rule_digest=rule_digest(rule),
                    margin=rule.margin,
                    min_chosen_reward=rule.min_chosen_reward,
                    keeps_decisions=order.keeps_decisions,
                    state=PairSet.State.QUEUED,
                    total=sum(one.total for one in collections),
                    created_by=user,
                )
                PairSource.objects.bulk_create(PairSource(pair_set=pair_set, collection=one) for one in collections[1:])
                record(user=user, action="pair_set.create", target=pair_set, name=name, version=pair_set.version)
            return pair_set
        except IntegrityError:
            # A concurrent request took this version number.
            continue
    raise PairingRefused("Another request is building a pair set with this name. Try again.", "name")


def check_collections(order: PairOrder) -> list[Collection]:
    """Return all collections of the request without duplicates. Raise PairingRefused for an invalid request."""
    try:
        check_rule(order.rule)
    except RuleRefused as refusal:
        raise PairingRefused(str(refusal), refusal.field) from None
    collections = list(dict.fromkeys([order.collection, *order.further]))
    if len(collections) > MAX_COLLECTIONS:
        raise PairingRefused(f"A pair set uses at most {MAX_COLLECTIONS} collections.", "further")
    if problem := explain_deleted_traces(collections):
        raise PairingRefused(problem, "collection")
    return collections


def _next_version(name: str) -> int:
    return int(PairSet.objects.filter(name=name).aggregate(last=Max("version"))["last"] or 0) + 1


def cancel_pair_set(*, pair_set: PairSet, user: User | None = None) -> PairSet:
    """Cancel building the pair set. Idempotent. Raise CannotCancel if it has ended."""
    unfinished = {"state__in": [PairSet.State.QUEUED, PairSet.State.MAKING]}
    cancelled = {"state": PairSet.State.CANCELLED, "finished_at": timezone.now()}
    update_row(pair_set, cancelled, only=unfinished, user=user, action="pair_set.cancelled", target=pair_set)
    if pair_set.state != PairSet.State.CANCELLED:
        raise CannotCancel(
            f"{pair_set.title} is {pair_set.state}: only a pair set that is being built can be cancelled."
        )
    return pair_set


def delete_pair_set(*, pair_set: PairSet, user: User | None = None) -> None:
    """Delete the set with its pairs and decisions. Raise PairSetInUse if exports use it."""
    if not pair_set.is_settled:
        raise PairSetInUse(f"{pair_set.title} is being built. Cancel it first.")
    try:
        with transaction.atomic():
            record(user=user, action="pair_set.deleted", target=pair_set, pairs=pair_set.pair_count)
            pair_set.delete()
    except ProtectedError:
        number = pair_set.exports.count()
        made = "1 export was" if number == 1 else f"{number:,} exports were"
        raise PairSetInUse(f"{made} made from {pair_set.title}. Delete these first.") from None
