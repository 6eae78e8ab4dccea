"""Redact credentials in text that users type, such as names and notes.

Texts are redacted at each save; redactions are counted on the current request.
"""

import copy
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

from apps.accounts.audit_log import CURRENT
from apps.policies.installation_redactor import fresh_redactor

REDACTED = "redacted"
"""Request attribute with the number of redactions by kind."""


Value = TypeVar("Value")


def clean_typed(text: str) -> str:
    """Return the text with credentials redacted."""
    clean, found = fresh_redactor().redact_text(text)
    _count_redactions(found)
    return clean


def clean_typed_value(value: Value) -> Value:
    """Return a copy of a JSON value with credentials redacted."""
    clean, found = fresh_redactor().redact_value(copy.deepcopy(value))
    _count_redactions(found)
    return cast(Value, clean)


def clean_typed_texts(value: Any) -> Any:
    """Return a copy of a JSON value with credentials redacted in texts and keys.

    Values are not redacted because of the name of their key: columns or fields may be called "token".
    """
    if isinstance(value, dict):
        return {clean_typed(name): clean_typed_texts(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [clean_typed_texts(one) for one in value]
    return clean_typed(value) if isinstance(value, str) else value


def _count_redactions(found: Mapping[str, int]) -> None:
    request = CURRENT.get()
    if found and request is not None:
        counts: Counter[str] = Counter(getattr(request, REDACTED, {}))
        counts.update(found)
        setattr(request, REDACTED, counts)


if TYPE_CHECKING:
    _Char = models.CharField[str, str]
    _Text = models.TextField[str, str]
else:
    _Char, _Text = models.CharField, models.TextField


class _Typed:
    plain: str
    attname: str
    max_length: int | None

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:
        clean = self._clean(super().pre_save(model_instance, add))  # type: ignore[misc]
        # The caller may display the instance.
        setattr(model_instance, self.attname, clean)
        return clean

    def get_db_prep_save(self, value: Any, connection: BaseDatabaseWrapper) -> Any:
        # QuerySet.update() has no instance.
        return super().get_db_prep_save(self._clean(value), connection)  # type: ignore[misc]

    def deconstruct(self) -> Any:
        # Migrations treat it as a plain column.
        name, _, arguments, keywords = super().deconstruct()  # type: ignore[misc]
        return name, self.plain, arguments, keywords

    def _clean(self, value: Any) -> Any:
        # A redaction marker may be longer than the original.
        return clean_typed(value)[: self.max_length] if value and isinstance(value, str) else value


class TypedCharField(_Typed, _Char):
    plain = "django.db.models.CharField"


class TypedTextField(_Typed, _Text):
    plain = "django.db.models.TextField"
