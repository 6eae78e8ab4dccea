"""How soon a browser shows a long rollout, and what comes over the wire for it: a server and Chromium, both real.

`python scripts/measure_reading.py [--steps 5000] [--loads 15]` makes rollouts of 1,000 steps and of so many in a
database of its own, serves them, and opens them in a fresh page each time. One JSON object a line: milliseconds until
the first content was painted and until the first card could be read, and compressed kilobytes. The exit status
is 1 where a budget was missed.
"""

import argparse
import gzip
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from playwright.sync_api import Browser, Response  # noqa: E402 - found by the line above

from scripts.measured_pages import CHROMIUM, PASSWORD, measured_site, middle_and_p95, sign_in  # noqa: E402

FIRST_CONTENT_MS = 1_000
PAGE_KB = 150
SCRIPTS_KB = 45
OUTPUT = "a line of words that a tool wrote, and 12 numbers. " * 16
TIMES = """() => ({
  painted: performance.getEntriesByName("first-contentful-paint")[0]?.startTime,
  read: performance.getEntriesByName("first-card")[0]?.startTime,
})"""
MARK_FIRST_CARD = """
new MutationObserver((_, observer) => {
  if (!document.querySelector("#rollout-trace article")) return;
  observer.disconnect();
  requestAnimationFrame(() => performance.mark("first-card"));
}).observe(document, { childList: true, subtree: true });
"""


def seed(steps: int) -> dict[str, int]:
    """A person who may read, and two rollouts; in this process, on the database that the environment names."""
    import django

    django.setup()
    from apps.accounts.models import Role
    from apps.gym.traces.events import ModelCall, Prompt, ToolResult, TraceUnion
    from apps.gym.traces.items import message
    from tests.factories import make_collection, make_rollout, make_user

    user = make_user(Role.VIEWER, username="reader")
    user.set_password(PASSWORD)
    user.save()
    collection = make_collection()

    def made(count: int) -> int:
        events: list[TraceUnion] = [Prompt(items=[message("user", "Count as far as you can.")])]
        for number in range(count):
            arguments = json.dumps({"n": number, "why": "because the one before was counted"})
            called = {"type": "function_call", "call_id": f"c{number}", "name": "count", "arguments": arguments}
            events.append(ModelCall(seen=1, items=[called], usage={"input_tokens": 400 + number, "output_tokens": 30}))
            events.append(ToolResult(call_id=f"c{number}", name="count", output=f"{OUTPUT}{number}"))
        return make_rollout(collection, trace=events, repeat=count).pk

    return {"thousand": made(1_000), "long": made(steps)}


def measure(
    base: str, browser: Browser, rollouts: dict[str, int], *, steps: int, loads: int
) -> Iterator[dict[str, Any]]:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    sign_in(page, base, "reader")
    state = context.storage_state()
    context.close()
    # With an empty cache, as somebody's first look.
    context = browser.new_context(storage_state=state)
    page = context.new_page()
    answers: list[Response] = []

    def keep(answer: Response) -> None:
        answers.append(answer)

    page.on("response", keep)
    page.goto(f"{base}/rollouts/", wait_until="networkidle")
    scripts = [one for one in answers if one.request.resource_type == "script"]
    # As `collectstatic` compresses them, which a server without it does not.
    sent = sum(len(gzip.compress(one.body())) for one in scripts) / 1000
    within = 0 < sent <= SCRIPTS_KB
    yield {"reading": "scripts of the table of rollouts", "kb": round(sent, 1), "files": len(scripts), "within": within}
    page.goto(f"{base}/rollouts/{rollouts['thousand']}/")
    size = page.evaluate("performance.getEntriesByType('navigation')[0].transferSize") / 1000
    yield {"reading": "page of 1,000 steps", "kb": round(size, 1), "within": 0 < size <= PAGE_KB}
    context.close()
    found = [_open(browser, state, f"{base}/rollouts/{rollouts['long']}/") for _ in range(loads + 1)][1:]
    for what in ("painted", "read"):
        times = middle_and_p95([one[what] for one in found])
        yield {
            "reading": f"{steps:,} steps, first {'content painted' if what == 'painted' else 'card shown'}",
            **times,
            "loads": len(found),
            "load": round(os.getloadavg()[0], 1),
            "within": times["p95_ms"] <= FIRST_CONTENT_MS,
        }


def _open(browser: Browser, state: Any, address: str) -> dict[str, float]:
    """In a context of its own, so that nothing is in the browser's cache."""
    context = browser.new_context(storage_state=state, viewport={"width": 1440, "height": 900})
    context.add_init_script(MARK_FIRST_CARD)
    page = context.new_page()
    page.goto(address)
    page.wait_for_function("performance.getEntriesByName('first-card').length > 0")
    page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length > 0")
    times: dict[str, float] = page.evaluate(TIMES)
    context.close()
    return times


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=5_000)
    parser.add_argument("--loads", type=int, default=15)
    parser.add_argument("--seed", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.seed:
        print(json.dumps(seed(options.steps)))
        return 0
    if not CHROMIUM.exists():
        print(json.dumps({"reading": "all", "skipped": f"no browser at {CHROMIUM}"}))
        return 0
    within = True
    with measured_site(__file__, ["--seed", "--steps", str(options.steps)]) as site:
        for line in measure(site.base, site.browser, site.made, steps=options.steps, loads=options.loads):
            print(json.dumps(line), flush=True)
            within &= line["within"]
    print(json.dumps({"reading": "all", "within": within}))
    return 0 if within else 1


if __name__ == "__main__":
    raise SystemExit(main())
