"""Create serializer fields and query parameters from a spec (see apps/gym/specs.py)."""

from collections.abc import Callable
from typing import Any, TypeVar

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers

from apps.api.framework.base_viewsets import SLUG
from apps.gym.specs import Option, SpecField, spec_fields

Made = TypeVar("Made", bound="serializers.Serializer[Any]")


def spec_serializer(spec: type, *names: str, partial: bool = False) -> Callable[[type[Made]], type[Made]]:
    """Return a class decorator that adds a field for each option of the spec, or only for `names`.

    Fields declared on the class take precedence. With `partial`, for updates, no field is required or has a default.
    """

    def decorate(serializer: type[Made]) -> type[Made]:
        fields = [field for name, field in spec_fields(spec).items() if not names or name in names]
        made = {field.name: make_field(field, partial=partial) for field in fields}
        serializer._declared_fields = {**made, **serializer._declared_fields}
        return serializer

    return decorate


def make_parameter(field: SpecField) -> OpenApiParameter:
    """Return an option as a query parameter. Lists and dicts become strings."""
    kind: Any = field.type if field.type in (bool, int, float) else str
    if field.is_row and _has_slug(field.type):
        kind = {"type": "string", "pattern": f"^{SLUG}$"}
    return OpenApiParameter(
        field.name,
        kind,
        enum=[one for one in field.choices if one] or None,
        default=field.default or (field.default if kind in (bool, int) else None),
        description=_describe(field, none="default"),
    )


def _describe(field: SpecField, *, none: str = "null") -> str:
    option = field.option
    null_text = f"{none}: {option.none}" if field.nullable and option.none else ""
    text = option.help or option.label
    if text.endswith("."):
        return f"{text} {null_text[:1].upper()}{null_text[1:]}." if null_text else text
    return "; ".join(filter(None, (text, null_text))) + "."


def _has_slug(model: Any) -> bool:
    return any(field.name == "slug" for field in model._meta.fields)


def make_field(field: SpecField, *, partial: bool = False) -> serializers.Field[Any, Any, Any, Any]:
    option = field.option
    given: dict[str, Any] = {"help_text": _describe(field)}
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
    if _has_slug(model):
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
    given["trim_whitespace"] = not option.exact
    return serializers.CharField(max_length=option.length, allow_blank=not option.low, **given)
