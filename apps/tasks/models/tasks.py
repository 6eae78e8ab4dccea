"""Datasets with their versions, tasks and images, and suites of datasets."""

from collections.abc import Iterable

from django.db import models

from apps.accounts.models import user_column
from apps.accounts.shared_columns import Dated, Named
from apps.environments.models import Environment
from apps.gym.tasks.task_rows import load_row
from apps.gym.traces.items import TaskRow
from apps.policies.installation_redactor import fresh_redactor
from apps.policies.redacted_fields import RedactedCharField, RedactedTextField


class Dataset(Named):
    """A versioned collection of tasks that share an environment."""

    name = RedactedCharField(max_length=100)
    description = RedactedTextField(blank=True)
    environment = models.ForeignKey(Environment, on_delete=models.PROTECT, related_name="datasets")
    last_number = models.PositiveIntegerField(default=0, help_text="Highest number of a deleted version")
    created_by = user_column("datasets")

    class Meta:
        ordering = ["name", "id"]

    def latest_version(self) -> "DatasetVersion | None":
        return self.versions.filter(state=DatasetVersion.State.READY).order_by("-number").first()


class SuiteQuerySet(models.QuerySet["Suite"]):
    def with_datasets(self) -> "SuiteQuerySet":
        """Prefetch the datasets of the suites, in one additional query."""
        return self.prefetch_related(models.Prefetch("entries", SuiteDataset.objects.select_related("dataset")))


class Suite(Named):
    """A named list of datasets that are collected and reported together."""

    name = RedactedCharField(max_length=100)
    _unsaved_datasets: list[Dataset] | None = None

    objects = SuiteQuerySet.as_manager()

    class Meta:
        ordering = ["name", "id"]

    @property
    def datasets(self) -> list[Dataset]:
        """Return the datasets in order. Assigning to this does not save: use apps.tasks.suite_changes."""
        if self._unsaved_datasets is None and self.pk:
            return [entry.dataset for entry in self.entries.all()]
        return self._unsaved_datasets or []

    @datasets.setter
    def datasets(self, given: Iterable[Dataset]) -> None:
        self._unsaved_datasets = list(given)


class SuiteDataset(models.Model):
    """A dataset of a suite. Deleting the dataset removes it from its suites."""

    suite = models.ForeignKey(Suite, on_delete=models.CASCADE, related_name="entries")
    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="suite_entries")
    position = models.PositiveSmallIntegerField()

    class Meta:
        ordering = ["position"]
        constraints = [
            models.UniqueConstraint(fields=["suite", "dataset"], name="suite_dataset_once"),
            models.UniqueConstraint(fields=["suite", "position"], name="suite_position_once"),
        ]

    def __str__(self) -> str:
        return f"{self.position}: {self.dataset}"


class DatasetVersion(Dated):
    """A numbered set of tasks, visible once its state is `ready`.

    The rows of its tasks never change. Tags and splits may, and tasks may be retired.
    """

    class State(models.TextChoices):
        LOADING = "loading", "loading"
        READY = "ready", "ready"
        DELETING = "deleting", "being deleted"

    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    state = models.CharField(max_length=16, choices=State.choices, default=State.LOADING)
    task_count = models.PositiveIntegerField(default=0)
    content_hash = models.CharField(max_length=64, blank=True, help_text="SHA-256 of the task rows in order")
    final_newline = models.BooleanField(
        default=True, db_default=True, help_text="Whether the last row ends with a line feed"
    )
    note = RedactedCharField(max_length=200, blank=True)
    base = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="+", help_text="Previous version"
    )
    changes = models.JSONField(
        default=dict, blank=True, help_text="Row counts against the base: {new, updated, unchanged, removed}"
    )
    gold_check = models.JSONField(
        null=True,
        blank=True,
        help_text="Check of gold answers: tasks by result {full, less, unknown}; `first`: the first tasks with less "
        "than full reward; `problem`: an error; null: not checked",
    )
    gold_next = models.PositiveIntegerField(
        null=True, blank=True, help_text="Index of the next task whose gold answer is scored; null: none"
    )
    metrics = models.JSONField(
        null=True, blank=True, help_text="Dataset metrics (gym/tasks/dataset_metrics.py); null until computed"
    )

    class Meta:
        ordering = ["-number"]
        constraints = [
            models.UniqueConstraint(fields=["dataset", "number"], name="dataset_version_number_once"),
            # Each dataset loads one file at a time, because a merge needs the previous version (upload_turns.py).
            models.UniqueConstraint(
                fields=["dataset"], condition=models.Q(state="loading"), name="dataset_version_loading_once"
            ),
        ]
        indexes = [
            models.Index(fields=["id"], condition=models.Q(gold_next__isnull=False), name="dataset_version_gold"),
        ]

    def __str__(self) -> str:
        return f"{self.dataset.slug}@v{self.number}"


def join_tags(tags: Iterable[str]) -> str:
    """Return the text for `Task.tags_text`: each tag once, between line feeds."""
    kept = dict.fromkeys(tag for tag in tags if tag)
    return "\n" + "\n".join(kept) + "\n" if kept else ""


class TaskQuerySet(models.QuerySet["Task"]):
    def ready(self) -> "TaskQuerySet":
        """Return the tasks of versions that are loaded and not being deleted."""
        return self.filter(version__state=DatasetVersion.State.READY)

    def active(self) -> "TaskQuerySet":
        """Return the tasks that new collections include."""
        return self.filter(is_retired=False)

    def tagged(self, tag: str) -> "TaskQuerySet":
        return self.filter(tags_text__contains=f"\n{tag}\n")


class Task(models.Model):
    """One task of a dataset version.

    `row_json` is the uploaded row as text: key order, nulls, spaces and number formats are kept. Images are replaced by
    references (stored_images.py). The other columns appear on pages, so suspected credentials in them are masked.
    """

    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="tasks")
    version = models.ForeignKey(
        DatasetVersion,
        on_delete=models.CASCADE,
        related_name="tasks",
        db_index=False,  # covered by the index `task_page`
    )
    index = models.PositiveIntegerField(help_text="Position in the version, from 0")
    external_id = models.CharField(max_length=200, blank=True, help_text="Id in the row, if any")
    prompt_excerpt = models.CharField(max_length=200, blank=True)
    row_json = models.TextField()
    row_hash = models.CharField(max_length=32, blank=True, help_text="BLAKE2b of the row; empty until computed")
    key = models.CharField(
        max_length=32, blank=True, help_text="Identity across versions: hash of the id or, without an id, of the row"
    )
    split = models.CharField(max_length=64, blank=True, help_text="train, validation, …")
    tags_text = models.TextField(blank=True, help_text="Tags, each between line feeds, for searching")
    is_retired = models.BooleanField(default=False, help_text="New collections skip it")

    objects = TaskQuerySet.as_manager()

    class Meta:
        ordering = ["version", "index"]
        constraints = [
            models.UniqueConstraint(fields=["version", "index"], name="task_index_once"),
        ]
        indexes = [
            models.Index(fields=["version", "id"], name="task_page"),
            models.Index(fields=["version", "key"], name="task_key"),
            # For finding the same task in other datasets.
            models.Index(fields=["row_hash", "dataset"], condition=~models.Q(row_hash=""), name="task_row"),
            models.Index(fields=["version", "split", "id"], condition=~models.Q(split=""), name="task_split"),
            models.Index(fields=["version", "id"], condition=models.Q(is_retired=True), name="task_retired"),
        ]

    def __str__(self) -> str:
        return f"task {self.index}: {self.prompt_excerpt}"

    @property
    def tags(self) -> list[str]:
        return [tag for tag in self.tags_text.split("\n") if tag]

    @tags.setter
    def tags(self, tags: Iterable[str]) -> None:
        self.tags_text = join_tags(tags)

    @property
    def number(self) -> int:
        """Return the task number from 1, as shown on pages and in errors. `index` counts from 0."""
        return self.index + 1

    @property
    def row(self) -> TaskRow:
        """Return the parsed row. Images remain references."""
        return load_row(self.row_json)

    @property
    def masked_row(self) -> TaskRow:
        """Return the parsed row with suspected credentials masked, for pages."""
        return load_row(fresh_redactor().redact_json(self.row_json)[0])


class StoredImage(models.Model):
    """An image, stored once. Rows and traces refer to it as `gymweb-image:<sha256>` (stored_images.py)."""

    sha256 = models.CharField(max_length=64, unique=True)
    kind = models.CharField(max_length=16, help_text="Media type")
    width = models.PositiveIntegerField(help_text="In pixels")
    height = models.PositiveIntegerField(help_text="In pixels")
    size = models.PositiveIntegerField(help_text="In bytes")
    content = models.BinaryField()

    def __str__(self) -> str:
        return f"{self.kind} of {self.width} × {self.height}"


class VersionImage(models.Model):
    """An image that tasks of a dataset version refer to."""

    version = models.ForeignKey(DatasetVersion, on_delete=models.CASCADE, related_name="images", db_index=False)
    image = models.ForeignKey(StoredImage, on_delete=models.PROTECT, related_name="+")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["version", "image"], name="version_image_once")]

    def __str__(self) -> str:
        return f"image {self.image_id} of version {self.version_id}"
