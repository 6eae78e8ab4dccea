"""Filter and format log records."""

import errno
import logging
import os
import re
from copy import copy
from datetime import UTC, datetime
from http import HTTPStatus

from django.apps import apps
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest

from apps.accounts.outage_log import DATABASE, DISK, LAYER
from apps.accounts.outages import is_outage
from apps.accounts.telemetry.log_context import read_context
from apps.gym.traces.items import encode_json

# One-time tokens in paths, which Django logs. They have 43 characters.
_TOKEN_PATH = re.compile(r"(/(?:sign-in|invitations)/)[\w-]{40,}")


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
    """Format records as lines. The first line ends with the id of the request, if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        return _redact(super().format(_shorten_denial(record)))

    def formatMessage(self, record: logging.LogRecord) -> str:
        request_id = read_context(_request_of(record)).get("request_id")
        return super().formatMessage(record) + (f" [request {request_id}]" if request_id else "")


class JsonFormatter(logging.Formatter):
    """Format each record as one JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        record = _shorten_denial(record)
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **read_context(_request_of(record)),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            entry["stack"] = self.formatStack(record.stack_info)
        return _redact(encode_json(entry).decode(), is_json=True)


def _request_of(record: logging.LogRecord) -> HttpRequest | None:
    """Return the request that Django adds to its records: it logs some after the request has ended."""
    request = getattr(record, "request", None)
    return request if isinstance(request, HttpRequest) else None


def _shorten_denial(record: logging.LogRecord) -> logging.LogRecord:
    """Return the record of a PermissionDenied without the traceback that Django adds."""
    problem = record.exc_info[1] if record.exc_info else None
    if isinstance(problem, PermissionDenied):
        # A copy, because other handlers get the same record.
        record = copy(record)
        record.msg, record.args = f"{record.getMessage()}: {' '.join(str(problem).split())}", ()
        record.exc_info = record.exc_text = None
    return record


def _redact(line: str, *, is_json: bool = False) -> str:
    """Replace one-time tokens in paths, and once models are loaded, redact credentials."""
    line = _TOKEN_PATH.sub(r"\1<str:token>", line)
    if not apps.models_ready:
        return line
    # Logging is configured before models are loaded, which the redactor needs.
    from apps.policies.installation_redactor import current_redactor

    redactor = current_redactor()
    return (redactor.redact_json(line) if is_json else redactor.redact_text(line))[0]
