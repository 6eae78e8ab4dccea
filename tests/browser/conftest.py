"""A real browser on a real `manage.py serve` with its worker, and a model that takes its time."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.browser.faults import faults_of
from tests.deadlines import DEADLINE
from tests.gymweb.serving import ROOT, Served, serving
from tests.migrated import lay_out_for
from tests.walk.processes import process

CHROMIUM = Path("/usr/bin/chromium")
PASSWORD = "correct horse battery"
TOOL_CALLS = 6
MODEL = ["--tool-calls", str(TOOL_CALLS), "--tool-name", "calculator", "--tool-args", '{"expression": "1 + 1"}']


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if CHROMIUM.exists():
        return
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=f"no browser at {CHROMIUM}"))


# Files, parts of pages and redirections: what answers a GET and is no page.
NO_PAGES = {
    "audit_export",
    "collection_adjust",
    "collection_changes_file",
    "collection_matrix_file",
    "collection_figure",
    "export_download",
    "export_file",
    "export_manifest",
    "oidc_callback",
    "oidc_start",
    "queue_item_text",
    "review_text",
    "rollout_file",
    "rollout_image",
    "rollout_outline",
    "rollout_peek",
    "rollout_raw",
    "rollout_steps",
    "rollout_text",
    "sign_in_code",
    "sign_in_link",
    "stored_image",
    "upload_rejected",
}


class Site:
    """The served site, and its API with an engineer's key."""

    def __init__(self, served: Served, seeded: dict[str, str], environment: dict[str, str], hold: Path) -> None:
        self.served, self.base = served, f"http://127.0.0.1:{served.port}"
        self.seeded, self.environment, self._hold = seeded, environment, hold

    @contextmanager
    def held_model(self) -> Iterator[None]:
        """Let the model answer no call within the block, so that rollouts stay where they are."""
        self._hold.touch()
        try:
            yield
        finally:
            self._hold.unlink()

    def api(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        headers = {"Authorization": f"Bearer {self.seeded['token']}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.base}/api/v1/{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
            return json.load(answer)

    def plan(self, *, model: str = "model", **fields: Any) -> dict[str, Any]:
        parts = {name: self.seeded[name] for name in ("dataset", "agent")}
        return self.api("POST", "collections/", {**parts, "policy_model": self.seeded[model], **fields})


@contextmanager
def open_site(var: Path, *serve: str, **settings: str) -> Iterator[Site]:
    """A site of its own with its model, seeded; `serve` are words for `manage.py serve`."""
    given = {
        "DJANGO_SETTINGS_MODULE": "gymweb.settings",
        "GYMWEB_VAR": str(var),
        "GYMWEB_DATABASE_URL": f"sqlite:///{var}/gymweb.sqlite3",
        "GYMWEB_REDIS_URL": "",
        "GYMWEB_OUTBOUND_ALLOW": "127.0.0.1",
        "GYMWEB_BREAKER_FAILURES": "2",
        **settings,
    }
    environment = {**os.environ, **given, "PYTHONPATH": str(ROOT)}

    def run(*words: str) -> str:
        return subprocess.run(
            [sys.executable, *words], cwd=ROOT, env=environment, check=True, text=True, stdout=subprocess.PIPE
        ).stdout

    lay_out_for(environment)
    hold = var / "hold-model"
    model = [ROOT / "scripts" / "mock_model.py", "--port", "PORT", *MODEL, "--final", "2", "--latency-ms", "450"]
    model += ["--hold", hold]
    with process(*model) as port:
        seeded = json.loads(run("tests/browser/seed.py", str(port), PASSWORD))
        with serving(var, *serve, **given) as served:
            yield Site(served, seeded, environment, hold)


def sign_in(chromium: Browser, site: Site, username: str = "erika") -> Any:
    """The cookies of an engineer, or of somebody else."""
    context = chromium.new_context()
    page = context.new_page()
    page.goto(f"{site.base}/sign-in/")
    page.fill("[name=username]", username)
    page.fill("[name=password]", PASSWORD)
    page.click("main button[type=submit]")
    page.wait_for_url(lambda address: "/sign-in/" not in address)
    state = context.storage_state()
    context.close()
    return state


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """With its worker inside, on SQLite."""
    with open_site(tmp_path_factory.mktemp("site"), "--seats", "8") as opened:
        yield opened


@pytest.fixture(scope="session")
def figures(site: Site) -> dict[str, Any]:
    """Collections with figures to look at, by id; made once, whichever module asks first."""
    words = [sys.executable, "tests/browser/seed_figures.py"]
    made = subprocess.run(words, cwd=ROOT, env=site.environment, check=True, text=True, stdout=subprocess.PIPE)
    found: dict[str, Any] = json.loads(made.stdout)
    return found


@pytest.fixture(scope="session")
def pages(site: Site) -> dict[str, str]:
    """Its address by the name of each page that reads, with rows on it."""
    from apps.dashboard.urls import urlpatterns

    words = [sys.executable, "-m", "tests.browser.seed_pages"]
    made = subprocess.run(words, cwd=ROOT, env=site.environment, check=True, text=True, stdout=subprocess.PIPE)
    given: dict[str, str] = json.loads(made.stdout.splitlines()[-1])["pages"]
    named = {str(each.name): f"/{each.pattern}" for each in urlpatterns if "<" not in str(each.pattern)}
    reading = {str(each.name) for each in urlpatterns if "GET" in each.callback.permissions} - NO_PAGES
    missing = sorted(name for name in reading if name not in given and name not in named)
    assert missing == [], "pages that no row was made for"
    return {name: given.get(name) or named[name] for name in sorted(reading)}


@pytest.fixture(scope="session")
def queues(site: Site) -> dict[str, Any]:
    """The numbers of queues to review in, by what they ask."""
    words = [sys.executable, "-m", "tests.browser.seed_queue"]
    made = subprocess.run(words, cwd=ROOT, env=site.environment, check=True, text=True, stdout=subprocess.PIPE)
    found: dict[str, Any] = json.loads(made.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """As long as its file only: Playwright keeps a loop in its thread, where no test could run one of its own."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(CHROMIUM), args=["--no-sandbox"], timeout=1000 * DEADLINE
        )
        # Of every page and every expectation; Playwright's own 30 and 5 seconds are too short for a busy machine.
        expect.set_options(timeout=1000 * DEADLINE)
        open_context, open_page = browser.new_context, browser.new_page

        def new_context(**given: Any) -> BrowserContext:
            context = open_context(**given)
            context.set_default_timeout(1000 * DEADLINE)
            return context

        def new_page(**given: Any) -> Page:
            page = open_page(**given)
            page.set_default_timeout(1000 * DEADLINE)
            return page

        browser.new_context, browser.new_page = new_context, new_page
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def signed_in(chromium: Browser, site: Site) -> Any:
    return sign_in(chromium, site)


@pytest.fixture
def tab(chromium: Browser, signed_in: Any) -> Iterator[Page]:
    """A page of a signed-in browser, low enough to scroll. Fields on its console as an error fails the test."""
    context = chromium.new_context(storage_state=signed_in, viewport={"width": 1000, "height": 500})
    page = context.new_page()
    wrong = faults_of(page)
    yield page
    said = list(wrong)  # before what is still under way is broken off
    context.close()
    # A socket that a test cuts, a request that it aborts and a form that it fills wrongly are said there too.
    own = ("WebSocket", "net::ERR_FAILED", "422")
    assert [each for each in said if not any(sign in each for sign in own)] == []
