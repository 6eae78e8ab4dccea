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


def hint(name: str, known: Collection[str]) -> str:
    # Prefer a name with the same words in another order (min_reward, reward_min) to a similar spelling.
    words = sorted(name.split("_"))
    close = [one for one in known if sorted(one.split("_")) == words] or get_close_matches(name, known, n=1)
    return f"Did you mean “{close[0]}”?" if close else f"Known: {', '.join(sorted(known)) or 'none'}."


class DeclaredFields(Base):
    # A mixin for serializers of request bodies. Clients may send read-only fields back; they are ignored. If another
    # serializer renders the row, `context["shown"]` is the row as rendered: its fields must be unchanged, except those
    # in `context["moving"]`, which change by themselves.

    def to_internal_value(self, data: Any) -> Any:
        errors = self._undeclared(data) if isinstance(data, Mapping) else {}
        try:
            value = super().to_internal_value(data)
        except serializers.ValidationError as wrong:
            if not isinstance(wrong.detail, dict):
                raise
            # Report unknown and invalid fields together.
            errors = {**wrong.detail, **errors}
        if errors:
            raise serializers.ValidationError(errors)
        return value

    def _undeclared(self, data: Mapping[str, Any]) -> dict[str, Any]:
        known = [name for name, field in self.fields.items() if not field.read_only]
        shown, moving = self.context.get("shown", {}), self.context.get("moving", ())
        errors = {}
        for name in sorted(set(data) - set(self.fields)):
            if name not in shown:
                errors[name] = [ErrorDetail(f"Unknown field “{name}”. {hint(name, known)}", code="unknown")]
            elif name not in moving and data[name] != shown[name]:
                message = f"“{name}” is read-only: send it unchanged, or leave it out. {hint(name, known)}"
                errors[name] = [ErrorDetail(message, code="read_only")]
        return errors
