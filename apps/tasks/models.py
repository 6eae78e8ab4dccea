import orjson
from django.conf import settings
from django.db import models

from apps.environments.models import Environment
from apps.gym.items import TaskRow


class Dataset(models.Model):
    """A versioned collection of tasks that share an environment."""

    slug = models.SlugField(max_length=64, unique=True)
    name = models.CharField(max_length=100)
    description = models.TextField(blank=True)
    environment = models.ForeignKey(Environment, on_delete=models.PROTECT, related_name="datasets")
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
    """An immutable set of tasks; visible once its state is `ready`."""

    class State(models.TextChoices):
        LOADING = "loading", "loading"
        READY = "ready", "ready"

    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    state = models.CharField(max_length=16, choices=State.choices, default=State.LOADING)
    task_count = models.PositiveIntegerField(default=0)
    content_hash = models.CharField(max_length=64, blank=True, help_text="SHA-256 over the tasks' rows, in order")
    note = models.CharField(max_length=200, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-number"]
        constraints = [
            models.UniqueConstraint(fields=["dataset", "number"], name="dataset_version_number_once"),
        ]

    def __str__(self) -> str:
        return f"{self.dataset.slug}@v{self.number}"


class TaskQuerySet(models.QuerySet["Task"]):
    def ready(self) -> "TaskQuerySet":
        return self.filter(version__state=DatasetVersion.State.READY)


class Task(models.Model):
    """One problem. `row_json` is the uploaded row as text, which keeps key order and number form on every database."""

    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="tasks")
    version = models.ForeignKey(DatasetVersion, on_delete=models.CASCADE, related_name="tasks")
    index = models.PositiveIntegerField(help_text="Position in the version, from 0")
    external_id = models.CharField(max_length=200, blank=True, help_text="The row's own id, if it has one")
    prompt_excerpt = models.CharField(max_length=200, blank=True)
    row_json = models.TextField()

    objects = TaskQuerySet.as_manager()

    class Meta:
        ordering = ["version", "index"]
        constraints = [
            models.UniqueConstraint(fields=["version", "index"], name="task_index_once"),
        ]

    def __str__(self) -> str:
        return f"task {self.index}: {self.prompt_excerpt}"

    @property
    def number(self) -> int:
        """As people count and as upload errors count lines: from 1. Programs get `index`, from 0."""
        return self.index + 1

    @property
    def row(self) -> TaskRow:
        row: TaskRow = orjson.loads(self.row_json)
        return row


class Upload(models.Model):
    """One file on its way into a dataset: received (in parts, if large), checked line by line, loaded or rejected."""

    class State(models.TextChoices):
        RECEIVING = "receiving", "receiving parts"
        LOADING = "loading", "loading"
        READY = "ready", "ready"
        REJECTED = "rejected", "rejected"
        FAILED = "failed", "failed"

    class OnError(models.TextChoices):
        REJECT = "reject", "reject the whole file"
        SKIP = "skip", "load the good lines"

    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="uploads")
    version = models.ForeignKey(DatasetVersion, null=True, on_delete=models.SET_NULL, related_name="uploads")
    state = models.CharField(max_length=16, choices=State.choices, default=State.RECEIVING)
    on_error = models.CharField(max_length=16, choices=OnError.choices, default=OnError.REJECT)
    filename = models.CharField(max_length=255, blank=True)
    received_bytes = models.BigIntegerField(default=0)
    lines = models.PositiveIntegerField(default=0, help_text="Lines that are not blank")
    accepted = models.PositiveIntegerField(default=0)
    rejected = models.PositiveIntegerField(default=0)
    errors = models.JSONField(
        default=list, help_text="The first bad lines: [{line, code, message}]; all are in the rejected file"
    )
    message = models.CharField(max_length=500, blank=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="uploads"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    touched_at = models.DateTimeField(
        auto_now=True, help_text="Last sign of life; a loading upload gone quiet is failed"
    )

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"upload {self.pk} of {self.filename or 'rows'} ({self.state})"
