"""Reviews, submitted and open."""

from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from apps.accounts.stored_json import StoredJSONField
from apps.policies.redacted_fields import RedactedTextField
from apps.reviews.models.queues import Queue, QueueItem, Rubric
from apps.rollouts.models import Rollout

USER_MODEL = settings.AUTH_USER_MODEL


class ReviewQuerySet(models.QuerySet["Review"]):
    def submitted(self) -> "ReviewQuerySet":
        return self.filter(status=Review.Status.SUBMITTED)

    def independent(self) -> "ReviewQuerySet":
        """Return submitted reviews that are neither hidden repeats nor adjudications."""
        return self.submitted().filter(repeat_of__isnull=True, is_adjudication=False)


class Review(models.Model):
    """One user's review of a queue item, or of a rollout outside queues.

    Opening an item creates a review with a `slot` of the item. Until `leased_until` (database clock), no other reviewer
    gets this slot. A lapsed review has lost the reservation but can still be submitted. An adjudication replaces
    earlier adjudications.
    """

    class Status(models.TextChoices):
        OPEN = "open", "open"
        SUBMITTED = "submitted", "submitted"
        SKIPPED = "skipped", "skipped"
        LAPSED = "lapsed", "expired"
        REPLACED = "replaced", "replaced"

    queue = models.ForeignKey(Queue, null=True, blank=True, on_delete=models.CASCADE, related_name="reviews")
    item = models.ForeignKey(QueueItem, null=True, blank=True, on_delete=models.CASCADE, related_name="reviews")
    rollout = models.ForeignKey(
        Rollout, null=True, blank=True, on_delete=models.CASCADE, related_name="reviews", help_text="Of a rubric"
    )
    seq = models.PositiveIntegerField(null=True, blank=True, help_text="Scored step, if any")
    rubric = models.ForeignKey(Rubric, null=True, blank=True, on_delete=models.PROTECT, related_name="reviews")
    reviewer = models.ForeignKey(USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="reviews")
    status = models.CharField(max_length=16, choices=Status.choices, default=Status.OPEN)
    slot = models.PositiveSmallIntegerField(null=True, blank=True, help_text="Index among the reviews of the item")
    repeat_of = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.CASCADE, related_name="repeats", help_text="A hidden repeat"
    )
    is_adjudication = models.BooleanField(default=False)
    saw_votes = models.BooleanField(
        null=True,
        blank=True,
        help_text="Whether an adjudicator had seen reviews, rewards and models; null if unknown",
    )
    could_see_results = models.BooleanField(
        default=False, help_text="The role of the reviewer shows rewards, models and other reviews"
    )

    arrangement = models.JSONField(default=list, help_text="Ids of the rollouts in the order in which they were shown")
    is_swapped = models.BooleanField(default=False, help_text="Sides were swapped: A was the second rollout")
    leased_until = models.DateTimeField(null=True, blank=True)
    draft = StoredJSONField(default=dict, blank=True)
    token = models.CharField(max_length=64, blank=True, default="", help_text="Token of the accepted submission")

    scores = StoredJSONField(default=dict, blank=True, help_text="By the key of the criterion")
    choice = models.CharField(max_length=16, blank=True, default="", help_text="Of a pair, as it was shown")
    ranks = models.JSONField(default=list, blank=True, help_text="In the order shown; 1 is best, ties are equal")
    reasons = models.JSONField(default=list, blank=True)
    note = RedactedTextField(max_length=10_000, blank=True, default="")
    confidence = models.PositiveSmallIntegerField(null=True, blank=True, help_text="1 unsure, 2 rather sure, 3 sure")
    skip_reason = models.CharField(
        max_length=500, blank=True, default="", help_text="Reason of the reviewer for skipping"
    )

    started_at = models.DateTimeField(auto_now_add=True)
    submitted_at = models.DateTimeField(null=True, blank=True)
    skipped_at = models.DateTimeField(null=True, blank=True)
    seconds = models.FloatField(null=True, blank=True, help_text="Seconds from start to submission")

    objects = ReviewQuerySet.as_manager()

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(
                fields=["item", "slot"],
                condition=Q(status__in=["open", "submitted"], slot__isnull=False),
                name="review_slot_once",
            ),
            models.UniqueConstraint(
                fields=["item", "reviewer"],
                condition=Q(repeat_of__isnull=True, is_adjudication=False),
                name="review_item_once",
            ),
            models.UniqueConstraint(fields=["repeat_of"], name="review_repeated_once"),
            models.UniqueConstraint(
                fields=["item"],
                condition=Q(is_adjudication=True, status="submitted"),
                name="review_adjudicated_once",
            ),
            models.CheckConstraint(
                condition=~Q(status="open") | Q(leased_until__isnull=False), name="review_open_is_leased"
            ),
            models.CheckConstraint(
                condition=~Q(status="submitted") | Q(submitted_at__isnull=False), name="review_submitted_says_when"
            ),
            models.CheckConstraint(
                condition=Q(item__isnull=False, queue__isnull=False)
                | Q(item__isnull=True, queue__isnull=True, rollout__isnull=False, rubric__isnull=False),
                name="review_is_about_something",
            ),
            models.CheckConstraint(
                condition=Q(confidence__isnull=True) | Q(confidence__gte=1, confidence__lte=3),
                name="review_confidence_is_known",
            ),
            models.CheckConstraint(
                condition=Q(status__in=["open", "submitted", "skipped", "lapsed", "replaced"])
                & Q(choice__in=["", "a_much", "a", "equal", "both_bad", "b", "b_much"]),
                name="review_status_is_known",
            ),
        ]
        indexes = [models.Index(fields=["queue", "reviewer", "status"], name="review_of_reviewer")]

    def __str__(self) -> str:
        return f"review {self.pk} by {self.reviewer_id} ({self.status})"

    @property
    def is_open(self) -> bool:
        return self.status == self.Status.OPEN

    @property
    def ended_at(self) -> datetime | None:
        """Return when the review was submitted or skipped."""
        return self.submitted_at or self.skipped_at

    @property
    def answers(self) -> dict[str, Any]:
        """Return the parts of the answer that are set, except the note."""
        given = {name: getattr(self, name) for name in ("choice", "ranks", "scores", "reasons", "confidence")}
        return {name: value for name, value in given.items() if value}


class PairVerdict(models.Model):
    """A submitted verdict about two rollouts, whichever sides they were shown on.

    `low` is the rollout with the lower id. A ranking has one row for each pair of rollouts. Resubmitting a review
    replaces its rows.
    """

    class Outcome(models.TextChoices):
        LOW = "low", "the one with the lower id"
        HIGH = "high", "the one with the higher id"
        EQUAL = "equal", "equal"
        BOTH_BAD = "both_bad", "both bad"

    review = models.ForeignKey(Review, on_delete=models.CASCADE, related_name="verdicts")
    low = models.ForeignKey(Rollout, on_delete=models.CASCADE, related_name="verdicts_as_low")
    high = models.ForeignKey(Rollout, on_delete=models.CASCADE, related_name="verdicts_as_high")
    outcome = models.CharField(max_length=16, choices=Outcome.choices)
    strength = models.PositiveSmallIntegerField(default=0, help_text="2 much better, 1 better, 0 neither")

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["review", "low", "high"], name="verdict_once"),
            models.CheckConstraint(condition=Q(low__lt=F("high")), name="verdict_of_two_in_order"),
            models.CheckConstraint(
                condition=Q(outcome__in=["low", "high"], strength__in=[1, 2])
                | Q(outcome__in=["equal", "both_bad"], strength=0),
                name="verdict_has_its_strength",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.low_id} and {self.high_id}: {self.outcome}"
