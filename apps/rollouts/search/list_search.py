"""Search in the lists of collections, datasets, models and environments, and orders of collections.

Pages and API use the same.
"""

from typing import TypeVar

from django.db.models import Case, F, Model, Q, QuerySet, When

from apps.environments.models import Environment
from apps.policies.models import PolicyModel
from apps.rollouts.models import Collection
from apps.rollouts.search.keyset_pages import Sort
from apps.tasks.models import Dataset

Row = TypeVar("Row", bound=Model)

_SEARCHED: dict[type[Model], tuple[str, ...]] = {
    Collection: ("name", "dataset__name", "dataset__slug", "policy_model__name", "policy_model__slug", "agent__name"),
    Dataset: ("name", "slug", "description", "environment__name"),
    PolicyModel: ("name", "slug", "model_name", "base_url", "version"),
    Environment: ("name", "slug", "description", "builtin", "base_url"),
}

COLLECTION_ORDERS: dict[str, Sort] = {
    "mean_reward": Sort(Case(When(rewarded__gt=0, then=F("reward_sum") / F("rewarded"))), "sorted_by"),
    "total": Sort(F("total"), "total"),
    "failed": Sort(F("failed"), "failed"),
    "cost": Sort(F("cost"), "cost"),
}
"""Orders of collections besides `id`. `mean_reward`: collections without rewards come last."""


def search_rows(rows: QuerySet[Row], text: str) -> QuerySet[Row]:
    """Return the rows that have every word of the text in a searched field.

    A word `#7` or `7` also finds the collection with that number.
    """
    fields = _SEARCHED[rows.model]
    for word in text.split():
        found = Q()
        for name in fields:
            found |= Q(**{f"{name}__icontains": word})
        number = word.removeprefix("#")
        if rows.model is Collection and number.isascii() and number.isdigit() and len(number) < 19:
            found |= Q(pk=int(number))
        rows = rows.filter(found)
    return rows
