"""Select the candidates of an export, in whole groups (by task), without reading traces."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby, starmap
from typing import Any, NamedTuple

from django.db.models import QuerySet

from apps.exports.export_filters import Filters, find_unselected
from apps.gym.exporters.protocol import Format, Group
from apps.gym.trainability import find_reason
from apps.gym.training_ledger import Ledger
from apps.pairs.human_verdicts import has_overrides
from apps.reviews.reviews.reward_overrides import ActiveOverride, read_overrides
from apps.rollouts.models import Collection, Rollout
from apps.tasks.models import Task

TASKS = 100
"""Maximum tasks whose rollouts are read together; fewer if they have many rollouts."""
ROLLOUTS = 2_000


class Candidate(NamedTuple):
    """The columns of a rollout that an export needs. A named tuple: model instances would double the time per row."""

    id: int
    task_id: int
    repeat: int
    status: str
    attempt: int
    reward: float | None
    components: dict[str, float]
    stop_reason: str
    masked: str
    ambiguous_path: bool
    notices: str
    model_version: str
    output_tokens: int
    flagged: bool
    finished_at: datetime | None
    set_by_a_person: bool = False
    """True if the reward is an override."""
    override: ActiveOverride | None = None
    """The reward override, even if the verifier's reward is exported."""


_COLUMNS = Candidate._fields[:-2]


@dataclass(slots=True, kw_only=True)
class Chosen:
    """A task with the figures of its group, and the candidate rollouts, best first if the order matters.

    `set_by_people` counts overridden rewards in the group. For task formats, `attempted` has all rollouts of the task.
    """

    task: Task
    group: Group | None
    set_by_people: int = 0
    rollouts: list[Candidate] = field(default_factory=list)
    attempted: list[Candidate] = field(default_factory=list)


def choose_rollouts(
    collection: Collection,
    filters: Filters,
    *,
    format: Format,
    ledger: Ledger,
    tasks: QuerySet[Any, Any] | None = None,
) -> Iterator[list[Chosen]]:
    """Yield chunks of tasks with their remaining rollouts, and count the others in the ledger.

    For task formats, tasks are counted instead. `tasks` selects the ids of tasks, by default all.
    """
    row_kind = format.row_kind
    counts = filters.reward_from == "override"
    # Rows of all attempts contain overrides, even if the verifier's rewards are used.
    overridden = (counts or row_kind == "scored") and has_overrides(collection)
    for given in _groups(collection, tasks):
        groups = _with_overrides(given, counts) if overridden else given
        rows = Task.objects.in_bulk([task_id for task_id, _ in groups])
        unselected = _unselected(collection, groups, filters)
        chunk: list[Chosen] = []
        for task_id, rollouts in groups:
            size = 1 if row_kind == "tasks" else len(rollouts)
            ledger.considered += size
            group = _figures(rollouts, collection.solve_threshold)
            selected = [one for one in rollouts if one.id not in unselected]
            if row_kind == "tasks" and not selected:
                ledger.drop("not_selected")
                continue
            if reason := _task_refusal(rows[task_id], group, filters):
                ledger.drop(reason, size)
                continue
            set_by_people = sum(one.set_by_a_person for one in rollouts)
            chosen = Chosen(task=rows[task_id], group=group, set_by_people=set_by_people)
            if row_kind == "tasks":
                chosen.attempted = rollouts
            else:
                ledger.drop("not_selected", len(rollouts) - len(selected))
                chosen.rollouts = _choose(selected, filters, ledger, keeps_masked=format.keeps_masked)
            chunk.append(chosen)
        yield chunk


def _groups(collection: Collection, chosen: QuerySet[Any, Any] | None) -> Iterator[list[tuple[int, list[Candidate]]]]:
    """Yield groups, read by key: an open cursor would keep SQLite from truncating its write-ahead log."""
    size = max(1, min(TASKS, ROLLOUTS // max(1, collection.repeats)))
    last = 0
    grouped = Rollout.objects.filter(collection=collection)
    if chosen is not None:
        grouped = grouped.filter(task_id__in=chosen)
    while True:
        tasks = list(
            grouped.filter(task_id__gt=last).order_by("task_id").values_list("task_id", flat=True).distinct()[:size]
        )
        if not tasks:
            return
        rows = grouped.filter(task_id__gte=tasks[0], task_id__lte=tasks[-1])
        light = starmap(Candidate, rows.order_by("task_id", "repeat").values_list(*_COLUMNS))
        yield [(task_id, list(group)) for task_id, group in groupby(light, key=lambda row: row.task_id)]
        last = tasks[-1]


def _unselected(collection: Collection, groups: list[tuple[int, list[Candidate]]], filters: Filters) -> frozenset[int]:
    rows = Rollout.objects.filter(collection=collection, task_id__gte=groups[0][0], task_id__lte=groups[-1][0])
    return find_unselected(rows, (one.id for _, rollouts in groups for one in rollouts), filters)


def _with_overrides(groups: list[tuple[int, list[Candidate]]], counts: bool) -> list[tuple[int, list[Candidate]]]:
    """Return the groups with their overrides. With `counts`, overrides replace the rewards."""
    standing = read_overrides([one.id for _, rollouts in groups for one in rollouts])

    def overridden(one: Candidate) -> Candidate:
        if (override := standing.get(one.id)) is None:
            return one
        changed = one._replace(override=override)
        return changed._replace(reward=override.reward, set_by_a_person=True) if counts else changed

    return [(task_id, [overridden(one) for one in rollouts]) for task_id, rollouts in groups]


def _figures(rollouts: Iterable[Candidate], solve_threshold: float) -> Group | None:
    rewards = [one.reward for one in rollouts if one.status == Rollout.Status.COMPLETED and one.reward is not None]
    if not rewards:
        return None
    mean = sum(rewards) / len(rewards)
    return Group(
        size=len(rewards),
        mean=mean,
        std=(sum((reward - mean) ** 2 for reward in rewards) / len(rewards)) ** 0.5,
        lowest=min(rewards),
        highest=max(rewards),
        solved=sum(reward >= solve_threshold for reward in rewards),
    )


def _task_refusal(task: Task, group: Group | None, filters: Filters) -> str:
    if filters.splits and task.split not in filters.splits:
        return "other_split"
    wants_rate = filters.min_solve_rate is not None or filters.max_solve_rate is not None
    if group is None:
        return "never_scored" if wants_rate or filters.drop_zero_variance else ""
    rate = group.solved / group.size
    if filters.min_solve_rate is not None and rate < filters.min_solve_rate:
        return "solved_too_rarely"
    if filters.max_solve_rate is not None and rate > filters.max_solve_rate:
        return "solved_too_often"
    return "zero_variance" if filters.drop_zero_variance and group.zero_variance else ""


def _choose(rollouts: list[Candidate], filters: Filters, ledger: Ledger, *, keeps_masked: bool) -> list[Candidate]:
    kept: list[Candidate] = []
    for rollout in rollouts:
        # In a running collection, rollouts may be flagged after the export was queued.
        reason = find_reason(
            rollout,
            include_flagged=filters.include_flagged,
            include_truncated=filters.include_truncated,
            include_masked=keeps_masked,
            include_ambiguous=filters.include_ambiguous,
            include_noticed=filters.include_noticed,
            min_reward=filters.min_reward,
        )
        if reason:
            ledger.drop(reason)
        else:
            kept.append(rollout)
    if filters.per_task is not None:
        kept.sort(key=lambda one: (-(one.reward or 0.0), one.output_tokens, one.id))
    return kept
