"""Filters and other query parameters. Unknown parameters are rejected with a suggestion."""

import math
import types
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from typing import Any, TypeVar

import django_filters
from django import forms
from django.db.models import QuerySet
from django_filters.rest_framework import DjangoFilterBackend
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema_field
from rest_framework.exceptions import ValidationError
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request

from apps.api.framework.declared_fields import suggest_name
from apps.api.framework.pagination import MAX_KEY
from apps.api.framework.problems import QueryProblem, bad_query, flatten_errors
from apps.rollouts.search.list_search import search_rows


class IdFilter(django_filters.NumberFilter):
    """A filter by the primary key of a related row."""

    def __init__(self, field_name: str, **options: Any) -> None:
        super().__init__(field_name=field_name, min_value=0, max_value=MAX_KEY, decimal_places=0, **options)


class SlugFilter(django_filters.CharFilter):
    """A filter by the slug of a related row."""

    def __init__(self, noun: str) -> None:
        super().__init__(field_name=f"{noun}__slug")


class WordsFilter(django_filters.CharFilter):
    """Search like the search field of the page with the same list."""

    def __init__(
        self,
        search: Callable[[QuerySet[Any], str], QuerySet[Any]] = search_rows,
        label: str = "Only rows that have each of these words in a name, an address or a description.",
    ) -> None:
        super().__init__(max_length=200, label=label)
        self._search = search

    def filter(self, qs: QuerySet[Any], value: str) -> QuerySet[Any]:
        return self._search(qs, value or "")


def filter_set(**filters: django_filters.Filter) -> type[django_filters.FilterSet]:
    """Return the filters of a view by query parameter."""
    return types.new_class("Filters", (django_filters.FilterSet,), exec_body=lambda body: body.update(filters))


def task_number_filter(field_name: str, *, note: str = "") -> django_filters.NumberFilter:
    """Return a filter by the number of a task in its version, from 1. `note` is added to its description."""
    return django_filters.NumberFilter(
        field_name=field_name,
        min_value=1,
        max_value=2**31,
        decimal_places=0,
        label=f"Task number as shown on pages, from 1: `index` + 1. {note}".rstrip(),
    )


def with_integers(cleaned: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cleaned values of filters. NumberFilter cleans to Decimal; these values become integers."""
    return {name: int(value) if isinstance(value, Decimal) else value for name, value in cleaned.items()}


class FlagField(forms.Field):
    """A form field that accepts `true`, `false` or nothing."""

    def to_python(self, value: str | None) -> bool | None:
        if value is None or value == "":
            return None
        if value.lower() not in {"true", "false"}:
            raise forms.ValidationError("Give true or false.", code="invalid")
        return value.lower() == "true"


@extend_schema_field(OpenApiTypes.BOOL)
class FlagFilter(django_filters.Filter):
    """A Boolean filter. Unlike django-filter's, it rejects values other than `true` and `false`."""

    field_class = FlagField

    def __init__(self, field_name: str, **options: Any) -> None:
        super().__init__(field_name=field_name, **options)


class DeclaredFilterBackend(DjangoFilterBackend):
    """Raise django-filter's errors as QueryProblem."""

    def filter_queryset(self, request: Request, queryset: QuerySet[Any], view: Any) -> QuerySet[Any]:
        try:
            found: QuerySet[Any] = super().filter_queryset(request, queryset, view)
        except ValidationError as error:
            errors = [
                {**entry, "pointer": f"?{entry['pointer'].lstrip('/')}"}
                for entry in flatten_errors(error.get_full_details())
            ]
            raise QueryProblem(errors) from error
        return found


def refuse_unknown_parameters(request: Request, known: Collection[str]) -> None:
    """Raise QueryProblem for unknown parameters. Otherwise a misspelled filter would return all rows."""
    errors = []
    for name, values in request.query_params.lists():
        if name not in known:
            message = f"“{name}” is not a query parameter of this endpoint. {suggest_name(name, known)}"
            errors.append({"pointer": f"?{name}", "code": "unknown", "message": message})
        elif request.method in SAFE_METHODS and (len(values) > 1 or not values[0]):
            # An empty filter, for example from an unset variable in a script, would also return all rows.
            message = "Give this only once." if len(values) > 1 else "This is empty. Give a value, or leave it out."
            errors.append({"pointer": f"?{name}", "code": "invalid", "message": message})
    if errors:
        raise QueryProblem(errors)


Choice = TypeVar("Choice", bound=str)


def read_choice(
    request: Request, name: str, choices: Collection[Choice], *, default: str = "", message: str = ""
) -> Choice:
    """Return the value of a parameter, which must be one of the choices. Raise QueryProblem.

    `message` replaces the default error message. Its two `{}` are replaced by the value and the list of choices.
    """
    value = request.query_params.get(name, default)
    for choice in choices:
        if choice == value:
            return choice
    raise bad_query(name, message.format(value, ", ".join(choices)) or f"Give {' or '.join(choices)}.")


def read_integer(request: Request, name: str, *, low: int = 0, high: int = MAX_KEY, message: str = "") -> int | None:
    """Return an integer parameter from `low` to `high`, or None if it is missing. Raise QueryProblem."""
    text = request.query_params.get(name)
    if text is None:
        return None
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
    if not low <= number <= high:
        raise bad_query(name, message or f"`{name}` must be a whole number from {low} to {high}.")
    return number


class IntegerParameter(OpenApiParameter):
    """A query parameter that is an integer from `low` to `high`. `message` replaces the default error message."""

    def __init__(self, name: str, low: int = 0, high: int = MAX_KEY, *, message: str = "", **options: Any) -> None:
        super().__init__(name, {"type": "integer", "minimum": low, "maximum": high}, **options)
        self._limits: dict[str, Any] = {"low": low, "high": high, "message": message}

    def read(self, request: Request) -> Any:
        """Return the value, or the default, which may be None. Raise QueryProblem."""
        number = read_integer(request, self.name, **self._limits)
        if number is None and self.required:
            raise bad_query(
                self.name, f"`{self.name}` must be a whole number from {{low}} to {{high}}.".format(**self._limits)
            )
        return self.default if number is None else number


class NumberParameter(OpenApiParameter):
    """A query parameter that is a number from `low` to `high`, with a default."""

    def __init__(self, name: str, low: float, high: float, **options: Any) -> None:
        super().__init__(name, {"type": "number", "minimum": low, "maximum": high}, **options)
        self._low, self._high = low, high

    def read(self, request: Request) -> float:
        """Return the value, or the default. Raise QueryProblem."""
        try:
            number = float(request.query_params.get(self.name, self.default))
        except ValueError:
            number = math.nan
        if not self._low <= number <= self._high:
            raise bad_query(self.name, f"`{self.name}` must be a number from {self._low:g} to {self._high:g}.")
        return number


class ChoiceParameter(OpenApiParameter):
    """A query parameter with fixed values. `message` is that of `read_choice`."""

    def __init__(self, name: str, choices: Collection[str], *, message: str = "", **options: Any) -> None:
        super().__init__(name, OpenApiTypes.STR, enum=list(choices), **options)
        self._choices, self._message = choices, message

    def read(self, request: Request) -> Any:
        """Return the value, or the default, which may be None. Raise QueryProblem."""
        if self.name not in request.query_params and not self.required:
            return self.default
        return read_choice(request, self.name, self._choices, message=self._message)


def read_format(request: Request, formats: Mapping[str, tuple[str, Any]]) -> tuple[str, str, Any]:
    """Return name, content type and writer of the requested file format. Raise QueryProblem."""
    name = read_choice(request, "format", formats, default="ndjson")
    return name, *formats[name]
