"""What stands behind a name when its address is saved: whoever enters it should hear at once that it is refused.

What holds is the look at each connection, for a name may stand for something else by then. So a name that nobody
knows yet, or that is not answered in time, may be saved.
"""

import queue
import socket
import threading

from apps.gym.calls.outbound_policy import OutboundPolicy

LOOKUP_SECONDS = 2.0


def check_saved_url(policy: OutboundPolicy, url: str) -> None:
    """Raises OutboundRefused where the URL can never be called, or its host has only addresses that may not be."""
    host, port = policy.host_of(url)
    policy.check_found(url, look_up(host, port))


def look_up(host: str, port: int, *, seconds: float = LOOKUP_SECONDS) -> list[str]:
    """The addresses of a host; none where there are none within `seconds`."""
    answers: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
    # The system's own limit may be half a minute, and a call to it cannot be cancelled.
    threading.Thread(target=lambda: answers.put(_ask_system(host, port)), name="lookup", daemon=True).start()
    try:
        return answers.get(timeout=seconds)
    except queue.Empty:
        return []


def _ask_system(host: str, port: int) -> list[str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return list(dict.fromkeys(str(address[0]) for *_, address in found))
