"""Create serializers from dataclasses, msgspec structs and named tuples."""

import types
from collections.abc import Callable
from datetime import datetime
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from rest_framework import serializers

Made = TypeVar("Made", bound="serializers.Serializer[Any]")
_FIELDS: dict[Any, type[serializers.Field[Any, Any, Any, Any]]] = {
    bool: serializers.BooleanField,
    int: serializers.IntegerField,
    float: serializers.FloatField,
    str: serializers.CharField,
    datetime: serializers.DateTimeField,
}


def record_serializer(record: type, **helps: str) -> Callable[[type[Made]], type[Made]]:
    """Return a class decorator that adds a serializer field for each field of the record. `helps` are help texts.

    Fields declared on the class replace fields of the record; a class attribute of None removes one. Declared fields
    that the record lacks come first.
    """

    def decorate(serializer: type[Made]) -> type[Made]:
        hints, own = get_type_hints(record), serializer._declared_fields
        places = {name: own[name] for name in own if name not in hints}
        for name, hint in hints.items():
            if name in own or name not in vars(serializer):
                places[name] = own[name] if name in own else _make_field(hint, helps.get(name))
        serializer._declared_fields = places
        return serializer

    return decorate


def make_serializer(name: str, record: type, **helps: str) -> type[serializers.Serializer[Any]]:
    """Return a serializer class for a record. `name` becomes its schema component."""
    empty = types.new_class(f"{name}Serializer", (serializers.Serializer,))
    return record_serializer(record, **helps)(empty)


@cache
def serializer_of(record: type) -> type[serializers.Serializer[Any]]:
    """Return the serializer of a nested record, cached so that it is one schema component."""
    return make_serializer(record.__name__, record)


def _make_field(hint: Any, help_text: str | None = None) -> serializers.Field[Any, Any, Any, Any]:
    given: dict[str, Any] = {"help_text": help_text} if help_text else {}
    if get_origin(hint) in (Union, UnionType):
        (hint,) = (each for each in get_args(hint) if each is not NoneType)
        given["allow_null"] = True
    kind, parts = get_origin(hint) or hint, get_args(hint)
    if kind is Literal:
        return serializers.ChoiceField(choices=parts, **given)
    if kind not in (dict, list, tuple):
        return (_FIELDS.get(kind) or serializer_of(kind))(**given)
    if kind is list and isinstance(parts[0], type) and parts[0] not in (*_FIELDS, Any):
        return serializer_of(parts[0])(many=True, **given)
    if parts[-1] is not Any:
        given["child"] = _make_field(parts[-1])
    return (serializers.DictField if kind is dict else serializers.ListField)(**given)
