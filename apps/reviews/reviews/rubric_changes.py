"""Save a rubric whose criteria make sense; what has been scored by it is changed no more."""

from django.core.exceptions import ValidationError
from django.db import transaction

from apps.accounts.audit_log import describe, record
from apps.gym.request_refusals import Refusal
from apps.gym.rubric_criteria import find_criteria_problem
from apps.gym.slugs import find_slug_problem
from apps.reviews.models import Rubric


class RubricInUse(Refusal, status=409, code="in-use"):
    """Reviews were made by it, or a queue asks for them: their scores would mean something else."""


def save_rubric(*, rubric: Rubric, user: object) -> Rubric:
    """Create or change one. Raises ValidationError by field, and RubricInUse where its criteria would change."""
    _check(rubric)
    with transaction.atomic():
        stored = Rubric.objects.select_for_update().filter(pk=rubric.pk).first()
        if stored is not None and stored.criteria != rubric.criteria and is_used(stored):
            message = f"“{stored.name}” is used by reviews or queues: make another rubric with other criteria."
            raise RubricInUse(message, "criteria")
        rubric.save()
        action = "rubric.create" if stored is None else "rubric.change"
        record(user=user, action=action, target=rubric.slug, before=describe(stored), after=describe(rubric))
    return rubric


def delete_rubric(*, rubric: Rubric, user: object) -> None:
    """Raises RubricInUse."""
    with transaction.atomic():
        if is_used(rubric):
            raise RubricInUse(f"“{rubric.name}” is used by reviews or queues: it stays.")
        record(user=user, action="rubric.delete", target=rubric.slug, before=describe(rubric))
        rubric.delete()


def is_used(rubric: Rubric) -> bool:
    return rubric.reviews.exists() or rubric.queues.exists()


def _check(rubric: Rubric) -> None:
    errors: dict[str, list[ValidationError]] = {}
    try:
        rubric.full_clean(exclude=["criteria"])
    except ValidationError as wrong:
        errors = {name: list(found) for name, found in wrong.error_dict.items()}
    if rubric._state.adding and (taken := find_slug_problem(rubric.slug)):
        errors.setdefault("slug", [ValidationError(taken)])
    if problem := find_criteria_problem(rubric.criteria):
        errors["criteria"] = [ValidationError(problem)]
    if errors:
        raise ValidationError(errors)
