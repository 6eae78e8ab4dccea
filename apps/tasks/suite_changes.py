"""Save and delete suites of datasets."""

from django.db import transaction

from apps.accounts.audit_log import describe, record
from apps.gym.slugs import find_slug_problem
from apps.policies.row_checks import check_row
from apps.tasks.models import Suite, SuiteDataset

MAX_DATASETS = 20
"""Maximum datasets of a suite: the model matrix shows as many columns."""


def save_suite(*, suite: Suite, user: object) -> Suite:
    """Create or change a suite with its datasets. Raise ValidationError by field."""
    stored = Suite.objects.filter(pk=suite.pk).first()
    datasets = suite.datasets
    taken = find_slug_problem(suite.slug) if stored is None else ""
    problems = {"slug": [taken] if taken else [], "datasets": find_problems([one.slug for one in datasets])}
    check_row(suite, {field: found for field, found in problems.items() if found})
    before = _describe(stored)
    with transaction.atomic():
        suite.save()
        suite.entries.all().delete()
        SuiteDataset.objects.bulk_create(
            SuiteDataset(suite=suite, dataset=dataset, position=position) for position, dataset in enumerate(datasets)
        )
        action = "suite.create" if stored is None else "suite.change"
        record(user=user, action=action, target=suite.slug, before=before, after=_describe(suite))
    return suite


def delete_suite(*, suite: Suite, user: object) -> None:
    """Delete a suite. Its datasets and their collections stay."""
    with transaction.atomic():
        record(user=user, action="suite.delete", target=suite.slug, before=_describe(suite))
        suite.delete()


def find_problems(slugs: list[str]) -> list[str]:
    """Return the problems of a list of datasets."""
    if not slugs:
        return ["Give at least one dataset."]
    if len(slugs) > MAX_DATASETS:
        return [f"Give at most {MAX_DATASETS} datasets."]
    repeated = next((slug for slug in slugs if slugs.count(slug) > 1), None)
    return [f"{repeated} is listed twice. Remove one."] if repeated else []


def _describe(suite: Suite | None) -> dict[str, object]:
    return {**describe(suite), "datasets": [one.slug for one in suite.datasets]} if suite else {}
