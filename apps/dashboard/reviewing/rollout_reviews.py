"""Annotations of one rollout and the forms to add more, with five queries."""

from typing import Any

from apps.dashboard.forms.review_forms import FlagForm, OverrideForm
from apps.reviews.models import Flag, Review, RewardOverride, Rubric
from apps.reviews.reviews.reward_overrides import read_overrides
from apps.rollouts.models import Rollout

MOST_RUBRICS = 10


def read_judgement(rollout: Rollout) -> dict[str, Any]:
    """Return the context of the annotations. `replaced` are previous rewards, latest first."""
    flags = Flag.objects.filter(rollout=rollout, withdrawn_at__isnull=True).select_related("author")
    ended = RewardOverride.objects.filter(rollout=rollout, ended_at__isnull=False).order_by("-ended_at", "-pk")
    scores = Review.objects.filter(rollout=rollout).submitted().exclude(scores={}).select_related("reviewer")
    return {
        "standing": read_overrides([rollout.pk]).get(rollout.pk),
        "replaced": list(ended.select_related("author", "ended_by")),
        "flags": list(flags),
        "scores": list(scores.filter(repeat_of__isnull=True)),
        "rubrics": list(Rubric.objects.order_by("-pk")[:MOST_RUBRICS]),
        "flag_form": FlagForm(auto_id="flag_%s"),
        "override_form": OverrideForm(auto_id="override_%s"),
    }
