"""Plan again what was planned before: an earlier plan's arguments, to be changed where it shall differ."""

from collections.abc import Mapping
from typing import Any

from apps.rollouts.models import Collection
from apps.rollouts.plans.task_selection import CHOSEN
from apps.rollouts.plans.validation import LIMITS

PLANNED = ("dataset", "agent", "policy_model", *CHOSEN, "seed", "sampling", "prompt_template", "resume_from", *LIMITS)


def plan_again(collection: Collection) -> dict[str, Any]:
    """Arguments of plan_collection. Its tasks are those of the version it had; what else it is made of is as it stands
    now. The name is left to be found anew."""
    return {**{name: getattr(collection, name) for name in PLANNED}, "version": collection.version.number}


def plan_rest(collection: Collection, *, only_failed: bool = False) -> dict[str, Any]:
    """The same for what failed, was cancelled or is missing there; of what it resumed itself, too."""
    return {**plan_again(collection), "resume_from": collection, "only_failed": only_failed}


def change_plan(plan: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The plan with what is changed. The version of another dataset, or of what another collection left, is another."""
    changed = {**plan, **changes}
    moved = any(name in changes and changes[name] != plan.get(name) for name in ("dataset", "resume_from"))
    if moved and "version" not in changes:
        changed.pop("version", None)
    return changed
