"""Pages that stay open while their connection, or the whole server, goes away and comes back."""

import signal
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import PASSWORD, open_site, sign_in
from tests.deadlines import DEADLINE
from tests.gymweb.serving import serving

pytestmark = pytest.mark.slow


def state(page: Page):
    return page.locator("#collection-progress .chip").first


def test_a_collection_is_followed_without_a_socket(site, tab):
    tab.route_web_socket("**/ws/**", lambda socket: socket.close())
    collection = site.plan(repeats=1, limit=3)
    tab.goto(f"{site.base}/collections/{collection['id']}/")
    tab.evaluate("window.kept = true")
    expect(state(tab)).to_contain_text("completed")
    expect(tab.locator("#collection-results")).to_contain_text("3 of 3 rollouts")
    expect(tab.locator("#breakdown tbody tr").first.locator("td").nth(1)).to_have_text("3")
    expect(tab.locator("#facets")).not_to_contain_text("queued")
    assert tab.evaluate("window.kept") is True


def test_pages_recover_when_the_server_was_started_again(chromium: Browser, tmp_path: Path):
    with open_site(tmp_path, "--seats", "2") as site:
        context = chromium.new_context(storage_state=sign_in(chromium, site))
        collection = site.plan(repeats=1, limit=4, concurrency=2)
        page, trace = context.new_page(), context.new_page()
        page.goto(f"{site.base}/collections/{collection['id']}/")
        expect(state(page)).to_contain_text("running")
        newest = site.api("GET", f"rollouts/?collection={collection['id']}&ordering=-id")["results"][0]
        trace.goto(f"{site.base}/rollouts/{newest['id']}/")
        for each in (page, trace):
            each.evaluate("window.kept = true")
        site.served.signal(signal.SIGTERM)
        site.served.process.wait(DEADLINE)
        given = {name: site.environment[name] for name in site.environment if name.startswith(("GYMWEB", "DJANGO"))}
        with serving(tmp_path, "--seats", "2", "--port", str(site.served.port), **given):
            expect(state(page)).to_contain_text("completed")
            expect(page.locator("#collection-progress")).to_contain_text("4 of 4 rollouts")
            expect(page.locator("#collection-results")).to_contain_text("4 of 4 rollouts")
            expect(page.locator("#rollouts")).not_to_contain_text("queued")
            expect(page.locator("#unreachable")).to_have_count(0)
            expect(trace.locator("#rollout-facts .chip").first).to_contain_text("completed")
            expect(trace.locator("#rollout-trace .event.verification")).to_have_count(1)
            assert [each.evaluate("window.kept") for each in (page, trace)] == [True, True]
            context.close()


def test_a_failed_sign_in_keeps_the_typed_name(chromium, site):
    context = chromium.new_context()
    page = context.new_page()
    page.goto(f"{site.base}/collections/?q=1")
    page.get_by_label("User name").fill("erika")
    page.get_by_label("Password").fill("not the password")
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator(".errors").first).to_be_visible()
    expect(page.get_by_label("User name")).to_have_value("erika")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(f"{site.base}/collections/?q=1")
    context.close()


def test_a_file_that_is_none_is_refused_in_words(site, tab):
    tab.goto(f"{site.base}/datasets/{site.seeded['dataset']}/upload/")
    tab.get_by_role("button", name="Continue").click()
    expect(tab.locator("#upload-form .errors").first).to_contain_text("file")
    tab.set_input_files(
        "input[type=file]",
        files=[{"name": "photo.png", "mimeType": "image/png", "buffer": b"\x89PNG\r\n\x1a\n\x00" * 9}],
    )
    tab.get_by_role("button", name="Continue").click()
    tab.wait_for_url("**/uploads/*/map/")
    expect(tab.locator("main")).to_contain_text("text")
