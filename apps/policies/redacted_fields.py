"""Redact credentials in text that users enter, for example names and notes.

Fields are redacted on each save. Redactions are counted on the current request.
"""

import copy
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

from apps.accounts.telemetry.current_request import CURRENT_REQUEST
from apps.policies.installation_redactor import fresh_redactor

REDACTED = "redacted"
"""Request attribute with the number of redactions by kind."""


Value = TypeVar("Value")


def redact_input(text: str) -> str:
    """Return the text with credentials redacted."""
    clean, found = fresh_redactor().redact_text(text)
    _count_redactions(found)
    return clean


def redact_input_value(value: Value) -> Value:
    """Return a copy of a JSON value with credentials redacted."""
    clean, found = fresh_redactor().redact_value(copy.deepcopy(value))
    _count_redactions(found)
    return cast(Value, clean)


def redact_input_texts(value: Any) -> Any:
    """Return a copy of a JSON value with credentials redacted in keys and texts, whatever their key.

    Unlike `redact_input_value`, it keeps a value whose key only sounds secret: a column may be called "token".
    """
    if isinstance(value, dict):
        return {redact_input(name): redact_input_texts(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [redact_input_texts(one) for one in value]
    return redact_input(value) if isinstance(value, str) else value


def _count_redactions(found: Mapping[str, int]) -> None:
    request = CURRENT_REQUEST.get()
    if found and request is not None:
        counts: Counter[str] = Counter(getattr(request, REDACTED, {}))
        counts.update(found)
        setattr(request, REDACTED, counts)


if TYPE_CHECKING:
    _Char = models.CharField[str, str]
    _Text = models.TextField[str, str]
else:
    _Char, _Text = models.CharField, models.TextField


class _Redacted:
    plain: str
    attname: str
    max_length: int | None

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:
        clean = self._clean(super().pre_save(model_instance, add))  # type: ignore[misc]
        # The caller may show the instance after saving it.
        setattr(model_instance, self.attname, clean)
        return clean

    def get_db_prep_save(self, value: Any, connection: BaseDatabaseWrapper) -> Any:
        # QuerySet.update() has no instance.
        return super().get_db_prep_save(self._clean(value), connection)  # type: ignore[misc]

    def deconstruct(self) -> Any:
        # Migrations see Django's own field, so they do not depend on this class.
        name, _, arguments, keywords = super().deconstruct()  # type: ignore[misc]
        return name, self.plain, arguments, keywords

    def _clean(self, value: Any) -> Any:
        # Cut to the column: a redaction marker may be longer than the credential.
        return redact_input(value)[: self.max_length] if value and isinstance(value, str) else value


class RedactedCharField(_Redacted, _Char):
    plain = "django.db.models.CharField"


class RedactedTextField(_Redacted, _Text):
    plain = "django.db.models.TextField"
