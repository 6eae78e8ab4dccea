"""Change what this installation takes for a credential; every worker goes by it within seconds."""

from django.core.exceptions import ValidationError
from django.db import transaction

from apps.accounts.audit_log import record
from apps.accounts.models import User
from apps.gym.redaction.redactor import MIN_PREFIX
from apps.policies.installation_redactor import forget_redactor
from apps.policies.models import RedactionPattern

MAX_SAMPLE = 20_000
"""Characters of a text that is tried."""
_KEPT = (
    "arguments at call_id components content details duration environment error explanation finish_reason function id "
    "input items judge kind message model name output prompt question refusal response_id role sampling seed seen "
    "status stop_reason summary text tokens_note tools type usage verdict version"
)
KEPT_NAMES = frozenset(_KEPT.split())
"""Keys of the trace itself: without their values it could not be read any more."""


def save_pattern(*, pattern: RedactionPattern, user: User | None = None) -> RedactionPattern:
    """Raises ValidationError by field."""
    pattern.text = pattern.text.strip()
    pattern.full_clean()
    if pattern.kind == RedactionPattern.Kind.NAME and pattern.text.lower() in KEPT_NAMES:
        raise ValidationError({"text": "A trace has keys of this name, and could not be read without their values."})
    if pattern.kind == RedactionPattern.Kind.PREFIX and len(pattern.text) < MIN_PREFIX:
        raise ValidationError({"text": f"A beginning has at least {MIN_PREFIX} characters."})
    with transaction.atomic():
        pattern.save()
        record(user=user, action="redaction_pattern.create", target=pattern.kind, text=pattern.text)
    forget_redactor()
    return pattern


def delete_pattern(*, pattern: RedactionPattern, user: User | None = None) -> None:
    """What was redacted by it stays so."""
    with transaction.atomic():
        record(user=user, action="redaction_pattern.delete", target=pattern.kind, text=pattern.text)
        pattern.delete()
    forget_redactor()
