"""Save a rubric with valid criteria. The criteria of a rubric that reviews or queues use cannot change."""

from django.db import transaction

from apps.accounts.audit_log import describe, record
from apps.gym.request_refusals import Refusal
from apps.gym.rubric_criteria import find_criteria_problem
from apps.gym.slugs import find_slug_problem
from apps.policies.row_checks import check_row, save_row
from apps.reviews.models import Rubric


class RubricInUse(Refusal, status=409, code="in-use"):
    """Raised if reviews or queues use the rubric: changing it would change the meaning of their scores."""


def save_rubric(*, rubric: Rubric, user: object) -> Rubric:
    """Create or change a rubric. Raise ValidationError by field, and RubricInUse if its criteria would change."""
    taken = find_slug_problem(rubric.slug) if rubric._state.adding else ""
    of_criteria = find_criteria_problem(rubric.criteria)
    found = {field: [problem] for field, problem in (("slug", taken), ("criteria", of_criteria)) if problem}
    check_row(rubric, found, exclude=["criteria"])
    with transaction.atomic():
        stored = Rubric.objects.select_for_update().filter(pk=rubric.pk).first()
        if stored is not None and stored.criteria != rubric.criteria and is_used(stored):
            message = f"“{stored.name}” is used by reviews or queues. Create a new rubric to change the criteria."
            raise RubricInUse(message, "criteria")
        save_row(rubric, stored, user=user, noun="rubric", target=rubric.slug)
    return rubric


def delete_rubric(*, rubric: Rubric, user: object) -> None:
    """Delete a rubric. Raise RubricInUse."""
    with transaction.atomic():
        if is_used(rubric):
            raise RubricInUse(f"“{rubric.name}” is used by reviews or queues and cannot be deleted.")
        record(user=user, action="rubric.delete", target=rubric.slug, before=describe(rubric))
        rubric.delete()


def is_used(rubric: Rubric) -> bool:
    return rubric.reviews.exists() or rubric.queues.exists()
