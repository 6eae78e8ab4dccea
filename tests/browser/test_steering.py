"""A collection is paused and resumed on its page while it runs."""

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Site
from tests.deadlines import wait_until

pytestmark = pytest.mark.slow


def running(site: Site, collection: dict) -> int:
    return len(site.api("GET", f"rollouts/?collection={collection['id']}&status=running")["results"])


def state(tab: Page):
    return tab.locator("#collection-progress .chip").first


def test_pausing_lets_what_runs_end_and_resuming_goes_on_to_the_end(site, tab):
    with site.held_model():
        collection = site.plan(repeats=1, limit=8, concurrency=2)
        tab.goto(f"{site.base}/collections/{collection['id']}/")
        expect(state(tab)).to_contain_text("running")
        expect(tab.locator("#collection-progress")).to_contain_text("running 2")
        tab.get_by_role("button", name="Pause", exact=True).click()
        expect(state(tab)).to_contain_text("paused")
    expect(tab.get_by_role("button", name="Resume", exact=True)).to_be_visible()
    expect(tab.locator("#collection-progress")).to_contain_text("nothing running")
    shown = site.api("GET", f"collections/{collection['id']}/")
    assert (shown["state"], 0 < shown["completed"] < 8, running(site, collection)) == ("paused", True, 0)
    site.api("PATCH", f"collections/{collection['id']}/", {"concurrency": 8})
    tab.get_by_role("button", name="Resume", exact=True).click()
    expect(state(tab)).to_contain_text("completed")
    assert site.api("GET", f"collections/{collection['id']}/")["completed"] == 8


def test_a_page_follows_what_others_do_with_its_collection(site, tab):
    collection = site.plan(repeats=1, limit=40, concurrency=1)
    tab.goto(f"{site.base}/collections/{collection['id']}/")
    pause, resume = (tab.get_by_role("button", name=name, exact=True) for name in ("Pause", "Resume"))
    expect(pause).to_be_visible()
    site.api("POST", f"collections/{collection['id']}/pause/")
    expect(resume).to_be_visible()
    expect(pause).to_be_hidden()
    site.api("POST", f"collections/{collection['id']}/cancel/")
    expect(resume).to_be_hidden()
    expect(tab.get_by_role("button", name="Cancel", exact=True)).to_be_hidden()
    expect(state(tab)).to_contain_text("cancelled")


def test_a_limit_is_raised_where_it_paused_and_work_goes_on(site, tab):
    collection = site.plan(repeats=1, limit=3, concurrency=1, max_tokens=100)
    tab.goto(f"{site.base}/collections/{collection['id']}/")
    expect(tab.locator("#collection-progress")).to_contain_text("The token limit is reached")
    tab.reload()
    tab.fill("[name=max_attempts]", "99")
    tab.get_by_role("button", name="Save and resume").click()
    wrong = tab.locator("[name=max_attempts]")
    expect(wrong).to_be_focused()
    expect(wrong).to_be_in_viewport()
    tab.fill("[name=max_attempts]", "2")
    tab.fill("[name=max_tokens]", "1000000")
    tab.get_by_role("button", name="Save and resume").click()
    expect(state(tab)).to_contain_text("completed")


def test_an_endpoint_that_fails_is_named_on_the_page(site, tab):
    collection = site.plan(model="gone", repeats=1, limit=4, max_seconds=30)
    tab.goto(f"{site.base}/collections/{collection['id']}/")
    held = tab.locator("#collection-progress .message.error")
    expect(held).to_contain_text("calls failed in a row")
    expect(held).to_contain_text("Policy model Model")
    site.api("POST", f"collections/{collection['id']}/cancel/")


def test_a_worker_is_seen_at_work_with_what_it_runs(site, tab):
    with site.held_model():
        collection = site.plan(repeats=1, limit=4)
        wait_until(lambda: running(site, collection) == 4)
        tab.goto(f"{site.base}/workers/")
        expect(tab.get_by_role("link", name="4 / ")).to_be_visible()
    tab.get_by_role("link", name="4 / ").click()
    expect(tab.locator("h1")).to_have_text("Rollouts")
    site.api("POST", f"collections/{collection['id']}/cancel/")
