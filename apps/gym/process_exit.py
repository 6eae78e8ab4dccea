"""Tell long background jobs that their process ends. Python waits for its threads at exit, however long they take, so
jobs ask between two pieces of their work."""

import threading

_here = threading.local()


class Leaving(Exception):
    """The background job ends here; what it held is to be taken up by another worker."""


def obey(leaving: threading.Event) -> None:
    """From now on `check` in this thread looks at this event."""
    _here.leaving = leaving


def check() -> None:
    """Raise Leaving where this thread was asked to stop. Threads that obey nobody go on."""
    leaving: threading.Event | None = getattr(_here, "leaving", None)
    if leaving is not None and leaving.is_set():
        raise Leaving


def is_obeyed() -> bool:
    """Return True in threads of a worker's background jobs, which `check` can end."""
    return getattr(_here, "leaving", None) is not None
