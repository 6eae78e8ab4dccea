"""What is kept from a reviewer until they have said what they think; docs/reviews.md has the rule in words.

It is asked at the door of every page, of every action of the API and of every socket. What is not named here is closed:
a route that is new cannot leak.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from apps.accounts.permissions import Permission
from apps.reviews.models import QueueItem
from apps.reviews.queues.hidden_items import find_unsaid
from apps.rollouts.models import Collection, Rollout
from apps.tasks.models import Dataset, Task

OPEN_PERMISSIONS = frozenset({Permission.PUBLIC, Permission.OWN_ACCOUNT, Permission.REVIEW})
"""Of these nothing shows a rollout, except what belongs to a review, which shows no more than its queue does."""

OPEN_ROUTES = frozenset(
    {
        "api:me",
        "api:schema",
        "api:docs",
        "api:agent-list",
        "api:agent-detail",
        "api:worker-list",
        "api:worker-detail",
        "api:export-formats",
        "dashboard:home",  # leads to the queues
        "dashboard:activity",
        "dashboard:agent_list",
        "dashboard:worker_list",
    }
)
_AT_ONCE = 500
_CLOSED_ROUTES = ("api:collection-contrast", "dashboard:collection_deletion")
"""The first names a second collection; the number of the other is that of a deletion."""


def hides_anything(user: object) -> bool:
    """Whether anything is kept from this person: at most two queries for annotators, none for others. Each ends at the
    first item found, however many there are."""
    return any(items.exists() for items in find_unsaid(user))


def find_refusal(user: object, permission: Permission, route: str, arguments: Mapping[str, Any]) -> str:
    """Why this person may not open this route now; empty where they may. `route` is the name of the address."""
    if permission in OPEN_PERMISSIONS or route in OPEN_ROUTES:
        return ""
    if not hides_anything(user):
        return ""
    datasets = _datasets_of(route, arguments)
    return REFUSAL if datasets is None or _hides(user, frozenset(datasets)) else ""


REFUSAL = (
    "You have something to review of which rewards, models or expected answers are kept from you until you have "
    "submitted it. Until then this is closed to you."
)


def hides_collection(user: object, collection_id: int | None) -> bool:
    """For sockets, which follow a collection."""
    return hides_anything(user) and _hides(user, frozenset(_of_collection({"pk": collection_id})))


def _hides(user: object, datasets: frozenset[int]) -> bool:
    """Whether one of these datasets has an item about which this person has not said everything, or holds the row of
    such an item's task: it would tell the expected answer.

    Which items have such a row is asked first and by itself, since it is hardly ever any: as one question the two were
    answered row by row, in minutes, where both sides are large.
    """
    unsaid = find_unsaid(user)
    if any(items.filter(task__dataset__in=datasets).exists() for items in unsaid):
        return True
    rows = Task.objects.filter(dataset__in=datasets).exclude(row_hash="").order_by().values("row_hash")
    same = list(QueueItem.objects.filter(task__row_hash__in=rows).order_by().values_list("pk", flat=True))
    return any(
        items.filter(pk__in=same[start : start + _AT_ONCE]).exists()
        for start in range(0, len(same), _AT_ONCE)
        for items in unsaid
    )


def _datasets_of(route: str, arguments: Mapping[str, Any]) -> Iterable[int] | None:
    """The datasets whose rollouts an address shows; None where it shows those of any, or nobody has said."""
    if route.startswith(_CLOSED_ROUTES):
        return None
    for prefix, (needed, read) in _SCOPED.items():
        if route.startswith(prefix) and needed in arguments:
            return read(arguments)
    return None


def _of_rollout(arguments: Mapping[str, Any]) -> Iterable[int]:
    rollouts = Rollout.objects.filter(pk=_number(arguments["pk"]))
    return rollouts.values_list("collection__dataset_id", flat=True)


def _of_collection(arguments: Mapping[str, Any]) -> Iterable[int]:
    return Collection.objects.filter(pk=_number(arguments["pk"])).values_list("dataset_id", flat=True)


def _of_task(arguments: Mapping[str, Any]) -> Iterable[int]:
    return Task.objects.filter(pk=_number(arguments["pk"])).values_list("dataset_id", flat=True)


def _of_dataset(arguments: Mapping[str, Any]) -> Iterable[int]:
    return Dataset.objects.filter(slug=str(arguments["slug"])[:64]).values_list("pk", flat=True)


def _number(given: object) -> int:
    """0, which no row has, for what is no number that a row can have."""
    text = str(given)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


_SCOPED: dict[str, tuple[str, Callable[[Mapping[str, Any]], Iterable[int]]]] = {
    "dashboard:rollout_": ("pk", _of_rollout),
    "api:rollout-": ("pk", _of_rollout),
    "dashboard:collection_": ("pk", _of_collection),
    "api:collection-": ("pk", _of_collection),
    "dashboard:task_detail": ("pk", _of_task),
    "api:task-": ("pk", _of_task),
    "dashboard:dataset_": ("slug", _of_dataset),
    "api:dataset-": ("slug", _of_dataset),
}
