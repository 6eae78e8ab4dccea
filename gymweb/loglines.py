"""How a log record becomes text."""

import logging
from copy import copy

from django.apps import apps
from django.core.exceptions import PermissionDenied

from gymweb.outages import is_outage


class LineFormatter(logging.Formatter):
    """One line where a traceback says no more than its last sentence.

    Django logs every PermissionDenied with one, though it is an answer and no failure. The channel layer logs one every
    second and process while Redis is away, and Django one for every request while the database is.
    """

    def format(self, record: logging.LogRecord) -> str:
        problem = record.exc_info[1] if record.exc_info else None
        if (
            isinstance(problem, PermissionDenied)
            or (problem and record.name == "channels_redis.pubsub")
            or (is_outage(problem) and record.name == "django.request")
        ):
            # A copy: other handlers get the record as it is.
            record = copy(record)
            record.msg, record.args = f"{record.getMessage()}: {' '.join(str(problem).split())}", ()
            record.exc_info = record.exc_text = None
        return _redact(super().format(record))


def _redact(line: str) -> str:
    """Errors of strangers come into the log as they are, with whatever they quote."""
    if not apps.models_ready:
        return line
    # Logging is set up before the models are, which the redactor needs.
    from apps.policies.redacting import current_redactor

    return current_redactor().redact_text(line)[0]
