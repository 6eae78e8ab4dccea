from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from apps.accounts.job_retries import RetriedJob
from apps.policies.typed_texts import TypedCharField
from apps.rollouts.models import Collection, Rollout
from apps.tasks.models import Task


class PairSet(RetriedJob):
    """The preference pairs that one rule built from one or more collections; sets with the same name are its versions.

    The rule is kept with the set. Once the set is ready, only the decisions of people about its pairs change.
    """

    class State(models.TextChoices):
        QUEUED = "queued", "queued"
        MAKING = "making", "making"
        READY = "ready", "ready"
        FAILED = "failed", "failed"
        CANCELLED = "cancelled", "cancelled"

    name = TypedCharField(max_length=120, blank=True, help_text="Made again under the same name, it is a new version")
    version = models.PositiveIntegerField(default=1)
    collection = models.ForeignKey(Collection, on_delete=models.CASCADE, related_name="pair_sets")
    further = models.ManyToManyField(
        Collection, through="PairSource", related_name="further_pair_sets", help_text="Collections beside the first"
    )
    rule = models.JSONField(default=dict, help_text="As apps.gym.pairs.pair_rule.Rule")
    rule_digest = models.CharField(max_length=64, blank=True, help_text="SHA-256 of the rule's settings")
    margin = models.FloatField(default=0.1, help_text="chosen reward − rejected reward is at least this")
    min_chosen_reward = models.FloatField(null=True, blank=True, help_text="Pair only if the better one is this good")
    keeps_decisions = models.BooleanField(default=True, help_text="Decisions of the version before hold for its pairs")
    state = models.CharField(max_length=16, choices=State.choices, default=State.READY)
    attempt = models.PositiveSmallIntegerField(default=0, help_text="Claims so far: the fence against a lost worker")
    total = models.PositiveIntegerField(default=0, help_text="Rollouts to look at")
    considered = models.PositiveIntegerField(default=0, help_text="Of them, those looked at so far")
    pair_count = models.PositiveIntegerField(default=0)
    counts = models.JSONField(default=dict, help_text="Groups by what became of them: paired, or the reason why not")
    excluded = models.JSONField(default=dict, help_text="Rollouts that were not used, by reason")
    sources = models.JSONField(default=dict, help_text="Pairs by where the preference comes from")
    message = models.CharField(max_length=500, blank=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="pair_sets"
    )
    created_at = models.DateTimeField(auto_now_add=True)
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
        """Whole attempts or single steps. Sets from before rules existed compare whole attempts."""
        return str(self.rule.get("level", "trajectory"))

    @property
    def is_settled(self) -> bool:
        return self.state not in {self.State.QUEUED, self.State.MAKING}

    @property
    def share(self) -> float:
        return min(1.0, self.considered / self.total) if self.total else 0.0


class PairSource(models.Model):
    """A further collection whose rollouts are in a pair set. It cannot be deleted while the set exists."""

    pair_set = models.ForeignKey(PairSet, on_delete=models.CASCADE, related_name="+")
    collection = models.ForeignKey(Collection, on_delete=models.PROTECT, related_name="pair_sources")

    class Meta:
        verbose_name = "pair set"
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["pair_set", "collection"], name="pair_source_once")]

    def __str__(self) -> str:
        return f"collection {self.collection_id} in pair set {self.pair_set_id}"


class PreferencePair(models.Model):
    """A chosen and a rejected rollout of one task, with the reason. Values are those at the time the pair was built."""

    class Source(models.TextChoices):
        REWARD = "reward", "reward gap"
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
    margin = models.FloatField(
        null=True, blank=True, help_text="chosen − rejected, of the rewards that counted; empty where people chose"
    )
    source = models.CharField(max_length=16, choices=Source.choices, default=Source.REWARD)
    strength = models.PositiveSmallIntegerField(default=0, help_text="Of a verdict: 1 is better, 2 is much better")
    reviewers = models.PositiveSmallIntegerField(default=0, help_text="Who judged the two; no adjudicator")
    agreement = models.FloatField(null=True, blank=True, help_text="The share of them that said so")
    adjudicated = models.BooleanField(default=False, help_text="An adjudicator said so, whatever reviewers did")
    reviews = models.JSONField(default=list, blank=True, help_text="Ids of the reviews that the verdict was read in")
    turn = models.PositiveIntegerField(null=True, blank=True, help_text="Of the level step: where the two part, from 0")
    chosen_reward = models.FloatField(null=True, blank=True, help_text="What counted when the pair was made")
    rejected_reward = models.FloatField(null=True, blank=True)
    verifier_rewards = models.JSONField(
        default=dict, blank=True, help_text="Of sides whose reward was overridden: what the verifier gave"
    )
    chosen_length = models.PositiveIntegerField(default=0, help_text="Characters that the model wrote")
    rejected_length = models.PositiveIntegerField(default=0)
    same_answer = models.BooleanField(default=False, help_text="Both came to the same answer")
    status = models.CharField(max_length=16, choices=Status.choices, default=Status.PROPOSED)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["pair_set", "chosen", "rejected"], name="pair_once"),
            models.CheckConstraint(condition=~Q(chosen=F("rejected")), name="pair_of_two"),
            # "is not null" has to be said: a condition that is null lets the row pass.
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
        """The rewards that decided, chosen first. Pairs stored without them use the current rewards."""
        if self.source == self.Source.VERDICT or self.chosen_reward is not None:
            return self.chosen_reward, self.rejected_reward
        return self.chosen.reward, self.rejected.reward

    @property
    def agreeing(self) -> int | None:
        """How many reviewers chose this side; None for pairs by reward and pairs that only an adjudicator decided."""
        return None if self.agreement is None else round(self.agreement * self.reviewers)

    @property
    def length_ratio(self) -> float | None:
        """How many times longer the longer side is; None for pairs from before lengths were stored."""
        if not self.chosen_length or not self.rejected_length:
            return None
        longer, shorter = sorted((self.chosen_length, self.rejected_length), reverse=True)
        return longer / shorter


class PairDecision(models.Model):
    """One decision of a person about a pair. All are kept, as its history."""

    pair = models.ForeignKey(PreferencePair, on_delete=models.CASCADE, related_name="decisions")
    status = models.CharField(max_length=16, choices=PreferencePair.Status.choices)
    reason = TypedCharField(max_length=500, blank=True)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="pair_decisions"
    )
    carried = models.BooleanField(default=False, help_text="Taken over from the version before")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"pair {self.pair_id}: {self.status}"
