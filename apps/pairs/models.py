from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from apps.accounts.models import user_column
from apps.accounts.shared_columns import MayBeStale
from apps.policies.redacted_fields import RedactedCharField
from apps.rollouts.models import Collection, Rollout
from apps.tasks.fenced_jobs import FencedJob
from apps.tasks.models import Task


class PairSet(MayBeStale, FencedJob):
    """Preference pairs that one rule built from one or more collections.

    Sets with the same name are versions of each other. Once a set is ready, only decisions about its pairs can change.
    """

    class State(models.TextChoices):
        QUEUED = "queued", "queued"
        MAKING = "making", "building"
        READY = "ready", "ready"
        FAILED = "failed", "failed"
        CANCELLED = "cancelled", "cancelled"

    name = RedactedCharField(max_length=120, blank=True, help_text="Sets with the same name are versions")
    version = models.PositiveIntegerField(default=1)
    collection = models.ForeignKey(Collection, on_delete=models.CASCADE, related_name="pair_sets")
    further = models.ManyToManyField(
        Collection, through="PairSource", related_name="further_pair_sets", help_text="Additional collections"
    )
    rule = models.JSONField(default=dict, help_text="Fields of apps.gym.pairs.pair_rule.Rule")
    rule_digest = models.CharField(max_length=64, blank=True, help_text="SHA-256 of the rule's settings")
    margin = models.FloatField(default=0.1, help_text="chosen reward − rejected reward is at least this")
    min_chosen_reward = models.FloatField(null=True, blank=True, help_text="Minimum reward of the chosen rollout")
    keeps_decisions = models.BooleanField(default=True, help_text="Keep decisions of the previous version")
    state = models.CharField(max_length=16, choices=State.choices, default=State.READY)
    total = models.PositiveIntegerField(default=0, help_text="Number of rollouts to check")
    considered = models.PositiveIntegerField(default=0, help_text="Number checked so far")
    pair_count = models.PositiveIntegerField(default=0)
    counts = models.JSONField(default=dict, help_text="Number of groups by outcome")
    excluded = models.JSONField(default=dict, help_text="Unused rollouts by reason")
    sources = models.JSONField(default=dict, help_text="Number of pairs by source")
    created_by = user_column("pair_sets")
    touched_at = models.DateTimeField(default=timezone.now, help_text="Last heartbeat of the worker that builds it")
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["name", "version"], condition=~Q(name=""), name="pair_set_version_once"),
            models.CheckConstraint(
                condition=Q(state__in=["queued", "making", "ready", "failed", "cancelled"]),
                name="pair_set_state_is_known",
            ),
        ]

    def __str__(self) -> str:
        return f"pair set #{self.pk} of {self.collection.label}"

    @property
    def title(self) -> str:
        return f"{self.name} v{self.version}" if self.name else f"Pair set #{self.pk}"

    @property
    def level(self) -> str:
        """Return the level of the rule: `trajectory` (whole attempts) or `step`."""
        return str(self.rule.get("level", "trajectory"))

    @property
    def share(self) -> float:
        """Return the progress from 0 to 1."""
        return min(1.0, self.considered / self.total) if self.total else 0.0


class PairSource(models.Model):
    """An additional collection of a pair set. It cannot be deleted while the set exists."""

    pair_set = models.ForeignKey(PairSet, on_delete=models.CASCADE, related_name="+")
    collection = models.ForeignKey(Collection, on_delete=models.PROTECT, related_name="pair_sources")

    class Meta:
        # Django's message about a collection that cannot be deleted counts these rows. Users know them as pair sets.
        verbose_name = "pair set"
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["pair_set", "collection"], name="pair_source_once")]

    def __str__(self) -> str:
        return f"collection {self.collection_id} in pair set {self.pair_set_id}"


class PreferencePair(MayBeStale):
    """A chosen and a rejected rollout of one task. Rewards and verdicts are copied when the pair is built."""

    class Source(models.TextChoices):
        REWARD = "reward", "reward difference"
        OVERRIDE = "override", "overridden reward"
        VERDICT = "verdict", "human verdict"

    class Status(models.TextChoices):
        PROPOSED = "proposed", "proposed"
        ACCEPTED = "accepted", "accepted"
        REJECTED = "rejected", "rejected"

    pair_set = models.ForeignKey(PairSet, on_delete=models.CASCADE, related_name="pairs")
    task = models.ForeignKey(Task, on_delete=models.PROTECT, related_name="pairs")
    chosen = models.ForeignKey(Rollout, on_delete=models.CASCADE, related_name="pairs_as_chosen")
    rejected = models.ForeignKey(Rollout, on_delete=models.CASCADE, related_name="pairs_as_rejected")
    margin = models.FloatField(null=True, blank=True, help_text="Chosen reward − rejected reward; empty for verdicts")
    source = models.CharField(max_length=16, choices=Source.choices, default=Source.REWARD)
    strength = models.PositiveSmallIntegerField(default=0, help_text="Strength of a verdict: 1 better, 2 much better")
    reviewers = models.PositiveSmallIntegerField(default=0, help_text="Number of reviewers, without adjudicator")
    agreement = models.FloatField(null=True, blank=True, help_text="Share of reviewers who agree")
    adjudicated = models.BooleanField(default=False, help_text="True if the verdict is an adjudication")
    reviews = models.JSONField(default=list, blank=True, help_text="Ids of the reviews behind the verdict")
    turn = models.PositiveIntegerField(null=True, blank=True, help_text="Level step: diverging turn, from 0")
    chosen_reward = models.FloatField(null=True, blank=True, help_text="Rewards used for the pair")
    rejected_reward = models.FloatField(null=True, blank=True)
    verifier_rewards = models.JSONField(default=dict, blank=True, help_text="Verifier rewards of overridden sides")
    chosen_length = models.PositiveIntegerField(default=0, help_text="Characters written by the model")
    rejected_length = models.PositiveIntegerField(default=0)
    same_answer = models.BooleanField(default=False, help_text="Same final answer")
    status = models.CharField(max_length=16, choices=Status.choices, default=Status.PROPOSED)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["pair_set", "chosen", "rejected"], name="pair_once"),
            models.CheckConstraint(condition=~Q(chosen=F("rejected")), name="pair_of_two"),
            # `margin__isnull=False` is required: a check constraint that evaluates to NULL accepts the row.
            models.CheckConstraint(
                condition=Q(source="verdict", margin__isnull=True)
                | (~Q(source="verdict") & Q(margin__isnull=False, margin__gt=0)),
                name="pair_margin_is_of_rewards",
            ),
            models.CheckConstraint(
                condition=Q(source__in=["reward", "override", "verdict"])
                & Q(status__in=["proposed", "accepted", "rejected"]),
                name="pair_words_are_known",
            ),
        ]
        indexes = [
            models.Index(fields=["pair_set", "status", "id"], name="pair_status"),
            models.Index(fields=["pair_set", "task", "id"], name="pair_of_task"),
        ]

    def __str__(self) -> str:
        return f"pair {self.pk}: {self.chosen_id} over {self.rejected_id}"

    @property
    def rewards(self) -> tuple[float | None, float | None]:
        """Return the chosen and the rejected reward that the pair was built from."""
        return self.chosen_reward, self.rejected_reward

    @property
    def agreeing(self) -> int | None:
        """Return the number of reviewers who preferred the chosen rollout.

        None if the pair was built from rewards, or if only an adjudicator decided it.
        """
        return None if self.agreement is None else round(self.agreement * self.reviewers)

    @property
    def length_ratio(self) -> float | None:
        """Return the ratio of the longer to the shorter side; None if a side has no text."""
        if not self.chosen_length or not self.rejected_length:
            return None
        longer, shorter = sorted((self.chosen_length, self.rejected_length), reverse=True)
        return longer / shorter


class PairDecision(models.Model):
    """A user's decision about a pair. All decisions are kept as history."""

    pair = models.ForeignKey(PreferencePair, on_delete=models.CASCADE, related_name="decisions")
    status = models.CharField(max_length=16, choices=PreferencePair.Status.choices)
    reason = RedactedCharField(max_length=500, blank=True)
    user = user_column("pair_decisions")
    carried = models.BooleanField(default=False, help_text="Carried over from the previous version")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"pair {self.pair_id}: {self.status}"
