"""Uploads of task files, saved column mappings, and deletions of datasets."""

from django.db import models

from apps.accounts.job_retries import RetriedJob
from apps.accounts.models import user_column
from apps.accounts.shared_columns import Named
from apps.policies.redacted_fields import RedactedCharField
from apps.tasks.deletion_jobs import DeletionJob
from apps.tasks.models.tasks import Dataset, DatasetVersion


class ColumnMapping(Named):
    """A saved column mapping (gym/tasks/mappings/column_mapping.py)."""

    name = RedactedCharField(max_length=100)
    mapping = models.JSONField()
    created_by = user_column("column_mappings")

    class Meta:
        ordering = ["name", "id"]


class Upload(RetriedJob):
    """An uploaded file of tasks.

    GymWeb receives it in parts. A user may map its columns and validate it. Then a worker loads it.
    """

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
        REJECT = "reject", "Reject the whole file"
        SKIP = "skip", "Skip invalid rows"

    class OnCredential(models.TextChoices):
        KEEP = "keep", "Store as uploaded"
        REJECT = "reject", "Reject these rows"
        REDACT = "redact", "Redact"

    class Mode(models.TextChoices):
        REPLACE = "replace", "Replace all tasks"
        UPSERT = "upsert", "Merge by ID into the latest version"

    class OnDuplicate(models.TextChoices):
        KEEP = "keep", "Keep both"
        SKIP = "skip", "Keep the first"
        REJECT = "reject", "Reject the second"

    IN_PROGRESS = (State.RECEIVING, State.QUEUED, State.LOADING)

    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="uploads")
    version = models.ForeignKey(DatasetVersion, null=True, on_delete=models.SET_NULL, related_name="uploads")
    state = models.CharField(max_length=16, choices=State.choices, default=State.RECEIVING)
    on_error = models.CharField(max_length=16, choices=OnError.choices, default=OnError.REJECT)
    mode = models.CharField(max_length=16, choices=Mode.choices, default=Mode.REPLACE)
    on_duplicate = models.CharField(max_length=16, choices=OnDuplicate.choices, default=OnDuplicate.KEEP)
    on_credential = models.CharField(
        max_length=16, choices=OnCredential.choices, default=OnCredential.KEEP, db_default="keep"
    )
    mapping = models.JSONField(null=True, blank=True, help_text="Column mapping; null: detected from the first rows")
    split = models.CharField(max_length=64, blank=True, help_text="Used for rows without a split")
    split_ratios = models.JSONField(default=dict, blank=True, help_text='e.g. {"train": 0.9, "validation": 0.1}')
    split_seed = models.BigIntegerField(default=0)
    note = RedactedCharField(max_length=200, blank=True)
    by_hand = models.BooleanField(default=False, help_text="A user maps the columns before loading")
    check_only = models.BooleanField(default=False, help_text="Validate only")
    format = models.CharField(max_length=16, blank=True)
    packing = models.CharField(max_length=16, blank=True)
    shape = models.CharField(max_length=16, blank=True, help_text="Detected row format")
    filename = RedactedCharField(max_length=255, blank=True)
    received_bytes = models.BigIntegerField(default=0)
    read_bytes = models.BigIntegerField(default=0, help_text="Bytes read")
    lines = models.PositiveIntegerField(default=0, help_text="Non-blank lines")
    accepted = models.PositiveIntegerField(default=0)
    rejected = models.PositiveIntegerField(default=0)
    counts = models.JSONField(
        default=dict, blank=True, help_text="Counts of valid rows: {new, updated, unchanged, duplicate}, and {removed}"
    )
    errors = models.JSONField(
        default=list,
        help_text="The first invalid lines: [{line, pointer, code, message}]; all are in the rejected file",
    )
    over_limit = models.CharField(max_length=64, blank=True, help_text="The limit that rejected the file")
    message = models.CharField(max_length=500, blank=True)
    attempt = models.PositiveIntegerField(default=0, help_text="Number of load attempts")
    created_by = user_column("uploads")
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
        """Return the share of the file that is loaded, from 0 to 1."""
        return min(1.0, self.read_bytes / self.received_bytes) if self.received_bytes else 0.0


class Deletion(DeletionJob):
    """Deletion of a dataset or version."""

    dataset = models.ForeignKey(Dataset, null=True, on_delete=models.SET_NULL, related_name="deletions")
    version = models.ForeignKey(DatasetVersion, null=True, on_delete=models.SET_NULL, related_name="+")
    name = models.CharField(max_length=120, help_text="Name of the deleted object")
    whole = models.BooleanField(help_text="Delete the dataset with all versions; otherwise one version")
    total = models.PositiveIntegerField(default=0, help_text="Number of tasks")
    touched_at = models.DateTimeField(auto_now=True)

    class Meta(DeletionJob.Meta):
        constraints = [
            models.UniqueConstraint(
                fields=["dataset"],
                condition=models.Q(state__in=["queued", "deleting"]),
                name="deletion_of_a_dataset_once_at_a_time",
            ),
        ]
