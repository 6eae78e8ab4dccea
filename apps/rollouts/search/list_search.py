"""Search in the lists of collections, datasets, models, agents and environments, and orders of collections.

Pages and API use the same. The search in exports is in `apps.exports.export_search`.
"""

from collections.abc import Iterable
from typing import TypeVar

from django.db.models import Case, F, Model, Q, QuerySet, When

from apps.agents.models import Agent
from apps.environments.models import Environment
from apps.policies.models import PolicyModel
from apps.rollouts.models import Collection
from apps.rollouts.search.keyset_pages import Sort
from apps.tasks.models import Dataset

Row = TypeVar("Row", bound=Model)

_SEARCHED: dict[type[Model], tuple[str, ...]] = {
    Collection: ("name", "dataset__name", "dataset__slug", "policy_model__name", "policy_model__slug", "agent__name"),
    Agent: ("name", "slug", "system_prompt", "server_url"),
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
        found = match_word(word, fields)
        rows = rows.filter(found | match_number(word) if rows.model is Collection else found)
    return rows


def match_word(word: str, fields: Iterable[str]) -> Q:
    """Return the condition that one of the fields contains the word, in upper or lower case."""
    found = Q()
    for name in fields:
        found |= Q(**{f"{name}__icontains": word})
    return found


def match_number(word: str) -> Q:
    """Return the condition that a word `#7` or `7` is the number of the row."""
    number = word.removeprefix("#")
    is_number = number.isascii() and number.isdigit() and len(number) < 19
    return Q(pk=int(number)) if is_number else Q(pk__in=[])
