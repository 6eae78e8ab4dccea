"""How a log record becomes text."""

import logging
from copy import copy

from django.core.exceptions import PermissionDenied


class LineFormatter(logging.Formatter):
    """Django logs every PermissionDenied with its traceback. It is an answer and no failure: its sentence is enough."""

    def format(self, record: logging.LogRecord) -> str:
        refused = record.exc_info[1] if record.exc_info else None
        if isinstance(refused, PermissionDenied):
            # A copy: other handlers get the record as it is.
            record = copy(record)
            record.msg, record.args = f"{record.getMessage()}: {refused}", ()
            record.exc_info = record.exc_text = None
        return super().format(record)
