"""What a queue's items are made of: rollouts → one each, pairs of one task, or a few of one task to rank."""

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from apps.gym.pairs.verdicts import FEWEST, MOST
from apps.gym.request_refusals import Refusal
from apps.reviews.models import Queue
from apps.rollouts.models import Rollout
from apps.rollouts.search.filters.filter_grammar import FilterRefused
from apps.rollouts.search.filters.filter_parser import parse_filter
from apps.rollouts.search.filters.filtered_rollouts import apply_filter
from apps.rollouts.search.filters.query_time_limit import FilterTooSlow, bound_time

MAX_ITEMS = 10_000
"""A queue is made in one transaction, which on SQLite holds up every other writer."""

MAX_PAIRS_PER_TASK = 15
CHUNK = 500
MAX_PASSING = 6 * MAX_ITEMS

Item = tuple[int, tuple[int, ...]]
"""The task, and the rollouts in the order in which they are kept."""


class QueueRefused(Refusal):
    """No queue can be made of this; `argument` is the part that is wrong, or nothing."""


def fill_from_rollouts(
    rollout_ids: Iterable[int], *, kind: str, per_task: int = 1, size: int = 4, seed: int = 0
) -> list[Item]:
    """Items of those among them that are completed. Raises QueueRefused.

    Of a task's rollouts a pairwise queue gets at most `per_task` pairs, drawn by the seed, and a ranking queue runs of
    at most `size`; a task with one rollout has neither.
    """
    if kind == Queue.Kind.PAIRWISE and not 1 <= per_task <= MAX_PAIRS_PER_TASK:
        raise QueueRefused(f"Of each task 1 to {MAX_PAIRS_PER_TASK} pairs are taken.", "per_task")
    if kind == Queue.Kind.RANKING and not FEWEST <= size <= MOST:
        raise QueueRefused(f"{FEWEST} to {MOST} rollouts are ranked at once.", "size")
    groups: dict[int, list[int]] = defaultdict(list)
    for rollout_id, task_id in _completed(rollout_ids):
        groups[task_id].append(rollout_id)
    items: list[Item] = []
    for task_id, ids in groups.items():
        items += [(task_id, item) for item in _split(ids, kind, per_task, size, random.Random(f"{seed}:{task_id}"))]
    return _bounded(items)


def fill_from_collection(
    collection_id: int, *, kind: str, per_task: int = 1, size: int = 4, seed: int = 0
) -> list[Item]:
    """Items of its completed rollouts. Raises QueueRefused."""
    ids = Rollout.objects.filter(collection=collection_id, status=Rollout.Status.COMPLETED).values_list("pk", flat=True)
    return fill_from_rollouts(ids, kind=kind, per_task=per_task, size=size, seed=seed)


def fill_from_filter(text: str, *, kind: str, per_task: int = 1, size: int = 4, seed: int = 0) -> list[Item]:
    """Items of the completed rollouts that pass a filter as it is typed above the table of rollouts; the newest of
    them, where there are very many. Raises QueueRefused."""
    try:
        parsed = parse_filter(text)
    except FilterRefused as refusal:
        raise QueueRefused(f"At character {refusal.start + 1}: {refusal}", "filter") from None
    if not parsed.terms:
        raise QueueRefused(
            "Give a filter, like reward:<0.5 model:qwen*: an empty one would choose everything.", "filter"
        )
    passing = apply_filter(Rollout.objects.filter(status=Rollout.Status.COMPLETED), parsed)
    try:
        with bound_time(parsed):
            ids = list(passing.order_by("-pk").values_list("pk", flat=True)[:MAX_PASSING])
    except FilterTooSlow as slow:
        raise QueueRefused(str(slow), "filter") from None
    return fill_from_rollouts(ids, kind=kind, per_task=per_task, size=size, seed=seed)


def fill_from_sets(sets: Iterable[Sequence[int]], *, kind: str) -> list[Item]:
    """Items that are named one by one, such as proposed pairs. Raises QueueRefused where one cannot be."""
    wanted = [tuple(each) for each in sets]
    fewest, most = {"rubric": (1, 1), "pairwise": (2, 2)}.get(kind, (FEWEST, MOST))
    tasks = dict(_completed({one for each in wanted for one in each}))
    items: list[Item] = []
    # The same rollouts in another order are the same item: people would judge it twice, and count once.
    same: dict[object, tuple[int, ...]] = {}
    for each in wanted:
        same.setdefault(frozenset(each) if len(set(each)) == len(each) else each, each)
    for each in same.values():
        if not fewest <= len(each) <= most or len(set(each)) < len(each):
            count = f"{fewest}" if fewest == most else f"{fewest} to {most}"
            raise QueueRefused(f"An item of a {kind} queue has {count} different rollouts: not {list(each)}.", "items")
        missing = [one for one in each if one not in tasks]
        if missing:
            raise QueueRefused(f"There is no completed rollout {missing[0]}.", "items")
        if len({tasks[one] for one in each}) > 1:
            raise QueueRefused(f"The rollouts {list(each)} are of different tasks.", "items")
        items.append((tasks[each[0]], each))
    return _bounded(items)


def _bounded(items: list[Item]) -> list[Item]:
    if not items:
        raise QueueRefused("There is nothing to review in that: no completed rollouts, or too few of one task.")
    if len(items) > MAX_ITEMS:
        raise QueueRefused(f"That makes {len(items):,} items; a queue has at most {MAX_ITEMS:,}.")
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
    """(rollout, task) in the order of ids."""
    ids = sorted(set(rollout_ids))
    for start in range(0, len(ids), CHUNK):
        chunk = ids[start : start + CHUNK]
        rows = Rollout.objects.filter(pk__in=chunk, status=Rollout.Status.COMPLETED, collection__is_being_deleted=False)
        yield from rows.order_by("pk").values_list("pk", "task_id")
