"""Find or create the dataset of a command argument."""

from django.core.management.base import CommandError

from apps.environments.models import Environment
from apps.gym.slugs import find_slug_problem
from apps.tasks.dataset_changes import create_dataset
from apps.tasks.models import Dataset


def named_dataset(*, slug: str, name: str, environment: str | None) -> Dataset:
    """Return the dataset with this slug, or create it for the environment. Raise CommandError."""
    dataset = Dataset.objects.select_related("environment").filter(slug=slug).first()
    if dataset:
        if environment not in (None, dataset.environment.slug):
            raise CommandError(f"The dataset {slug} has the environment {dataset.environment.slug}, not {environment}.")
        return dataset
    if environment is None:
        raise CommandError(f"There is no dataset {slug} yet. Give its environment with --environment.")
    found = Environment.objects.filter(slug=environment).first()
    if found is None:
        known = ", ".join(Environment.objects.order_by("slug").values_list("slug", flat=True)) or "none"
        raise CommandError(f"Unknown environment {environment}. Choose one of: {known}.")
    if problem := find_slug_problem(slug):
        raise CommandError(f"{slug}: {problem}")
    return create_dataset(slug=slug, name=name or slug, environment=found)
