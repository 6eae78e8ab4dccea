"""No key does two things: on every page, whatever is open, chosen or marked on it."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.conftest import Site, sign_in

pytestmark = pytest.mark.slow

# Commands of which one takes the keys of the other: "v" those of "v 1", too.
CLASHES = """async () => {
    const keys = await import("/static/js/keys.js");
    const active = keys.all().filter((each) => keys.keysOf(each) && each.when());
    return active.flatMap((one) => active
        .filter((other) => other !== one && `${keys.keysOf(other)} `.startsWith(`${keys.keysOf(one)} `))
        .map((other) => `${keys.keysOf(one)}: ${one.id}, ${other.id}`));
}"""
# What hears the keys of a whole page beside the registry, and can take them.
LISTENERS = """
    window.keyListeners = [];
    const add = EventTarget.prototype.addEventListener;
    EventTarget.prototype.addEventListener = function (name, listener, options) {
        const isWhole = [window, document].includes(this) && name.startsWith("key");
        if (isWhole && !options?.passive) window.keyListeners.push(listener.toString().slice(0, 120));
        return add.call(this, name, listener, options);
    };
"""
RUN = """async (id) => {
    const keys = await import("/static/js/keys.js");
    const command = keys.all().find((each) => each.id === id && each.when());
    command?.run();
}"""
STATES = {
    "as it comes": "() => {}",
    "a row chosen": "() => document.querySelector('tr[data-row] th a')?.focus()",
    "looking at a row": f"() => ({RUN})('table.peek')",
    "rows marked": """() => {
        const boxes = [...document.querySelectorAll('main table input[type=checkbox]')].slice(0, 3);
        for (const each of boxes.filter((box) => !box.checked)) each.click();
    }""",
    "choosing a winner": f"() => ({RUN})('comparing.judge')",
    "one menu open": "() => { const menu = document.querySelector('main .menu'); if (menu) menu.open = true; }",
    "everything open": "() => { for (const fold of document.querySelectorAll('details')) fold.open = true; }",
    "typing": "() => document.querySelector('main input[type=text], main textarea')?.focus()",
}


def find_clashes(page: Page, name: str) -> Iterator[str]:
    for state, reach in STATES.items():
        page.evaluate(reach)
        for clash in page.evaluate(CLASHES):
            yield f"{name}, {state}: {clash}"
    for listener in page.evaluate("window.keyListeners.slice(1)"):
        yield f"{name}: beside the registry {listener}"


@pytest.fixture(scope="module")
def reviewer(chromium: Browser, site: Site, queues: dict[str, Any]) -> Any:
    return sign_in(chromium, site, "ann")


def test_no_key_of_any_page_is_bound_twice(chromium, site, pages):
    context = chromium.new_context(storage_state=sign_in(chromium, site, "ada"))
    context.add_init_script(LISTENERS)
    page = context.new_page()
    found: list[str] = []
    for name, address in pages.items():
        page.goto(site.base + address)
        if page.evaluate("'gymweb' in window && 'keys' in gymweb"):
            found += find_clashes(page, name)
    context.close()
    assert found == []


@pytest.mark.parametrize("kind", ["pairwise", "same", "rubric", "ranking"])
def test_no_key_of_a_review_is_bound_twice(chromium, site, queues, reviewer, kind):
    context = chromium.new_context(storage_state=reviewer)
    context.add_init_script(LISTENERS)
    page = context.new_page()
    page.goto(f"{site.base}/queues/{queues[f'keys: {kind}']}/review/")
    found = list(find_clashes(page, "before"))
    if page.locator("#review-next").count():
        page.evaluate("document.getElementById('review-next').requestSubmit()")
    page.wait_for_selector("[data-listens] #review-form")
    found += find_clashes(page, kind)
    context.close()
    assert found == []
