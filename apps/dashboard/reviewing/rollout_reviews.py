"""Annotations of one rollout and the forms to add more, with five queries."""

from dataclasses import dataclass

from apps.dashboard.forms.review_forms import FlagForm, OverrideForm
from apps.reviews.models import Flag, Review, RewardOverride, Rubric
from apps.reviews.reviews.reward_overrides import StandingOverride, read_overrides
from apps.rollouts.models import Rollout

MOST_RUBRICS = 10


@dataclass(frozen=True, slots=True)
class Judgement:
    standing: StandingOverride | None
    replaced: list[RewardOverride]
    """Previous rewards, latest first."""
    flags: list[Flag]
    scores: list[Review]
    rubrics: list[Rubric]
    flag_form: FlagForm
    override_form: OverrideForm


def read_judgement(rollout: Rollout) -> Judgement:
    flags = Flag.objects.filter(rollout=rollout, withdrawn_at__isnull=True).select_related("author")
    ended = RewardOverride.objects.filter(rollout=rollout, ended_at__isnull=False).order_by("-ended_at", "-pk")
    scores = Review.objects.filter(rollout=rollout).submitted().exclude(scores={}).select_related("reviewer")
    return Judgement(
        standing=read_overrides([rollout.pk]).get(rollout.pk),
        replaced=list(ended.select_related("author", "ended_by")),
        flags=list(flags),
        scores=list(scores.filter(repeat_of__isnull=True)),
        rubrics=list(Rubric.objects.order_by("-pk")[:MOST_RUBRICS]),
        flag_form=FlagForm(auto_id="flag_%s"),
        override_form=OverrideForm(auto_id="override_%s"),
    )
