"""Compare two versions of a pair set: their rules and their pairs."""

from dataclasses import dataclass
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet

from apps.gym.request_refusals import Refusal
from apps.pairs.models import PairSet, PreferencePair
from apps.rollouts.metrics.collection_comparison import find_differences


class NothingToCompare(Refusal, status=409, code="nothing-to-compare"):
    """Raised if there is no other version to compare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSetChanges:
    """Changes from pair set `one` to `other`, as numbers of pairs.

    `turned` counts pairs with the same rollouts and turn but chosen and rejected swapped; they are neither added nor
    removed. The same rollouts at another turn are another pair.
    """

    one: PairSet
    other: PairSet
    kept: int
    turned: int
    added: int
    removed: int
    settings: dict[str, tuple[Any, Any]]


def compare_pair_sets(pair_set: PairSet, *, since: int | None = None) -> PairSetChanges:
    """Return the changes since version number `since`, by default since the previous ready one.

    Raise NothingToCompare.
    """
    versions = PairSet.objects.filter(name=pair_set.name, version__lt=pair_set.version, state=PairSet.State.READY)
    if since is not None:
        versions = versions.filter(version=since)
    one = versions.order_by("-version").first() if pair_set.name else None
    if one is None:
        which = "no earlier version" if since is None else f"no earlier version {since}"
        raise NothingToCompare(f"{pair_set.title} has {which} that is ready.")
    mine, theirs = (PreferencePair.objects.filter(pair_set=each) for each in (pair_set, one))
    kept = _also_in(mine, one, chosen="chosen", rejected="rejected").count()
    turned = _also_in(mine, one, chosen="rejected", rejected="chosen").count()
    return PairSetChanges(
        one=one,
        other=pair_set,
        kept=kept,
        turned=turned,
        added=mine.count() - kept - turned,
        removed=theirs.count() - kept - turned,
        settings=find_differences(_settings(one), _settings(pair_set)),
    )


def _also_in(
    pairs: QuerySet[PreferencePair], other: PairSet, *, chosen: str, rejected: str
) -> QuerySet[PreferencePair]:
    sides = Q(chosen=OuterRef(chosen), rejected=OuterRef(rejected), pair_set=other)
    at_turn = PreferencePair.objects.filter(sides, turn=OuterRef("turn"))
    whole = PreferencePair.objects.filter(sides, turn__isnull=True)
    return pairs.filter(Q(Exists(at_turn)) | Q(Exists(whole), turn__isnull=True))


def _settings(pair_set: PairSet) -> dict[str, Any]:
    collections = [pair_set.collection_id, *pair_set.further.order_by("pk").values_list("pk", flat=True)]
    return {**pair_set.rule, "collections": collections}
