"""Filter and format log records."""

import errno
import logging
import os
from copy import copy
from http import HTTPStatus

from django.apps import apps
from django.core.exceptions import PermissionDenied

from apps.accounts.outage_log import DATABASE, DISK, LAYER
from apps.accounts.outages import is_outage


class OutageFilter(logging.Filter):
    """Count records about outages of database, channel layer and disk instead of logging each.

    Otherwise, Django would log one per request and the channel layer one per second.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        problem = record.exc_info[1] if record.exc_info else None
        if record.name == "django.request" and problem and is_outage(problem):
            DATABASE.failed("answering requests", problem)
        elif record.name == "django.request" and getattr(record, "status_code", 0) == HTTPStatus.INSUFFICIENT_STORAGE:
            DISK.failed("storing what was sent", problem or OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        elif record.name == "channels_redis.pubsub" and problem:
            LAYER.failed("receiving messages", problem)
        else:
            # /readyz logs its own failures.
            path = getattr(getattr(record, "request", None), "path", "")
            return not (record.name == "django.request" and path == "/readyz")
        return False


class LineFormatter(logging.Formatter):
    """Format a PermissionDenied on one line, without the traceback that Django adds."""

    def format(self, record: logging.LogRecord) -> str:
        problem = record.exc_info[1] if record.exc_info else None
        if isinstance(problem, PermissionDenied):
            # A copy, because other handlers get the same record.
            record = copy(record)
            record.msg, record.args = f"{record.getMessage()}: {' '.join(str(problem).split())}", ()
            record.exc_info = record.exc_text = None
        return _redact(super().format(record))


def _redact(line: str) -> str:
    """Redact credentials in a line, once models are loaded."""
    if not apps.models_ready:
        return line
    # Logging is configured before models are loaded, which the redactor needs.
    from apps.policies.installation_redactor import current_redactor

    return current_redactor().redact_text(line)[0]
