"""Names that nobody declared are refused, with what was probably meant: a typing error must not do nothing."""

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail

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
        return {
            name: [ErrorDetail(f"There is no field “{name}”. {hint(name, known)}", code="unknown")]
            for name in sorted(set(data) - set(self.fields))
        }
