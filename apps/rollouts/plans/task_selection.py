"""Tasks of a version and their repeats: read in chunks, counted by the database."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from django.core.exceptions import ValidationError
from django.db.models import Count, Q

from apps.accounts.keyset_reading import read_by_key
from apps.gym.request_refusals import Refusal
from apps.gym.traces.items import input_items
from apps.rollouts.models import Rollout, RolloutQuerySet
from apps.rollouts.plans.plan_spec import TaskSelection
from apps.tasks.models import Dataset, DatasetVersion, Task, TaskQuerySet

CHUNK = 2_000
"""Number of rollouts to look up in an earlier collection per query."""


class Chosen(NamedTuple):
    """A planned rollout: task, position in the version, and repeat number."""

    task_id: int
    position: int
    repeat: int


class Size(NamedTuple):
    tasks: int
    rollouts: int


@dataclass(frozen=True, slots=True)
class Choice:
    """The rollouts that a selection describes on one version, without retired tasks."""

    selection: TaskSelection
    version: DatasetVersion
    task_ids: Sequence[int] | None = None

    def repeats_of(self, split: str) -> int:
        return self.selection.split_repeats.get(split, self.selection.repeats)

    @property
    def is_filtered(self) -> bool:
        chosen = self.selection
        return bool(chosen.splits or chosen.tags or chosen.search or chosen.unsolved_in)

    def tasks(self) -> TaskQuerySet:
        """Return the tasks in the order of the version."""
        found = self._unlimited()
        return found[: self.selection.limit] if self.selection.limit else found

    def _unlimited(self) -> TaskQuerySet:
        found: TaskQuerySet = Task.objects.filter(version=self.version).active().order_by("index")
        if self.task_ids is not None:
            found = found.filter(pk__in=self.task_ids)
        if unsolved_in := self.selection.unsolved_in:
            solved = Rollout.objects.filter(collection=unsolved_in, reward__gte=unsolved_in.solve_threshold)
            found = found.exclude(pk__in=solved.order_by().values("task_id"))
        if self.selection.splits:
            found = found.filter(split__in=self.selection.splits)
        for tag in self.selection.tags:
            found = found.tagged(tag)
        if self.selection.search:
            found = found.filter(
                Q(prompt_excerpt__icontains=self.selection.search) | Q(external_id__icontains=self.selection.search)
            )
        return found

    def find_without_prompt(self) -> Task | None:
        """Return the first task with an empty `input`, or None."""
        chosen = Task.objects.filter(pk__in=self.tasks().values("pk")) if self.selection.limit else self._unlimited()
        # A prompt without text, for example an image alone, has no excerpt either.
        unsure = chosen.filter(prompt_excerpt="").values_list("index", "pk")
        for _, pk in read_by_key(unsure, by="index", size=CHUNK):
            task = Task.objects.get(pk=pk)
            if not input_items(task.row):
                return task
        return None

    def unknown_splits(self) -> dict[str, list[str]]:
        """Return the named splits that have no tasks, by option. They are likely typing errors."""
        named = {"splits": set(self.selection.splits), "split_repeats": set(self.selection.split_repeats)}
        if not any(named.values()):
            return {}
        known = set(Task.objects.filter(version=self.version).order_by().values_list("split", flat=True).distinct())
        return {name: sorted(splits - known) for name, splits in named.items() if splits - known}

    def rollouts(self) -> Iterator[Chosen]:
        """Yield the rollouts in the order of tasks and repeats, with constant memory."""
        columns = self._unlimited().values_list("index", "pk", "split")
        rows = islice(read_by_key(columns, by="index", size=CHUNK), self.selection.limit)
        most = max([1, self.selection.repeats, *self.selection.split_repeats.values()])
        while tasks := list(islice(rows, max(1, CHUNK // most))):
            left = self._earlier_pairs({task_id for _, task_id, _ in tasks})
            for index, task_id, split in tasks:
                for repeat in range(self.repeats_of(split)):
                    if left is None or ((task_id, repeat) in left) == self.selection.only_failed:
                        yield Chosen(task_id, index, repeat)

    def _earlier_pairs(self, task_ids: set[int]) -> set[tuple[int, int]] | None:
        """Return the (task, repeat) pairs of `_earlier`, or None without an earlier collection."""
        if self.selection.resume_from is None:
            return None
        found = self._earlier().filter(task_id__in=task_ids)
        return set(found.values_list("task_id", "repeat"))

    def _earlier(self) -> "RolloutQuerySet":
        """Return the failed rollouts to repeat with `only_failed`, else the completed or unfinished ones to skip."""
        kept = [Rollout.Status.COMPLETED, Rollout.Status.RUNNING, Rollout.Status.QUEUED]
        statuses = [Rollout.Status.FAILED] if self.selection.only_failed else kept
        return Rollout.objects.filter(collection=self.selection.resume_from, status__in=statuses).order_by()

    def size(self) -> Size:
        """Return the number of tasks and rollouts, counted by the database."""
        by_split = self._count_by_split()
        tasks = sum(by_split.values())
        planned = sum(count * self.repeats_of(split) for split, count in by_split.items())
        if self.selection.resume_from is None:
            return Size(tasks, planned)
        earlier = sum(
            self._earlier().filter(task__in=self._tasks_of(split), repeat__lt=self.repeats_of(split)).count()
            for split in by_split
        )
        return Size(tasks, earlier if self.selection.only_failed else planned - earlier)

    def _count_by_split(self) -> dict[str, int]:
        chosen = self.tasks()
        if self.selection.limit:
            chosen = Task.objects.filter(pk__in=chosen.values("pk"))
        return {
            row["split"]: row["count"]
            for row in chosen.order_by().values("split").annotate(count=Count("pk")).order_by()
        }

    def _tasks_of(self, split: str) -> TaskQuerySet:
        chosen = (
            Task.objects.filter(pk__in=self.tasks().values("pk")) if self.selection.limit else self.tasks().order_by()
        )
        found: TaskQuerySet = chosen.filter(split=split).values("pk")  # type: ignore[assignment]
        return found


NAMED = 20
"""Maximum number of versions in an error message."""


def find_version(dataset: Dataset, number: int) -> DatasetVersion:
    """Return the version. Raise ValidationError with the available versions if it does not exist."""
    ready = DatasetVersion.objects.filter(dataset=dataset, state=DatasetVersion.State.READY).select_related("dataset")
    if version := ready.filter(number=number).first():
        return version
    known = [str(one) for one in ready.order_by("-number").values_list("number", flat=True)[: NAMED + 1]]
    named = ", ".join([*known[:NAMED], *(["…"] if len(known) > NAMED else [])]) or "none yet"
    raise ValidationError({"version": [f"Dataset {dataset.slug} has no version {number}. Choose one of: {named}."]})


class NothingToCollect(Refusal, code="nothing-to-collect"):
    """Raised if the plan has no rollouts: no ready version, or no matching task."""


def choose_rollouts(selection: TaskSelection, *, task_ids: Sequence[int] | None = None) -> Choice:
    """Return the rollouts of a selection.

    Raise NothingToCollect for a dataset without a version, and ValidationError by field for an unknown version or
    unknown splits.
    """
    dataset, earlier = selection.dataset, selection.resume_from
    version = find_version(dataset, selection.version) if selection.version is not None else None
    if earlier and version and version != earlier.version:
        raise ValidationError({"version": [f"{earlier.label} uses {earlier.version}. Leave the version empty."]})
    version = earlier.version if earlier else version or dataset.latest_version()
    if (unsolved_in := selection.unsolved_in) and unsolved_in.version != version:
        raise ValidationError(
            {"unsolved_in": [f"{unsolved_in.label} uses {unsolved_in.version}, but this plan uses {version}."]}
        )
    if version is None:
        raise NothingToCollect(f"Dataset {dataset.slug} has no version. Upload tasks first.")
    choice = Choice(selection, version, task_ids)
    if unknown := choice.unknown_splits():
        told = {name: [f"{version} has no split {', '.join(splits)}."] for name, splits in unknown.items()}
        raise ValidationError(told)
    return choice


def explain_nothing(choice: Choice) -> str:
    """Return the reason for an empty selection."""
    if choice.selection.resume_from is not None and choice.tasks().exists():
        what = "failed" if choice.selection.only_failed else "unfinished"
        label = choice.selection.resume_from.label
        return f"These tasks have no {what} rollouts in {label}. Choose other tasks or another collection."
    if choice.is_filtered:
        return f"No task of {choice.version} matches the filters."
    return f"{choice.version} × {choice.selection.repeats} rollouts per task gives no rollouts."
