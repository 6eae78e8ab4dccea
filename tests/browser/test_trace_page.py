"""The page of a trace, by mouse and keyboard, and what it makes of texts that mean harm."""

import json
import statistics
import subprocess
import sys
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.browser.conftest import Site
from tests.browser.payloads import PAYLOADS
from tests.deadlines import wait_until
from tests.gymweb.serving import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def rollouts(site: Site) -> dict[str, int]:
    words = [sys.executable, "tests/browser/seed_traces.py"]
    made = subprocess.run(words, cwd=ROOT, env=site.environment, check=True, text=True, stdout=subprocess.PIPE)
    numbers: dict[str, int] = json.loads(made.stdout)
    return numbers


@pytest.fixture
def own_host(site: Site, tab: Page) -> Any:
    """Every request that the page makes elsewhere."""
    elsewhere: list[str] = []
    tab.on("request", lambda asked: None if asked.url.startswith(site.base) else elsewhere.append(asked.url))
    yield tab
    assert elsewhere == []


def address(site: Site, rollout: int, rest: str = "") -> str:
    return f"{site.base}/rollouts/{rollout}/{rest}"


def chosen(tab: Page) -> str:
    return str(tab.evaluate("document.querySelector('.event.chosen')?.id ?? ''"))


def test_texts_are_shown_in_their_form_raw_and_as_json(site, own_host, rollouts):
    tab = own_host
    tab.set_viewport_size({"width": 1440, "height": 2400})
    tab.goto(address(site, rollouts["readable"]))
    expect(tab.locator("#e6 .markdown strong")).to_have_text("here")
    expect(tab.locator("#e6 .markdown table td").first).to_have_text("1")
    expect(tab.locator("#e4 .terminal .sgr-1")).to_have_text("FAILED")
    expect(tab.locator("#e3 .diff-added")).to_have_count(1)
    assert tab.evaluate("document.querySelector('#e5 img').naturalWidth") == 1
    expect(tab.locator("#e0 details.many > summary")).to_contain_text("21 tools bash, tool_0")
    hidden = tab.locator("#e1 .markdown .control")
    assert (hidden.get_attribute("data-code"), hidden.text_content()) == ("U+202E", "\u202e")
    boxes = [tab.locator(f"#e2 .block.call >> nth={n}").bounding_box() for n in (0, 1)]
    assert boxes[0]["y"] == boxes[1]["y"]
    assert boxes[0]["x"] < boxes[1]["x"]
    tab.locator("#e6").click(position={"x": 60, "y": 10})
    tab.keyboard.press("r")
    expect(tab.locator("#e6 pre.said")).to_be_visible()
    expect(tab.locator("#e6 .markdown")).to_be_hidden()
    tab.keyboard.press("r")
    expect(tab.locator("#e6 .stored")).to_contain_text('"type": "model_call"')
    expect(tab.locator("#inspected")).to_contain_text("Tokens in")


@pytest.mark.parametrize("name", ["readable", "long"])
def test_the_transcript_has_most_of_the_window(site, own_host, rollouts, name):
    tab = own_host
    tab.set_viewport_size({"width": 1440, "height": 900})
    tab.goto(address(site, rollouts[name]))
    head, verdict, first = (
        tab.locator(each).first.bounding_box() for each in (".trace-head", ".verdict", "#rollout-trace .event")
    )
    assert verdict["y"] + verdict["height"] - head["y"] <= 96
    assert first["y"] < 160
    assert tab.locator("#rollout-trace").bounding_box()["width"] >= 0.6 * 1440


def test_a_step_that_is_not_loaded_is_linked_found_and_walked_to(site, own_host, rollouts):
    tab = own_host
    tab.goto(address(site, rollouts["long"], "#e300"))
    expect(tab.locator("#e300")).to_be_in_viewport()
    # Its result stands within the turn.
    assert chosen(tab) == "e299"
    tab.keyboard.press("/")
    tab.keyboard.type("NEEDLE")
    tab.keyboard.press("Enter")
    expect(tab.locator("#found")).to_contain_text("1 match in 1 step")
    tab.keyboard.press("Enter")
    expect(tab.locator("#e362")).to_be_in_viewport()
    tab.keyboard.press("N")
    expect(tab.locator("#e321")).to_be_in_viewport()
    tab.keyboard.press("g")
    tab.keyboard.press("g")
    expect(tab.locator("#e0")).to_be_in_viewport()
    for _ in range(3):
        tab.keyboard.press("j")
        tab.wait_for_timeout(100)
    expect(tab.locator("#e5.chosen")).to_have_count(1)
    tab.keyboard.press("G")
    expect(tab.locator("#e401")).to_be_in_viewport()


def test_a_match_in_a_hidden_part_is_shown_until_the_reader_moves_on(site, own_host, rollouts):
    tab = own_host
    off = "?hide=reasoning,arguments,results,environment"
    tab.goto(address(site, rollouts["readable"], off))
    thought, arguments, result = (tab.locator(f"#e2 {one}") for one in (".reasoning", ".arguments >> nth=0", "#e4"))
    note, find, hits = tab.locator("#hidden-note"), tab.locator("#find"), tab.locator("#found a")
    for part in (thought, arguments, result):
        expect(part).to_be_hidden()
    find.fill("let me see")
    find.press("Enter")
    hits.nth(40).click()
    expect(thought.locator("pre, .rendered").last).to_be_in_viewport()
    expect(note).to_contain_text("Step #2 shows hidden parts")
    for part in (arguments, result):
        expect(part).to_be_hidden()
    # The next place sends it back, and so does the end of the find.
    find.fill("FAILED")
    find.press("Enter")
    expect(thought).to_be_hidden()
    hits.first.click()
    expect(result).to_be_in_viewport()
    expect(note).to_contain_text("“Results”")
    expect(result).to_contain_text("Hidden otherwise: “Results”")
    # In its form, as if it had been shown all along.
    expect(result.locator(".terminal .sgr-1")).to_have_text("FAILED")
    find.fill("")
    find.dispatch_event("search")
    expect(result).to_be_hidden()
    expect(note).not_to_contain_text("shows hidden parts")
    # A card that is switched off as a whole comes back alone, and goes when the reader goes on.
    find.fill("score")
    find.press("Enter")
    hits.first.click()
    expect(tab.locator("#e7")).to_be_visible()
    expect(tab.locator("#e8")).to_be_hidden()
    expect(tab.locator(".brought-note")).to_have_count(1)
    assert "hide=reasoning,arguments,results,environment" in tab.url
    tab.keyboard.press("k")
    expect(tab.locator("#e7")).to_be_hidden()


def test_noise_is_switched_off_in_the_address_and_stays_off(site, own_host, rollouts):
    tab = own_host
    tab.goto(address(site, rollouts["readable"]))
    tab.keyboard.press("4")
    expect(tab.locator("#e3")).to_be_hidden()
    assert "hide=results" in tab.url
    expect(tab.locator("#hidden-note")).to_contain_text("results 2×")
    tab.goto(address(site, rollouts["readable"]))
    expect(tab.locator("#e3")).to_be_hidden()
    # A link to what is switched off leads to it, and says so; for other pages it stays off.
    tab.evaluate("location.hash = '#e3'")
    expect(tab.locator("#e3")).to_be_visible()
    expect(tab.locator("#hidden-note")).to_contain_text("Step #3")
    tab.goto(address(site, rollouts["readable"]))
    expect(tab.locator("#e3")).to_be_hidden()
    tab.get_by_role("link", name="Errors only").click()
    expect(tab.locator("#e6")).to_be_hidden()
    expect(tab.locator("#e4")).to_be_visible()
    tab.get_by_role("link", name="All", exact=True).click()
    expect(tab.locator("#e6")).to_be_visible()
    # Keys are text where somebody types.
    tab.keyboard.press("/")
    tab.keyboard.press("4")
    expect(tab.locator("#e3")).to_be_visible()


def test_each_person_chooses_their_own_keys(site, own_host, rollouts):
    tab = own_host
    tab.goto(address(site, rollouts["readable"]))
    tab.keyboard.press("?")
    overlay = tab.locator("#keys")
    expect(overlay).to_contain_text("Next error or comment")
    overlay.locator("[data-command='trace.next']").click()
    tab.keyboard.press("k")
    expect(overlay.locator("[role=status]")).to_contain_text("in use by “Previous step”")
    overlay.locator("[data-command='trace.next']").click()
    tab.keyboard.press("d")
    expect(overlay.locator("[role=status]")).to_have_text("Saved.")
    tab.reload()
    tab.keyboard.press("j")
    tab.wait_for_timeout(100)
    assert chosen(tab) == ""
    tab.keyboard.press("d")
    expect(tab.locator("#e0.chosen")).to_have_count(1)
    tab.keyboard.press("?")
    overlay.get_by_text("Reset to defaults").click()
    expect(overlay.locator("[role=status]")).to_have_text("Saved.")


def test_nothing_that_a_trace_holds_runs(site, own_host, rollouts):
    tab = own_host
    tab.add_init_script("window.times = 0; window.ran = () => { window.times += 1; }; window.alert = window.ran;")
    assert len(PAYLOADS) >= 60
    pages = ["", "?step=400", "steps/2/", "steps/7/", "find/?q=" + "%3Cscript%3Eran()"]
    tab.set_viewport_size({"width": 1440, "height": 900})
    for rest in pages:
        tab.goto(address(site, rollouts["hostile"], rest))
        run_through(tab)
        if not rest:
            tab.wait_for_function("document.querySelectorAll('.rendered').length > 1000")
        assert tab.evaluate("window.times") == 0
    assert tab.evaluate("document.querySelector('#clickme, main script, main [onerror], main iframe')") is None
    for rest in ["failed0", "failed1", "failed2"]:
        tab.goto(address(site, rollouts[rest]))
        assert tab.evaluate("window.times") == 0


def run_through(tab: Page) -> None:
    """Loads every part, opens every fold, has everything rendered, and looks for what would answer a click."""
    for _ in range(800):
        if tab.locator(".chunk.pending").count() == 0:
            break
        tab.evaluate("document.querySelector('.chunk.pending')?.scrollIntoView()")
        tab.wait_for_timeout(150)
    tab.evaluate("for (const fold of document.querySelectorAll('main details')) fold.open = true")
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    tab.wait_for_timeout(1500)
    leads = "all => all.map(each => each.href ?? each.action)"
    addresses = tab.eval_on_selector_all("main a, main form, main [formaction]", leads)
    assert [each for each in addresses if not str(each).startswith(("http:", "https:", "mailto:"))] == []


def test_a_rollout_saved_as_html_shows_all_and_runs_nothing(site, tab, rollouts, tmp_path):
    for name in ("readable", "hostile"):
        saved = tab.request.get(address(site, rollouts[name], "file/"))
        assert saved.headers["content-disposition"].startswith("attachment")
        path = tmp_path / f"{name}.html"
        path.write_bytes(saved.body())
    asked: list[str] = []
    tab.on("request", lambda request: asked.append(request.url))
    tab.add_init_script("window.times = 0; window.ran = () => { window.times += 1; };")
    tab.goto((tmp_path / "readable.html").as_uri())
    expect(tab.locator("#e5 img")).to_be_visible()
    assert tab.evaluate("[document.querySelector('#e5 img').naturalWidth, getComputedStyle(document.body).margin]") == [
        1,
        "0px",
    ]
    tab.goto((tmp_path / "hostile.html").as_uri())
    tab.wait_for_timeout(500)
    assert tab.evaluate("window.times") == 0
    assert [each for each in asked if not each.startswith(("file:", "data:image/png"))] == []


def test_the_numbers_of_a_token_are_told_on_focus(site, own_host, rollouts):
    tab = own_host
    tab.goto(address(site, rollouts["tokens"], "tokens/?call=2"))
    expect(tab.locator("tr[aria-current]")).to_contain_text("the reply was tokenised differently")
    tab.locator(".tokens .token").first.focus()
    expect(tab.locator("#token-told")).to_have_text("token 3: ID 9, read, not trained on")
    tab.keyboard.press("ArrowRight")
    expect(tab.locator("#token-told")).to_have_text("token 4: ID 5, logprob -0.5000, 61 %, trained on")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_page_of_a_trace_shuts_anybody_out(site, own_host, rollouts, theme):
    tab = own_host
    tab.emulate_media(color_scheme=theme)
    tab.set_viewport_size({"width": 1440, "height": 2400})
    pages = [("readable", ""), ("readable", "steps/2/"), ("tokens", "tokens/?call=2"), ("readable", "find/?q=test")]
    for name, rest in pages:
        tab.goto(address(site, rollouts[name], rest))
        tab.wait_for_timeout(800)
        if not rest:
            tab.keyboard.press("E")
            tab.wait_for_timeout(500)
        assert violations(tab) == []
    tab.keyboard.press("?")
    assert violations(tab) == []
    tab.set_viewport_size({"width": 360, "height": 800})
    tab.goto(address(site, rollouts["readable"]))
    tab.wait_for_timeout(800)
    assert violations(tab) == []
    assert tab.evaluate("document.documentElement.scrollWidth") == 360


def violations(tab: Page) -> list[str]:
    found = Axe().run(tab).response["violations"]
    return [f"{each['id']}: {node['html'][:200]}" for each in found for node in each["nodes"]]


def test_panes_are_as_wide_as_their_reader_draws_them_by_mouse_and_by_keys(site, own_host, rollouts):
    tab = own_host
    tab.set_viewport_size({"width": 1440, "height": 900})
    tab.goto(address(site, rollouts["readable"]))

    def width(pane: str) -> int:
        return round(tab.locator(f"#{pane}").bounding_box()["width"])

    line = tab.get_by_role("separator", name="Width of the outline")
    before = width("outline")
    line.focus()
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("ArrowRight")
    assert width("outline") == before + 32
    expect(line).to_have_attribute("aria-valuenow", str(before + 32))
    box = tab.get_by_role("separator", name="Width of the inspector").bounding_box()
    wide = width("inspector")
    tab.mouse.move(box["x"] + 5, 500)
    tab.mouse.down()
    tab.mouse.move(box["x"] - 75, 500, steps=4)
    tab.mouse.up()
    assert width("inspector") == wide + 80
    tab.reload()
    expect(line).to_have_attribute("aria-valuenow", str(before + 32))
    assert (width("outline"), width("inspector")) == (before + 32, wide + 80)
    line.focus()
    tab.keyboard.press("End")
    assert tab.locator("#rollout-trace").bounding_box()["width"] >= 319
    tab.keyboard.press("Delete")
    assert width("outline") == before


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1440])
def test_the_lane_of_a_subagent_is_linked_and_collapsed(site, own_host, rollouts, width, theme):
    tab = own_host
    tab.set_viewport_size({"width": width, "height": 900})
    tab.emulate_media(color_scheme=theme)
    tab.goto(address(site, rollouts["captured"]))
    lane = tab.locator(".lane")
    expect(lane).to_have_count(1)
    expect(lane.locator(".event")).to_have_count(3)
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert Axe().run(tab).response["violations"] == []
    lane.locator("summary").first.click()
    expect(tab.locator("#e3")).to_be_hidden()
    expect(tab.locator("#e5")).to_be_visible()
    # The link from the call that started it opens the lane.
    tab.locator("#e1 .call-links a").click()
    expect(tab.locator("#e2")).to_be_in_viewport()
    assert chosen(tab) == "e2"
    tab.locator("#e2 .call-links a").first.click()
    assert chosen(tab) == "e1"


def test_a_match_in_a_captured_request_leads_to_the_card_that_shows_it(site, own_host, rollouts):
    tab = own_host
    tab.goto(address(site, rollouts["captured"]))
    tab.locator("#find").fill("sit in the garden")
    tab.locator("#find").press("Enter")
    tab.locator("#found a").click()
    expect(tab.locator("#e3.chosen .result")).to_be_in_viewport()


_MOVE = """() => new Promise((done) => {
  const [before, began] = [document.querySelector("h1").textContent, performance.now()];
  const watch = new MutationObserver(() => {
    const title = document.querySelector("h1");
    if (!title || title.textContent === before || !document.querySelector("#rollout-trace .event")) return;
    watch.disconnect();
    requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - began)));
  });
  watch.observe(document.getElementById("content"), { childList: true });
  document.dispatchEvent(new KeyboardEvent("keydown", { key: "]" }));
})"""


def test_the_next_trace_is_shown_without_a_new_page(site, own_host):
    collection = site.plan(repeats=8, limit=1)
    wait_until(lambda: site.api("GET", f"collections/{collection['id']}/")["state"] == "completed")
    (first, *_, last) = sorted(
        each["id"] for each in site.api("GET", f"rollouts/?collection={collection['id']}")["results"]
    )
    tab = own_host
    tab.goto(address(site, first))
    tab.evaluate("window.kept = true")
    took = []
    for _ in range(first, last):
        tab.wait_for_timeout(700)
        took.append(tab.evaluate(_MOVE))
    assert statistics.median(took) <= 150, took
    expect(tab).to_have_url(address(site, last))
    expect(tab.locator("h1")).to_have_text(f"Rollout #{last}")
    # The new page has the keys and the inspector, once each.
    tab.keyboard.press("j")
    tab.keyboard.press("j")
    assert chosen(tab) == "e1"
    expect(tab.locator("#inspected")).to_contain_text("Step #1")
    tab.go_back()
    expect(tab.locator("h1")).to_have_text(f"Rollout #{last - 1}")
    assert tab.evaluate("window.kept")


def test_a_selected_passage_is_quoted_in_a_comment_and_highlighted(site, tab, rollouts):
    tab.set_viewport_size({"width": 1440, "height": 1200})
    tab.goto(address(site, rollouts["readable"]))
    expect(tab.locator("#e6 .markdown strong")).to_have_text("here")
    tab.evaluate("getSelection().selectAllChildren(document.querySelector('#e6 .markdown strong'))")
    tab.keyboard.press("c")
    expect(tab.locator("#comment-quote")).to_have_text("here")
    tab.keyboard.type("Which one?")
    tab.locator("#comment button[type=submit]").click()
    comment = tab.locator("article.comment").last
    expect(comment.locator("blockquote")).to_have_text("here")
    expect(comment).to_contain_text("step #6")
    marked = """[...CSS.highlights.get('quoted')].map((range) =>
        [range.toString(), Boolean(range.startContainer.parentElement.closest('#e6'))])"""
    assert tab.evaluate(marked) == [["here", True]]
    tab.locator("#e3 a[data-comment]").first.click()
    expect(tab.locator("#comment-quote")).to_be_hidden()
    assert tab.locator("#comment [name=seq]").input_value() == "3"
