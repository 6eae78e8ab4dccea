"""Claude Code and Codex from the pages "New agent" and "New collection", with a scripted model."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal
from gymweb_client import AsyncGymWeb
from playwright.sync_api import Browser, Page, expect

from apps.gym.boxes.command_presets import PRESETS
from scripts.fetch_command_agents import cache_folder
from tests.browser.conftest import Site, open_site, sign_in
from tests.browser.faults import faults_of
from tests.capture.test_command_agents import rollouts, trace
from tests.capture.test_command_presets import events_of, presets, scripted_model, solve
from tests.factories import make_row
from tests.gym.sandbox.needing import needs_sandbox

pytestmark = [pytest.mark.slow, needs_sandbox]


@pytest.fixture(scope="module")
def agents_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site whose command agents may read the installed command line agents."""
    var = tmp_path_factory.mktemp("presets")
    with open_site(var, "--seats", "4", GYMWEB_AGENT_MOUNTS=str(cache_folder())) as opened:
        yield opened


async def prepare(site: Site, name: str, url: str) -> None:
    """Store a task, and a model at this address."""
    async with AsyncGymWeb(site.base, site.seeded["token"]) as gym:
        await gym.upload(name, [make_row("Write 2 + 2 to answer.txt.", "4")], environment="exact_match")
        model = {"slug": name, "name": f"model {name}", "provider": "compatible", "base_url": url, "model_name": "m"}
        await gym.request("POST", "policy-models/", model)


async def read_trace(site: Site, collection: int) -> tuple[Any, list[Any]]:
    """The only rollout of a collection, and its events."""
    async with AsyncGymWeb(site.base, site.seeded["token"]) as gym:
        (row,) = await rollouts(gym, collection)
        return row, await trace(gym, row["id"])


def create_agent(page: Page, site: Site, name: str) -> None:
    page.goto(f"{site.base}/agents/new/")
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Kind").select_option(label="Command")
    page.get_by_label("Preset").select_option(label=PRESETS[name].title)
    expect(page.get_by_label("Command", exact=True)).not_to_have_value("")
    page.get_by_label("Mounted folders").fill(str(cache_folder()))
    page.get_by_label("Answer file").fill("answer.txt")
    page.get_by_role("button", name="Save agent").click()
    page.wait_for_url(f"**/agents/{name}/")


def start_collection(page: Page, site: Site, name: str) -> int:
    """Start a collection with one rollout and return its id once the page shows its reward."""
    page.goto(f"{site.base}/collections/new/")
    for field in ("dataset", "policy_model", "agent"):
        page.locator(f"[name={field}]").select_option(value=name)
    page.get_by_role("spinbutton", name="Rollouts per task").fill("1")
    expect(page.locator("#plan strong").first).to_have_text("1 rollout")
    page.get_by_role("button", name="Start collection").click()
    page.wait_for_url(re.compile(r"/collections/\d+/$"))
    expect(page.locator("#collection-progress .chip").first).to_contain_text("completed")
    expect(page.locator("#collection-results")).to_contain_text("1 of 1 rollouts")
    return int(page.url.rstrip("/").rpartition("/")[2])


@pytest.mark.parametrize("name", presets())
def test_a_preset_solves_a_file_task_from_the_pages(chromium: Browser, agents_site: Site, name: str) -> None:
    asked: list[Any] = []
    context = chromium.new_context(storage_state=sign_in(chromium, agents_site))
    page = context.new_page()
    wrong = faults_of(page)
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(scripted_model(solve(name), asked)) as url,
    ):
        portal.call(prepare, agents_site, name, url)
        create_agent(page, agents_site, name)
        collection = start_collection(page, agents_site, name)
        row, events = portal.call(read_trace, agents_site, collection)
    context.close()
    assert (row["status"], row["reward"], row["turns"]) == ("completed", 1.0, 2), row["error_message"]
    assert len(asked) == 2
    calls = events_of(events, "model_call")
    outputs = [item for item in calls[1]["items_in"] if item.get("type") == "function_call_output"]
    assert [item["call_id"] for item in outputs] == ["call_1"]
    assert wrong == []
