"""A rollout's page stays open while the rollout runs."""

import re
import time

import pytest
from playwright.sync_api import Page, WebSocketRoute, expect

from tests.browser.conftest import TOOL_CALLS, Site
from tests.deadlines import DEADLINE, wait_until

pytestmark = pytest.mark.slow

EVENTS = 2 + 2 * TOOL_CALLS + 2
"""Session, prompt, a call and its result so many times, the answer, the verification."""


PARTS = ("attempts", "facts", "trace", "note")


def begin(site: Site, tab: Page) -> str:
    """Plan one rollout and open its page before the model answers; gives the rollout's address."""
    with site.held_model():
        collection = site.plan(repeats=1, limit=1)
        (rollout,) = site.api("GET", f"rollouts/?collection={collection['id']}")["results"]
        address = f"{site.base}/rollouts/{rollout['id']}/"
        tab.goto(address)
        tab.wait_for_selector("#e1")
    return address


def seqs(tab: Page) -> list[int]:
    """The numbers of the events on the page, in their order there: cards, and results within them."""
    ids = tab.eval_on_selector_all("#rollout-trace [id]", "all => all.map(each => each.id)")
    return [int(each[1:]) for each in ids if re.fullmatch(r"e\d+", each)]


def until_ended(tab: Page) -> None:
    expect(tab.locator("#rollout-facts .chip").first).to_contain_text("completed")


def test_events_come_one_after_the_other_and_the_header_follows_the_end(site, tab):
    address = begin(site, tab)
    found = seqs(tab)
    lengths = [len(found)]
    ends = time.monotonic() + DEADLINE
    while len(found) < EVENTS and time.monotonic() < ends:
        tab.wait_for_timeout(50)
        found = seqs(tab)
        assert found == list(range(len(found)))
        lengths.append(len(found))
    # The page was open from the beginning, and what came was added to it.
    assert (lengths[0] < EVENTS, lengths[-1]) == (True, EVENTS)
    until_ended(tab)
    assert "1.00" in tab.locator("#rollout-facts .reward-chip").first.inner_text()
    assert tab.locator("[data-awaited]").count() == 0
    followed = settled(tab)
    tab.goto(address)
    # What was followed is what a fresh page shows, once its scripts have rendered it.
    wait_until(lambda: settled(tab) == followed, what=lambda: f"{followed} is shown, not {settled(tab)}")


def settled(tab: Page) -> list[str]:
    """The parts of the page, once they have not changed for half a second, with every card rendered.

    By itself a card is rendered when it comes near the window, and what is near changes with the cards above it.
    """
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    before: list[str] = []
    while before != (now := [squeezed(tab.locator(f"#rollout-{part}").inner_html()) for part in PARTS]):
        before = now
        tab.wait_for_timeout(500)
    return now


def squeezed(html: str) -> str:
    return " ".join(re.sub(r">\s+<", "><", html).split())


def test_a_page_that_follows_says_that_its_session_has_ended_and_goes_on_after_signing_in(site, tab):
    tab.route_web_socket("**/ws/**", lambda socket: socket.close())
    begin(site, tab)
    session = [each for each in tab.context.cookies() if each["name"] == "sessionid"]
    tab.context.clear_cookies(name="sessionid")
    link = tab.locator("#signed-out a")
    expect(link).to_have_text("Sign in and continue")
    assert link.get_attribute("href").startswith("/sign-in/?next=%2Frollouts%2F")
    tab.context.add_cookies(session)
    until_ended(tab)
    expect(tab.locator("#signed-out")).to_have_count(0)


def test_who_reads_is_not_moved_and_is_told_what_came(site, tab):
    begin(site, tab)
    tab.wait_for_selector("#e4")
    tab.locator("#e1").scroll_into_view_if_needed()
    tab.evaluate("document.getElementById('e1').scrollIntoView({block: 'start'})")
    # What is in sight is made ready once.
    tab.wait_for_selector("#e2[data-view]")
    tab.wait_for_timeout(200)

    def place() -> tuple[float, str]:
        return tab.evaluate("[document.getElementById('e1').getBoundingClientRect().top, getSelection().toString()]")

    tab.evaluate("getSelection().selectAllChildren(document.getElementById('e1'))")
    before = place()
    assert "0 + 1" in before[1]
    expect(tab.locator("#follow [data-newer]")).to_contain_text("new step")
    until_ended(tab)
    top, selected = place()
    assert (abs(top - before[0]) < 1.5, selected) == (True, before[1])
    tab.locator("#follow [data-newer]").click()
    # What comes near is rendered, and grows.
    ends = time.monotonic() + DEADLINE
    while tab.locator("#follow").is_visible() and time.monotonic() < ends:
        tab.keyboard.press("End")
        tab.wait_for_timeout(250)
    expect(tab.locator("#follow")).to_be_hidden()


def test_who_follows_sees_the_newest_until_they_scroll_up(site, tab):
    begin(site, tab)
    tab.wait_for_selector("#e2")
    button = tab.locator("#follow button")
    button.click()
    tab.wait_for_selector("#e8")
    last = "document.getElementById('rollout-trace').lastElementChild.getBoundingClientRect()"
    tab.wait_for_function(f"{last}.bottom <= innerHeight && {last}.bottom > 0")
    tab.mouse.move(500, 250)
    tab.mouse.wheel(0, -400)
    expect(button).to_have_attribute("aria-pressed", "false")
    until_ended(tab)


def test_open_parts_stay_open_and_a_result_joins_its_call(site, tab):
    begin(site, tab)
    tab.wait_for_selector("#e2")
    tab.evaluate(
        "document.querySelector('#e0').dataset.mine = 'kept'; document.querySelector('#e2').dataset.mine = 'kept'"
    )
    until_ended(tab)
    # The very elements that were there: nothing was drawn again.
    assert tab.locator("[data-mine=kept]").count() == 2
    assert tab.locator("#e2 #e3").count() == 1


def test_without_sockets_the_page_looks_by_itself(site, tab):
    tab.route_web_socket("**/ws/**", lambda socket: socket.close())
    begin(site, tab)
    until_ended(tab)
    assert seqs(tab) == list(range(EVENTS))


def test_a_page_that_was_cut_off_catches_up_without_repeating(site, tab):
    lines: list[WebSocketRoute] = []

    def connect(line: WebSocketRoute) -> None:
        lines.append(line)
        line.connect_to_server()

    tab.route_web_socket("**/ws/**", connect)
    # Only the socket may bring anything.
    tab.route("**/rollouts/*/?seen=*", lambda route: route.abort())
    begin(site, tab)
    tab.wait_for_selector("#e3")
    had = len(seqs(tab))
    lines[0].close()
    until_ended(tab)
    assert seqs(tab) == list(range(EVENTS))
    reconnected = re.search(r"seen=running-1-(\d+)", lines[1].url)
    assert reconnected
    assert int(reconnected[1]) >= had


def test_an_attempt_that_failed_stays_above_the_next_one_and_says_why(site, tab):
    collection = site.plan(model="gone", repeats=1, limit=1)
    (rollout,) = site.api("GET", f"rollouts/?collection={collection['id']}")["results"]
    tab.goto(f"{site.base}/rollouts/{rollout['id']}/")
    line = tab.locator(".attempt-line").first
    expect(line).to_contain_text("Attempt 2 after attempt 1 ended: policy_error")
    expect(tab.locator("#rollout-attempts")).to_contain_text("1 · policy_error")
    site.api("POST", f"collections/{collection['id']}/cancel/")
    attempts = site.api("GET", f"rollouts/{rollout['id']}/attempts/")
    assert attempts[0]["error_kind"] == "policy_error"
    ids = tab.eval_on_selector_all("[id]", "all => all.map(each => each.id)")
    assert len(ids) == len(set(ids))


def test_a_repeated_attempt_line_is_shown_once(site, tab):
    def connect(line: WebSocketRoute) -> None:
        def repeat(message: str | bytes) -> None:
            line.send(message)
            line.send(message)

        line.connect_to_server().on_message(repeat)

    tab.route_web_socket("**/ws/**", connect)
    tab.route("**/rollouts/*/?seen=*", lambda route: route.abort())
    collection = site.plan(model="gone", repeats=1, limit=1)
    (rollout,) = site.api("GET", f"rollouts/?collection={collection['id']}")["results"]
    tab.goto(f"{site.base}/rollouts/{rollout['id']}/")
    expect(tab.locator(".attempt-line")).to_have_count(1)
    site.api("POST", f"collections/{collection['id']}/cancel/")
    expect(tab.locator("#rollout-facts .chip").first).to_contain_text("cancelled")
    expect(tab.locator(".attempt-line")).to_have_count(1)
