"""Search actions, pages and objects by name, a few of each kind that the user may read."""

from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Q, QuerySet
from django.urls import reverse

from apps.accounts.permissions import Permission, user_may
from apps.agents.models import Agent
from apps.dashboard.chrome.destinations import Destination, destinations_for
from apps.environments.models import Environment
from apps.gym.storable import clean_line
from apps.policies.models import PolicyModel
from apps.rollouts.models import Collection, Rollout
from apps.tasks.models import Dataset, Suite, Task

MOST_LETTERS = 100
_EACH = 6
_LARGEST_ID = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Hit:
    label: str
    url: str
    icon: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """`more` is true if there are further results."""

    label: str
    hits: list[Hit]
    more: bool = False


def find_everything(user: object, text: str) -> list[Group]:
    """Return the search results by kind. Without text, return the actions and pages of the user.

    Every word must occur in the name or slug of an object.
    """
    words = clean_line(text, MOST_LETTERS).casefold().split()
    places = [each for each in destinations_for(user) if _is_called(each, words)]
    groups = [
        Group("Actions", [_led_to(each) for each in places if each.is_action]),
        Group("Pages", [_led_to(each) for each in places if not each.is_action]),
    ]
    if words and user_may(user, Permission.READ):
        groups = [*_numbered(words), *groups, *_named(words)]
    return [group for group in groups if group.hits]


def _is_called(place: Destination, words: list[str]) -> bool:
    called = f"{place.label} {place.also}".casefold()
    return all(word in called for word in words)


def _led_to(place: Destination) -> Hit:
    return Hit(place.label, place.url, place.icon, "settings" if place.is_setting else "")


def _numbered(words: list[str]) -> Iterable[Group]:
    """Yield objects whose id is the number, with or without “#”: rollout, collection and task."""
    number = words[0].removeprefix("#")
    if len(words) > 1 or not (number.isascii() and number.isdigit()) or int(number) > _LARGEST_ID:
        return
    hits = []
    rollout = Rollout.objects.filter(pk=number, collection__is_being_deleted=False).select_related("collection").first()
    if rollout:
        url = reverse("dashboard:rollout_detail", args=[rollout.pk])
        hits.append(Hit(f"Rollout {rollout.pk}", url, "rollouts", rollout.collection.label))
    collection = Collection.objects.present().filter(pk=number).first()
    if collection:
        url = reverse("dashboard:collection_detail", args=[collection.pk])
        hits.append(Hit(f"Collection {collection.pk}", url, "collections", collection.label))
    if Task.objects.filter(pk=number).exists():
        hits.append(Hit(f"Task {int(number)}", reverse("dashboard:task_detail", args=[int(number)]), "datasets"))
    yield Group("By number", hits)


def _named(words: list[str]) -> Iterable[Group]:
    collections = Collection.objects.present().only("pk", "name", "state", "archived_at").order_by("-pk")
    for each in words:
        collections = collections.filter(name__icontains=each)
    found = list(collections[: _EACH + 1])
    hits = [
        Hit(
            each.label,
            reverse("dashboard:collection_detail", args=[each.pk]),
            "collections",
            "archived" if each.archived_at else each.get_state_display().lower(),
        )
        for each in found[:_EACH]
    ]
    yield Group("Collections", hits, more=len(found) > _EACH)
    for label, rows, page, icon in (
        ("Datasets", Dataset.objects.all(), "dataset_detail", "datasets"),
        ("Suites", Suite.objects.all(), "suite_detail", "datasets"),
        ("Models", PolicyModel.objects.all(), "model_detail", "models"),
        ("Environments", Environment.objects.all(), "environment_detail", "environments"),
        ("Agents", Agent.objects.all(), "agent_detail", "agents"),
    ):
        yield _with_slugs(label, rows, words, page, icon)


def _with_slugs(label: str, rows: QuerySet, words: list[str], page: str, icon: str) -> Group:  # type: ignore[type-arg]
    for each in words:
        rows = rows.filter(Q(name__icontains=each) | Q(slug__icontains=each))
    found = list(rows.order_by("name", "pk").values_list("name", "slug")[: _EACH + 1])
    hits = [Hit(name, reverse(f"dashboard:{page}", args=[slug]), icon, slug) for name, slug in found[:_EACH]]
    return Group(label, hits, more=len(found) > _EACH)
