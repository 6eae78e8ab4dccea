"""Create command-line arguments from a spec (see apps/gym/specs.py)."""

import argparse
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError

from apps.gym.specs import SpecField, spec_fields


def add_arguments(
    parser: argparse.ArgumentParser, spec: type, *, leave: Iterable[str] = (), names: Mapping[str, str] | None = None
) -> None:
    """Add an argument for each option of the spec, except those in `leave`.

    Arguments that are not given are not stored. `names` maps fields to other argument names, because every command
    already has --version.
    """
    for field in spec_fields(spec).values():
        if field.name not in leave:
            _add(parser, field, (names or {}).get(field.name, f"--{field.name.replace('_', '-')}"))


def given_options(spec: type, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given values of the spec. Raise CommandError for unknown rows."""
    given = {}
    for name, field in spec_fields(spec).items():
        if name in options:
            value = options[name]
            if field.type is dict and field.item is int:
                value = dict(value)
            elif field.are_rows:
                value = [find_row(field.item, key) for key in value]
            given[name] = find_row(field.type, value) if field.is_row and value is not None else value
    return given


def find_row(model: Any, key: str, *related: str) -> Any:
    """Return the row with this slug or number, with its related rows. Raise CommandError with the existing slugs."""
    has_slug = any(field.name == "slug" for field in model._meta.fields)
    rows = getattr(model.objects, "present", model.objects.all)()
    rows = rows.select_related(*related) if related else rows
    if found := rows.filter(**{"slug" if has_slug else "pk": key}).first():
        return found
    noun = model._meta.verbose_name
    if not has_slug:
        raise CommandError(f"Unknown {noun} {key}.")
    known = ", ".join(rows.values_list("slug", flat=True)[:20]) or "none yet"
    raise CommandError(f"Unknown {noun} {key!r}. Choose one of: {known}.")


def describe_problems(error: ValidationError, spec: type) -> str:
    """Return one line per problem, with its argument."""
    by_field = error.message_dict if hasattr(error, "error_dict") else {"": error.messages}
    return "\n".join(
        (f"--{name.replace('_', '-')}: " if name in spec_fields(spec) else f"{name}: " if name else "") + message
        for name, messages in by_field.items()
        for message in messages
    )


def _add(parser: argparse.ArgumentParser, field: SpecField, flag: str) -> None:
    option = field.option
    default = field.default if field.default not in (None, "", [], {}) else option.none
    text = option.help or option.label
    given: dict[str, Any] = {"dest": field.name, "default": argparse.SUPPRESS}
    given["help"] = text if field.required or default in ("", False) else f"{text} (default: {default})"
    if field.type is bool:
        parser.add_argument(flag, action=argparse.BooleanOptionalAction, **given)
    elif field.choices:
        parser.add_argument(flag, choices=field.choices, **given)
    elif field.are_rows:
        parser.add_argument(flag, action="append", **_key_options(field.item), **given)
    elif field.type is list:
        parser.add_argument(flag, action="append", type=field.item, metavar=option.label.rstrip("s").upper(), **given)
    elif field.type is dict and field.item is int:
        parser.add_argument(flag, action="append", type=_read_numbered, metavar="NAME=N", **given)
    elif field.type is dict:
        parser.add_argument(flag, type=read_object, metavar="JSON", **given)
    elif field.is_row:
        parser.add_argument(flag, **_key_options(field.type), **given)
    else:
        parser.add_argument(
            flag, type=_reader(field), metavar=f"N|{_none_word(field)}" if field.nullable else "N", **given
        )


def _key_options(model: Any) -> dict[str, Any]:
    has_slug = any(field.name == "slug" for field in model._meta.fields)
    return {"type": str, "metavar": "SLUG"} if has_slug else {"type": int, "metavar": "ID"}


def _reader(field: SpecField) -> Callable[[str], Any]:
    if field.type is str:
        return str

    def read(text: str) -> Any:
        if field.nullable and text.lower() == _none_word(field):
            return None
        try:
            return field.type(text)
        except ValueError:
            number = (
                f"a {'whole ' if field.type is int else ''}number{f' or {_none_word(field)}' if field.nullable else ''}"
            )
            raise argparse.ArgumentTypeError(f"{json.dumps(text)} is not {number}") from None

    return read


def _none_word(field: SpecField) -> str:
    none = field.option.none
    return none if none.isalpha() else "none"


def _read_numbered(text: str) -> tuple[str, int]:
    name, _, number = text.rpartition("=")
    if not name or not (number.isascii() and number.isdigit() and len(number) < 10):
        raise argparse.ArgumentTypeError(f"{text!r} is not a name with a number like train=8")
    return name, int(number)


def read_object(text: str) -> dict[str, Any]:
    try:
        given = json.loads(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(f"this is not JSON: {problem}") from None
    if not isinstance(given, dict):
        raise argparse.ArgumentTypeError('this is not a JSON object like {"temperature": 0.7}')
    return given
