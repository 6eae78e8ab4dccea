"""Names that nobody declared are refused, with what was probably meant: a typing error must not do nothing. So is text
inside objects and lists that a database cannot store."""

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail

from apps.gym.storable import REFUSAL, find_unstorable

if TYPE_CHECKING:
    Base = serializers.Serializer[Any]
else:
    Base = object


def hint(name: str, known: Collection[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f"Did you mean “{close[0]}”?" if close else f"Known: {', '.join(sorted(known)) or 'none'}."


class DeclaredFields(Base):
    # For a serializer that reads bodies. Fields that are only shown may be sent back as they came, and are ignored.

    def to_internal_value(self, data: Any) -> Any:
        errors = self._undeclared(data) if isinstance(data, Mapping) else {}
        try:
            value = super().to_internal_value(data)
        except serializers.ValidationError as wrong:
            if not isinstance(wrong.detail, dict):
                raise
            # All that is wrong at once.
            errors = {**wrong.detail, **errors}
        if errors:
            raise serializers.ValidationError(errors)
        return value

    def _undeclared(self, data: Mapping[str, Any]) -> dict[str, Any]:
        known = [name for name, field in self.fields.items() if not field.read_only]
        unknown = {
            name: [ErrorDetail(f"There is no field “{name}”. {hint(name, known)}", code="unknown")]
            for name in sorted(set(data) - set(self.fields))
        }
        return {**_unstorable({name: data[name] for name in data if name not in unknown}), **unknown}


def _unstorable(data: Mapping[str, Any]) -> dict[str, Any]:
    """Errors nested like the value. Texts that are fields themselves are checked by those."""
    errors: dict[str, Any] = {}
    for name, value in data.items():
        place = find_unstorable(value) if isinstance(value, dict | list) else None
        if place is not None:
            error: Any = [ErrorDetail(REFUSAL, code="unstorable")]
            for step in reversed(place):
                error = {str(step): error}
            errors[name] = error
    return errors
