"""Read option specifications: dataclasses or msgspec structs whose fields declare the options of an operation.

A field is `name: Annotated[type, Option(label, help, …)] = default`. Only a required database row is declared as `name:
Dataset = field(metadata=described(label, help))`, because the mypy plugin of Django rejects Annotated models.

Form fields, serializer fields, command arguments and checks all derive from `spec_fields`, so that each option is
declared once.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from apps.gym.storable import REFUSAL, find_unstorable


@dataclasses.dataclass(frozen=True, slots=True)
class Option:
    """Label and limits of an option."""

    label: str
    help: str = ""
    """A phrase without a full stop, or whole sentences."""
    low: float | None = None
    """Minimum of a number. A text with `low` above 0 must not be empty."""
    high: float | None = None
    """Maximum of a number."""
    length: int | None = None
    """Maximum characters of a text, or entries of a list or dict."""
    each: "Option | None" = None
    """Limits that apply to each entry of a list or each value of a dict."""
    none: str = ""
    """The meaning of None, for example "no limit"."""
    unit: Literal["", "s", "USD"] = ""
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Labels by choice. The keys of a text's labels are its only allowed values."""
    example: Any = None
    exact: bool = False
    """True to keep leading and trailing spaces of a text."""


def described(label: str, help: str = "") -> dict[str, Option]:
    """Return the `metadata` of a dataclass field for a required database row."""
    return {"option": Option(label, help)}


@dataclasses.dataclass(frozen=True, slots=True)
class SpecField:
    """A field of an option specification, as forms, serializers and commands need it."""

    name: str
    type: Any
    """bool, int, float, str, list, dict or a class. A Literal becomes str with `choices`."""
    item: Any
    """The type of the entries of a list or of the values of a dict, else None."""
    choices: tuple[str, ...]
    option: Option
    required: bool
    nullable: bool
    """True if None is allowed."""
    default: Any

    @property
    def is_row(self) -> bool:
        """Return True if the field is a database row."""
        return hasattr(self.type, "_meta")

    @property
    def are_rows(self) -> bool:
        """Return True if the field is a list of database rows."""
        return hasattr(self.item, "_meta")


@cache
def spec_fields(spec: type) -> Mapping[str, SpecField]:
    """Return the fields of a specification by name, in order, those of base classes first."""
    hints = get_type_hints(spec, include_extras=True)
    return {
        name: _to_field(name, option, required, default, hints[name])
        for name, option, required, default in _declared(spec)
    }


def _declared(spec: type) -> Iterator[tuple[str, Option | None, bool, Any]]:
    """Yield name, metadata option, whether a value is required, and the default."""
    declared: Any = dataclasses.fields(spec) if dataclasses.is_dataclass(spec) else msgspec.structs.fields(spec)
    absent = (dataclasses.MISSING, msgspec.NODEFAULT)
    for field in declared:
        option = getattr(field, "metadata", {}).get("option")
        if field.default not in absent:
            yield field.name, option, False, field.default
        elif field.default_factory not in absent:
            yield field.name, option, False, field.default_factory()
        else:
            yield field.name, option, True, None


def _to_field(name: str, option: Option | None, required: bool, default: Any, hint: Any) -> SpecField:
    option = option or Option(name.replace("_", " ").capitalize())
    if get_origin(hint) is Annotated:
        hint, *metadata = get_args(hint)
        option = next((one for one in metadata if isinstance(one, Option)), option)
    nullable = False
    if get_origin(hint) in (Union, UnionType):
        inner = [each for each in get_args(hint) if each is not NoneType]
        nullable = len(inner) < len(get_args(hint))
        hint = inner[0]
    choices: tuple[str, ...] = ()
    if get_origin(hint) is Literal:
        choices, hint = get_args(hint), str
    if hint is str and not choices:
        choices = tuple(option.names)
    item = None
    if get_args(hint):
        hint, item = get_origin(hint), get_args(hint)[-1]
    return SpecField(name, hint, item, choices, option, required, nullable, default)


def spec_problems(spec: type, values: Mapping[str, Any]) -> dict[str, str]:
    """Return the first problem of each invalid value, by field. Objects such as database rows are not checked."""
    fields = spec_fields(spec)
    found = {name: _problem(fields[name], value) for name, value in values.items() if name in fields}
    return {name: problem for name, problem in found.items() if problem}


def _problem(field: SpecField, value: Any) -> str:
    if value is None:
        return "" if field.nullable else "This is required. Give a value."
    if isinstance(value, str | list | dict) and find_unstorable(value) is not None:
        return REFUSAL
    if field.choices and value not in field.choices:
        return f"Choose one of: {', '.join(field.choices)}."
    if problem := _limit_problem(value, field.type, field.option):
        return problem
    entries = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    each = field.option.each
    return next(filter(None, (_limit_problem(entry, field.item, each) for entry in entries)), "") if each else ""


_KIND_NAMES = {bool: "yes or no", str: "text", list: "a list", dict: "an object"}


def _limit_problem(value: Any, kind: Any, option: Option) -> str:
    if kind in (int, float):
        return _number_problem(value, kind, option)
    if kind in (bool, str, list, dict) and not isinstance(value, kind):
        return f"This must be {_KIND_NAMES[kind]}."
    if kind is str and option.low and not value:
        return "Give at least one character."
    if option.length is not None and len(value) > option.length:
        return f"Give at most {option.length:,} {'characters' if kind is str else 'entries'}."
    return ""


def _number_problem(value: Any, kind: type, option: Option) -> str:
    whole = kind is int
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        return f"Give a {'whole ' if whole else ''}number."
    if not math.isfinite(value):
        return "Give a finite number."
    if option.low is not None and value < option.low:
        return f"Give a number of at least {option.low:,}."
    if option.high is not None and value > option.high:
        return f"Give a number of at most {option.high:,}."
    return ""
