"""Make form fields from the specification of an order (see apps/gym/specs.py)."""

import json
from collections.abc import Callable, Collection
from typing import Any, TypeVar

from django import forms

from apps.dashboard.forms.fields import CountsField, JSONTextField, NamesField, SecondsField
from apps.gym.specs import SpecField, spec_fields

Form = TypeVar("Form", bound=forms.BaseForm)


class Labelled:
    """Shows rows by a label that distinguishes rows with the same name."""

    def label_from_instance(self, obj: Any) -> str:
        return str(getattr(obj, "label", obj))


class OneRow(Labelled, forms.ModelChoiceField):  # type: ignore[type-arg]  # Django forms take none at run time
    pass


class SeveralRows(Labelled, forms.ModelMultipleChoiceField):  # type: ignore[type-arg]
    pass


def spec_form(spec: type, *, leave: Collection[str] = ()) -> Callable[[type[Form]], type[Form]]:
    """Return a class decorator that adds a field for each option of the spec except `leave`.

    Fields of the class take precedence.
    """

    def decorate(form: type[Form]) -> type[Form]:
        made = {name: make_field(field) for name, field in spec_fields(spec).items() if name not in leave}
        # Subclasses inherit declared_fields.
        form.base_fields = form.declared_fields = {**made, **form.base_fields}  # type: ignore[attr-defined]
        return form

    return decorate


def make_field(field: SpecField) -> forms.Field:
    option = field.option
    none = f"empty: {option.none}" if field.nullable and option.none and not field.is_row else ""
    said = _joined(option.help, none)
    given: dict[str, Any] = {
        "label": option.label,
        "help_text": said[:1].upper() + said[1:],
        "required": field.required or (field.type in (int, float) and not field.nullable),
        "initial": field.default,
    }
    if field.choices:
        return forms.ChoiceField(choices=[(one, option.names.get(one, one)) for one in field.choices], **given)
    if field.is_row or field.are_rows:
        return _choice_of_rows(field, given)
    if option.unit == "s":
        return SecondsField(whole=field.type is int, low=option.low or 0, high=option.high or 0, **given)
    if field.type in (list, dict):
        return _several(field, given)
    return _single(field, given)


def _single(field: SpecField, given: dict[str, Any]) -> forms.Field:
    option = field.option
    if field.type is bool:
        return forms.BooleanField(**{**given, "required": False})
    limits: dict[str, Any] = {"min_value": option.low, "max_value": option.high}
    if field.type is int:
        return forms.IntegerField(**limits, **given)
    if field.type is float:
        return forms.FloatField(widget=forms.NumberInput(attrs={"step": "any"}), **limits, **given)
    return forms.CharField(max_length=option.length, **given)


def _several(field: SpecField, given: dict[str, Any]) -> forms.Field:
    each, example = field.option.each, field.option.example
    made: forms.Field
    if field.type is list:
        made = NamesField(**given)
    elif field.item is int and each:
        made = CountsField(high=int(each.high or 0), **given)
    else:
        made = JSONTextField(kind=dict, rows=3, **given)
    if example:
        shown = json.dumps(example) if isinstance(made, JSONTextField) else made.prepare_value(example)
        made.help_text = _joined(str(made.help_text), f"e.g. {shown}", between=", ")
    return made


def _joined(text: str, addition: str, between: str = "; ") -> str:
    """Append to a help text. After a full stop, the addition starts a sentence."""
    if not (text and addition):
        return text or addition
    if not text.endswith("."):
        return f"{text}{between}{addition}"
    said = addition.replace("e.g. ", "Example: ", 1)
    return f"{text} {said[:1].upper()}{said[1:]}"


def _choice_of_rows(field: SpecField, given: dict[str, Any]) -> "forms.ModelChoiceField[Any]":
    """Return a menu of slugs, as in URLs and the API. Tables without slugs are long, so their numbers are typed."""
    model = field.item if field.are_rows else field.type
    manager = model._default_manager
    rows = getattr(manager, "present", manager.all)()
    if any(each.name == "slug" for each in model._meta.fields):
        empty = field.option.none or f"Choose a {field.option.label.lower()}"
        return forms.ModelChoiceField(rows, to_field_name="slug", empty_label=empty, **given)
    if field.are_rows:
        return SeveralRows(rows, **given)
    return forms.ModelChoiceField(rows, widget=forms.NumberInput(attrs={"min": 1}), **given)
