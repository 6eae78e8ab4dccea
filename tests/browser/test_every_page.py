"""Every page of the URL configuration, with rows: for all users, on every screen, and without scripts."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Browser, Page
from playwright.sync_api import Error as BrowserError

from tests.browser.conftest import Site, sign_in
from tests.browser.faults import faults_of
from tests.deadlines import DEADLINE

pytestmark = pytest.mark.slow

QUIET = """() => !document.querySelector(".htmx-request, .htmx-swapping, .htmx-settling")
    && [...document.images].every((each) => each.complete)"""
# What the page has waited for, with its folds open: what is folded is read as well.
OPENED = "for (const fold of document.querySelectorAll('main details')) fold.open = true"
WIDER = """() => [document.documentElement.scrollWidth, [...document.querySelectorAll("body *")]
    .filter((each) => each.getBoundingClientRect().right > innerWidth + 1
        && !each.closest(".scroll, .table-wrap, pre, dialog"))
    .slice(0, 3).map((each) => each.outerHTML.slice(0, 120))]"""

# At 200 %: what a box cuts off without saying so, and what stays in sight and leaves no room for the rest.
CUT = """() => [...document.querySelectorAll("body *")].filter((each) => {
    const style = getComputedStyle(each);
    if (each.clientWidth < 2 || each.closest(".visually-hidden, svg, canvas, dialog:not([open])")) return false;
    const cuts = ["hidden", "clip"].includes(style.overflowX) && style.textOverflow !== "ellipsis"
        && each.scrollWidth > each.clientWidth + 1;
    return cuts || (["fixed", "sticky"].includes(style.position) && each.offsetHeight > innerHeight / 2
        && each.offsetWidth > innerWidth / 2);
}).slice(0, 3).map((each) => each.outerHTML.slice(0, 160))"""
ZOOMED = {"width": 640, "height": 450, "deviceScaleFactor": 2, "mobile": False}
"""A window of 1280 × 900 in which everything is twice as large."""


@pytest.fixture(scope="module")
def admin(chromium: Browser, site: Site, pages: dict[str, str]) -> Any:
    return sign_in(chromium, site, "ada")


@pytest.fixture
def looked_at(chromium: Browser, site: Site, admin: Any) -> Iterator[tuple[Page, list[str]]]:
    """A page of an admin's browser, and what went wrong on it: errors, refusals of the policy, foreign requests."""
    context = chromium.new_context(
        storage_state=admin, viewport={"width": 1440, "height": 900}, reduced_motion="reduce"
    )
    page = context.new_page()
    wrong = faults_of(page)
    page.on("request", lambda asked: None if asked.url.startswith((site.base, "blob:")) else wrong.append(asked.url))
    page.on("response", lambda got: wrong.append(f"{got.status}: {got.url}") if got.status >= 500 else None)
    page.add_init_script(
        "addEventListener('securitypolicyviolation', (e) => console.error(`policy: ${e.violatedDirective}`))"
    )
    yield page, wrong
    context.close()


def settle(page: Page) -> None:
    """What comes with a page by itself is there. Some pages ask again for ever, so there is no waiting for silence."""
    page.wait_for_timeout(60)
    try:
        page.wait_for_function(QUIET, timeout=1000 * DEADLINE)
    except BrowserError:
        pytest.fail(f"{page.url} waits for ever")


def test_every_page_is_accessible_in_both_themes_and_on_every_screen(site, looked_at, pages):
    page, wrong = looked_at
    zoom = page.context.new_cdp_session(page)
    found: dict[str, Any] = {}
    for name, address in pages.items():
        page.set_viewport_size({"width": 1440, "height": 900})
        page.emulate_media(color_scheme="light")
        reply = page.goto(site.base + address)
        settle(page)
        page.evaluate(OPENED)
        told = [*wrong, *([] if reply and reply.status == 200 else [f"answered {reply and reply.status}"])]
        if page.evaluate(WIDER)[0] > 1440:
            told.append(f"wide at 1440: {page.evaluate(WIDER)}")
        page.evaluate(AXE_SCRIPT)
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            # A theme changes colours alone.
            told += [f"{theme}: {each}" for each in violations(page, *(["color-contrast"] if theme == "dark" else []))]
        zoom.send("Emulation.setDeviceMetricsOverride", ZOOMED)
        if page.evaluate(WIDER)[0] > 640 or page.evaluate(CUT):
            told.append(f"at 200 %: {page.evaluate(WIDER)}, cut: {page.evaluate(CUT)}")
        page.set_viewport_size({"width": 360, "height": 800})
        page.wait_for_timeout(30)
        if page.evaluate(WIDER)[0] > 360:
            told.append(f"wide at 360: {page.evaluate(WIDER)}")
        wrong.clear()
        if told:
            found[f"{name} {address}"] = told
    assert found == {}, json.dumps(found, indent=1)


# What passes is neither described nor sent: of a long page that is most of the work.
VIOLATIONS = """(options) => axe.run(document, options).then((told) => told.violations.flatMap((each) =>
    each.nodes.map((node) => `${each.id}: ${node.html.slice(0, 120)}`)))"""


def violations(page: Page, *rules: str) -> list[str]:
    """By all rules, or by some."""
    only = {"runOnly": {"type": "rule", "values": rules}} if rules else {}
    found: list[str] = page.evaluate(VIOLATIONS, {**only, "resultTypes": ["violations"]})
    return found


FORMS = """() => [...document.forms].map((form) => ({
    method: form.method, action: form.getAttribute("action"), html: form.outerHTML.slice(0, 100),
    token: Boolean(form.querySelector("[name=csrfmiddlewaretoken]")),
    sends: Boolean([...form.elements].find((each) => ["submit", "image"].includes(each.type))) }))"""
LATER = """() => [...document.querySelectorAll("[hx-trigger~=load], [hx-trigger~=revealed]")]
    .filter((each) => !each.querySelector("a[href]")).map((each) => each.outerHTML.slice(0, 100))"""


def test_every_page_reads_and_every_form_posts_without_scripts(chromium, site, admin, pages):
    context = chromium.new_context(storage_state=admin, java_script_enabled=False)
    page = context.new_page()
    found: dict[str, list[str]] = {}
    for name, address in pages.items():
        page.goto(site.base + address)
        told = []
        if not page.locator("main h1").count() or len(page.locator("main").inner_text()) < 60:
            told.append("says nothing")
        for form in page.evaluate(FORMS):
            if form["method"] == "post" and (form["action"] is None or not form["token"]):
                told.append(f"cannot be sent: {form['html']}")
            if not form["sends"] and "palette" not in form["html"] and form["method"] == "post":
                told.append(f"has no button: {form['html']}")
        told += [f"comes by script alone: {each}" for each in page.evaluate(LATER)]
        if ">---------<" in page.content():
            told.append("has a choice without words")
        if told:
            found[f"{name} {address}"] = told
    context.close()
    assert found == {}
