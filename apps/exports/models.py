from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from apps.accounts.job_retries import RetriedJob
from apps.gym.exporters.registry import FORMATS
from apps.pairs.models import PairSet
from apps.rollouts.models import Collection


class Encoding(models.TextChoices):
    """How rows become bytes; which of them a format has, its exporter says."""

    JSONL = "jsonl", "JSON lines"
    JSONL_GZ = "jsonl.gz", "JSON lines, gzip"
    PARQUET = "parquet", "Parquet"


class Export(RetriedJob):
    """What one trainer loads: a folder with a file for each split that has rows, a dataset card and a manifest.

    `bytes` and `sha256` are of its first file; the manifest has those of all. What `format`, `filters` and `options`
    may be is the exporters' to say, so that a new format is no change of this table.
    """

    class State(models.TextChoices):
        QUEUED = "queued", "queued"
        WRITING = "writing", "writing"
        READY = "ready", "ready"
        FAILED = "failed", "failed"
        CANCELLED = "cancelled", "cancelled"

    format = models.CharField(max_length=32, help_text="A slug of apps.gym.exporters.registry")
    encoding = models.CharField(max_length=16, choices=Encoding.choices, default=Encoding.JSONL)
    collection = models.ForeignKey(Collection, on_delete=models.PROTECT, related_name="exports")
    pair_set = models.ForeignKey(PairSet, null=True, blank=True, on_delete=models.PROTECT, related_name="exports")
    filters = models.JSONField(default=dict, blank=True, help_text='e.g. {"min_reward": 0.7}')
    options = models.JSONField(default=dict, blank=True, help_text='How rows are worded, e.g. {"reasoning": "inline"}')
    validation_share = models.FloatField(default=0.0, help_text="The share of the tasks that go into another file")
    split_seed = models.BigIntegerField(default=0)
    state = models.CharField(max_length=16, choices=State.choices, default=State.QUEUED)
    attempt = models.PositiveSmallIntegerField(
        default=0, help_text="Claims so far: the fence that keeps a writer out that was given up for lost"
    )
    path = models.CharField(max_length=500, blank=True, help_text="The folder, or the one file")
    total = models.PositiveIntegerField(default=0, help_text="Rollouts, pairs or tasks to look at")
    considered = models.PositiveIntegerField(default=0, help_text="Of them, those looked at so far")
    rows = models.PositiveIntegerField(default=0)
    bytes = models.BigIntegerField(default=0)
    sha256 = models.CharField(max_length=64, blank=True)
    manifest = models.JSONField(default=dict)
    message = models.CharField(max_length=500, blank=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="exports"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    touched_at = models.DateTimeField(
        default=timezone.now, help_text="Last heartbeat; an unresponsive export is queued again"
    )

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(encoding__in=["jsonl", "jsonl.gz", "parquet"])
                & Q(validation_share__gte=0.0, validation_share__lte=0.5),
                name="export_is_possible",
            ),
            models.CheckConstraint(
                condition=~Q(state="ready") | (~Q(path="") & (~Q(sha256="") | Q(rows=0))),
                name="export_ready_has_a_file",
            ),
        ]

    def __str__(self) -> str:
        return f"export {self.pk} ({self.format})"

    @property
    def title(self) -> str:
        """Its format, as people call it; exports of formats that are gone keep their slug."""
        return FORMATS[self.format].title if self.format in FORMATS else self.format

    @property
    def is_settled(self) -> bool:
        return self.state not in {self.State.QUEUED, self.State.WRITING}

    @property
    def is_empty(self) -> bool:
        """There was nothing to write: no row was left, and so there is no file of rows."""
        return self.state == self.State.READY and not self.rows

    @property
    def share(self) -> float:
        return min(1.0, self.considered / self.total) if self.total else 0.0

    @property
    def files(self) -> list[dict[str, Any]]:
        """`name`, `rows`, `bytes`, `sha256` of each file of rows; `split` too."""
        found: list[dict[str, Any]] = self.manifest.get("files", [])
        return found
