"""Check the host of a URL when it is saved, so that users see a rejection immediately.

The check at each connection is decisive, because DNS may change. A name that does not resolve in time can be saved.
"""

import queue
import socket
import threading

from apps.gym.calls.outbound_policy import OutboundPolicy

LOOKUP_SECONDS = 2.0


def check_saved_url(policy: OutboundPolicy, url: str) -> None:
    """Raise OutboundRefused if the URL is never allowed, or if all addresses of its host are forbidden."""
    host, port = policy.host_of(url)
    policy.check_found(url, look_up(host, port))


def look_up(host: str, port: int, *, seconds: float = LOOKUP_SECONDS) -> list[str]:
    """Return the addresses of a host, or an empty list if it does not resolve within `seconds`."""
    answers: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
    # In a thread: the system resolver may take 30 seconds and cannot be cancelled.
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
