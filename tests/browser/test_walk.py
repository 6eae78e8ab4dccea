"""From a file of tasks to a file for training, in a browser: once by mouse and once by keys alone."""

import json
import re
import tarfile
import time
from abc import ABC, abstractmethod
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser.conftest import PASSWORD, Site
from tests.browser.faults import faults_of
from tests.deadlines import DEADLINE

pytestmark = pytest.mark.slow

TASKS = [("What is 1 + 1?", "2"), ("What is 1 + 2?", "3")]
REPEATS = 2


def row(question: str, answer: str) -> str:
    asked = {"input": [{"role": "user", "content": question}]}
    return json.dumps({"responses_create_params": asked, "expected_answer": answer})


ROWS = "\n".join(row(*task) for task in TASKS)


class Hands(ABC):
    """How somebody uses a page."""

    def __init__(self, page: Page) -> None:
        self.page = page

    @abstractmethod
    def press(self, target: Locator) -> None: ...

    @abstractmethod
    def write(self, field: Locator, text: str) -> None: ...

    @abstractmethod
    def choose(self, field: Locator, label: str) -> None: ...

    @abstractmethod
    def go(self, name: str, address: str) -> None: ...


class Mouse(Hands):
    def press(self, target: Locator) -> None:
        target.click()

    def write(self, field: Locator, text: str) -> None:
        field.click()
        field.fill(text)

    def choose(self, field: Locator, label: str) -> None:
        field.select_option(label=label)

    def go(self, name: str, address: str) -> None:
        self.page.locator(".side nav").get_by_role("link", name=name, exact=True).click()
        self.page.wait_for_url(f"**{address}")


class Keys(Hands):
    """Tab, letters, Enter and Space; where the focus is has to be seen."""

    def reach(self, target: Locator) -> None:
        expect(target).to_have_count(1)
        for _ in range(150):
            # Found anew each time: a page that is followed brings its table again.
            if target.evaluate("each => each === document.activeElement"):
                seen = "each => each.matches(':focus-visible') && getComputedStyle(each).outlineStyle !== 'none'"
                assert target.evaluate(seen), f"nobody sees the focus on {target}"
                return
            self.page.keyboard.press("Tab")
        pytest.fail(f"no way leads to {target}")

    def press(self, target: Locator) -> None:
        self.reach(target)
        is_box = target.evaluate("each => each.type === 'checkbox' || each.tagName === 'SUMMARY'")
        self.page.keyboard.press("Space" if is_box else "Enter")

    def write(self, field: Locator, text: str) -> None:
        self.reach(field)
        self.page.keyboard.press("Control+a")
        self.page.keyboard.insert_text(text)

    def choose(self, field: Locator, label: str) -> None:
        self.reach(field)
        self.page.keyboard.type(label)
        expect(field.locator("option:checked")).to_have_text(label)

    def go(self, name: str, address: str) -> None:
        self.page.keyboard.press("Control+k")
        palette = self.page.get_by_role("combobox", name="Search")
        expect(palette).to_be_focused()
        self.page.keyboard.type(name)
        expect(self.page.locator("#palette [aria-selected=true]")).to_have_attribute("href", address)
        self.page.keyboard.press("Enter")
        self.page.wait_for_url(f"**{address}")


@pytest.mark.parametrize("kind", [Mouse, Keys])
def test_tasks_become_rollouts_become_a_file(chromium: Browser, site: Site, kind: type[Hands], tmp_path: Path):
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    page = context.new_page()
    wrong = faults_of(page)
    hands, slug = kind(page), f"walk-{kind.__name__.lower()}"
    page.goto(f"{site.base}/sign-in/")
    hands.write(page.get_by_label("User name"), "erika")
    hands.write(page.get_by_label("Password"), PASSWORD)
    hands.press(page.get_by_role("button", name="Sign in"))
    page.wait_for_url(f"{site.base}/")

    upload(page, hands, slug, tmp_path)
    model = site.api("GET", f"policy-models/{site.seeded['model']}/")["name"]
    collection = collect(page, hands, slug, model)
    review(page, hands, collection)
    saved = export(page, hands, collection)
    with tarfile.open(saved) as archive:
        [rows] = [one for one in archive.getmembers() if one.name.endswith(".jsonl")]
        file = archive.extractfile(rows)
        assert file is not None
        lines = [json.loads(line) for line in file]
    assert len(lines) == len(TASKS) * REPEATS
    assert {line["expected_answer"] for line in lines} == {"2", "3"}
    assert wrong == []
    context.close()


def upload(page: Page, hands: Hands, slug: str, folder: Path) -> None:
    hands.go(
        "New dataset" if isinstance(hands, Keys) else "Datasets",
        "/datasets/new/" if isinstance(hands, Keys) else "/datasets/",
    )
    if isinstance(hands, Mouse):
        hands.press(page.get_by_role("link", name="New dataset"))
    hands.write(page.get_by_label("Name"), slug)
    expect(page.get_by_label("Slug")).to_have_value(slug)
    hands.choose(page.get_by_label("Environment"), "Calculator")
    hands.press(page.get_by_role("button", name="Create dataset"))
    page.wait_for_url(f"**/datasets/{slug}/upload/")
    if isinstance(hands, Mouse):
        file = folder / "tasks.jsonl"
        file.write_text(ROWS)
        page.set_input_files("input[type=file]", file)
    else:
        hands.write(page.locator("[name=rows]"), ROWS)
    hands.press(page.get_by_role("button", name="Continue"))
    page.wait_for_url("**/uploads/*/map/")
    hands.press(page.get_by_role("button", name="Validate only"))
    expect(page.locator("#result")).to_contain_text(f"{len(TASKS)} rows are valid")
    hands.press(page.get_by_role("button", name="Load as a new version"))
    expect(page.locator("#result")).to_contain_text("Version 1 is ready.")


def collect(page: Page, hands: Hands, slug: str, model: str) -> str:
    """Gives the address of the collection, which was watched to its end."""
    hands.go(
        "New collection" if isinstance(hands, Keys) else "Collections",
        "/collections/new/" if isinstance(hands, Keys) else "/collections/",
    )
    if isinstance(hands, Mouse):
        hands.press(page.get_by_role("link", name="New collection").first)
    hands.choose(page.get_by_label("Dataset"), slug)
    offered = page.locator("[name=policy_model] option").all_inner_texts()
    hands.choose(page.get_by_label("Policy model"), next(each for each in offered if each.startswith(model)))
    hands.write(page.get_by_role("spinbutton", name="Rollouts per task"), str(REPEATS))
    expect(page.locator("#plan")).to_contain_text(f"{len(TASKS) * REPEATS} rollouts")
    hands.press(page.get_by_role("button", name="Start collection"))
    page.wait_for_url(re.compile(r"/collections/\d+/$"))
    page.evaluate("window.kept = true")
    expect(page.locator("#collection-progress .chip").first).to_contain_text("completed")
    expect(page.locator("#collection-results")).to_contain_text("4 of 4 rollouts")
    assert page.evaluate("window.kept") is True
    return page.url


def review(page: Page, hands: Hands, collection: str) -> None:
    """A trace, its group, two of the group side by side."""
    table = page.locator("#rollouts tbody")
    expect(table.locator("tr")).to_have_count(len(TASKS) * REPEATS)
    hands.press(table.locator("tr").first.get_by_role("link").first)
    page.wait_for_url("**/rollouts/*/*")
    expect(page.locator("#rollout-trace .event.model_call").first).to_be_visible()
    if isinstance(hands, Keys):
        for _ in range(3):
            page.keyboard.press("j")
        expect(page.locator(".event.chosen")).to_have_count(1)
        expect(page.locator("#inspected")).to_contain_text("Tokens in")
    else:
        page.locator("#rollout-trace .event.model_call").first.click(position={"x": 60, "y": 8})
        expect(page.locator("#inspected")).to_contain_text("Tokens in")
    hands.press(page.locator(".trace-head").get_by_role("link", name="Compare", exact=True))
    page.wait_for_url("**/tasks/**")
    boxes = page.locator(".tiles input")
    hands.press(boxes.nth(0))
    hands.press(boxes.nth(1))
    hands.press(page.get_by_role("button", name="Compare", exact=True))
    expect(page.locator("h1")).to_contain_text("2 rollouts of task")
    expect(page.locator("table.outcomes").first).to_be_visible()
    page.goto(collection)


def export(page: Page, hands: Hands, collection: str) -> Path:
    hands.press(page.get_by_role("link", name="Export", exact=True))
    page.wait_for_url("**/exports/new/*")
    hands.press(page.get_by_role("link", name="NeMo Gym rollout rows").first)
    page.wait_for_url("**/exports/new/*format=*")
    hands.press(page.get_by_role("button", name="Create export"))
    download = page.get_by_role("link", name="Download", exact=False).first
    ends = time.monotonic() + DEADLINE
    while time.monotonic() < ends and not download.is_visible():
        page.wait_for_timeout(100)
    with page.expect_download() as saved:
        hands.press(download)
    return Path(saved.value.path())
