"""Read the pairs of an export, and decide which ones to drop."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from django.db.models import Q, Value
from django.db.models.functions import Coalesce

from apps.exports.export_filters import Filters
from apps.exports.models import Export
from apps.gym.outcomes import MASKED
from apps.gym.traces.events import TraceUnion
from apps.pairs.models import PreferencePair

PAIRS = 50
"""Pairs read at a time. All their traces are in memory at once."""
_GAP = Coalesce("margin", Value(0.0))
"""Pairs from verdicts have no margin, and databases sort nulls differently."""


def read_chunks(export: Export) -> Iterator[Sequence[PreferencePair]]:
    """Yield pairs by task: first those by verdict, then by descending margin. Read by key."""
    pairs = PreferencePair.objects.filter(pair_set_id=export.pair_set_id)
    pairs = pairs.annotate(gap=_GAP).select_related("chosen__task", "rejected__task")
    pairs = pairs.order_by("task_id", "-strength", "-gap", "id")
    chunk = list(pairs[:PAIRS])
    while chunk:
        yield chunk
        chunk = list(pairs.filter(_after(chunk[-1]))[:PAIRS])


def _after(pair: PreferencePair) -> Q:
    gap = pair.margin or 0.0
    alike = Q(gap__lt=gap) | Q(gap=gap, id__gt=pair.pk)
    weaker = Q(strength__lt=pair.strength) | Q(alike, strength=pair.strength)
    return Q(task_id__gt=pair.task_id) | Q(weaker, task_id=pair.task_id)


def find_refusal(
    pair: PreferencePair, filters: Filters, traces: Mapping[int, list[TraceUnion]], per_task: Counter[int]
) -> str:
    """Return why the pair is dropped, or an empty string."""
    chosen, rejected = pair.chosen, pair.rejected
    beyond = filters.per_task is not None and per_task[pair.task_id] >= filters.per_task
    if reason := _status_refusal(pair, filters):
        return reason
    if beyond or (filters.splits and chosen.task.split not in filters.splits):
        return "beyond_the_best_of_its_task" if beyond else "other_split"
    reward, worse = pair.rewards
    if pair.source != PreferencePair.Source.VERDICT and (reward is None or worse is None):
        return "no_reward"
    if filters.min_reward is not None and (reward is None or reward < filters.min_reward):
        return "below_min_reward"
    return "" if traces[chosen.pk] and traces[rejected.pk] else "no_trace"


def _status_refusal(pair: PreferencePair, filters: Filters) -> str:
    """Check the decision about the pair, the source of its preference, and what its rollouts became since."""
    if pair.status == PreferencePair.Status.REJECTED and not filters.include_rejected:
        return "rejected"
    if filters.only_accepted and pair.status != PreferencePair.Status.ACCEPTED:
        return "not_accepted"
    if filters.sources and pair.source not in filters.sources:
        return "other_source"
    sides = (pair.chosen, pair.rejected)
    holds = {
        MASKED: any(side.masked for side in sides),
        "ambiguous_path": any(side.ambiguous_path for side in sides) and not filters.include_ambiguous,
        "setup_notice": any(side.notices for side in sides) and not filters.include_noticed,
        "flagged": any(side.flagged for side in sides) and not filters.include_flagged,
    }
    return next((reason for reason, is_so in holds.items() if is_so), "")
