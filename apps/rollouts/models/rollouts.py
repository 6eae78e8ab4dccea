"""Rollouts, whose rows are the queue, and the events of their attempts."""

from typing import Any

import orjson
from django.db import models
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Cast

from apps.accounts.stored_json import StoredJSONField
from apps.gym.outcomes import ERROR_KINDS, MAX_MASK, STOP_REASONS, find_outcome
from apps.gym.rewards import MAX_REWARD
from apps.gym.setup_notices import MAX_NOTICES, Notice, read_notices
from apps.gym.traces.events import TraceUnion, decode_event
from apps.gym.traces.graph import TraceGraph
from apps.gym.wires.pricing import known_cost
from apps.rollouts.models.collections import Collection
from apps.rollouts.trace_payloads import PayloadField
from apps.tasks.models import StoredImage, Task
from apps.tasks.parent_spans import span
from apps.tasks.stored_images import with_images

ALL_TOKENS = Cast("input_tokens", models.BigIntegerField()) + F("output_tokens")
"""Input plus output tokens. Cast to 64 bits, because the sum of two 32-bit columns may overflow."""
HAS_ENDED = Q(finished_at__isnull=False)
UNUSUAL_STOP = ~Q(stop_reason="") & ~Q(stop_reason="answered")
"""Rollouts that stopped, but not because the model answered."""


class RolloutQuerySet(models.QuerySet["Rollout"]):
    def completed(self) -> "RolloutQuerySet":
        return self.filter(status=Rollout.Status.COMPLETED)

    def rewarded(self) -> "RolloutQuerySet":
        """Return rollouts with a reward; all of them are completed.

        An extra filter on status would keep the database from using the index on rewards.
        """
        return self.filter(reward__isnull=False)

    def lacking_usage(self) -> "RolloutQuerySet":
        """Return rollouts for which at least one reply has no token counts."""
        return self.filter(calls_without_usage__gt=0)

    def run_by(self, worker_id: int) -> "RolloutQuerySet":
        """Return rollouts running on this worker. Filtering by status lets the database use the lease index."""
        return self.filter(status=Rollout.Status.RUNNING, lease=worker_id)

    def of_collections(self, collections: QuerySet[Collection], *, version: str = "") -> "RolloutQuerySet":
        """Return rollouts of these collections, ordered by id. `version` selects those of one model version."""
        if version:
            # Also limits the ids to those between the first and the last rollout of the version.
            return span(self, "collection_id", collections, model_version=version).filter(model_version=version)
        return span(self, "collection_id", collections)

    def of_collection(self, collection_id: int) -> "RolloutQuerySet":
        return self.of_collections(Collection.objects.filter(pk=collection_id))


class Rollout(models.Model):
    """One run of an agent on a task, in one or more attempts.

    The rows are the queue: `queued` rows are claimed under a worker's lease.
    """

    class Status(models.TextChoices):
        QUEUED = "queued", "queued"
        RUNNING = "running", "running"
        COMPLETED = "completed", "completed"
        FAILED = "failed", "failed"
        CANCELLED = "cancelled", "cancelled"

    collection = models.ForeignKey(
        Collection,
        on_delete=models.CASCADE,
        related_name="rollouts",
        db_index=False,  # `rollout_page` begins with it
    )
    task = models.ForeignKey(Task, on_delete=models.PROTECT, related_name="rollouts")
    repeat = models.PositiveIntegerField(help_text="Repeat number, from 0")
    seed = models.PositiveBigIntegerField(default=0)
    status = models.CharField(max_length=16, choices=Status.choices, default=Status.QUEUED)
    attempt = models.PositiveSmallIntegerField(default=0, help_text="Number of claims; with `lease`, a fencing token")
    failures = models.PositiveSmallIntegerField(default=0, help_text="Counted failed attempts")
    lost = models.PositiveSmallIntegerField(default=0, help_text="Number of workers lost while running it")
    # Not a foreign key: it is only compared, as a fencing token. This saves an index on a table with many writes.
    lease = models.BigIntegerField(null=True, blank=True, help_text="The worker that runs it")

    model_version = models.CharField(max_length=200, blank=True, help_text="Version of the policy model at the start")
    reward = models.FloatField(null=True, blank=True)
    components = StoredJSONField(default=dict, blank=True)
    stop_reason = models.CharField(max_length=32, blank=True)
    masked = models.CharField(
        max_length=MAX_MASK, blank=True, help_text="Why the verifier masked it: its reward is no valid measurement"
    )
    ambiguous_path = models.BooleanField(
        default=False, help_text="No captured call surely wrote the agent's answer: the main path may be another one"
    )
    notices = models.CharField(
        max_length=MAX_NOTICES, blank=True, default="", help_text="Names of its set-up notices, separated by spaces"
    )
    error_kind = models.CharField(max_length=32, blank=True)
    error_message = models.TextField(blank=True)
    turns = models.PositiveIntegerField(default=0)
    tool_calls = models.PositiveIntegerField(default=0)
    tool_errors = models.PositiveIntegerField(default=0)
    input_tokens = models.PositiveIntegerField(default=0)
    output_tokens = models.PositiveIntegerField(default=0)
    judge_calls = models.PositiveIntegerField(default=0, help_text="Calls of the judge model")
    judge_tokens = models.PositiveIntegerField(default=0, help_text="Input and output tokens of the judge model")
    calls_without_usage = models.PositiveIntegerField(
        default=0, help_text="Replies without token counts; limits and cost leave them out"
    )
    retried_calls = models.PositiveIntegerField(
        default=0, db_default=0, help_text="Calls of the policy model and the judge that needed more than one try"
    )
    sampled_tokens = models.PositiveIntegerField(default=0, help_text="Captured tokens that the model sampled")
    trainable_tokens = models.PositiveIntegerField(
        default=0, help_text="Of these, the ones that no rule leaves out of the loss"
    )
    cost = models.FloatField(default=0.0, help_text="USD at the prices of policy model and judge")
    duration = models.FloatField(default=0.0, help_text="Duration of the attempt in seconds")
    model_time = models.FloatField(default=0.0, help_text="Seconds in calls of the policy model, retries included")
    tool_time = models.FloatField(default=0.0, help_text="Seconds in tool calls; parallel calls are added")
    verify_time = models.FloatField(default=0.0, help_text="Seconds of verification, judges included")
    tools = models.JSONField(default=dict, blank=True, help_text="By tool: calls, errors, seconds")
    answer = models.CharField(max_length=200, blank=True, help_text="Normalised final answer")
    redactions = models.JSONField(default=dict, blank=True, help_text="Number of redacted credentials by kind")
    flagged = models.BooleanField(default=False, help_text="Redacted and not reviewed")
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    objects = RolloutQuerySet.as_manager()

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["collection", "task", "repeat"], name="rollout_once"),
            models.CheckConstraint(
                condition=Q(reward__isnull=True) | Q(status="completed"),
                name="rollout_reward_means_completed",
            ),
            models.CheckConstraint(
                condition=Q(masked="") | Q(reward__isnull=True, status="completed"), name="rollout_masked_has_no_reward"
            ),
            models.CheckConstraint(
                condition=(Q(status="failed") & ~Q(error_kind="")) | (~Q(status="failed") & Q(error_kind="")),
                name="rollout_failed_has_a_kind",
            ),
            models.CheckConstraint(
                condition=~Q(status="completed") | ~Q(stop_reason=""),
                name="rollout_completed_has_a_stop_reason",
            ),
            models.CheckConstraint(
                condition=Q(status="running", lease__isnull=False) | (~Q(status="running") & Q(lease__isnull=True)),
                name="rollout_running_has_a_lease",
            ),
            models.CheckConstraint(
                condition=Q(status__in=["queued", "running", "completed", "failed", "cancelled"])
                & Q(error_kind__in=["", *ERROR_KINDS])
                & Q(stop_reason__in=["", *STOP_REASONS]),
                name="rollout_status_is_known",
            ),
            models.CheckConstraint(
                condition=Q(reward__isnull=True) | Q(reward__gte=-MAX_REWARD, reward__lte=MAX_REWARD),
                name="rollout_reward_is_finite",
            ),
            models.CheckConstraint(
                condition=~Q(status__in=["completed", "failed"]) | Q(attempt__gte=1, finished_at__isnull=False),
                name="rollout_ended_was_attempted",
            ),
        ]
        indexes = [
            models.Index(fields=["collection", "lost", "id"], condition=Q(status="queued"), name="rollout_queue"),
            models.Index(fields=["lease"], condition=Q(status="running"), name="rollout_leases"),
            models.Index(fields=["collection"], condition=Q(flagged=True), name="rollout_flagged"),
            models.Index(fields=["collection"], condition=~Q(masked=""), name="rollout_masked"),
            models.Index(fields=["collection"], condition=Q(ambiguous_path=True), name="rollout_ambiguous_path"),
            models.Index(fields=["collection", "id"], condition=~Q(notices=""), name="rollout_notices"),
            models.Index(fields=["collection"], condition=Q(calls_without_usage__gt=0), name="rollout_without_usage"),
            # For pages of lists, ordered by id or reward. Indexes leave out the most common value of a column, so that
            # most rollouts need few index entries.
            models.Index(fields=["collection", "id"], name="rollout_page"),
            models.Index(fields=["reward", "id"], condition=Q(reward__isnull=False), name="rollout_best"),
            models.Index(
                fields=["collection", "reward", "id"], condition=Q(reward__isnull=False), name="rollout_best_of"
            ),
            models.Index(fields=["status", "id"], condition=~Q(status="completed"), name="rollout_status"),
            models.Index(
                fields=["collection", "status", "id"], condition=~Q(status="completed"), name="rollout_status_of"
            ),
            models.Index(fields=["error_kind", "id"], condition=~Q(error_kind=""), name="rollout_error"),
            models.Index(
                fields=["collection", "error_kind", "id"], condition=~Q(error_kind=""), name="rollout_error_of"
            ),
            models.Index(fields=["stop_reason", "id"], condition=UNUSUAL_STOP, name="rollout_stop"),
            models.Index(fields=["collection", "stop_reason", "id"], condition=UNUSUAL_STOP, name="rollout_stop_of"),
            models.Index(fields=["model_version", "id"], condition=~Q(model_version=""), name="rollout_version"),
            models.Index(
                fields=["collection", "model_version", "id"], condition=~Q(model_version=""), name="rollout_version_of"
            ),
            # Sort orders and filters by these numbers, also within a collection.
            models.Index(fields=["turns", "id"], condition=HAS_ENDED, name="rollout_by_turns"),
            models.Index(fields=["tool_calls", "id"], condition=HAS_ENDED, name="rollout_by_calls"),
            models.Index(fields=["duration", "id"], condition=HAS_ENDED, name="rollout_by_duration"),
            models.Index(fields=["cost", "id"], condition=HAS_ENDED, name="rollout_by_cost"),
            models.Index(ALL_TOKENS, F("id"), condition=HAS_ENDED, name="rollout_by_tokens"),
        ]

    def __str__(self) -> str:
        return f"rollout {self.pk} ({self.status})"

    @property
    def outcome(self) -> str:
        """Return the name of the outcome (apps.gym.outcomes), empty until the rollout has ended."""
        columns = {"stop_reason": self.stop_reason, "error_kind": self.error_kind, "masked": self.masked}
        found = find_outcome(status=self.status, **columns)
        return found.name if found else ""

    @property
    def known_cost(self) -> float | None:
        """Return the cost, or None if tokens were used and no model had prices."""
        tokens = self.input_tokens + self.output_tokens + self.judge_tokens
        return known_cost(self.cost, tokens, is_free=self.collection.policy_model.is_scripted)

    @property
    def notice_names(self) -> list[str]:
        return self.notices.split()

    @property
    def setup_notices(self) -> list[Notice]:
        return read_notices(self.notices, self.collection.policy_model.wire)

    @property
    def repeat_number(self) -> int:
        """Repeat number as shown to users, from 1. `repeat` counts from 0."""
        return self.repeat + 1

    def trace(self, *, tokens: bool = False) -> list[TraceUnion]:
        """Return the events on the main path of the latest attempt, with images. `tokens` as in `graph`."""
        return self.graph(tokens=tokens, images=True).main

    def graph(self, *, attempt: int | None = None, tokens: bool = False, images: bool = False) -> TraceGraph:
        """Return the graph of an attempt, by default the latest.

        `tokens` adds token IDs and logprobs to model calls. `images` replaces image references by the images.
        """
        columns = ("payload", "tokens") if tokens else ("payload",)
        number = self.attempt if attempt is None else attempt
        rows = self.events.filter(attempt=number).order_by("seq").values_list("seq", *columns)
        read_images = with_images if images else str
        read = [(seq, decode_event(read_images(payload), *packed)) for seq, payload, *packed in rows]
        return TraceGraph([event for _, event in read], [seq for seq, _ in read])


class TraceEvent(models.Model):
    """One event of an attempt, appended while it runs. `payload` is the JSON of an apps.gym.traces.events struct."""

    pk = models.CompositePrimaryKey("rollout_id", "attempt", "seq")
    rollout = models.ForeignKey(Rollout, on_delete=models.CASCADE, related_name="events", db_index=False)
    attempt = models.PositiveSmallIntegerField()
    seq = models.PositiveIntegerField()
    kind = models.CharField(max_length=32)
    payload = PayloadField()
    tokens = models.BinaryField(null=True, help_text="Token IDs and logprobs of a model call, packed")

    class Meta:
        ordering = ["attempt", "seq"]

    def __str__(self) -> str:
        return f"{self.kind} #{self.seq}"

    @property
    def event(self) -> TraceUnion:
        return decode_event(self.payload)

    @property
    def fields(self) -> dict[str, Any]:
        """Return the payload as a dict, without its struct."""
        parsed: dict[str, Any] = orjson.loads(self.payload)
        return parsed


class TraceImage(models.Model):
    """An image that traces of a collection refer to."""

    collection = models.ForeignKey(Collection, on_delete=models.CASCADE, related_name="+", db_index=False)
    image = models.ForeignKey(StoredImage, on_delete=models.PROTECT, related_name="+")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["collection", "image"], name="trace_image_once")]

    def __str__(self) -> str:
        return f"image {self.image_id} of collection {self.collection_id}"
