"""Shared form fields, for example JSON with exact error positions."""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from django import forms
from django.core.exceptions import ValidationError
from django.core.validators import MinValueValidator
from django.utils.text import slugify

from apps.accounts.disk_space import DiskFull
from apps.gym.request_refusals import Refusal
from apps.gym.slugs import find_slug_problem
from apps.gym.storable import REFUSAL, find_unstorable
from apps.gym.strict_json import JsonRefused, load_strict

Field = TypeVar("Field", bound=forms.Field)
Choices = Iterable[tuple[Any, Any]]
"""(value, label) of each choice."""


class JSONTextField(forms.JSONField):
    """A JSON object or list, shown indented. Errors name the place. `kind` is the required type, dict or list."""

    def __init__(self, *, kind: type, rows: int = 4, **kwargs: Any) -> None:
        self.kind = kind
        widget = forms.Textarea(attrs={"class": "code", "rows": rows, "spellcheck": "false"})
        super().__init__(**{"required": False, "widget": widget, "initial": kind, **kwargs})

    def prepare_value(self, value: Any) -> Any:
        if isinstance(value, str):
            return value
        return "" if value is None or value == self.kind() else json.dumps(value, indent=2, ensure_ascii=False)

    def bound_data(self, data: Any, initial: Any) -> Any:
        # The input is returned unchanged, so that users can correct mistakes in place.
        return data

    def to_python(self, value: Any) -> Any:
        text = (value or "").strip()
        if not text:
            return self.kind()
        try:
            parsed = load_strict(text)
        except JsonRefused as refusal:
            if refusal.code == "not_json":
                raise ValidationError(f"Invalid JSON: {refusal.message}.") from None
            place = f" It is at /{'/'.join(map(str, refusal.path))}." if refusal.path else ""
            raise ValidationError(f"{refusal.message}{place}") from None
        if not isinstance(parsed, self.kind):
            expected = "a JSON object: {…}" if self.kind is dict else "a JSON list: […]"
            raise ValidationError(f"This must be {expected}.")
        return parsed

    def validate(self, value: Any) -> None:
        if self.required and not value:
            raise ValidationError(self.error_messages["required"], code="required")


class LinesField(forms.Field):
    """A list of texts, one per line. Empty lines are ignored."""

    def __init__(self, *, rows: int = 2, **kwargs: Any) -> None:
        widget = forms.Textarea(attrs={"class": "code", "rows": rows, "spellcheck": "false"})
        super().__init__(**{"required": False, "widget": widget, "initial": list, **kwargs})

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(map(str, value)) if isinstance(value, list) else value

    def to_python(self, value: Any) -> list[str]:
        return [line.strip() for line in str(value or "").splitlines() if line.strip()]


SLUG_CHARACTERS = 64
_UNITS = {"d": 86_400, "h": 3_600, "min": 60, "s": 1}


class NamesField(forms.Field):
    """Comma-separated names, for example splits or tags."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"required": False, "widget": forms.TextInput(attrs={"maxlength": 2000}), **kwargs})

    def prepare_value(self, value: Any) -> Any:
        return ", ".join(map(str, value)) if isinstance(value, list) else value

    def to_python(self, value: Any) -> list[str]:
        names = list(dict.fromkeys(name.strip() for name in str(value or "").split(",") if name.strip()))
        refuse_unstorable(names)
        return names


class CountsField(forms.Field):
    """A number for each name, for example `train=8, validation=2`."""

    def __init__(self, *, high: int, **kwargs: Any) -> None:
        self.high = high
        super().__init__(**{"required": False, "widget": forms.TextInput(attrs={"maxlength": 2000}), **kwargs})

    def prepare_value(self, value: Any) -> Any:
        return ", ".join(f"{name}={number}" for name, number in value.items()) if isinstance(value, dict) else value

    def to_python(self, value: Any) -> dict[str, int]:
        found = {}
        for part in str(value or "").split(","):
            if not part.strip():
                continue
            name, _, number = part.rpartition("=")
            if not re.fullmatch(r"\s*[0-9]{1,9}\s*", number) or not name.strip():
                raise ValidationError("Give a number for each name, for example train=8, validation=2.")
            if not 1 <= int(number) <= self.high:
                raise ValidationError(f"Give a number from 1 to {self.high:,} for {name.strip()}.")
            found[name.strip()] = int(number)
        refuse_unstorable(found)
        return found


class SecondsField(forms.Field):
    """A duration such as `7 d`, `12 h`, `30 min` or `45 s`. A plain number is in seconds."""

    def __init__(self, *, whole: bool = False, low: float = 0.1, high: float, **kwargs: Any) -> None:
        self.whole, self.low, self.high = whole, low, high
        super().__init__(widget=forms.TextInput(attrs={"maxlength": 32}), **kwargs)

    def prepare_value(self, value: Any) -> Any:
        if not isinstance(value, int | float):
            return value
        unit, length = next(
            ((unit, size) for unit, size in _UNITS.items() if value >= size and value % size == 0), ("s", 1)
        )
        amount = f"{value / length:.6f}".rstrip("0").rstrip(".")
        return f"{amount} {unit}"

    def to_python(self, value: Any) -> float | int | None:
        text = str(value or "").strip().lower()
        if not text:
            return None
        match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)\s*(d|h|min|s|)", text)
        if match is None:
            raise ValidationError("Give a duration, for example 7 d, 12 h, 30 min or 45 s.")
        seconds = float(match[1]) * _UNITS[match[2] or "s"]
        if not self.low <= seconds <= self.high:
            raise ValidationError(
                f"Give a duration from {self.prepare_value(self.low)} to {self.prepare_value(self.high)}."
            )
        return round(seconds) if self.whole else seconds

    def validate(self, value: Any) -> None:
        if self.required and value is None:
            raise ValidationError(self.error_messages["required"], code="required")


def refuse_unstorable(parsed: Any) -> None:
    """Raise ValidationError if parsed JSON cannot be stored. Django checks only text fields for NUL characters."""
    place = find_unstorable(parsed)
    if place is not None:
        raise ValidationError(f"{REFUSAL} It is at /{'/'.join(map(str, place))}.")


def add_errors(form: forms.BaseForm, error: ValidationError | Refusal, *, skip: Collection[str] = ()) -> None:
    """Add each error to the field that it names, or to the form if the form has no such field.

    Errors of the fields in `skip` are left out, because another form shows them.
    """
    if isinstance(error, Refusal):
        named = {error.argument: [str(error)]}
    else:
        named = error.message_dict if hasattr(error, "error_dict") else {"": error.messages}
    for field, texts in named.items():
        if field in skip:
            continue
        for text in texts:
            form.add_error(field if field in form.fields else None, text)


@contextmanager
def show_errors(form: forms.BaseForm) -> Iterator[None]:
    """Add errors raised in the block to the form, and continue after the block.

    DiskFull is re-raised, for the page with status 507 (gymweb/failures.py).
    """
    try:
        yield
    except DiskFull:
        raise
    except (ValidationError, Refusal) as error:
        add_errors(form, error)


def add_errors_to_valid_fields(form: forms.BaseForm, found: Mapping[str, list[str]]) -> None:
    """Add errors by field name. Fields that already have errors keep only those."""
    for field, problems in found.items():
        if field not in form.errors:
            for problem in problems:
                form.add_error(field, problem)


def hide_optional_label(field: Field) -> Field:
    """Keep pages from labelling this field "optional".

    Use it for fields that have a default, or that are required depending on another field.
    """
    field.conditional = True  # type: ignore[attr-defined]
    return field


def keep_if_empty(form: Any, *names: str) -> None:
    """Let users leave these fields empty: the value of the object, or its default, then applies."""
    for name in names:
        field = hide_optional_label(form.fields[name])
        field.required, field.empty_value = False, str(getattr(form.instance, name))


def bound_fields(names: Iterable[str]) -> property:
    """Return a property with the bound fields of these names, without the fields that the form lacks."""
    return property(lambda form: [form[name] for name in names if name in form.fields])


def filter_choice(
    label: str, choices: Choices | Callable[[], Choices], *, empty_label: str = "any"
) -> forms.ChoiceField:
    """Return the field of a filter. `empty_label` is the label of the choice that turns the filter off."""
    read_choices = choices if callable(choices) else lambda: choices
    return forms.ChoiceField(label=label, choices=lambda: [("", empty_label), *read_choices()], required=False)


def is_any_set(form: forms.BaseForm, names: Iterable[str]) -> bool:
    """Return True if any of the fields is invalid or differs from its default."""
    return any(name in form.fields and (name in form.errors or _is_set(form, name)) for name in names)


def _is_set(form: forms.BaseForm, name: str) -> bool:
    field = form.fields[name]
    default = field.initial() if callable(field.initial) else field.initial
    return field.has_changed(default, form[name].value())


def set_minimum_to_one(form: forms.BaseForm, *names: str) -> None:
    """Set the minimum of fields to 1. Django always sets that of a PositiveIntegerField to 0."""
    for name in names:
        field = form.fields[name]
        field.widget.attrs["min"] = 1
        field.validators = [one for one in field.validators if not isinstance(one, MinValueValidator)]
        field.validators.append(MinValueValidator(1))


class NamedForm(forms.ModelForm):  # type: ignore[type-arg]  # ModelForm takes type arguments only in stubs
    """Form of an object with a slug. A saved slug cannot change, because URLs and other objects use it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk:
            del self.fields["slug"]

    def clean_slug(self) -> str:
        """Return the slug, by default the slugified name."""
        given: str = self.cleaned_data["slug"]
        if given or not (name := self.cleaned_data.get("name")):
            return given
        slug: str = slugify(name)[:SLUG_CHARACTERS].strip("-")
        if not slug:
            raise ValidationError("Give a slug: the name has no letters from a to z and no digits.", code="required")
        _refuse_reserved(slug)
        return slug


class ServerForm(NamedForm):
    """Form of an object with an API key. The key is write-only; the page shows its last characters."""

    api_key = forms.CharField(
        label="API key",
        required=False,
        max_length=4000,
        widget=forms.PasswordInput(attrs={"autocomplete": "off", "class": "code"}),
    )
    forget_key = forms.BooleanField(label="Remove the stored key", required=False)
    key_owner = ""
    """Name of the setting that the key is bound to, for example "base URL". Users who change it must enter the key."""
    no_key_help = ""
    """Help text of the key field while no key is stored."""
    conditional: tuple[str, ...] = ()
    """Fields that only some kinds of servers require. Pages must not label them "optional"."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        set_minimum_to_one(self, "max_tries", "concurrency")
        for name in self.conditional:
            hide_optional_label(self.fields[name])
        if hint := self.instance.api_key_hint:
            advice = f"Leave this empty to keep the key. If you change the {self.key_owner}, enter the key again."
            self.fields["api_key"].help_text = f"A key is stored (…{hint.lstrip('.…')}). {advice}"
        else:
            self.fields["api_key"].help_text = self.no_key_help
            del self.fields["forget_key"]

    def given_key(self) -> str | None:
        """Return the entered key, "" to remove the stored key, or None to keep it."""
        entered: str = self.cleaned_data["api_key"]
        if entered:
            return entered
        return "" if self.cleaned_data.get("forget_key") else None


def _refuse_reserved(slug: str) -> None:
    if problem := find_slug_problem(slug):
        raise ValidationError(problem)


def slug_field(noun: str) -> forms.SlugField:
    return forms.SlugField(
        required=False,
        max_length=SLUG_CHARACTERS,
        validators=[_refuse_reserved],
        help_text=f"Identifies the {noun} in URLs and the API. If empty, it is made from the name. It cannot be "
        "changed later.",
        widget=forms.TextInput(attrs={"class": "code", "data-slug-of": "id_name", "autocomplete": "off"}),
    )
