"""Create datasets, and change their names and descriptions."""

from django.core.exceptions import ValidationError
from django.db import transaction

from apps.accounts.audit_log import describe, record
from apps.accounts.models import User
from apps.environments.models import Environment
from apps.gym.slugs import find_slug_problem
from apps.tasks.models import Dataset


def create_dataset(
    *, slug: str, name: str, environment: Environment, description: str = "", user: User | None = None
) -> Dataset:
    """Create a dataset without versions.

    Raise IntegrityError if the slug is taken, and ValidationError for invalid values.
    """
    if problem := find_slug_problem(slug):
        raise ValidationError({"slug": problem})
    with transaction.atomic():
        dataset = Dataset.objects.create(
            slug=slug, name=name, environment=environment, description=description, created_by=user
        )
        record(user=user, action="dataset.create", target=dataset.slug, environment=environment.slug, name=name)
    return dataset


def rename_dataset(
    *, dataset: Dataset, name: str | None = None, description: str | None = None, user: User | None = None
) -> Dataset:
    """Change name or description; None leaves a field unchanged."""
    before = describe(dataset)
    dataset.name = dataset.name if name is None else name
    dataset.description = dataset.description if description is None else description
    with transaction.atomic():
        dataset.save(update_fields=["name", "description"])
        record(user=user, action="dataset.change", target=dataset.slug, before=before, after=describe(dataset))
    return dataset
