"""How soon a reviewer has the next item: a server and Chromium, both real, from Enter until the next form listens.

`python scripts/measure_reviewing.py [--items 2000] [--judged 40] [--steps 20] [--overlap 1]` makes a pairwise queue of
so many items in a database of its own, whose rollouts have so many steps, and judges by keyboard alone. One JSON
object a line: milliseconds of all of it, and of what it is made of. The exit status is 1 where the budget was missed.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from playwright.sync_api import Browser, Page, Request  # noqa: E402 - found by the line above

from scripts.measured_pages import CHROMIUM, PASSWORD, measured_site, middle_and_p95, sign_in  # noqa: E402

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


def seed(items: int, steps: int, overlap: int) -> dict[str, int]:
    """Somebody who reviews, and a queue; in this process, on the database that the environment names."""
    import django

    django.setup()
    from apps.accounts.models import Role
    from apps.gym.traces.events import ModelCall, Prompt, ToolResult, TraceUnion
    from apps.gym.traces.items import message
    from apps.reviews.models import Queue
    from apps.reviews.queues.queue_changes import create_queue
    from apps.reviews.queues.queue_items import fill_from_sets
    from tests.factories import make_collection, make_dataset, make_rollout, make_row, make_user

    reviewer = make_user(Role.ANNOTATOR, username="ann")
    reviewer.set_password(PASSWORD)
    reviewer.save()

    def trace(task: int, repeat: int) -> list[TraceUnion]:
        events: list[TraceUnion] = [Prompt(items=[message("user", f"Count from {task} as far as you can.")])]
        for number in range(steps):
            arguments = json.dumps({"n": number, "why": f"because {number + repeat * (number > 2)} was counted"})
            called = {"type": "function_call", "call_id": f"c{number}", "name": "count", "arguments": arguments}
            events.append(ModelCall(seen=1, items=[called], usage={"input_tokens": 400 + number, "output_tokens": 30}))
            events.append(ToolResult(call_id=f"c{number}", name="count", output=f"{OUTPUT}{number} {repeat}"))
        return events

    collection = make_collection(dataset=make_dataset([make_row(f"Count from {n}.") for n in range(items)]))
    tasks = collection.version.tasks.order_by("index")
    sets = [[make_rollout(collection, task=one, trace=trace(one.index, n)).pk for n in range(2)] for one in tasks]
    queue = Queue(name="To judge", kind="pairwise", overlap=overlap)
    made = create_queue(queue=queue, items=fill_from_sets(sets, kind="pairwise"), user=None)
    return {"queue": made.pk}


def measure(base: str, browser: Browser, queue: int, *, judged: int) -> Iterator[dict[str, Any]]:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.add_init_script(WATCH)
    page = context.new_page()
    sign_in(page, base, "ann")
    page.goto(f"{base}/queues/{queue}/review/")
    page.wait_for_function("document.body.dataset.listens")
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-listens] #review-form")
    found = [_judge(page) for _ in range(judged + WARM_UP)][WARM_UP:]
    for what in found[0]:
        times = middle_and_p95([one[what] for one in found])
        within = {"within": times["p95_ms"] <= NEXT_MS} if what == "all" else {}
        yield {"next item": what, **times, "items": len(found), "load": round(os.getloadavg()[0], 1), **within}
    context.close()


def _judge(page: Page) -> dict[str, float]:
    sent: list[Request] = []

    def keep(request: Request) -> None:
        if request.method == "POST" and not request.url.endswith("/renew/"):
            sent.append(request)

    last = page.locator("#review-form").get_attribute("data-review")
    page.on("requestfinished", keep)
    # No draft is on its way: what a draft costs is not what the next item costs.
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=2_000)
    parser.add_argument("--judged", type=int, default=40)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--overlap", type=int, default=1)
    parser.add_argument("--seed", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.seed:
        print(json.dumps(seed(options.items, options.steps, options.overlap)))
        return 0
    if not CHROMIUM.exists():
        print(json.dumps({"next item": "all", "skipped": f"no browser at {CHROMIUM}"}))
        return 0
    within = True
    chosen = ["--items", str(options.items), "--steps", str(options.steps), "--overlap", str(options.overlap)]
    with measured_site(__file__, ["--seed", *chosen]) as site:
        for line in measure(site.base, site.browser, site.made["queue"], judged=options.judged):
            print(json.dumps(line), flush=True)
            within &= line.get("within", True)
    return 0 if within else 1


if __name__ == "__main__":
    raise SystemExit(main())
