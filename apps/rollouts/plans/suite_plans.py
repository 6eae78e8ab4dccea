"""Plan a suite: one collection for each of its datasets, with the same settings."""

import hashlib
from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction

from apps.accounts.models import User
from apps.gym.redaction.shortening import cut
from apps.gym.specs import spec_fields
from apps.rollouts.models import Collection
from apps.rollouts.plans.plan_spec import ON_ONE_DATASET, Plan
from apps.rollouts.plans.planning import plan_collection
from apps.rollouts.plans.task_selection import NothingToCollect
from apps.tasks.models import Dataset, Suite

SUITE_OPTIONS = tuple(name for name in spec_fields(Plan) if name not in ON_ONE_DATASET)
"""The options of a plan that apply to all datasets of a suite."""


def plan_suite(
    *, suite: Suite, options: Mapping[str, Any], user: User | None = None, idempotency_key: str | None = None
) -> list[Collection]:
    """Return the planned collections, in the order of the datasets. Each uses the latest version of its dataset.

    Either all are planned or none. A repeated plan with the same key returns the same collections. Raises
    NothingToCollect for a suite without datasets, and the errors of `plan_collection` with the dataset in the message.
    """
    if not suite.datasets:
        raise NothingToCollect(f"The suite {suite.name} has no datasets. Add some.")
    with transaction.atomic():
        return [_plan(suite, dataset, options, user, idempotency_key) for dataset in suite.datasets]


def _plan(
    suite: Suite, dataset: Dataset, options: Mapping[str, Any], user: User | None, idempotency_key: str | None
) -> Collection:
    name = options.get("name") or f"{suite.name} × {options['policy_model'].name}"
    plan = Plan(**{**options, "dataset": dataset, "name": cut(f"{name}: {dataset.name}", 200)})
    # A key for each dataset, because a key belongs to one collection.
    key = hashlib.sha256(f"{idempotency_key}/{dataset.pk}".encode()).hexdigest() if idempotency_key else None
    try:
        return plan_collection(plan, user=user, idempotency_key=key)
    except NothingToCollect as refusal:
        raise NothingToCollect(f"{dataset.slug}: {refusal}") from None
    except ValidationError as wrong:
        told = {field: [f"{dataset.slug}: {text}" for text in texts] for field, texts in wrong.message_dict.items()}
        raise ValidationError(told) from None
