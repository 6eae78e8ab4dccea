"""Form fields that several forms need: JSON that is pleasant to edit and precise about what is wrong."""

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.core.validators import MinValueValidator

from apps.gym.request_refusals import Refusal
from apps.gym.slugs import find_slug_problem
from apps.gym.storable import REFUSAL, find_unstorable
from apps.gym.strict_json import JsonRefused, load_strict


class JSONTextField(forms.JSONField):
    """Shown indented; a mistake is named with its line and column; `kind` is what the value must be."""

    def __init__(self, *, kind: type, rows: int = 4, **kwargs: Any) -> None:
        self.kind = kind
        widget = forms.Textarea(attrs={"class": "code", "rows": rows, "spellcheck": "false"})
        super().__init__(**{"required": False, "widget": widget, **kwargs})

    def prepare_value(self, value: Any) -> Any:
        if isinstance(value, str):
            return value
        return "" if value is None or value == self.kind() else json.dumps(value, indent=2, ensure_ascii=False)

    def bound_data(self, data: Any, initial: Any) -> Any:
        # What was typed comes back as it was typed, so that a mistake can be corrected in place.
        return data

    def to_python(self, value: Any) -> Any:
        text = (value or "").strip()
        if not text:
            return self.kind()
        try:
            parsed = load_strict(text)
        except JsonRefused as refusal:
            if refusal.code == "not_json":
                raise ValidationError(f"This is not JSON: {refusal.message}.") from None
            at = f" It is at /{'/'.join(map(str, refusal.path))}." if refusal.path else ""
            raise ValidationError(f"{refusal.message}{at}") from None
        if not isinstance(parsed, self.kind):
            wanted = "a JSON object: {…}" if self.kind is dict else "a JSON list: […]"
            raise ValidationError(f"This must be {wanted}.")
        return parsed

    def validate(self, value: Any) -> None:
        if self.required and not value:
            raise ValidationError(self.error_messages["required"], code="required")

    def has_changed(self, initial: Any, data: Any) -> bool:
        try:
            return bool(self.to_python(data) != (initial or self.kind()))
        except ValidationError:
            return True


class LinesField(forms.Field):
    """A list of texts, one a line; empty lines count for nothing."""

    def __init__(self, *, rows: int = 2, **kwargs: Any) -> None:
        widget = forms.Textarea(attrs={"class": "code", "rows": rows, "spellcheck": "false"})
        super().__init__(**{"required": False, "widget": widget, **kwargs})

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(map(str, value)) if isinstance(value, list) else value

    def to_python(self, value: Any) -> list[str]:
        return [line.strip() for line in str(value or "").splitlines() if line.strip()]

    def has_changed(self, initial: Any, data: Any) -> bool:
        return self.to_python(data) != (initial or [])


_UNITS = {"d": 86_400, "h": 3_600, "min": 60, "s": 1}


class MarksField(forms.Field):
    """Names between commas, such as splits or tags."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"required": False, "widget": forms.TextInput(attrs={"maxlength": 2000}), **kwargs})

    def prepare_value(self, value: Any) -> Any:
        return ", ".join(map(str, value)) if isinstance(value, list) else value

    def to_python(self, value: Any) -> list[str]:
        names = list(dict.fromkeys(name.strip() for name in str(value or "").split(",") if name.strip()))
        refuse_unstorable(names)
        return names

    def has_changed(self, initial: Any, data: Any) -> bool:
        return self.to_python(data) != (initial or [])


class NumberedField(forms.Field):
    """A number for each name: `train=8, validation=2`."""

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
                raise ValidationError("Give a name and a number for each, such as train=8, validation=2.")
            if not 1 <= int(number) <= self.high:
                raise ValidationError(f"Give a number from 1 to {self.high:,} for {name.strip()}.")
            found[name.strip()] = int(number)
        refuse_unstorable(found)
        return found

    def has_changed(self, initial: Any, data: Any) -> bool:
        try:
            return self.to_python(data) != (initial or {})
        except ValidationError:
            return True


class SecondsField(forms.Field):
    """A length of time as people write it: `7 d`, `12 h`, `30 min`, `45 s`; a bare number is seconds."""

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
            raise ValidationError("Give a length of time such as 7 d, 12 h, 30 min or 45 s.")
        seconds = float(match[1]) * _UNITS[match[2] or "s"]
        if not self.low <= seconds <= self.high:
            raise ValidationError(f"Give from {self.prepare_value(self.low)} to {self.prepare_value(self.high)}.")
        return round(seconds) if self.whole else seconds

    def validate(self, value: Any) -> None:
        if self.required and value is None:
            raise ValidationError(self.error_messages["required"], code="required")

    def has_changed(self, initial: Any, data: Any) -> bool:
        try:
            return bool(self.to_python(data) != initial)
        except ValidationError:
            return True


def refuse_unstorable(parsed: Any) -> None:
    """A validator of parsed JSON: Django's own looks at text fields alone."""
    place = find_unstorable(parsed)
    if place is not None:
        raise ValidationError(f"{REFUSAL} It is at /{'/'.join(map(str, place))}.")


def add_errors(form: forms.BaseForm, error: ValidationError | Refusal, *, but: Collection[str] = ()) -> None:
    """What an operation refused, beside the fields it names; about other fields, before the form. `but` are fields
    whose errors another form shows."""
    if isinstance(error, Refusal):
        named = {error.argument: [str(error)]}
    else:
        named = error.message_dict if hasattr(error, "error_dict") else {"": error.messages}
    for field, texts in named.items():
        if field in but:
            continue
        for text in texts:
            form.add_error(field if field in form.fields else None, text)


def add_found(form: forms.BaseForm, found: Mapping[str, list[str]]) -> None:
    """Problems by field, where the field has none of its own yet."""
    for field, problems in found.items():
        if field not in form.errors:
            for problem in problems:
                form.add_error(field, problem)


def count_from_one(form: forms.BaseForm, *names: str) -> None:
    """Django's positive numbers begin at 0 and its forms say so, whatever the model's validators say."""
    for name in names:
        field = form.fields[name]
        field.widget.attrs["min"] = 1
        field.validators = [one for one in field.validators if not isinstance(one, MinValueValidator)]
        field.validators.append(MinValueValidator(1))


def _refuse_reserved(slug: str) -> None:
    if problem := find_slug_problem(slug):
        raise ValidationError(problem)


def slug_field(noun: str) -> forms.SlugField:
    return forms.SlugField(
        max_length=64,
        validators=[_refuse_reserved],
        help_text=f"The {noun}'s name in addresses and in the API; it cannot be changed later.",
        widget=forms.TextInput(attrs={"class": "code", "data-slug-of": "id_name", "autocomplete": "off"}),
    )
