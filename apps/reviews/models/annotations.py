"""Comments, flags and reward overrides of rollouts, outside review queues."""

from django.conf import settings
from django.db import models
from django.db.models import Q

from apps.accounts.models import user_column
from apps.accounts.shared_columns import Dated
from apps.gym.rewards import MAX_REWARD
from apps.policies.redacted_fields import RedactedCharField, RedactedTextField
from apps.rollouts.models import Rollout

USER_MODEL = settings.AUTH_USER_MODEL


class Comment(Dated):
    """A comment on a rollout, on one of its events, or on quoted text. It may reply to another comment."""

    rollout = models.ForeignKey(Rollout, on_delete=models.CASCADE, related_name="comments")
    seq = models.PositiveIntegerField(null=True, blank=True, help_text="Trace event of the comment, if any")
    quote = RedactedTextField(max_length=2_000, blank=True, default="", help_text="Quoted text of the event")
    start = models.PositiveIntegerField(null=True, blank=True, help_text="Offset of the quote, in characters")
    parent = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="replies",
        help_text="Parent comment",
    )
    author = models.ForeignKey(USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="comments")
    text = RedactedTextField(max_length=10_000)
    resolved_at = models.DateTimeField(null=True, blank=True)
    resolved_by = user_column()

    class Meta:
        ordering = ["id"]
        constraints = [
            models.CheckConstraint(condition=Q(quote="") | Q(seq__isnull=False), name="comment_quote_has_an_event"),
        ]

    def __str__(self) -> str:
        return f"comment {self.pk} on rollout {self.rollout_id}"


class Flag(Dated):
    """A problem that a user found in a rollout or step. Kinds are fixed, so that flags can be counted."""

    class Kind(models.TextChoices):
        VERIFIER_WRONG = "verifier_wrong", "verifier wrong"
        REWARD_HACKED = "reward_hacked", "reward hacked"
        WRONG_TOOL = "wrong_tool", "wrong tool"
        HALLUCINATED = "hallucinated", "hallucinated"
        BAD_TASK = "bad_task", "bad task"
        UNSAFE = "unsafe", "unsafe"
        OTHER = "other", "other"

    rollout = models.ForeignKey(Rollout, on_delete=models.CASCADE, related_name="review_flags")
    seq = models.PositiveIntegerField(null=True, blank=True, help_text="Flagged trace event, if any")
    kind = models.CharField(max_length=32, choices=Kind.choices)
    note = RedactedCharField(max_length=1_000, blank=True, default="")
    author = models.ForeignKey(USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="review_flags")
    withdrawn_at = models.DateTimeField(null=True, blank=True)
    withdrawn_by = user_column()

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(
                fields=["rollout", "kind", "author"],
                condition=Q(withdrawn_at__isnull=True, seq__isnull=True),
                name="flag_once",
            ),
            models.UniqueConstraint(
                fields=["rollout", "kind", "author", "seq"],
                condition=Q(withdrawn_at__isnull=True, seq__isnull=False),
                name="flag_once_a_step",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} on rollout {self.rollout_id}"


class RewardOverride(Dated):
    """A reward set by a person. The verifier's reward stays on the rollout.

    The active override has no `ended_at`. Replaced and withdrawn overrides are kept as history.
    """

    class End(models.TextChoices):
        REPLACED = "replaced", "replaced"
        WITHDRAWN = "withdrawn", "withdrawn"

    rollout = models.ForeignKey(Rollout, on_delete=models.CASCADE, related_name="reward_overrides")
    reward = models.FloatField()
    original_reward = models.FloatField(null=True, help_text="Reward of the verifier at that time")
    reason = models.CharField(max_length=2_000)
    author = models.ForeignKey(USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="reward_overrides")
    ended_at = models.DateTimeField(null=True, blank=True)
    ended_by = user_column()
    ended_how = models.CharField(max_length=16, choices=End.choices, blank=True, default="")

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["rollout"], condition=Q(ended_at__isnull=True), name="override_stands_once"
            ),
            models.CheckConstraint(
                condition=Q(reward__gte=-MAX_REWARD, reward__lte=MAX_REWARD), name="override_reward_is_finite"
            ),
            models.CheckConstraint(
                condition=Q(ended_at__isnull=True, ended_how="")
                | Q(ended_at__isnull=False, ended_how__in=["replaced", "withdrawn"]),
                name="override_ended_says_how",
            ),
        ]

    def __str__(self) -> str:
        return f"reward {self.reward} instead of {self.original_reward} for rollout {self.rollout_id}"
