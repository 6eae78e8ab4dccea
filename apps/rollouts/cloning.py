"""Plan again what was planned before: an earlier plan's arguments, to be changed where it shall differ."""

from typing import Any

from apps.rollouts.models import Collection
from apps.rollouts.planning import CHOSEN, LIMITS

PLANNED = ("dataset", "agent", "policy_model", *CHOSEN, "seed", "sampling", "prompt_template", "resume_from", *LIMITS)


def plan_again(collection: Collection) -> dict[str, Any]:
    """Arguments of plan_collection. What it is made of is as it stands now; the name is left to be found anew."""
    return {name: getattr(collection, name) for name in PLANNED}


def plan_rest(collection: Collection, *, only_failed: bool = False) -> dict[str, Any]:
    """The same for what failed, was cancelled or is missing there; of what it resumed itself, too."""
    return {**plan_again(collection), "resume_from": collection, "only_failed": only_failed}
