"""Search, filters and sortable headings of lists, for example of collections, datasets and exports."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from django import forms
from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest

from apps.agents.models import Agent
from apps.dashboard.forms.fields import filter_choice
from apps.dashboard.overview.overview_rows import SAME, previous_id
from apps.dashboard.overview.reward_trends import add_trends, latest_result
from apps.dashboard.tables.headings import Heading, order_of
from apps.environments.models import Adapter, Environment
from apps.exports.models import Export
from apps.gym.exporters.registry import FORMATS
from apps.policies.models import Health, PolicyModel, Provider
from apps.rollouts.models import Collection, CollectionQuerySet
from apps.rollouts.search.keyset_pages import Page, page_by_column, page_by_id
from apps.rollouts.search.list_search import COLLECTION_ORDERS, search_rows
from apps.tasks.models import Dataset

Row = TypeVar("Row")
MOST_OFFERED = 200
_BY_SLUG = {"dataset", "policy_model", "agent", "environment"}


def _offer(label: str, model: type[Agent | Dataset | Environment | PolicyModel]) -> forms.ChoiceField:
    return filter_choice(
        label, lambda: model._default_manager.order_by("name").values_list("slug", "name")[:MOST_OFFERED]
    )


class ListFilterForm(forms.Form):
    """Field names are the query parameters of the API. An invalid filter is ignored and its error is shown."""

    q = forms.CharField(
        label="Search", required=False, max_length=200, widget=forms.TextInput(attrs={"type": "search"})
    )
    ordering = forms.CharField(required=False, widget=forms.HiddenInput)

    @property
    def chosen(self) -> dict[str, str]:
        """Return the valid filters that have a value, without search and order."""
        self.is_valid()
        return {name: value for name, value in self.cleaned_data.items() if value and name not in {"q", "ordering"}}

    @property
    def words(self) -> str:
        self.is_valid()
        return str(self.cleaned_data.get("q", ""))

    @property
    def conditions(self) -> dict[str, Any]:
        """Return the chosen filters as conditions of a queryset."""
        return {f"{name}__slug" if name in _BY_SLUG else name: value for name, value in self.chosen.items()}

    @property
    def is_narrowed(self) -> bool:
        return bool(self.chosen or self.words)


class CollectionListForm(ListFilterForm):
    state = filter_choice("State", Collection.State.choices)
    dataset = _offer("Dataset", Dataset)
    policy_model = _offer("Policy model", PolicyModel)
    agent = _offer("Agent", Agent)
    environment = _offer("Environment", Environment)
    archived = filter_choice("Archived", [("true", "yes"), ("all", "both")], empty_label="no")

    @property
    def conditions(self) -> dict[str, Any]:
        conditions: dict[str, Any] = dict(super().conditions)
        archived = conditions.pop("archived", "")
        return conditions if archived == "all" else {**conditions, "archived_at__isnull": archived != "true"}


class DatasetListForm(ListFilterForm):
    environment = _offer("Environment", Environment)


class AgentListForm(ListFilterForm):
    kind = filter_choice("Kind", Agent.Kind.choices)


class PolicyModelListForm(ListFilterForm):
    provider = filter_choice("Provider", Provider.choices)
    health = filter_choice("Health", Health.choices)


class EnvironmentListForm(ListFilterForm):
    adapter = filter_choice("Adapter", Adapter.choices)
    health = filter_choice("Health", Health.choices)


class ExportListForm(ListFilterForm):
    collection = filter_choice("Collection", lambda: [(one.pk, one.label) for one in _exported()[:MOST_OFFERED]])
    format = filter_choice("Format", lambda: [(slug, one.title) for slug, one in FORMATS.items()])
    state = filter_choice("State", Export.State.choices)


def _exported() -> CollectionQuerySet:
    return Collection.objects.filter(Exists(Export.objects.filter(collection=OuterRef("pk")))).order_by("-pk")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a list. `name` is its order; a column without one cannot be sorted. Numbers sort descending first."""

    label: str
    name: str = ""
    classes: str = ""

    @property
    def descends(self) -> bool:
        return self.name == "id" or "num" in self.classes.split()


def head_columns(request: HttpRequest, columns: Sequence[Column], ordering: str) -> list[Heading]:
    """Return the headings. Following one sorts by its column, or turns its order around."""
    return [_head(request, column, ordering) for column in columns]


def _head(request: HttpRequest, column: Column, ordering: str) -> Heading:
    if not column.name:
        return Heading(column)
    order = order_of(column.name, ordering)
    descends = order == "ascending" or (order == "none" and column.descends)
    query = request.GET.copy()
    query.pop("after", None)
    query["ordering"] = f"-{column.name}" if descends else column.name
    return Heading(column, query.urlencode(), order)


def read_ordering(request: HttpRequest, columns: Sequence[Column], default: str) -> str:
    """Return `?ordering=` if a column has this order, otherwise the default."""
    wanted = request.GET.get("ordering", "")
    return wanted if wanted.removeprefix("-") in {column.name for column in columns if column.name} else default


def page_of_collections(
    rows: CollectionQuerySet, filters: CollectionListForm, ordering: str, after: str
) -> Page[Collection]:
    """Return a page of the collections that match the filters, each with the id of its previous one."""
    matching = search_rows(rows.filter(**filters.conditions), filters.words).annotate(previous_id=previous_id())
    name, descending = ordering.removeprefix("-"), ordering.startswith("-")
    if name == "id":
        return page_by_id(matching, after, descending=descending)
    sort = COLLECTION_ORDERS[name]
    ordered = matching.annotate(sorted_by=sort.values)
    return page_by_column(ordered, "sorted_by", after, marker=sort.marker, descending=descending)


def list_rows(
    request: HttpRequest,
    rows: QuerySet[Any],
    filters: ListFilterForm,
    columns: Sequence[Column],
    keys: Mapping[str, Callable[[Any], Any]],
    *,
    owner: str,
    same: Sequence[str] = SAME,
) -> dict[str, Any]:
    """Return the context of a list without pages: all matching rows with their trend, sorted by `?ordering=`.

    `keys` are the values of each order, and `owner` is the field of Collection that refers to a row.
    """
    ordering = read_ordering(request, columns, "name")
    matching = search_rows(rows.filter(**filters.conditions), filters.words)
    found = add_trends(matching.annotate(latest_id=latest_result(owner)), same=same)
    return {
        "rows": sort_rows(found, ordering, {**SHARED_KEYS, **keys}),
        "headings": head_columns(request, columns, ordering),
        "filters": filters,
    }


SHARED_KEYS: dict[str, Callable[[Any], Any]] = {
    "name": lambda row: row.name.casefold(),
    "collections": lambda row: row.collection_count,
    "reward": lambda row: row.trend and row.trend.mean_reward,
}


def sort_rows(rows: Iterable[Row], ordering: str, keys: Mapping[str, Callable[[Row], Any]]) -> list[Row]:
    """Return the rows sorted by the key of the order. Rows without a value come last."""
    key = keys[ordering.removeprefix("-")]
    given = list(rows)
    valued = sorted((row for row in given if key(row) is not None), key=key, reverse=ordering.startswith("-"))
    return valued + [row for row in given if key(row) is None]
