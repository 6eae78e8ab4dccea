from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from apps.rollouts.models import Collection, Rollout
from apps.tasks.models import Task


class PairSet(models.Model):
    """The preference pairs that one rule made of one collection; immutable, with the rule kept as provenance."""

    collection = models.ForeignKey(Collection, on_delete=models.CASCADE, related_name="pair_sets")
    margin = models.FloatField(default=0.1, help_text="chosen reward − rejected reward is at least this")
    min_chosen_reward = models.FloatField(null=True, blank=True, help_text="Pair only if the better one is this good")
    pair_count = models.PositiveIntegerField(default=0)
    counts = models.JSONField(default=dict, help_text="Groups by what became of them: paired, or the reason why not")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="pair_sets"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"pair set #{self.pk} of {self.collection.label}"


class PreferencePair(models.Model):
    """Chosen and rejected for the same prompt, with a margin."""

    pair_set = models.ForeignKey(PairSet, on_delete=models.CASCADE, related_name="pairs")
    task = models.ForeignKey(Task, on_delete=models.PROTECT, related_name="pairs")
    chosen = models.ForeignKey(Rollout, on_delete=models.CASCADE, related_name="pairs_as_chosen")
    rejected = models.ForeignKey(Rollout, on_delete=models.CASCADE, related_name="pairs_as_rejected")
    margin = models.FloatField()

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["pair_set", "chosen", "rejected"], name="pair_once"),
            models.CheckConstraint(condition=~Q(chosen=F("rejected")), name="pair_of_two"),
            models.CheckConstraint(condition=Q(margin__gt=0), name="pair_has_a_margin"),
        ]

    def __str__(self) -> str:
        return f"pair {self.pk}: {self.chosen_id} over {self.rejected_id}"


class ExportFormat(models.TextChoices):
    TRL_SFT = "trl_sft", "Demonstrations: TRL conversational SFT"
    TRL_DPO = "trl_dpo", "Preference pairs: TRL conversational DPO"
    NEMO_GYM_ROLLOUTS = "nemo_gym_rollouts", "Scored rollouts: NeMo Gym rollout rows"


class Export(models.Model):
    """One file for a trainer, with its manifest."""

    class State(models.TextChoices):
        QUEUED = "queued", "queued"
        WRITING = "writing", "writing"
        READY = "ready", "ready"
        FAILED = "failed", "failed"

    format = models.CharField(max_length=32, choices=ExportFormat.choices)
    collection = models.ForeignKey(Collection, on_delete=models.PROTECT, related_name="exports")
    pair_set = models.ForeignKey(PairSet, null=True, blank=True, on_delete=models.PROTECT, related_name="exports")
    filters = models.JSONField(default=dict, blank=True, help_text='e.g. {"min_reward": 0.7}')
    state = models.CharField(max_length=16, choices=State.choices, default=State.QUEUED)
    attempt = models.PositiveSmallIntegerField(
        default=0, help_text="Claims so far: the fence that keeps a writer out that was given up for lost"
    )
    path = models.CharField(max_length=500, blank=True)
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
        default=timezone.now, help_text="Last sign of life; a writing export gone quiet is queued again"
    )

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                condition=~Q(format=ExportFormat.TRL_DPO) | Q(pair_set__isnull=False),
                name="dpo_export_has_pairs",
                violation_error_message="A DPO export needs a pair set.",
            ),
            models.CheckConstraint(condition=Q(format__in=ExportFormat.values), name="export_format_known"),
            models.CheckConstraint(
                condition=~Q(state="ready") | (~Q(sha256="") & ~Q(path="")),
                name="export_ready_has_a_file",
            ),
        ]

    def __str__(self) -> str:
        return f"export {self.pk} ({self.format})"
