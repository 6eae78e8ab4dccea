"""Experiment trackers, runs linked to collections, their points, and pushes of exports to the Hugging Face Hub."""

import uuid

from django.core.validators import MaxValueValidator
from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from apps.accounts.models import user_column
from apps.accounts.shared_columns import Dated
from apps.exports.models import Export
from apps.rollouts.models import Collection
from apps.tracking.wandb_servers import WANDB_ADDRESS

MAX_SAMPLES = 200


class Tracker(Dated):
    """An experiment tracker: its kind, URL, credential and default project. Runs are sent to it."""

    class Kind(models.TextChoices):
        MLFLOW = "mlflow", "MLflow"
        WANDB = "wandb", "Weights & Biases"
        TRACKIO = "trackio", "Trackio"
        TENSORBOARD = "tensorboard", "TensorBoard"

    name = models.CharField(max_length=100, unique=True, error_messages={"unique": "This name is already used."})
    kind = models.CharField(max_length=16, choices=Kind.choices, default=Kind.MLFLOW)
    address = models.CharField(
        max_length=500, blank=True, help_text="URL of its server. Leave empty to write local files"
    )
    project = models.CharField(max_length=100, default="gymweb", help_text="Default project or experiment of new runs")
    secret_encrypted = models.TextField(blank=True, editable=False)
    created_by = user_column(editable=False)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(
                condition=Q(kind__in=["wandb", "trackio"])
                | (Q(kind="mlflow") & ~Q(address=""))
                | Q(kind="tensorboard", address="", secret_encrypted=""),
                name="tracker_has_what_its_kind_needs",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def has_secret(self) -> bool:
        return bool(self.secret_encrypted)

    @property
    def shown_address(self) -> str:
        """Return the URL of its server, or an empty text for local files."""
        return self.address or (WANDB_ADDRESS if self.kind == self.Kind.WANDB and self.has_secret else "")


class Sent(models.Model):
    """Columns of a row that a worker sends to another server, with retries.

    A worker claims a row by moving `next_attempt_at` to the end of its lease and counting the attempt.
    """

    attempts = models.PositiveIntegerField(default=0, editable=False, help_text="Number of claims, a fencing token")
    next_attempt_at = models.DateTimeField(default=timezone.now, editable=False)
    failing_since = models.DateTimeField(null=True, blank=True, editable=False)
    error = models.CharField(max_length=500, blank=True, help_text="Error of the last attempt")

    class Meta:
        abstract = True


class TrackedRun(Dated, Sent):
    """The run of a collection at a tracker.

    Points are stored before they are sent: `recorded` counts the stored points, `sent` the points that the
    tracker has confirmed. `key` identifies the run at the tracker, so that a repeated attempt finds it.
    """

    class State(models.TextChoices):
        ACTIVE = "active", "active"
        FINISHED = "finished", "finished"
        STOPPED = "stopped", "stopped"
        FAILED = "failed", "failed"

    key = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    tracker = models.ForeignKey(Tracker, on_delete=models.CASCADE, related_name="runs", db_index=False)
    collection = models.ForeignKey(Collection, on_delete=models.CASCADE, related_name="tracked_runs")
    project = models.CharField(max_length=100, help_text="Project or experiment at the tracker")
    name = models.CharField(max_length=200, help_text="Name of the run at the tracker")
    samples = models.PositiveSmallIntegerField(
        default=0, validators=[MaxValueValidator(MAX_SAMPLES)], help_text="Number of sample rollouts in its table"
    )
    # As of the link, because MLflow refuses a setting with another value.
    config = models.JSONField(default=dict, editable=False, help_text="Settings of the collection")
    state = models.CharField(max_length=16, choices=State.choices, default=State.ACTIVE)
    run_id = models.CharField(max_length=100, blank=True, help_text="ID of the run at the tracker")
    url = models.CharField(
        max_length=1000, blank=True, help_text="URL of the run, or path of its files relative to GYMWEB_VAR"
    )
    recorded = models.PositiveIntegerField(default=0, help_text="Number of stored points")
    sent = models.PositiveIntegerField(default=0, help_text="Number of points that the tracker has confirmed")
    is_complete = models.BooleanField(default=False, help_text="The collection has finished, and all points are stored")
    measure_at = models.DateTimeField(default=timezone.now, editable=False, help_text="Next measurement")
    last_sent_at = models.DateTimeField(null=True, blank=True)
    created_by = user_column(editable=False)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["tracker", "collection"], name="run_of_a_collection_once_per_tracker"),
            models.CheckConstraint(condition=Q(sent__lte=F("recorded")), name="run_sends_only_recorded_points"),
            models.CheckConstraint(
                condition=Q(state__in=["active", "finished", "stopped", "failed"]), name="run_state_is_known"
            ),
        ]
        indexes = [
            models.Index(fields=["next_attempt_at"], condition=Q(state="active"), name="run_active"),
        ]

    def __str__(self) -> str:
        return f"{self.name} in {self.tracker}"

    @property
    def shown_state(self) -> str:
        """Return its state, or `retrying` if the last attempt to send it failed."""
        return "retrying" if self.state == self.State.ACTIVE and self.error else self.state

    @property
    def is_linked(self) -> bool:
        """Return True if `url` is the URL of a page, not the path of local files."""
        return self.url.startswith(("http://", "https://"))


class TrackedPoint(models.Model):
    """One point of a run: figures of the collection at `step` finished rollouts, or of a model version.

    For a model version, `version` is its name and `step` its number.
    """

    run = models.ForeignKey(TrackedRun, on_delete=models.CASCADE, related_name="points", db_index=False)
    number = models.PositiveIntegerField()
    step = models.PositiveBigIntegerField()
    version = models.CharField(max_length=200, blank=True)
    of_version = models.BooleanField(default=False)
    values = models.JSONField()
    at = models.DateTimeField()

    class Meta:
        ordering = ["run_id", "number"]
        constraints = [models.UniqueConstraint(fields=["run", "number"], name="point_once")]

    def __str__(self) -> str:
        return f"point {self.number} of run {self.run_id}"


class HubPush(Dated, Sent):
    """A push of an export to the Hugging Face Hub. Its token is deleted when the push has ended."""

    class State(models.TextChoices):
        PENDING = "pending", "pending"
        PUSHED = "pushed", "pushed"
        FAILED = "failed", "failed"

    export = models.ForeignKey(Export, on_delete=models.CASCADE, related_name="hub_pushes")
    repository = models.CharField(max_length=200)
    is_private = models.BooleanField(default=True)
    token_encrypted = models.TextField(blank=True, editable=False)
    state = models.CharField(max_length=16, choices=State.choices, default=State.PENDING)
    url = models.CharField(max_length=1000, blank=True, help_text="URL of the dataset")
    commit = models.CharField(max_length=64, blank=True, help_text="Commit of the files")
    ended_at = models.DateTimeField(null=True, blank=True)
    created_by = user_column(editable=False)

    class Meta:
        verbose_name = "push"
        verbose_name_plural = "pushes"
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(state="pending", ended_at__isnull=True)
                | Q(state__in=["pushed", "failed"], ended_at__isnull=False, token_encrypted=""),
                name="push_keeps_its_token_only_while_pending",
            ),
        ]
        indexes = [
            models.Index(fields=["next_attempt_at"], condition=Q(state="pending"), name="push_pending"),
        ]

    def __str__(self) -> str:
        return f"push of export {self.export_id} to {self.repository}"
