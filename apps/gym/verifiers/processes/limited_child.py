"""Limit a child process that handles untrusted text, and let it serve its socket."""

import contextlib
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable

MAX_MEMORY = 2 * 1024**3
"""Maximum bytes of address space. Larger requests fail with MemoryError here instead of exhausting the machine."""


def run_limited(serve: Callable[[socket.socket], None]) -> None:
    """Serve the socket whose descriptor is the argument of the program."""
    # Agent loops have priority for the processor.
    os.nice(5)
    with contextlib.suppress(ValueError, OSError):  # not supported on every system
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Nothing that runs here needs to write files.
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    with contextlib.suppress(ConnectionError), socket.socket(fileno=int(sys.argv[1])) as channel:
        serve(channel)
