"""Measure how soon a reviewer gets the next item, with a real server and Chromium.

The time is from Enter until the next form listens.

`python -m scripts.measure_reviewing [--items 2000] [--judged 40] [--steps 20] [--overlap 1]` creates a pairwise queue
of rollouts with `--steps` steps in its own database, and reviews by keyboard. One JSON object per line: milliseconds in
total and by part. The exit status is 1 if the budget was missed.
"""

from collections.abc import Iterator
from typing import Any

from playwright.sync_api import Page, Request

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

NEXT_MS = 300
WARM_UP = 3
OUTPUT = "a line of words that a tool wrote, and 12 numbers. " * 8
WATCH = """
addEventListener("keydown", (event) => { if (event.key === "Enter") sessionStorage.pressed = Date.now(); }, true);
new MutationObserver((_, observer) => {
  if (!document.body?.dataset.listens) return;
  observer.disconnect();
  performance.mark("listens");
}).observe(document, { attributes: true, childList: true, subtree: true });
"""
LISTENS = "(last) => document.body.dataset.listens && document.getElementById('review-form')?.dataset.review !== last"
TIMES = """() => {
  const page = performance.getEntriesByType("navigation")[0];
  const listens = performance.getEntriesByName("listens")[0].startTime;
  return {
    all: performance.timeOrigin + listens - Number(sessionStorage.pressed),
    "the page from the server": page.responseEnd - page.requestStart,
    "the page in the browser": listens - page.responseEnd,
  };
}"""


def fill(items: int, steps: int, overlap: int) -> tuple[str, int]:
    """Return a sign-in link of a reviewer, and a queue."""
    from apps.accounts.models import Role
    from apps.gym.traces.events import Prompt, TraceUnion
    from apps.gym.traces.items import message
    from apps.reviews.models import Queue
    from apps.reviews.queues.queue_changes import create_queue
    from apps.reviews.queues.queue_items import fill_from_sets
    from tests.factories import make_collection, make_dataset, make_rollout, make_row, make_user

    def trace(task: int, repeat: int) -> list[TraceUnion]:
        events: list[TraceUnion] = [Prompt(items=[message("user", f"Count from {task} as far as you can.")])]
        for number in range(steps):
            why = f"because {number + repeat * (number > 2)} was counted"
            events += counting_events(number, why, f"{OUTPUT}{number} {repeat}")
        return events

    collection = make_collection(dataset=make_dataset([make_row(f"Count from {n}.") for n in range(items)]))
    tasks = collection.version.tasks.order_by("index")
    sets = [[make_rollout(collection, task=one, trace=trace(one.index, n)).pk for n in range(2)] for one in tasks]
    queue = Queue(name="To judge", kind="pairwise", overlap=overlap)
    made = create_queue(queue=queue, items=fill_from_sets(sets, kind="pairwise"), user=None)
    return sign_in_link(make_user(Role.ANNOTATOR)), made.pk


def measure(site: Site[tuple[str, int]], *, judged: int) -> Iterator[dict[str, Any]]:
    base, browser, (link, queue) = site
    state = signed_in_state(browser, base + link)
    context = browser.new_context(storage_state=state, viewport={"width": 1440, "height": 900})
    context.add_init_script(WATCH)
    page = context.new_page()
    page.goto(f"{base}/queues/{queue}/review/")
    page.wait_for_function("document.body.dataset.listens")
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-listens] #review-form")
    found = [_judge(page) for _ in range(judged + WARM_UP)][WARM_UP:]
    for what in found[0]:
        times = middle_and_p95([one[what] for one in found])
        within = {"within": times["p95_ms"] <= NEXT_MS} if what == "all" else {}
        yield {"next item": what, **times, "items": len(found), "load": machine_load(), **within}
    context.close()


def _judge(page: Page) -> dict[str, float]:
    sent: list[Request] = []

    def keep(request: Request) -> None:
        if request.method == "POST" and not request.url.endswith("/renew/"):
            sent.append(request)

    last = page.locator("#review-form").get_attribute("data-review")
    page.on("requestfinished", keep)
    # Exclude the cost of saving a draft.
    page.evaluate("document.querySelector('#review-form [name=choice][value=a]').checked = true")
    page.keyboard.press("Enter")
    page.wait_for_function(LISTENS, arg=last)
    page.remove_listener("requestfinished", keep)
    times: dict[str, float] = page.evaluate(TIMES)
    posted = {("sending the answer" if "/submit/" in one.url else "taking the item"): _took(one) for one in sent}
    return {**times, "sending the answer": 0.0, "taking the item": 0.0, **posted}


def _took(request: Request) -> float:
    timing = request.timing
    return max(timing["responseStart"], timing["responseEnd"]) - timing["requestStart"]


def main() -> int:
    options = parse_sizes(__doc__, items=2_000, judged=40, steps=20, overlap=1).parse_args()
    if not CHROMIUM.exists():
        say("next item", skipped=f"no browser at {CHROMIUM}")
        return 0
    with open_site(lambda: fill(options.items, options.steps, options.overlap), "--no-worker") as site:
        return say_within(measure(site, judged=options.judged))


if __name__ == "__main__":
    raise SystemExit(main())
