"""The page of a running collection: at every moment, all its figures are those of one moment."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import MODEL
from tests.gymweb.serving import ROOT
from tests.walk.processes import process

pytestmark = pytest.mark.slow
ROLLOUTS = int(os.environ.get("FIGURES_ROLLOUTS", "400"))
"""A multiple of 40."""
PATIENCE = 180_000

# Each state that a reader could see: what the parts of the page say after each change of any of them.
RECORD = """() => {
    window.states = [];
    const text = (selector) => document.querySelector(selector)?.textContent.trim() ?? null;
    const number = (found) => (found === null || found === "–" ? null : Number(found.replaceAll(",", "")));
    const isSettled = () => document.getElementById("collection-progress").dataset.settled === "true";
    const stat = (part, name) => {
        const term = [...document.querySelectorAll(`#collection-${part} dt`)].find((each) => each.textContent === name);
        return term ? number(term.nextElementSibling.firstChild.textContent.trim()) : null;
    };
    // Once the collection is settled, only the results have these numbers.
    const both = (name, result) => [stat("progress", name) ?? (isSettled() ? result : null), result];
    const phase = (name) => {
        const line = [...document.querySelectorAll("#collection-progress .legend li")]
            .find((each) => each.textContent.startsWith(name));
        return number(line.querySelector("strong").textContent);
    };
    const status = (name) => {
        const line = [...document.querySelectorAll("#facets li")]
            .find((each) => each.querySelector(".cut").textContent.trim() === name);
        return line ? number(line.querySelector(".num").textContent) : 0;
    };
    const record = () => {
        const shares = [...document.querySelectorAll("#breakdown tbody tr")].map((row) => {
            const cells = [...row.cells].map((cell) => cell.textContent.trim());
            return [Number(cells[2].split(" of ")[0]), number(cells[4])];
        });
        const state = {
            as_of: [...document.querySelectorAll("time[data-as-of]")].map((each) => each.dateTime),
            means: both("Mean reward", stat("results", "Mean reward")),
            rewarded: both("With reward", parseInt(text("#collection-results .section-head p"))),
            completed: [phase("completed"), status("completed")],
            running: [phase("running"), status("running")],
            queued: [phase("queued"), status("queued")],
            ended: [parseInt(/ (\\d+) of/.exec(text("#collection-progress h2"))[1]),
                Number(document.getElementById("rollout-table").dataset.ended)],
            empty: document.getElementById("collection-results").textContent.includes("No rewards yet"),
            shares,
            by: document.querySelector("#breakdown [aria-current]").dataset.by,
        };
        if (JSON.stringify(state) === JSON.stringify(window.states.at(-1)?.state)) return;
        window.states.push({ at: Date.now(), state });
    };
    new MutationObserver(record).observe(document.body, { childList: true, subtree: true });
    record();
}"""


@pytest.fixture(scope="module")
def states(site, chromium, signed_in) -> dict[str, Any]:
    """What the page showed from before the first reward until the end, and when each rollout had ended."""
    words = [ROOT / "scripts" / "mock_model.py", "--port", "PORT", *MODEL, "--final", "2", "--latency-ms", "25"]
    with process(*words) as port:
        run = [sys.executable, "-m", "tests.browser.seed_running", str(port)]
        made = subprocess.run(run, cwd=ROOT, env=site.environment, check=True, text=True, stdout=subprocess.PIPE)
        plan = json.loads(made.stdout.splitlines()[-1])
        context = chromium.new_context(storage_state=signed_in, viewport={"width": 1440, "height": 900})
        page = context.new_page()
        collection = site.api(
            "POST", "collections/", {**plan, "agent": site.seeded["agent"], "repeats": ROLLOUTS // 40}
        )
        page.goto(f"{site.base}/collections/{collection['id']}/")
        page.evaluate(RECORD)
        expect(page.locator("#collection-progress")).not_to_have_attribute("data-ended", "0", timeout=PATIENCE)
        page.get_by_role("link", name="Tag", exact=True).click()
        expect(page.locator("#collection-progress[data-settled=true]")).to_have_count(1, timeout=PATIENCE)
        expect(page.locator("#collection-results")).to_contain_text(f"{ROLLOUTS} of {ROLLOUTS} rollouts have a reward")
        found = page.evaluate("window.states")
        context.close()
    rows = site.api("GET", f"rollouts/?collection={collection['id']}&limit=1000")["results"]
    ended = sorted(datetime.fromisoformat(row["finished_at"]) for row in rows)
    print(f"{ROLLOUTS} rollouts: figures were at most {_most_behind(found, ended):.1f} s behind")
    return {"shown": [each["state"] for each in found], "ended": ended}


def _most_behind(found: list[dict[str, Any]], ended: list[datetime]) -> float:
    """Return the longest time in seconds for which the page lacked a rollout that had ended."""
    lags = [
        (datetime.fromtimestamp(after["at"] / 1000, UTC) - ended[before["state"]["ended"][0]]).total_seconds()
        for before, after in pairwise(found)
        if before["state"]["ended"][0] < min(len(ended), after["state"]["ended"][0])
    ]
    return max(lags)


def test_no_two_figures_of_the_page_contradict_each_other(states):
    shown = states["shown"]
    assert len({state["ended"][0] for state in shown}) > 5, "the page followed the collection"
    for state in shown:
        for name in ("means", "rewarded", "completed", "running", "queued", "ended"):
            assert len(set(state[name])) == 1, (name, state)
        assert len(set(state["as_of"])) == 1, state
        assert sum(count for count, _ in state["shares"]) == state["rewarded"][0], state
        total = sum(count * mean for count, mean in state["shares"] if count)
        assert total == pytest.approx(state["rewarded"][0] * (state["means"][0] or 0.0), abs=0.6), state
        assert state["empty"] is (state["rewarded"][0] == 0), state


def test_figures_count_what_ended_two_seconds_before_the_time_they_name(states):
    for state in states["shown"]:
        as_of = datetime.fromisoformat(state["as_of"][0])
        due = sum(ended <= as_of - timedelta(seconds=2) for ended in states["ended"])
        assert due <= state["ended"][0], state


def test_the_breakdown_that_was_chosen_stays(states):
    chosen = [state["by"] for state in states["shown"]]
    assert chosen == sorted(chosen), "once by tag, it was never by split again"
    assert chosen[-1] == "tag"
