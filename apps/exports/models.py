from typing import Any

import msgspec
from django.db import models
from django.db.models import Q
from django.utils import timezone

from apps.accounts.models import user_column
from apps.accounts.shared_columns import Dated, MayBeStale
from apps.gym.exporters.protocol import Options
from apps.gym.exporters.registry import FORMATS
from apps.gym.exporters.rendered_messages import find_unchecked
from apps.pairs.models import PairSet
from apps.rollouts.models import Collection
from apps.tasks.fenced_jobs import FencedJob


class Encoding(models.TextChoices):
    """File encodings. Each exporter lists the ones it supports."""

    JSONL = "jsonl", "JSON lines"
    JSONL_GZ = "jsonl.gz", "JSON lines, gzip"
    PARQUET = "parquet", "Parquet"


class Export(MayBeStale, FencedJob):
    """An export for a trainer: a folder with a row file per split, a dataset card and a manifest.

    `bytes` and `sha256` describe the first row file; `manifest` describes all files. The exporters, not this table,
    define which values of `format`, `filters` and `options` are valid.
    """

    class State(models.TextChoices):
        QUEUED = "queued", "queued"
        WRITING = "writing", "writing"
        READY = "ready", "ready"
        FAILED = "failed", "failed"
        CANCELLED = "cancelled", "cancelled"

    format = models.CharField(max_length=32, help_text="Slug of an export format")
    encoding = models.CharField(max_length=16, choices=Encoding.choices, default=Encoding.JSONL)
    collection = models.ForeignKey(Collection, on_delete=models.PROTECT, related_name="exports")
    pair_set = models.ForeignKey(PairSet, null=True, blank=True, on_delete=models.PROTECT, related_name="exports")
    filters = models.JSONField(default=dict, blank=True, help_text='e.g. {"min_reward": 0.7}')
    options = models.JSONField(default=dict, blank=True, help_text='Row options, e.g. {"reasoning": "inline"}')
    validation_share = models.FloatField(default=0.0, help_text="Share of the prompts in the validation file")
    split_seed = models.BigIntegerField(default=0)
    mask_credentials = models.BooleanField(
        default=False, db_default=False, help_text="Mask suspected credentials in all rows"
    )
    template = models.JSONField(
        default=dict, db_default={}, blank=True, help_text="Chat template to check; empty for no check"
    )
    state = models.CharField(max_length=16, choices=State.choices, default=State.QUEUED)
    path = models.CharField(max_length=500, blank=True, help_text="Folder or file")
    total = models.PositiveIntegerField(default=0, help_text="Rollouts, pairs or tasks to check")
    considered = models.PositiveIntegerField(default=0, help_text="Number checked so far")
    rows = models.PositiveIntegerField(default=0)
    bytes = models.BigIntegerField(default=0)
    sha256 = models.CharField(max_length=64, blank=True)
    manifest = models.JSONField(default=dict)
    created_by = user_column("exports")
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
        """Return the title of the format, or the slug if the format no longer exists."""
        return FORMATS[self.format].title if self.format in FORMATS else self.format

    @property
    def is_empty(self) -> bool:
        """Return True if no rows are left after filtering, so that there is no row file."""
        return self.state == self.State.READY and not self.rows

    @property
    def not_checked(self) -> str:
        """Return which content of the rows no template check covers; empty if it covers all."""
        format = FORMATS.get(self.format)
        return find_unchecked(format, msgspec.convert(self.options, Options)) if format else ""

    @property
    def share(self) -> float:
        """Return the progress from 0 to 1."""
        return min(1.0, self.considered / self.total) if self.total else 0.0

    @property
    def files(self) -> list[dict[str, Any]]:
        """Return `name`, `rows`, `bytes`, `sha256` and `split` of each row file."""
        found: list[dict[str, Any]] = self.manifest.get("files", [])
        return found


class TraceDestination(Dated):
    """An OTLP/HTTP receiver of exported traces. URL and headers are encrypted, because both may contain tokens."""

    name = models.CharField(max_length=100, unique=True, error_messages={"unique": "This name is already used."})
    url_encrypted = models.TextField(editable=False)
    url_hint = models.CharField(max_length=300, editable=False, help_text="The URL without path and query")
    headers_encrypted = models.TextField(blank=True, editable=False)
    header_names = models.JSONField(default=list, editable=False, help_text="Names of the stored headers")
    created_by = user_column(editable=False)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class TraceSend(FencedJob):
    """A job that sends the traces of an export to a destination. If interrupted, it continues with the next trace."""

    class State(models.TextChoices):
        QUEUED = "queued", "queued"
        SENDING = "sending", "sending"
        SENT = "sent", "sent"
        FAILED = "failed", "failed"
        CANCELLED = "cancelled", "cancelled"

    export = models.ForeignKey(Export, on_delete=models.CASCADE, related_name="trace_sends")
    destination = models.ForeignKey(TraceDestination, on_delete=models.CASCADE, related_name="sends")
    state = models.CharField(max_length=16, choices=State.choices, default=State.QUEUED)
    total = models.PositiveIntegerField(default=0, help_text="Traces of the export")
    sent = models.PositiveIntegerField(default=0, help_text="Traces that the receiver got so far")
    spans = models.PositiveIntegerField(default=0, help_text="Spans of these traces")
    rejected_spans = models.PositiveIntegerField(default=0, help_text="Spans that the receiver did not store")
    created_by = user_column()
    touched_at = models.DateTimeField(default=timezone.now, help_text="Last heartbeat")
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["export", "destination"],
                condition=Q(state__in=["queued", "sending"]),
                name="trace_send_once_at_a_time",
            ),
            models.CheckConstraint(
                condition=Q(state__in=["queued", "sending", "sent", "failed", "cancelled"])
                & Q(sent__lte=models.F("total")),
                name="trace_send_state_is_known",
            ),
        ]
        indexes = [
            models.Index(fields=["id"], condition=Q(state__in=["queued", "sending"]), name="trace_send_unfinished")
        ]

    def __str__(self) -> str:
        return f"trace send {self.pk} to {self.destination}"

    @property
    def share(self) -> float:
        """Return the progress from 0 to 1."""
        return min(1.0, self.sent / self.total) if self.total else 0.0
