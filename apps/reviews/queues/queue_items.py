"""Select the items of a queue: single rollouts, pairs of one task, or several rollouts of one task to rank."""

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from apps.gym.pairs.verdicts import FEWEST, MOST
from apps.gym.request_refusals import Refusal
from apps.gym.specs import Option
from apps.reviews.models import Queue
from apps.rollouts.models import Collection, Rollout
from apps.rollouts.search.filters.filter_grammar import FilterRefused
from apps.rollouts.search.filters.filter_parser import MAX_LENGTH, parse_filter
from apps.rollouts.search.filters.filter_sql import apply_filter
from apps.rollouts.search.filters.query_time_limit import FilterTooSlow, limit_query_time

MAX_ITEMS = 10_000
"""Limited because a queue is created in one transaction, which blocks all other writers on SQLite."""

MAX_PAIRS_PER_TASK = 15
CHUNK = 500
MAX_MATCHING = 6 * MAX_ITEMS

Item = tuple[int, tuple[int, ...]]
"""A task, and the rollouts of the item in their stored order."""


@dataclass(frozen=True, kw_only=True)
class ItemSource:
    """The source of a queue's items. Exactly one of the first four fields is set."""

    collection: Annotated[Collection | None, Option("Collection", "Uses all completed rollouts")] = None
    rollouts: Annotated[
        list[int],
        Option(
            "Rollouts",
            "Rollouts to review. Pairwise and ranking queues group them by task.",
            length=MAX_ITEMS,
            each=Option("Rollout", low=1, high=2**63 - 1),
        ),
    ] = field(default_factory=list)
    filter: Annotated[
        str,
        Option(
            "Filter", ("Rollouts that match become the items; same syntax as `q` of rollouts"), low=1, length=MAX_LENGTH
        ),
    ] = ""
    items: Sequence[Sequence[int]] = ()
    per_task: Annotated[int, Option("Pairs per task", low=1, high=MAX_PAIRS_PER_TASK)] = 1
    size: Annotated[int, Option("Rollouts per ranking", low=FEWEST, high=MOST)] = 4


class QueueRefused(Refusal):
    """Raised if the source yields no valid items. `argument` is the invalid field, or empty."""


def fill_queue(queue: Queue, source: ItemSource) -> list[Item]:
    """Return the items, and record their source in the queue. Raise QueueRefused."""
    options: dict[str, Any] = {"per_task": source.per_task, "size": source.size, "seed": queue.seed, "kind": queue.kind}
    given = [name for name in ("collection", "rollouts", "filter", "items") if getattr(source, name)]
    match given:
        case ["collection"]:
            assert source.collection is not None
            queue.source = {"collection": source.collection.pk}
            completed = Rollout.objects.filter(collection=source.collection, status=Rollout.Status.COMPLETED)
            return fill_from_rollouts(completed.values_list("pk", flat=True), **options)
        case ["filter"]:
            queue.source = {"filter": source.filter}
            return fill_from_rollouts(_find_matching(source.filter), **options)
        case ["rollouts"]:
            queue.source = {"rollouts": len(source.rollouts)}
            return fill_from_rollouts(source.rollouts, **options)
        case ["items"]:
            queue.source = {"items": len(source.items)}
            return fill_from_sets(source.items, kind=queue.kind)
    raise QueueRefused("Give exactly one of: collection, rollouts, filter, items.", "items")


def fill_from_rollouts(
    rollout_ids: Iterable[int], *, kind: str, per_task: int = 1, size: int = 4, seed: int = 0
) -> list[Item]:
    """Return items made from these rollouts. Rollouts that are not completed are left out. Raise QueueRefused.

    For each task, a pairwise queue gets at most `per_task` random pairs, and a ranking queue gets groups of at most
    `size` rollouts. Both leave out tasks with a single rollout.
    """
    if kind == Queue.Kind.PAIRWISE and not 1 <= per_task <= MAX_PAIRS_PER_TASK:
        raise QueueRefused(f"Pairs per task must be from 1 to {MAX_PAIRS_PER_TASK}.", "per_task")
    if kind == Queue.Kind.RANKING and not FEWEST <= size <= MOST:
        raise QueueRefused(f"{FEWEST} to {MOST} rollouts are allowed per ranking.", "size")
    groups: dict[int, list[int]] = defaultdict(list)
    for rollout_id, task_id in _completed(rollout_ids):
        groups[task_id].append(rollout_id)
    items: list[Item] = []
    for task_id, ids in groups.items():
        items += [(task_id, item) for item in _split(ids, kind, per_task, size, random.Random(f"{seed}:{task_id}"))]
    return _bounded(items)


def _find_matching(text: str) -> list[int]:
    """Return completed rollouts that match a rollout filter, the newest if there are too many. Raise QueueRefused."""
    try:
        parsed = parse_filter(text)
    except FilterRefused as refusal:
        raise QueueRefused(f"At character {refusal.start + 1}: {refusal}", "filter") from None
    if not parsed.terms:
        raise QueueRefused("The filter must not be empty. Example: reward:<0.5 model:qwen*", "filter")
    matching = apply_filter(Rollout.objects.filter(status=Rollout.Status.COMPLETED), parsed)
    try:
        with limit_query_time(parsed):
            return list(matching.order_by("-pk").values_list("pk", flat=True)[:MAX_MATCHING])
    except FilterTooSlow as slow:
        raise QueueRefused(str(slow), "filter") from None


def fill_from_sets(sets: Iterable[Sequence[int]], *, kind: str) -> list[Item]:
    """Create explicit items, for example proposed pairs. Raise QueueRefused for an invalid one."""
    wanted = [tuple(each) for each in sets]
    fewest, most = {"rubric": (1, 1), "pairwise": (2, 2)}.get(kind, (FEWEST, MOST))
    tasks = dict(_completed({one for each in wanted for one in each}))
    items: list[Item] = []
    # Items with the same rollouts in another order are duplicates.
    same: dict[object, tuple[int, ...]] = {}
    for each in wanted:
        same.setdefault(frozenset(each) if len(set(each)) == len(each) else each, each)
    for each in same.values():
        if not fewest <= len(each) <= most or len(set(each)) < len(each):
            count = f"{fewest}" if fewest == most else f"{fewest} to {most}"
            raise QueueRefused(f"An item of a {kind} queue has {count} different rollouts: not {list(each)}.", "items")
        missing = [one for one in each if one not in tasks]
        if missing:
            raise QueueRefused(f"Rollout {missing[0]} does not exist or is not completed.", "items")
        if len({tasks[one] for one in each}) > 1:
            raise QueueRefused(f"The rollouts {list(each)} belong to different tasks.", "items")
        items.append((tasks[each[0]], each))
    return _bounded(items)


def _bounded(items: list[Item]) -> list[Item]:
    if not items:
        raise QueueRefused("No items: there are no completed rollouts, or too few per task.")
    if len(items) > MAX_ITEMS:
        raise QueueRefused(f"This gives {len(items):,} items; the maximum is {MAX_ITEMS:,}.")
    return items


def _split(ids: list[int], kind: str, per_task: int, size: int, drawn: random.Random) -> Iterator[tuple[int, ...]]:
    if kind == Queue.Kind.RUBRIC:
        yield from ((one,) for one in ids)
    elif kind == Queue.Kind.PAIRWISE:
        pairs: dict[frozenset[int], tuple[int, ...]] = {}
        while len(pairs) < min(per_task, math.comb(len(ids), 2)):
            one, other = drawn.sample(ids, 2)
            pairs.setdefault(frozenset((one, other)), (one, other))
        yield from pairs.values()
    else:
        drawn.shuffle(ids)
        runs = [tuple(ids[start : start + size]) for start in range(0, len(ids), size)]
        yield from (run for run in runs if len(run) >= FEWEST)


def _completed(rollout_ids: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield (rollout, task) of completed rollouts in the order of ids."""
    ids = sorted(set(rollout_ids))
    for start in range(0, len(ids), CHUNK):
        chunk = ids[start : start + CHUNK]
        rows = Rollout.objects.filter(pk__in=chunk, status=Rollout.Status.COMPLETED, collection__is_being_deleted=False)
        yield from rows.order_by("pk").values_list("pk", "task_id")
