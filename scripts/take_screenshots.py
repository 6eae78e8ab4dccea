"""Take the pictures of docs/use/tour.md from the demo's data: `make screenshots` starts its own site.

`python -m scripts.take_screenshots [--into docs/images/tour]` prints one JSON object per line: each picture with its
size. The exit status is 1 if they are larger than LARGEST together, or if a page writes to its console.
"""

import argparse
import json
import re
import sys
from base64 import b64decode, b64encode
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from playwright.sync_api import Browser, ConsoleMessage, Page

from scripts.measured_pages import Site, open_site, sign_in_link, signed_in_state

ROOT = Path(__file__).resolve().parent.parent
LARGEST = 3_000_000
WIDE, TALL = 1280, 800


class Picture(NamedTuple):
    """`keys` are pressed after the page has loaded, `shown` must be visible, `theme` is light or dark."""

    name: str
    path: str
    keys: tuple[str, ...] = ()
    typed: str = ""
    theme: str = "light"
    shown: str = "main h1"
    width: int = WIDE


def pictures(
    *, collection: int, later: int, rollout: int, group: list[int], pair: int, pair_set: int, queue: int
) -> Iterator[Picture]:
    yield Picture("overview", "/")
    yield Picture("palette", "/", ("Control+k",), "arith", shown="#palette-options [role=option]")
    yield Picture("keys", f"/rollouts/{rollout}/", ("?",), shown="dialog.keys")
    yield Picture("datasets", "/datasets/demo-arithmetic/")
    yield Picture("upload", "/datasets/demo-arithmetic/upload/")
    yield Picture("group", "/tasks/1/")
    yield Picture("collections", "/collections/")
    yield Picture("new-collection", "/collections/new/")
    yield Picture("collection", f"/collections/{collection}/", shown="#collection-results svg.figure")
    yield Picture("trace", f"/rollouts/{rollout}/", ("j", "j", "j"), shown="#inspected dl")
    yield Picture("trace-dark", f"/rollouts/{rollout}/", ("j", "j", "j"), theme="dark", shown="#inspected dl")
    yield Picture("trace-narrow", f"/rollouts/{rollout}/", width=390, shown="#rollout-trace .event")
    yield Picture("step", f"/rollouts/{rollout}/steps/2/", shown="#request-title")
    yield Picture("side-by-side", f"/rollouts/compare/?r={','.join(map(str, group))}")
    yield Picture("collections-compared", f"/collections/compare/?a={collection}&b={later}")
    yield Picture("rollouts", "/rollouts/?q=reward%3A%3C1", shown="#facets details")
    yield Picture("glance", "/rollouts/?q=reward%3A%3C1", ("j", "Space"), shown="#peek .event")
    yield Picture("queues", "/queues/")
    yield Picture("review", f"/queues/{queue}/review/", shown="#review-form")
    yield Picture("queue", f"/queues/{queue}/")
    yield Picture("pair-sets", "/pair-sets/")
    yield Picture("pair-set", f"/pair-sets/{pair_set}/")
    yield Picture("pairs", f"/pairs/{pair}/")
    yield Picture("export", "/exports/new/")
    yield Picture("environments", "/environments/")
    yield Picture("verifier", "/verifiers/numeric/")
    yield Picture("models", "/models/")
    yield Picture("workers", "/workers/")
    yield Picture("settings", "/settings/")
    yield Picture("outgoing-calls", "/settings/outgoing/")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=ROOT / "docs" / "images" / "tour")
    into: Path = parser.parse_args().into
    with open_site(fill, GYMWEB_OUTBOUND_ALLOW="localhost,10.20.0.0/16") as site:
        link, rows = site.made
        return take(site, link, list(pictures(**rows)), into)


def fill() -> tuple[str, dict[str, Any]]:
    """Create the demo, a second collection of the same tasks to compare, and a queue in progress.

    Return a sign-in link and the rows.
    """
    from asgiref.sync import async_to_sync
    from django.core.management import call_command
    from django.utils import timezone

    from apps.pairs.models import PairSet, PreferencePair
    from apps.reviews.models import Queue, Review
    from apps.reviews.queues.item_leases import claim_item
    from apps.reviews.queues.queue_changes import create_queue
    from apps.reviews.queues.queue_items import ItemSource, fill_queue
    from apps.reviews.reviews.review_answers import Answer
    from apps.reviews.reviews.submission import submit_review
    from apps.rollouts.models import Collection, Rollout
    from apps.rollouts.plans.plan_spec import Plan
    from apps.rollouts.plans.planning import plan_collection
    from apps.rollouts.steering.local_worker import finish_collection
    from gymweb.management.commands.demo import find_person

    call_command("demo", "--no-serve", stdout=sys.stderr)
    person = find_person()
    one = Collection.objects.order_by("pk")[0]
    model = one.policy_model
    model.mistake_rate = 0.25
    model.save()
    two = plan_collection(
        Plan(
            dataset=one.dataset,
            agent=one.agent,
            policy_model=model,
            repeats=4,
            seed=11,
            name="Demo: the same with fewer mistakes",
        ),
        user=person,
    )
    async_to_sync(finish_collection)(two, progress=lambda _: None)
    asked = Queue(name="Which answer is better?", kind=Queue.Kind.PAIRWISE, overlap=1, seed=7, repeat_share=0.1)
    asked.instructions = "Judge the attempt, not its length: is it right, and did it call only what it needed?"
    queue = create_queue(queue=asked, items=fill_queue(asked, ItemSource(collection=two))[:20], user=person)
    for number, choice in enumerate(["a", "b_much", "equal", "a_much", "b", "both_bad"]):
        review = claim_item(queue=queue, user=person)
        assert review is not None
        answer = Answer(choice=choice, reasons=["correctness"], confidence=3)
        told = submit_review(review=review, user=person, token=f"{number}", answer=answer)
        # At a human pace, because the page of the queue shows the time per item.
        ended = timezone.now() - timedelta(seconds=50 * (6 - number))
        Review.objects.filter(pk=told.pk).update(
            started_at=ended - timedelta(seconds=41), submitted_at=ended, seconds=41.0
        )
    claim_item(queue=queue, user=person)
    # A rollout with tool calls, one of them failed, which shows most parts of a trace.
    shown = Rollout.objects.filter(collection=one, reward=1.0, tool_calls__gte=2).order_by("pk")[0]
    worse = Rollout.objects.filter(collection=one, task=shown.task, reward=0.0).order_by("pk")[:1]
    rows = {
        "collection": one.pk,
        "later": two.pk,
        "rollout": shown.pk,
        "group": [shown.pk, *worse.values_list("pk", flat=True)],
        "pair": PreferencePair.objects.order_by("pk")[0].pk,
        "pair_set": PairSet.objects.order_by("pk")[0].pk,
        "queue": queue.pk,
    }
    return sign_in_link(person), rows


def take(site: Site[Any], link: str, wanted: list[Picture], into: Path) -> int:
    """Return exit status 1 if the pictures are too large or pages wrote to their consoles."""
    into.mkdir(parents=True, exist_ok=True)
    base, browser = site.base, site.browser
    state = signed_in_state(browser, base + link)
    wrong: list[str] = []
    for each in wanted:
        context = browser.new_context(
            storage_state=state,
            viewport={"width": each.width, "height": TALL},
            color_scheme="dark" if each.theme == "dark" else "light",
            reduced_motion="reduce",
        )
        page = context.new_page()
        page.on("console", partial(_listen, wrong, each.name))
        path = into / f"{each.name}.webp"
        path.write_bytes(_picture(browser, _look(page, base, each), each.width))
        print(json.dumps({"picture": each.name, "path": each.path, "bytes": path.stat().st_size}))
        context.close()
    size = sum(each.stat().st_size for each in into.glob("*.webp"))
    print(json.dumps({"pictures": len(wanted), "bytes": size, "most": LARGEST, "wrong": wrong}))
    return int(size > LARGEST or bool(wrong))


def _listen(wrong: list[str], name: str, said: ConsoleMessage) -> None:
    if said.type == "error":
        wrong.append(f"{name}: {said.text}")


def _look(page: Page, base: str, picture: Picture) -> bytes:
    page.goto(base + picture.path)
    page.wait_for_load_state("networkidle")
    for key in picture.keys:
        page.keyboard.press(key)
    if picture.typed:
        page.keyboard.type(picture.typed)
    page.locator(picture.shown).first.wait_for()
    page.wait_for_timeout(500)
    page.evaluate("document.activeElement?.matches('main') && document.activeElement.blur()")
    return page.screenshot()


_ENCODE = """async ([source, width, height]) => {
    const image = new Image();
    image.src = source;
    await image.decode();
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [width, height];
    canvas.getContext("2d").drawImage(image, 0, 0);
    return canvas.toDataURL("image/webp", 0.8);
}"""


def _picture(browser: Browser, png: bytes, width: int) -> bytes:
    """Convert to WebP in the browser, which saves two thirds of the bytes."""
    page = browser.new_page()
    source = f"data:image/png;base64,{b64encode(png).decode()}"
    written: str = page.evaluate(_ENCODE, [source, width, TALL])
    page.close()
    found = re.fullmatch(r"data:image/webp;base64,(.+)", written)
    assert found, "the browser wrote no WebP"
    return b64decode(found[1])


if __name__ == "__main__":
    sys.exit(main())
