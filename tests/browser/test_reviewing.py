"""People judge by keyboard alone; a connection that is lost in the middle loses nothing and doubles nothing."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.browser.conftest import PASSWORD, Site, sign_in
from tests.browser.wire import Wire

pytestmark = pytest.mark.slow
PAIRS = 20


@pytest.fixture
def page(chromium: Browser, site: Site, queues: dict[str, int]) -> Iterator[Page]:
    context = chromium.new_context(
        storage_state=sign_in(chromium, site, "ann"), viewport={"width": 1440, "height": 900}
    )
    yield context.new_page()
    context.close()


def said(site: Site, queue: int) -> list[dict[str, Any]]:
    rows = site.api("GET", f"reviews/?queue={queue}&status=submitted&limit=1000&ordering=id")["results"]
    return [row for row in rows if row["reviewer"] == "ann"]


def begin(page: Page, site: Site, queue: int) -> None:
    """By Enter, once the page listens; where an item is held from before, it is there."""
    page.goto(f"{site.base}/queues/{queue}/review/")
    expect(page.locator("[data-listens]")).to_have_count(1)
    if page.locator("#review-next").count():
        page.keyboard.press("Enter")
    expect(page.locator("[data-listens] #review-form")).to_be_visible()


def test_twenty_pairs_by_keyboard_with_a_lost_connection_in_the_middle(
    page: Page, site: Site, queues: dict[str, int]
) -> None:
    queue = queues["pairwise"]
    keys = ["A", "a", "e", "x", "b", "B"]
    names = {"A": "a_much", "a": "a", "e": "equal", "x": "both_bad", "b": "b", "B": "b_much"}
    lost: list[str] = []

    def lose_the_answer(route: Route) -> None:
        """The server takes it, and nobody hears so: once."""
        if lost:
            route.continue_()
            return
        lost.append(route.request.post_data or "")
        route.fetch()
        route.abort()

    taken: list[str] = []
    page.on(
        "request", lambda each: taken.append(each.url) if (each.method, each.url[-8:]) == ("POST", "/review/") else None
    )
    wire = Wire(page, "**/submit/")
    begin(page, site, queue)
    pressed: list[str] = []
    for number in range(PAIRS):
        # The next page, and its keys.
        expect(page.locator("#review-mine")).to_have_text(re.compile(f"^{number + 1} of "))
        form = page.locator("[data-listens] #review-form")
        expect(form).to_be_visible()
        key = keys[number % len(keys)]
        page.keyboard.press(key)
        expect(form.locator(f"[name=choice][value={names[key]}]")).to_be_checked()
        page.keyboard.press("1")
        if number == 7:
            page.context.set_offline(True)
            page.keyboard.press("Enter")
            expect(page.locator("#review-lost")).to_contain_text("stored in this browser")
            page.context.set_offline(False)
        elif number == 12:
            wire.answers(lose_the_answer)
            page.keyboard.press("Enter")
        else:
            page.keyboard.press("Enter")
        pressed.append(names[key])
    expect(page.locator("#review-idle")).to_be_visible()
    expect(page.locator("#review-mine")).to_contain_text("20 done")
    rows = said(site, queue)
    assert len(lost) == 1
    # The first, and at times the last one, which is not there: the others came with the answer before.
    assert 1 <= len(taken) <= 2
    assert [row["choice"] for row in rows] == pressed
    assert {tuple(row["reasons"]) for row in rows} == {("correctness",)}
    assert len({row["item"] for row in rows}) == PAIRS
    assert {row["status"] for row in site.api("GET", f"reviews/?queue={queue}&limit=1000")["results"]} == {"submitted"}


def test_equal_is_chosen_by_its_key_where_all_steps_are_the_same(
    page: Page, site: Site, queues: dict[str, int]
) -> None:
    begin(page, site, queues["same"])
    expect(page.locator(".work-shown")).to_contain_text("All steps are equal")
    page.keyboard.press("e")
    expect(page.locator("#review-form [name=choice][value=equal]")).to_be_checked()
    page.keyboard.press("o")
    expect(page.locator(".work-shown details").first).to_have_attribute("open", "")


@pytest.mark.parametrize("opened_by", ["s", "click"])
def test_enter_submits_after_the_skip_menu_was_closed_with_escape(
    page: Page, site: Site, queues: dict[str, int], opened_by: str
) -> None:
    begin(page, site, queues["same"])
    before = len(said(site, queues["same"]))
    skip = page.locator("#review-skip")
    if opened_by == "s":
        page.keyboard.press("s")
        expect(skip.get_by_role("textbox")).to_be_focused()
    else:
        skip.locator("summary").click()
    page.keyboard.press("Escape")
    expect(skip.get_by_role("textbox")).to_be_hidden()
    page.keyboard.press("b")
    page.keyboard.press("Enter")
    expect(page.locator("#review-mine")).to_have_text(re.compile(f"^{before + 2} of "))


def test_a_draft_comes_back_and_the_last_submission_is_undone_by_a_key(
    page: Page, site: Site, queues: dict[str, int]
) -> None:
    page.goto(f"{site.base}/queues/{queues['pairwise']}/review/")
    expect(page.locator("[data-listens]")).to_have_count(1)
    page.keyboard.press("u")
    expect(page.locator("[data-listens] #review-form")).to_be_visible()
    form = page.locator("#review-form")
    expect(form.locator("[name=choice][value=a]")).to_be_checked()
    page.keyboard.press("b")
    page.keyboard.press("n")
    page.keyboard.type("Longer, and wrong.")
    expect(page.locator("#review-saved")).to_have_text("draft kept")
    page.reload()
    expect(page.locator("[data-listens]")).to_have_count(1)
    expect(form.locator("[name=choice][value=b]")).to_be_checked()
    expect(form.locator("[name=note]")).to_have_value("Longer, and wrong.")
    page.keyboard.press("Enter")
    expect(page.locator("#review-idle")).to_be_visible()
    last = max(said(site, queues["pairwise"]), key=lambda row: row["submitted_at"])
    assert (last["choice"], last["note"]) == ("b", "Longer, and wrong.")


def test_a_draft_written_offline_survives_a_reload(page: Page, site: Site, queues: dict[str, int]) -> None:
    wire = Wire(page, "**/api/v1/reviews/**")
    begin(page, site, queues["rubric"])
    wire.cut()
    page.keyboard.press("1")
    page.keyboard.press("4")
    expect(page.locator("#review-saved")).to_have_text("draft stored in this browser")
    wire.mend()
    page.reload()
    expect(page.locator("[data-listens]")).to_have_count(1)
    form = page.locator("#review-form")
    expect(form.locator("[name=score-right][value=true]")).to_be_checked()
    expect(form.locator("[name=score-clear]")).to_have_value("4")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#review-mine")).to_contain_text("2 of ")
    assert [row["scores"] for row in said(site, queues["rubric"])] == [{"right": True, "clear": 4}]
    expect(page.locator("[data-listens] #review-form")).to_be_visible()
    review = str(form.get_attribute("data-review"))
    page.keyboard.press("s")
    page.keyboard.type("too long")
    page.keyboard.press("Enter")
    expect(form).not_to_have_attribute("data-review", review)
    rows = site.api("GET", f"reviews/?queue={queues['rubric']}&status=skipped")["results"]
    assert [row["skip_reason"] for row in rows] == ["too long"]


def test_cleared_drafts_stay_cleared_and_two_drafts_coexist(
    page: Page, chromium: Browser, site: Site, queues: dict[str, int]
) -> None:
    wire = Wire(page, "**/api/v1/reviews/**")
    begin(page, site, queues["rubric"])
    form = page.locator("[data-listens] #review-form")
    clear, note = form.locator("[name=score-clear]"), form.locator("[name=note]")
    page.keyboard.press("1")
    page.keyboard.press("4")
    expect(page.locator("#review-saved")).to_have_text("draft kept")
    wire.cut()
    clear.fill("")
    note.fill("On the train.")
    expect(page.locator("#review-saved")).to_have_text("draft stored in this browser")
    page.reload()
    expect(note).to_have_value("On the train.")
    expect(clear).to_have_value("")
    expect(form.locator("[name=score-right][value=true]")).to_be_checked()
    elsewhere = chromium.new_context(storage_state={**page.context.storage_state(), "origins": []})
    desk = elsewhere.new_page()
    begin(desk, site, queues["rubric"])
    desk.locator("[name=note]").fill("From the desk.")
    expect(desk.locator("#review-saved")).to_have_text("draft kept")
    elsewhere.close()
    # What is typed on goes on, and what it replaces on the server is not lost.
    note.fill("On the train, a")
    expect(page.locator("#review-saved")).to_have_text("draft stored in this browser")
    wire.mend()
    note.fill("On the train, again")
    expect(page.locator("#review-asides")).to_contain_text("note: From the desk.")
    expect(page.locator("#review-saved")).to_have_text("draft kept")
    page.get_by_role("button", name="Use this draft").click()
    expect(note).to_have_value("From the desk.")
    expect(clear).to_have_value("4")
    expect(page.locator("#review-asides")).to_contain_text("note: On the train, again")
    expect(page.locator("#review-asides li")).to_have_count(1)
    page.get_by_role("button", name="Discard").click()
    expect(page.locator("#review-asides")).to_be_hidden()


def test_a_newer_draft_beats_one_that_waited_in_a_browser(
    page: Page, chromium: Browser, site: Site, queues: dict[str, int]
) -> None:
    wire = Wire(page, "**/api/v1/reviews/**")
    begin(page, site, queues["ranking"])
    note = page.locator("[data-listens] [name=note]")
    wire.cut()
    page.keyboard.press("n")
    note.fill("From the laptop.")
    expect(page.locator("#review-saved")).to_have_text("draft stored in this browser")
    elsewhere = chromium.new_context(storage_state={**page.context.storage_state(), "origins": []})
    desk = elsewhere.new_page()
    begin(desk, site, queues["ranking"])
    desk.keyboard.press("n")
    desk.locator("[name=note]").fill("New, from the desk.")
    expect(desk.locator("#review-saved")).to_have_text("draft kept")
    elsewhere.close()
    wire.mend()
    page.reload()
    expect(note).to_have_value("New, from the desk.")
    expect(page.locator("#review-asides")).to_contain_text("note: From the laptop.")


def test_a_skip_and_its_undo_wait_in_the_browser_for_a_lost_connection(
    page: Page, site: Site, queues: dict[str, int]
) -> None:
    wire = Wire(page, "**/api/v1/**")
    begin(page, site, queues["rubric"])
    form, lost = page.locator("[data-listens] #review-form"), page.locator("#review-lost")
    review = form.get_attribute("data-review")
    path = f"reviews/?queue={queues['rubric']}&status=skipped"
    skipped = [row["id"] for row in site.api("GET", path)["results"]]
    wire.cut()
    page.keyboard.press("s")
    page.keyboard.type("twice the same")
    page.keyboard.press("Enter")
    expect(lost).to_contain_text("No connection")
    page.reload()
    expect(form).to_have_attribute("aria-busy", "true")
    expect(lost).to_contain_text("No connection")
    wire.mend()
    page.get_by_role("button", name="Send now").click()
    expect(form).not_to_have_attribute("data-review", str(review))
    reasons = {row["id"]: row["skip_reason"] for row in site.api("GET", path)["results"]}
    assert reasons[int(str(review))] == "twice the same"
    wire.cut()
    page.keyboard.press("u")
    expect(lost).to_contain_text("The last review will be undone")
    wire.mend()
    page.get_by_role("button", name="Send now").click()
    expect(form).to_have_attribute("data-review", str(review))
    assert [row["id"] for row in site.api("GET", path)["results"]] == skipped


def test_missing_answers_are_named_and_marked(page: Page, site: Site, queues: dict[str, int]) -> None:
    begin(page, site, queues["rubric"])
    page.get_by_text("Instructions").click()
    expect(page.locator("details .markdown em")).to_have_text("rather")
    right = page.locator("[data-criterion=right]")
    right.locator(":checked").evaluate_all("all => all.forEach((each) => { each.checked = false; })")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#review-lost")).to_contain_text("Is it right? ")
    expect(right).to_be_focused()
    expect(right.locator(".errors")).to_be_visible()
    assert right.locator("input").first.get_attribute("aria-describedby") == right.locator(".errors").get_attribute(
        "id"
    )
    page.keyboard.press("1")
    expect(right.locator(".errors")).to_have_count(0)


def sign_in_here(page: Page, username: str) -> None:
    page.fill("[name=username]", username)
    page.fill("[name=password]", PASSWORD)
    page.click("main button[type=submit]")
    expect(page).to_have_url(re.compile("/review/$"))


def test_a_reviewer_continues_after_signing_in_again(page: Page, site: Site, queues: dict[str, int]) -> None:
    queue = queues["few"]
    work = f"{site.base}/queues/{queue}/review/"
    begin(page, site, queue)
    page.keyboard.press("b")
    page.keyboard.press("n")
    page.keyboard.type("Typed at once.")
    page.reload()
    form = page.locator("[data-listens] #review-form")
    expect(form.locator("[name=choice][value=b]")).to_be_checked()
    expect(form.locator("[name=note]")).to_have_value("Typed at once.")
    page.context.set_offline(True)
    page.keyboard.press("Enter")
    expect(page.locator("#review-lost")).to_contain_text("No connection")
    page.context.clear_cookies()
    page.context.set_offline(False)
    expect(page.locator("#review-lost")).to_contain_text("You are signed out")
    other = page.context.new_page()
    other.goto(work)
    sign_in_here(other, "ben")
    expect(other.locator("[data-listens]")).to_have_count(1)
    page.evaluate("import('/static/js/unsent.js').then((unsent) => unsent.sendAll())")
    expect(page.locator("#review-lost")).to_contain_text("signed in as ben")
    assert said(site, queue) == []
    other.context.clear_cookies()
    page.locator("#review-lost a").click()
    sign_in_here(page, "ann")
    expect(page.locator("#review-mine")).to_have_text(re.compile("^2 of "))
    assert [(row["choice"], row["note"]) for row in said(site, queue)] == [("b", "Typed at once.")]
    expect(page.locator("[data-listens] #review-form")).to_be_visible()


def test_an_answer_that_is_not_accepted_is_kept_with_the_reason(page: Page, site: Site, queues: dict[str, int]) -> None:
    queue = queues["few"]
    wire = Wire(page, "**/submit/")
    begin(page, site, queue)
    wire.answers(lambda route: route.fulfill(status=500, body="{}"))
    page.keyboard.press("A")
    page.keyboard.press("Enter")
    expect(page.locator("#review-lost")).to_contain_text("Server error (500)")
    wire.mend()
    page.get_by_role("button", name="Send now").click()
    expect(page.locator("#review-mine")).to_have_text(re.compile("^3 of "))
    form = page.locator("[data-listens] #review-form")
    expect(form).to_be_visible()
    page.keyboard.press("x")
    page.keyboard.press("n")
    page.locator("[name=note]").fill("After some thought.")
    site.api("POST", f"queues/{queue}/close/")
    form.locator("button[type=submit]").click()
    kept = page.locator("#review-kept")
    expect(kept).to_contain_text("note: After some thought.")
    page.locator("#review-lost a").click()
    expect(page.locator("#review-idle")).to_contain_text("This queue is closed")
    expect(kept).to_contain_text("verdict: both_bad")
    site.api("POST", f"queues/{queue}/open/")
    kept.get_by_role("button", name="Send again").click()
    expect(page.locator("#review-mine")).to_have_text(re.compile("^3 done"))
    expect(kept).to_be_hidden()
    assert said(site, queue)[-1]["note"] == "After some thought."


def test_a_ranking_by_drag_in_a_browser_that_stores_nothing(page: Page, site: Site, queues: dict[str, int]) -> None:
    page.add_init_script("Storage.prototype.setItem = () => { throw new Error('full') }")
    begin(page, site, queues["ranking"])
    handles = page.locator(".rank-of .drag")
    start, end = handles.nth(1).bounding_box(), handles.nth(0).bounding_box()
    assert start is not None
    assert end is not None
    page.mouse.move(start["x"] + 4, start["y"] + 4)
    page.mouse.down()
    page.mouse.move(end["x"] + 1, end["y"] + 4, steps=3)
    page.mouse.up()
    expect(page.locator(".rank-of").first).to_have_text(re.compile("B"))
    page.keyboard.press("Enter")
    expect(page.locator("#review-mine")).to_contain_text("2 of ")
    assert [row["ranks"] for row in said(site, queues["ranking"])] == [[2, 1]]


def test_a_ranking_by_digits_with_a_tie(page: Page, site: Site, queues: dict[str, int]) -> None:
    begin(page, site, queues["ranking"])
    expect(page.locator(".rank-of.current")).to_have_text(re.compile("^⠿ A"))
    page.keyboard.press("1")
    page.keyboard.press("1")
    page.keyboard.press("Enter")
    expect(page.locator("#review-mine")).to_contain_text("3 of ")
    assert [row["ranks"] for row in said(site, queues["ranking"])][1:] == [[1, 1]]


def test_reading_keys_never_answer(page: Page, site: Site, queues: dict[str, int]) -> None:
    page.set_viewport_size({"width": 360, "height": 640})
    begin(page, site, queues["ranking"])
    bar, chosen = page.locator("#review-form"), page.locator(".work-shown tr.chosen")
    expect(bar.get_by_role("button", name="Submit")).to_be_in_viewport(ratio=1)
    covered = page.evaluate("getComputedStyle(document.documentElement).scrollPaddingBottom")
    assert covered == f"{bar.evaluate('each => each.offsetHeight')}px"
    page.keyboard.press("r")
    page.keyboard.press("2")
    expect(bar.locator("[data-reason='2']")).to_be_checked()
    expect(page.locator("#review-marked")).to_have_text("A, no rank")
    for key, kind in [("d", "call"), ("j", "result"), ("j", "reply"), ("k", "result")]:
        page.keyboard.press(key)
        head = chosen.locator(".step-head").first
        if kind not in head.inner_text():
            # The first press scrolls to the end of a step that is longer than the window.
            page.keyboard.press(key)
        expect(head).to_contain_text(kind)
    assert chosen.evaluate("each => each.getBoundingClientRect().top") < bar.bounding_box()["y"]
    page.keyboard.press("v")
    page.keyboard.press("4")
    expect(page.locator(".step.result").first).to_be_hidden()
    # There is no reasoning here: its digit is no rank.
    page.keyboard.press("v")
    page.keyboard.press("2")
    assert bar.locator("[data-rank]").evaluate_all("all => all.map((each) => each.value)") == ["", ""]
    expect(bar.locator("[name=note]")).to_be_hidden()
    page.keyboard.press("f")
    expect(bar.locator("[name=note]")).to_be_visible()
    page.keyboard.press("f")
    page.keyboard.press("n")
    expect(bar.locator("[name=note]")).to_be_focused()


BOXES = """names => Object.fromEntries(names.map((name) => {
  const { top, bottom, height } = document.querySelector(name).getBoundingClientRect();
  return [name, { top, bottom, height }];
}))"""


def test_both_attempts_are_above_the_fold_in_markdown_over_a_strip_of_verdicts(
    page: Page, site: Site, queues: dict[str, int]
) -> None:
    begin(page, site, queues["keys: pairwise"])
    page.keyboard.press("2")
    answers = [f".last-words [data-rollout={side}]" for side in "AB"]
    seen = page.evaluate(BOXES, [*answers, "#divergence .step", "#review-form", ".page-head"])
    strip, height = seen["#review-form"], 900
    assert strip["height"] <= 96
    assert (strip["bottom"], seen[".page-head"]["bottom"] < 96) == (height, True)
    assert all(seen[name]["bottom"] < strip["top"] for name in [*answers, "#divergence .step"])
    reply = page.locator("#divergence .step.reply").first
    expect(reply.locator(".markdown")).to_be_visible()
    expect(reply.locator("ins, del")).to_have_count(1)
    page.keyboard.press("m")
    expect(reply.locator(".markdown")).to_be_hidden()
    expect(reply.locator("ins, del")).to_be_visible()
    page.keyboard.press("m")
    # A task that was closed stays closed on the next item.
    page.locator("#review-task > summary").click()
    page.reload()
    expect(page.locator("[data-listens]")).to_have_count(1)
    expect(page.locator("#review-task .prompt-items")).to_be_hidden()
    page.locator("#review-task > summary").click()


def test_a_narrow_screen_shows_one_side_or_the_task(page: Page, site: Site, queues: dict[str, int]) -> None:
    page.set_viewport_size({"width": 360, "height": 780})
    begin(page, site, queues["keys: pairwise"])
    first, second = (page.locator(f"#divergence td[data-rollout={side}] .step.reply") for side in "AB")
    task = page.locator("#review-task")
    for side, visible in (("B", second), ("A", first), ("Task", task)):
        page.get_by_role("radio", name=side, exact=True).check()
        for each in (first, second, task):
            expect(each).to_be_visible(visible=each is visible)
    assert page.evaluate("document.documentElement.scrollWidth") == 360


def test_five_pairs_are_reviewed_on_a_phone_by_touch(chromium: Browser, site: Site, queues: dict[str, int]) -> None:
    context = chromium.new_context(
        storage_state=sign_in(chromium, site, "ben"),
        viewport={"width": 360, "height": 780},
        has_touch=True,
        is_mobile=True,
    )
    page = context.new_page()
    page.goto(f"{site.base}/queues/{queues['phone']}/review/")
    page.locator("#review-next button").tap()
    for number in range(5):
        expect(page.locator("#review-mine")).to_have_text(f"{number + 1} of 5")
        for side in ("A", "B"):
            page.get_by_role("radio", name=side, exact=True).check()
            reply = page.locator(f"#divergence td[data-rollout={side}] .step.reply")
            expect(reply).to_be_in_viewport()
        page.locator("#review-form .verdicts label").nth(number).tap()
        page.get_by_role("button", name=re.compile("Submit and next")).tap()
    expect(page.locator("#review-idle")).to_be_visible()
    rows = site.api("GET", f"reviews/?queue={queues['phone']}&status=submitted&ordering=id")["results"]
    assert [row["choice"] for row in rows] == ["a_much", "a", "equal", "both_bad", "b"]
    context.close()


def test_twelve_pairs_of_a_quick_pass_by_keyboard(page: Page, site: Site, queues: dict[str, int]) -> None:
    queue = queues["quick pass"]
    page.goto(f"{site.base}/queues/{queue}/review/")
    page.get_by_role("button", name="Quick pass").click()
    # The script marks the current item when it begins to listen for keys.
    expect(page.locator(".pass-item.chosen")).to_have_count(1)
    expect(page.locator(".pass-item")).to_have_count(10)
    for key in "aaebxAaaBb":
        page.keyboard.press(key)
    page.keyboard.press("Enter")
    expect(page.locator(".pass-item")).to_have_count(2)
    expect(page.locator(".pass-item.chosen")).to_have_count(1)
    page.keyboard.press("e")
    page.keyboard.press("k")
    page.keyboard.press("j")
    page.keyboard.press("x")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="No items left for you")).to_be_visible()
    names = {"A": "a_much", "a": "a", "e": "equal", "x": "both_bad", "b": "b", "B": "b_much"}
    assert [row["choice"] for row in said(site, queue)] == [names[key] for key in "aaebxAaaBbex"]


def test_a_rollout_with_a_rubric_is_read_beside_its_form(page: Page, site: Site, queues: dict[str, int]) -> None:
    begin(page, site, queues["keys: rubric"])
    expect(page.locator(".work-shown .event.model_call")).to_have_count(2)
    expect(page.locator(".work-shown")).to_contain_text("I checked it: the sum is")


def test_pairs_are_counted_previewed_built_and_decided_by_keys(
    chromium: Browser, site: Site, queues: dict[str, int]
) -> None:
    context = chromium.new_context(storage_state=sign_in(chromium, site), viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.goto(f"{site.base}/pair-sets/new/?collection={queues['collection']}")
    margin = page.locator("[name=margin]")
    counts = page.locator("#counts .stats dd").first
    margin.fill("2")
    margin.blur()
    expect(page.locator("#counts")).to_contain_text("below the margin")
    margin.fill("0.5")
    margin.blur()
    # The preview replaces the count that the change asked for, whichever is answered first.
    page.get_by_role("button", name="Preview 20").click()
    expect(page.locator("#counts details[open] table.compare")).to_be_visible()
    # A busy server counts a part and says so. The sets are built whole.
    expect(counts).to_have_text(re.compile("^[1-9]"))
    is_whole = "The rest is counted" not in page.locator("#counts").inner_text()
    counted = counts.inner_text() if is_whole else r"\d+"
    page.get_by_role("button", name="Build pairs").click()
    expect(page.locator("#messages")).to_contain_text(re.compile(f"{counted} pairs built"))
    page.wait_for_load_state()
    # Without touching anything but keys: in the table, where nothing is left for a decision, and on the page of one.
    first, second, third = [row.get_attribute("data-row") for row in page.locator("#pair-table tr[data-row]").all()][:3]
    chosen = page.locator("#pair-table tr.chosen")
    page.keyboard.press("j")
    page.keyboard.press("x")
    page.keyboard.press("Enter")
    page.keyboard.type("Both guess.")
    page.keyboard.press("Enter")
    expect(chosen).to_have_attribute("data-row", second)
    page.keyboard.press("a")
    expect(chosen).to_have_attribute("data-row", third)
    page.keyboard.press("k")
    page.keyboard.press("u")
    expect(page.locator("#pair-table [role=status]")).to_contain_text("1 of 1")
    expect(chosen).to_have_attribute("data-row", second)
    # The row is replaced when the server has answered.
    page.wait_for_load_state("networkidle")
    page.keyboard.press("o")
    page.wait_for_url(f"**/pairs/{second}/")
    page.context.set_offline(True)
    page.keyboard.press("x")
    page.keyboard.type("Too short.")
    page.keyboard.press("Enter")
    expect(page.locator("#messages")).to_contain_text("Try again when you are online")
    page.context.set_offline(False)
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/pairs/{third}/")
    page.keyboard.press("a")
    expect(page).not_to_have_url(re.compile(f"/pairs/{third}/"))
    page.wait_for_load_state()
    page.keyboard.press("k")
    page.wait_for_url(f"**/pairs/{third}/")
    page.keyboard.press("u")
    expect(page.locator("#decision-title")).to_contain_text("proposed")
    made = site.api("GET", "pair-sets/")["results"][0]
    assert made["pair_count"] == int(counted)
    decided = site.api("GET", f"pairs/?pair_set={made['id']}&limit=1000&ordering=id")["results"]
    rejected = [str(each["id"]) for each in decided if each["status"] == "rejected"]
    assert rejected == [first, second]
    assert {each["status"] for each in decided if str(each["id"]) not in rejected} == {"proposed"}
    context.close()


def test_disagreements_are_settled_by_keys_one_after_the_other_and_nothing_typed_is_lost(
    chromium: Browser, site: Site, queues: dict[str, int]
) -> None:
    context = chromium.new_context(storage_state=sign_in(chromium, site), viewport={"width": 1440, "height": 900})
    page = context.new_page()
    one, two = queues["disputes"]
    page.goto(f"{site.base}/queue-items/{one}/")
    expect(page.locator("[data-listens]")).to_have_count(1)
    assert re.findall(r"secret-model|reward-chip|both bad</td>", page.locator("main").inner_html()) == []
    for key in ("B", "1", "n"):
        page.keyboard.press(key)
    page.keyboard.type("Shorter.")
    expect(page.locator("#settle-saved")).to_contain_text("stored in this browser")
    page.reload()
    expect(page.locator("[name=note]")).to_have_value("Shorter.")
    context.set_offline(True)
    page.keyboard.press("Enter")
    expect(page.locator("#review-lost")).to_contain_text("No connection.")
    context.set_offline(False)
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/queue-items/{two}/?settled={one}")
    expect(page.locator("[data-listens]")).to_have_count(1)
    page.keyboard.press("v")
    expect(page.locator("main")).to_contain_text("Reviews")
    expect(page.locator("[data-listens]")).to_have_count(1)
    page.keyboard.press("e")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/queues/{queues['disputed']}/")
    rows = site.api("GET", f"reviews/?queue={queues['disputed']}&is_adjudication=true&ordering=id")["results"]
    assert [(row["choice"], row["reasons"] != [], row["note"], row["saw_votes"]) for row in rows] == [
        ("b_much", True, "Shorter.", False),
        ("equal", False, "", True),
    ]
    # A verdict of one's own, where one compares.
    pair = site.api("GET", f"queue-items/{one}/")["rollouts"]
    page.goto(f"{site.base}/rollouts/compare/?r={pair[0]},{pair[1]}")
    page.keyboard.press("b")
    page.keyboard.press("Enter")
    expect(page.locator("#messages")).to_contain_text("Verdict saved")
    expect(page.locator("#judge-form [value=b]")).to_be_checked()
    context.close()


def test_nothing_on_the_page_names_the_model_the_reward_or_the_rollout(
    page: Page, site: Site, queues: dict[str, int]
) -> None:
    begin(page, site, queues["rubric"])
    assert re.findall(r"secret-model|[Rr]eward|/rollouts/\d|compared with", page.locator("main").inner_html()) == []
    assert page.request.get(f"{site.base}/rollouts/").status == 403
