"""The overview, collections, groups and comparisons in a browser: readable by everybody, live, and without scripts."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

pytestmark = pytest.mark.slow


@pytest.fixture
def seeded(figures: dict[str, Any]) -> dict[str, Any]:
    return figures


@pytest.fixture
def unscripted(chromium: Browser, signed_in: Any) -> Iterator[Page]:
    context = chromium.new_context(storage_state=signed_in, java_script_enabled=False)
    yield context.new_page()
    context.close()


def test_results_appear_on_the_page_of_a_collection_without_a_reload(site, tab):
    collection = site.plan(repeats=1, limit=3)
    tab.goto(f"{site.base}/collections/{collection['id']}/")
    tab.evaluate("window.kept = true")
    expect(tab.locator("#collection-results")).to_contain_text("3 of 3 rollouts have a reward")
    expect(tab.locator("#collection-results svg.figure").first).to_be_visible()
    assert tab.evaluate("window.kept") is True


def test_a_point_of_the_scatter_opens_its_rollout(site, tab, seeded):
    tab.goto(f"{site.base}/collections/{seeded['a']}/")
    tab.locator(f'a[aria-label="Rollout {seeded["rollouts"][1]}"]').click(force=True)
    expect(tab).to_have_url(f"{site.base}/rollouts/{seeded['rollouts'][1]}/")


def test_two_tiles_of_a_group_are_marked_and_compared_with_the_keyboard(site, tab, seeded):
    tab.goto(f"{site.base}/tasks/{seeded['task']}/")
    button = tab.get_by_role("button", name="Compare", exact=True)
    expect(button).to_have_attribute("aria-disabled", "true")
    boxes = tab.locator(".tiles input")
    boxes.nth(0).press("Space")
    expect(tab.locator("[data-chosen]")).to_have_text("1 selected.")
    boxes.nth(1).press("Space")
    tab.keyboard.press("c")
    expect(tab.locator("h1")).to_contain_text("2 rollouts of task 1")


def test_the_worst_regressions_are_walked_with_j_and_k(site, tab, seeded):
    tab.goto(f"{site.base}/collections/compare/?a={seeded['a']}&b={seeded['b']}")
    tab.get_by_role("link", name="Step through the comparisons of these tasks").click()
    place = tab.get_by_label("Comparisons")
    for shown, key in (("1 of 2", "j"), ("2 of 2", "k"), ("1 of 2", "d")):
        expect(place).to_contain_text(shown)
        tab.wait_for_load_state()  # what hears keys comes after what is read
        tab.keyboard.press(key)
    expect(tab).to_have_url(re.compile("#divergence$"))


def test_what_goes_on_opens_in_its_place_and_escape_closes_it(site, tab, seeded):
    tab.set_viewport_size({"width": 1440, "height": 900})
    tab.goto(f"{site.base}/")
    menu = tab.locator(".side .activity-menu")
    menu.locator("summary").click()
    expect(menu).to_contain_text("connection refused")
    tab.keyboard.press("Escape")
    expect(menu.locator(".activity-list")).to_be_hidden()
    expect(menu.locator("summary")).to_be_focused()


def test_pages_read_and_forms_post_without_scripts(site, unscripted, seeded):
    page = unscripted
    page.goto(f"{site.base}/collections/{seeded['a']}/")
    expect(page.locator("#collection-results svg.figure").first).to_be_visible()
    page.get_by_role("link", name="Tag", exact=True).click()
    expect(page.locator("#breakdown")).to_contain_text("hard")
    page.goto(f"{site.base}/tasks/{seeded['task']}/")
    page.locator(".tiles input").nth(0).check()
    page.locator(".tiles input").nth(3).check()
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.locator("table.compare")).to_be_visible()
    page.goto(f"{site.base}/collections/compare/?a={seeded['a']}&b={seeded['b']}")
    page.get_by_role("link", name="improved").last.click()
    expect(page.locator("h1")).to_have_text("Task by task")
