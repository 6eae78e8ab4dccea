"""From the page to the tracker: connect, collect, and see the run in MLflow's own page and in files.

Without the environment of `make test-tracking`, or without Chromium, this is skipped by name.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gymweb_client import GymWeb
from playwright.sync_api import Page, expect, sync_playwright

from scripts.measured_pages import CHROMIUM
from tests.clients.site import Site, open_site, run
from tests.deadlines import DEADLINE, wait_until
from tests.factories import make_row
from tests.tracking.read_back import TENSORBOARD, WANDB, mlflow
from tests.tracking.site_of_trackers import IS_BUILT, PYTHON, ask, mlflow_server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not IS_BUILT, reason="SKIPPED by name: trackers: make test-tracking"),
    pytest.mark.skipif(not CHROMIUM.exists(), reason="SKIPPED by name: Chromium"),
]
ROWS = [make_row(f"What is {number} + 2?", str(number + 2), id=f"sum-{number}") for number in range(8)]
_SIGN_IN = """
import django
django.setup()
from apps.accounts.models import User
from scripts.measured_pages import sign_in_link
print(sign_in_link(User.objects.get(username="engineer")))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with mlflow_server(tmp_path_factory.mktemp("mlflow")) as address:
        yield address


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Slow enough for several points: a reply takes half a second."""
    settings = {"GYMWEB_TRACKING_PYTHON": str(PYTHON), "GYMWEB_PUBLIC_URL": "https://gym.example.org"}
    with open_site(tmp_path_factory.mktemp("site"), "--seats", "2", latency=500, **settings) as opened:
        yield opened


@pytest.fixture
def page(site: Site) -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab = browser.new_page(base_url=site.base)
        tab.goto(run(site.environment, "-c", _SIGN_IN).strip())
        tab.locator("main button[type=submit]").click()
        tab.wait_for_url(lambda found: "/sign-in/" not in found)
        yield tab
        browser.close()


def connect(page: Page, name: str, kind: str, address: str = "") -> None:
    page.goto("/settings/trackers/new/")
    page.get_by_label("Name").fill(name)
    page.get_by_label("Kind").select_option(kind)
    if address:
        page.get_by_label("URL").fill(address)
    page.get_by_role("button", name="Save tracker").click()
    page.wait_for_url("**/settings/trackers/")
    expect(page.locator("#trackers")).to_contain_text(name)


def test_a_collection_is_tracked_live_from_its_page(site: Site, server: str, page: Page) -> None:
    for name, kind, address in (("Team", "mlflow", server), ("Offline", "wandb", ""), ("Board", "tensorboard", "")):
        connect(page, name, kind, address)
    with GymWeb(site.base, site.key) as gym:
        # Without prices, the cost would be unknown.
        fields = {"slug": "mock", "name": "Mock", "provider": "compatible", "input_price": 2.0, "output_price": 8.0}
        gym.request("POST", "policy-models/", {**fields, "base_url": site.model, "model_name": "mock"})
        gym.upload("sums", ROWS, environment="exact_match")
        collection = gym.plan("sums", "mock", repeats=16)["id"]
        for name in ("Team", "Offline", "Board"):
            page.goto(f"/collections/{collection}/tracking/")
            page.get_by_label("Tracker").select_option(label=name)
            page.get_by_role("button", name="Track collection").click()
            expect(page.locator("#runs")).to_contain_text(name)
        assert gym.wait(collection, seconds=DEADLINE, look=0.2)["state"] == "completed"

        def runs() -> dict[str, dict[str, Any]]:
            found = gym.request("GET", f"tracked-runs/?collection={collection}")["results"]
            return {one["kind"]: one for one in found}

        wait_until(lambda: {one["state"] for one in runs().values()} == {"finished"}, what=lambda: str(runs()))
        ours, tracked = gym.request("GET", f"collections/{collection}/metrics/"), runs()
    expected = {name: ours[name] for name in ("mean_reward", "completed", "std", "pass_at_1", "mean_turns", "cost")}
    expected |= {f"pass_at_k/{k}": ours["pass_at_k"][str(k)] for k in (1, 2, 4, 8, 16)}
    found = mlflow(server, f"runs/get?run_id={tracked['mlflow']['run_id']}")["run"]["data"]
    last = {one["key"]: one["value"] for one in found["metrics"]}
    assert {name: last[name] for name in expected} == pytest.approx(expected, abs=0)
    query = f"metrics/get-history?run_id={tracked['mlflow']['run_id']}&metric_key=completed"
    steps = [one["step"] for one in mlflow(server, query)["metrics"]]
    assert len(steps) > 1
    assert steps == sorted(set(steps))
    assert steps[-1] == 128
    folder = Path(site.environment["GYMWEB_VAR"])
    rows, *_ = json.loads(ask(WANDB, folder / tracked["wandb"]["url"]))
    assert {name: [row for row in rows if name in row][-1][name] for name in expected} == expected
    events = json.loads(ask(TENSORBOARD, folder / tracked["tensorboard"]["url"]))
    assert {name: events[name][-1] for name in expected} == {name: [128, value] for name, value in expected.items()}
    page.goto(f"/collections/{collection}/tracking/")
    page.locator("#runs a").first.click()
    # MLflow's own page.
    expect(page.get_by_text("mean_reward").first).to_be_visible(timeout=60_000)
    assert page.url.startswith(server)
