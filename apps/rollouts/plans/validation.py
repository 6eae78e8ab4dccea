"""What a plan of a collection may be: refused by field, before anything is stored."""

from collections.abc import Mapping
from typing import Any

import msgspec
from django.core.exceptions import ValidationError

from apps.gym.storable import find_unstorable
from apps.gym.tasks.prompt_templates import PromptTemplate, find_template_problems
from apps.gym.wires.sampling_values import find_default_problems
from apps.rollouts.models import LARGEST, Collection
from apps.rollouts.plans.task_selection import CHOSEN
from apps.tasks.models import DatasetVersion

MAX_INTEGER = 2**31 - 1
MAX_REPEATS = 10_000
MAX_MARKS = 64
"""Splits or tags that one plan may name."""
LIMITS = ("concurrency", "rollout_timeout", "max_attempts", "max_seconds", "max_tokens", "max_cost", "priority")
"""What a collection's owner may set, at its planning and while it runs."""


def check_limits(limits: dict[str, Any]) -> None:
    """Raises ValidationError by field for a limit that cannot be."""
    _check_range(limits)
    given = Collection(**{name: value for name, value in limits.items() if name in LIMITS})
    others = [field.name for field in Collection._meta.fields if field.name not in limits or field.name not in LIMITS]
    given.clean_fields(exclude=others)


def _check_range(limits: dict[str, Any]) -> None:
    """What a field's own validators let through and the engine cannot count with."""
    errors = {}
    for name in ("concurrency", "max_seconds"):
        if (limits.get(name) or 0) > MAX_INTEGER:
            errors[name] = [f"Ensure this value is less than or equal to {MAX_INTEGER}."]
    for name in ("max_cost", "rollout_timeout"):
        if not abs(limits.get(name) or 0) <= LARGEST:
            errors[name] = ["Give a finite number."]
    if errors:
        raise ValidationError(errors)


def check_plan(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a collection, out of arguments of plan_collection. Raises ValidationError by field."""
    fields = {name: Collection._meta.get_field(name).get_default() for name in (*CHOSEN, *LIMITS)}  # type: ignore[union-attr]
    plan = {**fields, "seed": 0, "resume_from": None, **given}
    for name in ("name", "idempotency_key", "user", "version"):
        plan.pop(name, None)
    plan |= {
        "sampling": plan.get("sampling") or {},
        "split_repeats": dict(plan["split_repeats"] or {}),
        "splits": list(dict.fromkeys(plan["splits"])),
        "tags": list(dict.fromkeys(plan["tags"])),
        "search": plan["search"].strip(),
        "prompt_template": {part: text for part, text in (plan.get("prompt_template") or {}).items() if text},
    }
    _check(plan)
    return plan


def _check(plan: dict[str, Any]) -> None:
    errors: dict[str, Any] = {}
    if problems := find_default_problems(plan["sampling"]):
        errors["sampling"] = problems
    wanted = {plan["policy_model"].worker_group, plan["dataset"].environment.worker_group} - {""}
    if len(wanted) > 1:
        groups = " and ".join(sorted(wanted))
        errors["policy_model"] = [
            f"No worker may run this: the model and the environment belong to different worker groups ({groups})."
        ]
    errors |= _find_choice_problems(plan)
    try:
        check_limits(plan)
    except ValidationError as wrong:
        errors |= wrong.update_error_dict({})
    if errors:
        raise ValidationError(errors)


def _find_choice_problems(plan: dict[str, Any]) -> dict[str, Any]:
    errors: dict[str, Any] = {}
    for name in ("splits", "tags", "split_repeats"):
        if len(plan[name]) > MAX_MARKS or not all(
            isinstance(mark, str) and 0 < len(mark) <= 64 and "\n" not in mark for mark in plan[name]
        ):
            errors[name] = [f"At most {MAX_MARKS} names of 1 to 64 characters."]
    numbers = plan["split_repeats"].values()
    if not all(isinstance(one, int) and not isinstance(one, bool) and 1 <= one <= MAX_REPEATS for one in numbers):
        errors["split_repeats"] = [f"Give each split a whole number from 1 to {MAX_REPEATS:,}."]
    if len(plan["search"]) > 200:
        errors["search"] = ["At most 200 characters."]
    if find_unstorable([plan["search"], *plan["splits"], *plan["tags"], *plan["split_repeats"]]) is not None:
        errors["search"] = ["A split, a tag or the search holds a zero byte or half a surrogate pair."]
    try:
        template = msgspec.convert(plan["prompt_template"], PromptTemplate)
    except msgspec.ValidationError as wrong:
        errors["prompt_template"] = [f"{wrong}. It has the parts system and user, each a text."]
    else:
        if problems := find_template_problems(template):
            errors["prompt_template"] = [f"{part}: {problem}" for part, problem in problems.items()]
        elif find_unstorable(plan["prompt_template"]) is not None:
            errors["prompt_template"] = ["It holds a zero byte or half a surrogate pair."]
    earlier = plan["resume_from"]
    if earlier is None and plan["only_failed"]:
        errors["only_failed"] = ["Name the earlier collection whose failed rollouts are meant."]
    elif earlier is not None and earlier.dataset_id != plan["dataset"].pk:
        errors["resume_from"] = [f"{earlier.label} is of another dataset, {earlier.dataset.slug}."]
    elif earlier is not None and (earlier.is_being_deleted or earlier.version.state != DatasetVersion.State.READY):
        errors["resume_from"] = [f"{earlier.label} or its tasks are being deleted."]
    return errors
