"""The table of rollouts in a browser: by keyboard alone, without scripts, on a phone, and for all users."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Site
from tests.gymweb.serving import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def seeded(site: Site, figures: dict[str, Any]) -> dict[str, Any]:
    subprocess.run(
        [sys.executable, "manage.py", "index_rollouts", "--again"],
        cwd=ROOT,
        env=site.environment,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return figures


@pytest.fixture
def unscripted(chromium: Browser, signed_in: Any) -> Iterator[Page]:
    context = chromium.new_context(storage_state=signed_in, java_script_enabled=False)
    yield context.new_page()
    context.close()


def open_table(site: Site, tab: Page, query: str) -> None:
    tab.goto(f"{site.base}/rollouts/?q={query}")
    tab.wait_for_load_state("networkidle")


def test_the_table_is_read_marked_and_opened_by_keyboard_alone(site, tab, seeded):
    tab.set_viewport_size({"width": 1300, "height": 700})
    open_table(site, tab, f"collection:{seeded['a']}&sort=id")
    rows = tab.locator("#rollouts tr[data-row]")
    first, second, third = (rows.nth(place).get_attribute("data-row") for place in range(3))
    for key in ("j", "j", "k"):
        tab.keyboard.press(key)
    expect(tab.locator("tr.chosen")).to_have_attribute("data-row", first)
    tab.keyboard.press("x")
    tab.keyboard.press("j")
    tab.keyboard.press("j")
    tab.keyboard.press("X")
    expect(tab.locator("[data-marked]")).to_have_text("3 selected.")
    tab.keyboard.press("Space")
    expect(tab.locator("#peek h2")).to_have_text(f"Rollout #{third}")
    tab.keyboard.press("k")
    expect(tab.locator("#peek h2")).to_have_text(f"Rollout #{second}")
    expect(tab.locator("#peek .event").first).to_be_visible()
    tab.keyboard.press("Escape")
    expect(tab.locator("#peek")).to_be_hidden()
    # What is typed is text.
    tab.keyboard.press("/")
    tab.keyboard.type(" reward:>0.9 ")
    expect(tab.locator("#q")).to_have_value(f"collection:{seeded['a']} reward:>0.9 ")
    tab.keyboard.press("Enter")
    tab.wait_for_url("**reward*")
    tab.wait_for_load_state("networkidle")
    assert rows.count() > 1
    expect(tab.locator("#rollouts .reward-chip.ok")).to_have_count(rows.count())
    tab.keyboard.press("Escape")
    tab.keyboard.press("j")
    tab.keyboard.press("j")
    chosen = tab.locator("tr.chosen").get_attribute("data-row")
    tab.keyboard.press("o")
    tab.wait_for_url(f"**/rollouts/{chosen}/?list=*")
    # The next one is the next of the same list.
    tab.locator("a[rel=prev]").first.click()
    tab.wait_for_url(lambda address: f"/rollouts/{chosen}/" not in address and "/?list=" in address)


def test_marks_and_the_focus_outlast_sorting_filtering_and_coming_back(site, tab, seeded):
    open_table(site, tab, f"collection:{seeded['a']}&sort=id")
    said = tab.locator("[data-marked]")
    tab.locator("[data-mark-all]").check()
    count = tab.locator("#rollouts tr[data-row]").count()
    expect(said).to_have_text(f"{count} selected.")
    tab.locator("[data-unmark-all]").click()
    expect(said).to_contain_text("Select rollouts")
    boxes = tab.locator("#rollouts input[name=r]")
    first, last = boxes.first.get_attribute("value"), boxes.last.get_attribute("value")
    boxes.first.check()
    boxes.last.check()
    expect(tab.locator("[data-mark-all]")).to_have_js_property("indeterminate", True)
    tab.locator("#sort-reward").focus()
    tab.keyboard.press("Enter")
    expect(tab.locator("th[aria-sort=descending]")).to_contain_text("Reward")
    expect(tab.locator("#sort-reward")).to_be_focused()
    expect(tab.locator(f"#r{first}")).to_be_checked()
    expect(said).to_have_text("2 selected.")
    open_table(site, tab, f"collection:{seeded['a']} id:{first}")
    expect(said).to_contain_text("2 selected, 1 on other pages")
    tab.locator("#marked button:has-text('Compare')").click()
    tab.wait_for_url(f"**/rollouts/compare/?r={first},{last}")
    tab.go_back()
    expect(said).to_contain_text("2 selected, 1 on other pages")
    # What is deleted is asked for on a page.
    tab.locator("#marked button:has-text('Delete')").click()
    expect(tab.locator("h1")).to_have_text("Delete 2 rollouts")
    tab.get_by_role("link", name="Keep them").click()
    expect(said).to_contain_text("2 selected, 1 on other pages")


def test_all_rows_are_marked_by_one_box_on_a_phone_too(site, tab, seeded):
    tab.set_viewport_size({"width": 360, "height": 740})
    open_table(site, tab, f"collection:{seeded['a']}")
    box = tab.get_by_label("Select all rows shown")
    expect(tab.locator("#rollouts label", has_text="Select all rows shown")).to_be_visible()
    # Its words are part of what is touched.
    tab.locator("#rollouts label", has_text="Select all rows shown").click()
    expect(box).to_be_checked()
    count = tab.locator("#rollouts tr[data-row]").count()
    expect(tab.locator("[data-marked]")).to_have_text(f"{count} selected.")
    assert tab.evaluate("document.documentElement.scrollWidth") == 360
    tab.set_viewport_size({"width": 1440, "height": 740})
    expect(tab.locator("#rollouts label")).to_be_hidden()
    expect(box).to_be_visible()


def test_counts_lead_on_and_can_be_taken_back(site, tab, seeded):
    tab.set_viewport_size({"width": 1400, "height": 800})
    open_table(site, tab, f"collection:{seeded['a']}")
    tab.locator(".facets a", has_text="failed").click()
    tab.wait_for_load_state("networkidle")
    expect(tab.locator("#rollouts .chip.bad", has_text="failed")).to_have_count(
        tab.locator("#rollouts tbody tr").count()
    )
    chosen = tab.locator(".facets a[aria-current]", has_text="failed")
    chosen.click()
    tab.wait_for_load_state("networkidle")
    expect(tab.locator("#q")).to_have_value(f"collection:{seeded['a']}")


def test_a_heading_sorts_and_the_address_keeps_it(site, tab, seeded):
    open_table(site, tab, f"collection:{seeded['a']}")
    tab.locator("th a.sort", has_text="Reward").click()
    expect(tab.locator("th[aria-sort=descending]")).to_contain_text("Reward")
    tab.locator("th a.sort", has_text="Reward").click()
    expect(tab.locator("th[aria-sort=ascending]")).to_contain_text("Reward")
    assert "sort=reward" in tab.url
    tab.reload()
    expect(tab.locator("th[aria-sort=ascending]")).to_contain_text("Reward")
    # Back is the page that stood there, and its keys work.
    tab.go_back()
    expect(tab.locator("th[aria-sort=descending]")).to_contain_text("Reward")
    expect(tab.locator("main h1")).to_have_text("Rollouts")
    tab.keyboard.press("j")
    expect(tab.locator("tr.chosen")).to_have_count(1)
    tab.keyboard.press("Control+k")
    expect(tab.locator("#palette")).to_be_visible()


def test_words_of_traces_are_found_and_a_wrong_key_is_marked(site, tab, seeded):
    open_table(site, tab, f"collection:{seeded['a']} text:%22compared%22")
    assert tab.locator("#rollouts tbody tr").count() > 0
    open_table(site, tab, "rewrd:1")
    expect(tab.locator("#q-refusal mark")).to_have_text("rewrd")
    expect(tab.locator("#q-refusal")).to_contain_text("Did you mean reward:?")


def test_everything_works_without_a_script(site, unscripted, seeded):
    page = unscripted
    page.goto(f"{site.base}/rollouts/")
    page.fill("#q", f"collection:{seeded['a']} status:completed")
    page.click(".filter-bar button[type=submit]")
    shown = page.locator("#rollouts tbody tr").count()
    assert shown == 8
    page.click(".facets a:has-text('Rollout counts')")
    page.locator(".facets a", has_text="completed").click()
    page.click("summary:has-text('Columns')")
    page.check("input[name=column][value=cost]")
    page.click("details[open] button:has-text('Save')")
    assert page.locator("th a.sort", has_text="Cost").count() == 1
    page.click("summary:has-text('Columns')")
    page.click("details[open] button:has-text('Default')")
    page.locator("#rollouts input[name=r]").nth(0).check()
    page.locator("#rollouts input[name=r]").nth(1).check()
    page.click("#marked button:has-text('Compare')")
    assert "/rollouts/compare/?r=" in page.url


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_and_no_phone_is_too_narrow(site, tab, seeded, theme):
    tab.emulate_media(color_scheme=theme)
    wrong = {}
    for query in (f"collection:{seeded['a']} status:completed", "rewrd:1", "text:nowhere"):
        tab.set_viewport_size({"width": 1440, "height": 900})
        open_table(site, tab, query)
        for fold in tab.locator("main details").all():
            fold.evaluate("fold => { fold.open = true; }")
        if tab.locator("#rollouts").count():
            tab.locator("h1").click()
            tab.keyboard.press("j")
            tab.keyboard.press("Space")
            expect(tab.locator("#peek .event").first).to_be_visible()
        found = Axe().run(tab).response["violations"]
        wrong[query] = [f"{each['id']}: {node['html'][:120]}" for each in found for node in each["nodes"]]
        tab.set_viewport_size({"width": 360, "height": 800})
        open_table(site, tab, query)
        assert tab.evaluate("document.documentElement.scrollWidth") <= 360
    assert {query: found for query, found in wrong.items() if found} == {}


# Where everything is that a reader sees beside the menus, whatever the page is scrolled to.
PLACES = """() => Object.fromEntries([...document.querySelectorAll(
    ".page-head, .filter-bar, .table-bar summary, #rollouts :is(th, tr), .facets, .choose-bar")].map((each, at) => {
        const { x, y, width, height } = each.getBoundingClientRect();
        return [`${at} ${each.textContent.trim().slice(0, 20)}`, [x, y + scrollY, width, height].map(Math.round)];
    }))"""


@pytest.mark.parametrize("width", [1440, 360])
@pytest.mark.parametrize("name", ["Columns", "Views"])
def test_an_open_menu_moves_nothing(site, tab, seeded, name, width):
    tab.set_viewport_size({"width": width, "height": 800})
    open_table(site, tab, f"collection:{seeded['a']}")
    menu = tab.locator(".table-bar summary", has_text=name)
    menu.scroll_into_view_if_needed()
    before = tab.evaluate(PLACES)
    menu.click()
    expect(tab.locator(".table-bar .menu[open] .menu-list")).to_be_visible()
    assert tab.evaluate(PLACES) == before
