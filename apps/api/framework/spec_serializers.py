"""Make serializer fields from the specification of an order (see apps/gym/specs.py)."""

from collections.abc import Callable
from typing import Any, TypeVar

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers

from apps.gym.specs import Option, SpecField, spec_fields

Made = TypeVar("Made", bound="serializers.Serializer[Any]")


def spec_serializer(spec: type, *names: str, partial: bool = False) -> Callable[[type[Made]], type[Made]]:
    """Give a serializer class a field for each option of the spec, or for those named. Its own fields stay.

    With `partial`, for changes, no field is required or has a default.
    """

    def decorate(serializer: type[Made]) -> type[Made]:
        fields = [field for name, field in spec_fields(spec).items() if not names or name in names]
        made = {field.name: make_field(field, partial=partial) for field in fields}
        serializer._declared_fields = {**made, **serializer._declared_fields}
        return serializer

    return decorate


def make_parameter(field: SpecField) -> OpenApiParameter:
    """Return an option as a parameter of an address. Lists and dicts are texts there."""
    kind = field.type if field.type in (bool, int, float) else str
    return OpenApiParameter(
        field.name,
        kind,
        enum=[one for one in field.choices if one] or None,
        default=field.default or (field.default if kind in (bool, int) else None),
        description=_describe(field),
    )


def _describe(field: SpecField) -> str:
    option = field.option
    none = f"null: {option.none}" if field.nullable and option.none else ""
    said = "; ".join(filter(None, (option.help, none)))
    return f"{said}." if said else ""


def make_field(field: SpecField, *, partial: bool = False) -> serializers.Field[Any, Any, Any, Any]:
    option = field.option
    given: dict[str, Any] = {"help_text": _describe(field) or None}
    if field.nullable:
        given["allow_null"] = True
    if partial or field.required:
        given["required"] = not partial
    elif field.type in (int, float, bool) or field.choices:
        given["default"] = field.default
    else:
        given["required"] = False
    if field.choices:
        return serializers.ChoiceField(
            choices=[(one, option.names.get(one, one)) for one in field.choices if one], **given
        )
    if field.is_row or field.are_rows:
        return _rows(field, given)
    if field.type is list:
        return serializers.ListField(max_length=option.length, **given, **_entries(field))
    if field.type is dict:
        return serializers.DictField(**given, **_entries(field))
    return _single(field.type, option, given)


def _rows(field: SpecField, given: dict[str, Any]) -> "serializers.Field[Any, Any, Any, Any]":
    model = field.item if field.are_rows else field.type
    if field.are_rows:
        given["many"] = True
    manager: Any = model._default_manager
    rows = getattr(manager, "present", manager.all)()
    if any(each.name == "slug" for each in model._meta.fields):
        return serializers.SlugRelatedField(slug_field="slug", queryset=rows, **given)
    return serializers.PrimaryKeyRelatedField(queryset=rows, **given)


def _entries(field: SpecField) -> dict[str, Any]:
    each = field.option.each
    return {"child": _single(field.item, each, {})} if each else {}


def _single(kind: Any, option: Option, given: dict[str, Any]) -> serializers.Field[Any, Any, Any, Any]:
    if kind is bool:
        return serializers.BooleanField(**given)
    if kind in (int, float):
        limits: dict[str, Any] = {"min_value": option.low, "max_value": option.high}
        return (serializers.IntegerField if kind is int else serializers.FloatField)(**limits, **given)
    return serializers.CharField(max_length=option.length, allow_blank=not option.low, **given)
