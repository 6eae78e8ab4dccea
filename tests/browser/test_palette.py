"""The palette by keyboard alone, on a page with a field that one types in."""

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.slow


def test_the_palette_leads_by_keys_alone_and_gives_the_focus_back(site, tab):
    tab.goto(f"{site.base}/agents/")
    tab.get_by_role("link", name="New agent").focus()
    tab.keyboard.press("Control+k")
    palette = tab.locator("#palette")
    field = palette.get_by_role("combobox")
    expect(field).to_be_focused()
    expect(palette.get_by_role("option", selected=True)).to_have_text("New collection")
    for _ in range(30):
        tab.keyboard.press("Tab")
    expect(field).to_be_focused()
    tab.keyboard.press("Escape")
    expect(palette).to_be_hidden()
    expect(tab.get_by_role("link", name="New agent")).to_be_focused()
    tab.keyboard.press("Control+k")
    field.fill("patient")
    chosen = palette.locator("#palette-options a[aria-selected=true]")
    expect(chosen).to_have_attribute("href", "/agents/patient/")
    assert field.get_attribute("aria-activedescendant") == chosen.get_attribute("id")
    tab.keyboard.press("Enter")
    expect(tab).to_have_url(f"{site.base}/agents/patient/")


def test_the_palette_opens_while_one_types_and_runs_what_the_page_can(site, tab):
    tab.goto(f"{site.base}/agents/new/")
    tab.get_by_label("Name").first.focus()
    tab.keyboard.press("Control+k")
    expect(tab.locator("#palette")).to_be_visible()
    tab.keyboard.press("Control+k")
    expect(tab.locator("#palette")).to_be_hidden()
    before = tab.locator("html").get_attribute("data-theme")
    tab.get_by_role("link", name="Search").first.click()
    tab.get_by_role("combobox", name="Search").fill("dark or system")
    option = tab.locator("#option-command-theme")
    expect(option).to_have_attribute("aria-selected", "true")
    tab.keyboard.press("Enter")
    expect(tab.locator("#palette")).to_be_hidden()
    assert tab.locator("html").get_attribute("data-theme") != before
