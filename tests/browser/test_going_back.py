"""Back and Forward over the pages that push addresses, and a session that ends while somebody works."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import PASSWORD

pytestmark = pytest.mark.slow


def test_back_and_forward_bring_whole_pages_that_work(site, figures, tab):
    pushed = [
        (f"/rollouts/?q=collection:{figures['a']}", "th a.sort >> text=Reward"),
        (f"/collections/{figures['a']}/", "th a.sort >> text=Reward"),
        (f"/collections/{figures['a']}/tasks/", "#bucket-never"),
        (f"/datasets/{site.seeded['dataset']}/", "main form[role=search] button[type=submit]"),
    ]
    for address, push in pushed:
        tab.goto(f"{site.base}{address}")
        before = tab.url
        tab.locator(push).first.click()
        tab.wait_for_url(lambda now, before=before: now != before)
        after = tab.url
        for go, there in (("back", before), ("forward", after), ("back", before)):
            # The address changes first, and the page is loaded then: a new document has no such mark.
            tab.evaluate(f"document.documentElement.dataset.old = ''; history.{go}()")
            expect(tab.locator("html[data-old]")).to_have_count(0)
            tab.wait_for_load_state("networkidle")
            assert tab.url == there
            expect(tab.locator("main")).to_have_count(1)
        tab.keyboard.press("Control+k")
        expect(tab.locator("#palette")).to_be_visible()
        tab.keyboard.press("Escape")


def test_a_comment_typed_in_a_session_that_ended_is_in_its_form_again(site, figures, tab):
    tab.goto(f"{site.base}/rollouts/?q=collection:{figures['a']}")
    tab.locator("#rollouts tbody th a").first.click()
    tab.wait_for_url("**/?list=*")
    address = tab.url
    tab.locator("#comment textarea").fill("The sign is wrong.\nLook at step 2.")
    tab.context.clear_cookies(name="sessionid")
    tab.locator("#comment button[type=submit]").click()
    expect(tab.locator("[data-unsent]")).to_contain_text("The page still has your text")
    tab.fill("[name=username]", "erika")
    tab.fill("[name=password]", PASSWORD)
    tab.click("main button[type=submit]")
    tab.wait_for_url(address)
    expect(tab.locator("#comment textarea")).to_have_value("The sign is wrong.\nLook at step 2.")
    tab.locator("#comment button[type=submit]").click()
    expect(tab.locator(".comment .prose")).to_have_text("The sign is wrong.\nLook at step 2.", use_inner_text=True)
    expect(tab.locator("#comment textarea")).to_have_value("")
