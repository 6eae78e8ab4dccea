"""Pages that are measured: a server over a database of its own, filled by the measuring script itself, and Chromium."""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from playwright.sync_api import Browser, Page, sync_playwright

from scripts.servers import own_settings
from tests.gymweb.serving import serving

ROOT = Path(__file__).resolve().parent.parent
CHROMIUM = Path("/usr/bin/chromium")
PASSWORD = "correct horse battery"  # noqa: S105 - of somebody who exists as long as a measurement


class Site(NamedTuple):
    base: str
    browser: Browser
    made: Any
    """What the script printed when it filled the database."""


@contextlib.contextmanager
def measured_site(script: str, seed: Sequence[str]) -> Iterator[Site]:
    """`script` is run with the arguments `seed` on a new database, and prints as JSON what it made there."""
    with tempfile.TemporaryDirectory() as folder:
        given = own_settings(Path(folder))
        environment = {**os.environ, **given, "PYTHONPATH": str(ROOT)}
        migrate = [sys.executable, "manage.py", "migrate", "--verbosity", "0"]
        subprocess.run(migrate, cwd=ROOT, env=environment, check=True)
        words = [sys.executable, script, *seed]
        made = subprocess.run(words, cwd=ROOT, env=environment, check=True, text=True, stdout=subprocess.PIPE)
        with serving(Path(folder), "--no-worker", **given) as served, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
            yield Site(f"http://127.0.0.1:{served.port}", browser, json.loads(made.stdout))
            browser.close()


def sign_in(page: Page, base: str, username: str) -> None:
    page.goto(f"{base}/sign-in/")
    page.fill("[name=username]", username)
    page.fill("[name=password]", PASSWORD)
    page.click("main button[type=submit]")
    page.wait_for_url(lambda address: "/sign-in/" not in address)


def middle_and_p95(milliseconds: Sequence[float]) -> dict[str, int]:
    times = sorted(milliseconds)
    return {"p50_ms": round(statistics.median(times)), "p95_ms": round(times[round(0.95 * (len(times) - 1))])}
