"""Reject unknown field names, with a suggestion, so that typos are not silently ignored."""

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail

if TYPE_CHECKING:
    Base = serializers.Serializer[Any]
else:
    Base = object


def suggest_name(name: str, known: Collection[str]) -> str:
    """Return a sentence that suggests the closest known name, or lists all known names."""
    # Prefer a name with the same words in another order (min_reward, reward_min) to a similar spelling.
    words = sorted(name.split("_"))
    close = [one for one in known if sorted(one.split("_")) == words] or get_close_matches(name, known, n=1)
    return f"Did you mean “{close[0]}”?" if close else f"Choose one of: {', '.join(sorted(known)) or 'none'}."


class DeclaredFields(Base):
    # Mixin for serializers of request bodies that rejects unknown fields. A comment, because drf-spectacular copies
    # docstrings into the schema.
    #
    # Clients may send an object back as they received it: read-only fields of the serializer are ignored. If another
    # serializer produced the response, pass its output as `context["shown"]`. Its other fields are accepted only with
    # the same value. Exceptions are the fields in `context["changing"]`, which may have changed since the response.

    def to_internal_value(self, data: Any) -> Any:
        errors = self._undeclared(data) if isinstance(data, Mapping) else {}
        try:
            value = super().to_internal_value(data)
        except serializers.ValidationError as error:
            if not isinstance(error.detail, dict):
                raise
            # Report unknown and invalid fields together.
            errors = {**error.detail, **errors}
        if errors:
            raise serializers.ValidationError(errors)
        return value

    def _undeclared(self, data: Mapping[str, Any]) -> dict[str, Any]:
        known = [name for name, field in self.fields.items() if not field.read_only]
        shown, changing = self.context.get("shown", {}), self.context.get("changing", ())
        errors = {}
        for name in sorted(set(data) - set(self.fields)):
            if name not in shown:
                errors[name] = [ErrorDetail(f"Unknown field “{name}”. {suggest_name(name, known)}", code="unknown")]
            elif name not in changing and data[name] != shown[name]:
                message = f"“{name}” is read-only: send it unchanged, or leave it out. {suggest_name(name, known)}"
                errors[name] = [ErrorDetail(message, code="read_only")]
        return errors
