"""Measure how fast a browser shows a long rollout and how much is transferred, with a real server and Chromium.

`python -m scripts.measure_reading [--steps 5000] [--loads 15]` creates rollouts of 1,000 and of `--steps` steps in its
own database, serves them, and opens each in a fresh page. One JSON object per line: milliseconds until the first
content was painted and until the first card was readable, and compressed kilobytes. The exit status is 1 if a budget
was missed.
"""

import gzip
from collections.abc import Iterator
from typing import Any

from playwright.sync_api import Browser, Response

from scripts.measured_pages import (
    CHROMIUM,
    Site,
    counting_events,
    middle_and_p95,
    open_site,
    say_within,
    sign_in_link,
    signed_in_state,
)
from scripts.measuring import machine_load, parse_sizes, say

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


def fill(steps: int) -> tuple[str, int, int]:
    """Return a sign-in link, and two rollouts: of a thousand steps, and of `steps` steps."""
    from apps.accounts.models import Role
    from apps.gym.traces.events import Prompt, TraceUnion
    from apps.gym.traces.items import message
    from tests.factories import make_collection, make_rollout, make_user

    collection = make_collection()

    def made(count: int) -> int:
        events: list[TraceUnion] = [Prompt(items=[message("user", "Count as far as you can.")])]
        for number in range(count):
            events += counting_events(number, "because the one before was counted", f"{OUTPUT}{number}")
        return make_rollout(collection, trace=events, repeat=count).pk

    return sign_in_link(make_user(Role.VIEWER)), made(1_000), made(steps)


def measure(site: Site[tuple[str, int, int]], *, steps: int, loads: int) -> Iterator[dict[str, Any]]:
    base, browser, (link, thousand, long) = site
    state = signed_in_state(browser, base + link)
    # With an empty cache, as on a first visit.
    context = browser.new_context(storage_state=state)
    page = context.new_page()
    answers: list[Response] = []

    def keep(answer: Response) -> None:
        answers.append(answer)

    page.on("response", keep)  # Playwright cannot call a built-in method.
    page.goto(f"{base}/rollouts/", wait_until="networkidle")
    scripts = [one for one in answers if one.request.resource_type == "script"]
    # Compressed as by `collectstatic`; a server without it does not compress.
    sent = sum(len(gzip.compress(one.body())) for one in scripts) / 1000
    within = 0 < sent <= SCRIPTS_KB
    yield {"reading": "scripts of the table of rollouts", "kb": round(sent, 1), "files": len(scripts), "within": within}
    page.goto(f"{base}/rollouts/{thousand}/")
    size = page.evaluate("performance.getEntriesByType('navigation')[0].transferSize") / 1000
    yield {"reading": "page of 1,000 steps", "kb": round(size, 1), "within": 0 < size <= PAGE_KB}
    context.close()
    found = [_open(browser, state, f"{base}/rollouts/{long}/") for _ in range(loads + 1)][1:]
    for what in ("painted", "read"):
        times = middle_and_p95([one[what] for one in found])
        yield {
            "reading": f"{steps:,} steps, first {'content painted' if what == 'painted' else 'card shown'}",
            **times,
            "loads": len(found),
            "load": machine_load(),
            "within": times["p95_ms"] <= FIRST_CONTENT_MS,
        }


def _open(browser: Browser, state: Any, address: str) -> dict[str, float]:
    """Open the page in a new context, so that nothing is cached."""
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
    options = parse_sizes(__doc__, steps=5_000, loads=15).parse_args()
    if not CHROMIUM.exists():
        say("reading", skipped=f"no browser at {CHROMIUM}")
        return 0
    with open_site(lambda: fill(options.steps), "--no-worker") as site:
        return say_within(measure(site, steps=options.steps, loads=options.loads))


if __name__ == "__main__":
    raise SystemExit(main())
