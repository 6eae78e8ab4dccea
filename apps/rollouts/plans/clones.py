"""Plan a collection again, with changes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from apps.gym.specs import spec_fields
from apps.rollouts.models import Collection
from apps.rollouts.plans.plan_spec import Plan


def plan_again(collection: Collection) -> Plan:
    """Return the plan of a collection on the dataset version it had. The name is left out."""
    stored, plan = collection.snapshot.get("plan", {}), {}
    for name, field in spec_fields(Plan).items():
        if hasattr(collection, name):
            plan[name] = getattr(collection, name)
        elif name in stored:
            value = stored[name]
            plan[name] = field.type.objects.filter(pk=value).first() if field.is_row else value
    return Plan(**{**plan, "version": collection.version.number, "name": ""})


def plan_rest(collection: Collection, *, only_failed: bool = False) -> Plan:
    """Return the plan of the rollouts that failed, were cancelled or are missing in a collection."""
    return replace(plan_again(collection), resume_from=collection, only_failed=only_failed)


def change_plan(plan: Plan, changes: Mapping[str, Any]) -> Plan:
    """Return the plan with changes. With another dataset or earlier collection, the version is dropped."""
    moved = any(name in changes and changes[name] != getattr(plan, name) for name in ("dataset", "resume_from"))
    return replace(plan, **{**({"version": None} if moved else {}), **changes})
