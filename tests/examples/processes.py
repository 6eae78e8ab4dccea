"""Start an example as its users do: a process of its own, on a port that it chooses."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.deadlines import DEADLINE

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@contextmanager
def weather_server() -> Iterator[str]:
    """The base URL of a running weather resource server; it ends by SIGTERM, cleanly."""
    script = EXAMPLES / "resource_servers" / "weather" / "server.py"
    process = subprocess.Popen([sys.executable, str(script), "--port", "0"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert found, f"the weather server said {line!r}"
        yield found[0]
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=DEADLINE) == 0
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
