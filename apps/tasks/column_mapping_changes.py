"""Save named column mappings, for files with the same columns."""

from django.db import transaction

from apps.accounts.audit_log import describe, record
from apps.accounts.models import User
from apps.gym.tasks.mappings.column_mapping import read_mapping, write_mapping
from apps.policies.redacted_fields import redact_input_texts
from apps.policies.row_checks import save_row
from apps.tasks.models import ColumnMapping


def save_mapping(mapping: ColumnMapping, *, user: User | None = None) -> ColumnMapping:
    """Create or change a column mapping. Raise MappingRefused, and ValidationError for an invalid name or slug."""
    is_new = mapping.pk is None
    mapping.mapping = redact_input_texts(write_mapping(read_mapping(mapping.mapping)))
    if is_new:
        mapping.created_by = user
    mapping.full_clean(exclude=["created_by"])
    with transaction.atomic():
        stored = ColumnMapping.objects.filter(pk=mapping.pk).first()
        save_row(mapping, stored, user=user, noun="column_mapping", target=mapping)
    return mapping


def delete_mapping(*, mapping: ColumnMapping, user: User | None = None) -> None:
    """Delete a mapping. Uploads keep a copy of the mapping they were loaded with."""
    with transaction.atomic():
        record(user=user, action="column_mapping.delete", target=mapping, before=describe(mapping))
        mapping.delete()
