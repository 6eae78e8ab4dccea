"""Sites for measurements and screenshots: a server with its own filled database, and Chromium."""

import contextlib
import json
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from playwright.sync_api import Browser, sync_playwright

from scripts.measuring import use_database
from tests.gymweb.serving import serving

CHROMIUM = Path("/usr/bin/chromium")
Made = TypeVar("Made")


class Site(NamedTuple, Generic[Made]):
    base: str
    browser: Browser
    made: Made
    """The result of `fill`."""


@contextlib.contextmanager
def open_site(fill: Callable[[], Made], *arguments: str, **settings: str) -> Iterator[Site[Made]]:
    """Start a site with a new database filled by `fill`. Further arguments are those of `manage.py serve`."""
    with tempfile.TemporaryDirectory() as folder:
        given = use_database(Path(folder), **settings)
        made = fill()
        with serving(Path(folder), *arguments, **given) as served, sync_playwright() as playwright:
            path = CHROMIUM if CHROMIUM.exists() else None
            browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
            yield Site(f"http://127.0.0.1:{served.port}", browser, made)
            browser.close()


def counting_events(number: int, why: str, output: str) -> list[Any]:
    """Two events of a long trace: a call of a tool, and what it gave."""
    from apps.gym.traces.events import ModelCall, ToolResult

    arguments = json.dumps({"n": number, "why": why})
    called = {"type": "function_call", "call_id": f"c{number}", "name": "count", "arguments": arguments}
    call = ModelCall(seen=1, items=[called], usage={"input_tokens": 400 + number, "output_tokens": 30})
    return [call, ToolResult(call_id=f"c{number}", name="count", output=output)]


def sign_in_link(user: Any) -> str:
    from apps.accounts.sign_in import create_sign_in_link

    return f"/sign-in/{create_sign_in_link(user=user)}/"


def signed_in_state(browser: Browser, address: str) -> Any:
    """Return the storage state of a browser after opening a sign-in link."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(address)
    page.locator("main button[type=submit]").click()
    page.wait_for_url(lambda found: "/sign-in/" not in found)
    state = context.storage_state()
    context.close()
    return state


def say_within(lines: Iterator[dict[str, Any]]) -> int:
    """Print the lines as JSON objects. Return exit status 1 if a budget was missed."""
    within = True
    for line in lines:
        print(json.dumps(line), flush=True)
        within &= line.get("within", True)
    return int(not within)


def middle_and_p95(milliseconds: Sequence[float]) -> dict[str, int]:
    times = sorted(milliseconds)
    return {"p50_ms": round(statistics.median(times)), "p95_ms": round(times[round(0.95 * (len(times) - 1))])}
