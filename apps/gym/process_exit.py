"""Tell long background jobs that their process exits.

Python waits for its threads at exit, so jobs check between two parts of their work.
"""

import threading

_here = threading.local()


class Leaving(Exception):
    """Raised when the background job must stop. Another worker resumes its work."""


def obey(leaving: threading.Event) -> None:
    """Make `check` in this thread use this event."""
    _here.leaving = leaving


def is_leaving() -> bool:
    """Return True if this thread was asked to stop."""
    leaving: threading.Event | None = getattr(_here, "leaving", None)
    return leaving is not None and leaving.is_set()


def check() -> None:
    """Raise Leaving if this thread was asked to stop."""
    if is_leaving():
        raise Leaving


def is_obeyed() -> bool:
    """Return True in threads of a worker's background jobs, which `check` can end."""
    return getattr(_here, "leaving", None) is not None
