from collections.abc import Iterable

import orjson
from django.conf import settings
from django.db import models

from apps.accounts.job_retries import RetriedJob
from apps.environments.models import Environment
from apps.gym.traces.items import TaskRow
from apps.policies.typed_texts import TypedCharField, TypedTextField


class Dataset(models.Model):
    """A versioned collection of tasks that share an environment."""

    slug = models.SlugField(max_length=64, unique=True)
    name = TypedCharField(max_length=100)
    description = TypedTextField(blank=True)
    environment = models.ForeignKey(Environment, on_delete=models.PROTECT, related_name="datasets")
    last_number = models.PositiveIntegerField(default=0, help_text="The highest number of a version that was deleted")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="datasets"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name", "id"]

    def __str__(self) -> str:
        return self.name

    def latest_version(self) -> "DatasetVersion | None":
        return self.versions.filter(state=DatasetVersion.State.READY).order_by("-number").first()


class DatasetVersion(models.Model):
    """An immutable set of rows; visible once its state is `ready`. What people mark its tasks with may change."""

    class State(models.TextChoices):
        LOADING = "loading", "loading"
        READY = "ready", "ready"
        DELETING = "deleting", "being deleted"

    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    state = models.CharField(max_length=16, choices=State.choices, default=State.LOADING)
    task_count = models.PositiveIntegerField(default=0)
    content_hash = models.CharField(max_length=64, blank=True, help_text="SHA-256 over the tasks' rows, in order")
    note = TypedCharField(max_length=200, blank=True)
    base = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="+", help_text="The version before it"
    )
    changes = models.JSONField(
        default=dict, blank=True, help_text="Rows against those of the base: {new, updated, unchanged, removed}"
    )
    metrics = models.JSONField(
        null=True, blank=True, help_text="What the rows are made of (gym/tasks/dataset_metrics.py); null until measured"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-number"]
        constraints = [
            models.UniqueConstraint(fields=["dataset", "number"], name="dataset_version_number_once"),
            # Files are loaded one after the other, so that an upsert builds on the version before (upload_turns.py).
            models.UniqueConstraint(
                fields=["dataset"], condition=models.Q(state="loading"), name="dataset_version_loading_once"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.dataset.slug}@v{self.number}"


def join_tags(tags: Iterable[str]) -> str:
    kept = dict.fromkeys(tag for tag in tags if tag)
    return "\n" + "\n".join(kept) + "\n" if kept else ""


class TaskQuerySet(models.QuerySet["Task"]):
    def ready(self) -> "TaskQuerySet":
        return self.filter(version__state=DatasetVersion.State.READY)

    def active(self) -> "TaskQuerySet":
        """Those that a new collection attempts."""
        return self.filter(is_retired=False)

    def tagged(self, tag: str) -> "TaskQuerySet":
        return self.filter(tags_text__contains=f"\n{tag}\n")


class Task(models.Model):
    """One problem. `row_json` is the uploaded row as text, which keeps key order and number form on every database."""

    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="tasks")
    version = models.ForeignKey(
        DatasetVersion,
        on_delete=models.CASCADE,
        related_name="tasks",
        db_index=False,  # `task_page` begins with it
    )
    index = models.PositiveIntegerField(help_text="Position in the version, from 0")
    external_id = models.CharField(max_length=200, blank=True, help_text="The row's own id, if it has one")
    prompt_excerpt = models.CharField(max_length=200, blank=True)
    row_json = models.TextField()
    row_hash = models.CharField(max_length=32, blank=True, help_text="BLAKE2b of the row; empty until measured")
    key = models.CharField(
        max_length=32, blank=True, help_text="What makes it the same task in another version: hash of its id or its row"
    )
    split = models.CharField(max_length=64, blank=True, help_text="train, validation, …")
    tags_text = models.TextField(blank=True, help_text="Its tags, each between two line ends, so that one can be found")
    is_retired = models.BooleanField(default=False, help_text="New collections leave it out")

    objects = TaskQuerySet.as_manager()

    class Meta:
        ordering = ["version", "index"]
        constraints = [
            models.UniqueConstraint(fields=["version", "index"], name="task_index_once"),
        ]
        indexes = [
            models.Index(fields=["version", "id"], name="task_page"),
            models.Index(fields=["version", "key"], name="task_key"),
            # Whether a dataset holds the same task as another one.
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
        """As people count and as upload errors count lines: from 1. Programs get `index`, from 0."""
        return self.index + 1

    @property
    def row(self) -> TaskRow:
        row: TaskRow = orjson.loads(self.row_json)
        return row


class ColumnMapping(models.Model):
    """A saved way to make tasks of somebody's columns (gym/tasks/mappings/column_mapping.py)."""

    slug = models.SlugField(max_length=64, unique=True)
    name = TypedCharField(max_length=100)
    mapping = models.JSONField()
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="column_mappings"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name", "id"]

    def __str__(self) -> str:
        return self.name


class Upload(RetriedJob):
    """One file on its way into a dataset: received, mapped and checked if people wish, then loaded by a worker."""

    class State(models.TextChoices):
        RECEIVING = "receiving", "receiving parts"
        DRAFT = "draft", "waiting for its mapping"
        QUEUED = "queued", "waiting for a worker"
        LOADING = "loading", "loading"
        CHECKED = "checked", "checked"
        READY = "ready", "ready"
        REJECTED = "rejected", "rejected"
        FAILED = "failed", "failed"

    class OnError(models.TextChoices):
        REJECT = "reject", "reject the whole file"
        SKIP = "skip", "load the good rows"

    class Mode(models.TextChoices):
        REPLACE = "replace", "replace the whole version"
        UPSERT = "upsert", "merge into the latest version by id"

    class OnDuplicate(models.TextChoices):
        KEEP = "keep", "keep both"
        SKIP = "skip", "keep the first"
        REJECT = "reject", "refuse the second"

    GOING_ON = (State.RECEIVING, State.QUEUED, State.LOADING)

    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="uploads")
    version = models.ForeignKey(DatasetVersion, null=True, on_delete=models.SET_NULL, related_name="uploads")
    state = models.CharField(max_length=16, choices=State.choices, default=State.RECEIVING)
    on_error = models.CharField(max_length=16, choices=OnError.choices, default=OnError.REJECT)
    mode = models.CharField(max_length=16, choices=Mode.choices, default=Mode.REPLACE)
    on_duplicate = models.CharField(max_length=16, choices=OnDuplicate.choices, default=OnDuplicate.KEEP)
    mapping = models.JSONField(null=True, blank=True, help_text="Columns → task; null: found by the file's first rows")
    split = models.CharField(max_length=64, blank=True, help_text="The split of all rows that name none")
    split_ratios = models.JSONField(default=dict, blank=True, help_text='e.g. {"train": 0.9, "validation": 0.1}')
    split_seed = models.BigIntegerField(default=0)
    note = TypedCharField(max_length=200, blank=True)
    by_hand = models.BooleanField(default=False, help_text="Its columns are mapped by a user before it is loaded")
    check_only = models.BooleanField(default=False, help_text="Count and check, store nothing")
    format = models.CharField(max_length=16, blank=True)
    packing = models.CharField(max_length=16, blank=True)
    shape = models.CharField(max_length=16, blank=True, help_text="What the file's rows were found to be")
    filename = TypedCharField(max_length=255, blank=True)
    received_bytes = models.BigIntegerField(default=0)
    read_bytes = models.BigIntegerField(default=0, help_text="How far into the file the loading is")
    lines = models.PositiveIntegerField(default=0, help_text="Lines that are not blank")
    accepted = models.PositiveIntegerField(default=0)
    rejected = models.PositiveIntegerField(default=0)
    counts = models.JSONField(
        default=dict, blank=True, help_text="Good rows: {new, updated, unchanged, duplicate}, and {removed}"
    )
    errors = models.JSONField(
        default=list, help_text="The first bad lines: [{line, pointer, code, message}]; all are in the rejected file"
    )
    over_limit = models.CharField(max_length=64, blank=True, help_text="The limit that refused the file as a whole")
    message = models.CharField(max_length=500, blank=True)
    attempt = models.PositiveIntegerField(default=0, help_text="How often a worker began to load it")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="uploads"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    touched_at = models.DateTimeField(auto_now=True, help_text="Last heartbeat; an unresponsive upload is taken over")

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(
                fields=["state", "id"],
                condition=models.Q(state__in=["receiving", "draft", "queued", "loading", "checked"]),
                name="upload_unfinished",
            ),
        ]

    def __str__(self) -> str:
        return f"upload {self.pk} of {self.filename or 'rows'} ({self.state})"

    @property
    def share(self) -> float:
        """How much of the file is loaded, from 0 to 1."""
        return min(1.0, self.read_bytes / self.received_bytes) if self.received_bytes else 0.0


class Deletion(RetriedJob):
    """A dataset, or one version of it, on its way out; the row stays and says how that ended."""

    class State(models.TextChoices):
        QUEUED = "queued", "waiting for a worker"
        DELETING = "deleting", "deleting"
        DONE = "done", "done"
        FAILED = "failed", "failed"

    dataset = models.ForeignKey(Dataset, null=True, on_delete=models.SET_NULL, related_name="deletions")
    version = models.ForeignKey(DatasetVersion, null=True, on_delete=models.SET_NULL, related_name="+")
    name = models.CharField(max_length=120, help_text="Name of the deleted object")
    whole = models.BooleanField(help_text="The dataset with all its versions; else the one version")
    state = models.CharField(max_length=16, choices=State.choices, default=State.QUEUED)
    total = models.PositiveIntegerField(default=0, help_text="Tasks there were")
    deleted = models.PositiveIntegerField(default=0)
    message = models.CharField(max_length=500, blank=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    touched_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["dataset"],
                condition=models.Q(state__in=["queued", "deleting"]),
                name="deletion_of_a_dataset_once_at_a_time",
            ),
        ]

    def __str__(self) -> str:
        return f"deletion of {self.name} ({self.state})"

    @property
    def share(self) -> float:
        return min(1.0, self.deleted / self.total) if self.total else 0.0
