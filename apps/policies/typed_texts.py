"""Texts that people type beside the data: names, descriptions, notes. Credentials in them are taken out at each save,
whoever saves, and the request that is being answered learns of it."""

import copy
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

from apps.accounts.audit_log import CURRENT
from apps.policies.installation_redactor import fresh_redactor

REDACTED = "redacted"
"""The attribute of a request that counts, by kind, what was taken out of its texts."""


Value = TypeVar("Value")


def clean_typed(text: str) -> str:
    """The text without credentials."""
    clean, found = fresh_redactor().redact_text(text)
    _tell(found)
    return clean


def clean_typed_value(value: Value) -> Value:
    """A JSON value without credentials, in a copy."""
    clean, found = fresh_redactor().redact_value(copy.deepcopy(value))
    _tell(found)
    return cast(Value, clean)


def clean_typed_texts(value: Any) -> Any:
    """A JSON value without credentials in its texts and the names of its members, in a copy. What a member is called
    says nothing of its value here: a column or a field may be called a token."""
    if isinstance(value, dict):
        return {clean_typed(name): clean_typed_texts(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [clean_typed_texts(one) for one in value]
    return clean_typed(value) if isinstance(value, str) else value


def _tell(found: Mapping[str, int]) -> None:
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
        # The caller shows the row as it is stored.
        setattr(model_instance, self.attname, clean)
        return clean

    def get_db_prep_save(self, value: Any, connection: BaseDatabaseWrapper) -> Any:
        # An UPDATE of a query set has no instance.
        return super().get_db_prep_save(self._clean(value), connection)  # type: ignore[misc]

    def deconstruct(self) -> Any:
        # Of the database it is a plain column.
        name, _, arguments, keywords = super().deconstruct()  # type: ignore[misc]
        return name, self.plain, arguments, keywords

    def _clean(self, value: Any) -> Any:
        # A mark may be longer than what it stands for.
        return clean_typed(value)[: self.max_length] if value and isinstance(value, str) else value


class TypedCharField(_Typed, _Char):
    plain = "django.db.models.CharField"


class TypedTextField(_Typed, _Text):
    plain = "django.db.models.TextField"
