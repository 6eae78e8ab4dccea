"""From the first sign-in to a file for DPO, by mouse, in an installation without any data."""

import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser.faults import faults_of
from tests.deadlines import DEADLINE
from tests.gymweb.serving import ROOT, serving
from tests.migrated import lay_out_for

pytestmark = pytest.mark.slow

MAX_CLICKS = 25


class Clicks:
    """Count clicks on a page."""

    def __init__(self, page: Page) -> None:
        self.page, self.count = page, 0

    def __call__(self, target: Locator, address: str = "") -> None:
        target.click()
        self.count += 1
        if address:
            self.page.wait_for_url(re.compile(address))


@pytest.fixture
def empty_site(tmp_path: Path) -> Iterator[str]:
    """Return the sign-in link of the first user."""
    given = {
        "DJANGO_SETTINGS_MODULE": "gymweb.settings",
        "GYMWEB_VAR": str(tmp_path),
        "GYMWEB_DATABASE_URL": f"sqlite:///{tmp_path}/gymweb.sqlite3",
        "GYMWEB_REDIS_URL": "",
    }
    environment = {**os.environ, **given}
    lay_out_for(environment)
    with serving(tmp_path, **given) as served:
        command = [sys.executable, "manage.py", "create_user", "erika", "--role", "engineer", "--link"]
        command += ["--base-url", f"http://127.0.0.1:{served.port}"]
        yield subprocess.run(
            command, cwd=ROOT, env=environment, check=True, text=True, stdout=subprocess.PIPE
        ).stdout.strip()


def test_sample_data_leads_to_a_dpo_file_in_few_clicks(chromium: Browser, empty_site: str) -> None:
    context = chromium.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    page = context.new_page()
    wrong, click = faults_of(page), Clicks(page)
    page.goto(empty_site)
    click(page.get_by_role("main").get_by_role("button"), r"/$")
    click(page.get_by_role("button", name="Load sample data"), r"/collections/\d+/$")
    expect(page.locator("#collection-progress .chip").first).to_contain_text("completed", timeout=DEADLINE * 1000)
    click(page.get_by_role("link", name="Show causes"), r"/failures/$")
    groups = page.get_by_test_id("cause")
    page.wait_for_timeout(100)
    while not groups.count() or page.get_by_role("status").get_by_role("link", name="Refresh").count():
        page.wait_for_timeout(500)
        page.reload()
    read_failures(page, click, 3)
    click(groups.first.get_by_role("link", name=re.compile("with a solved rollout")).first, r"/rollouts/compare/")
    expect(page.locator("table.outcomes").first).to_be_visible()
    page.go_back()
    click(page.locator(".crumbs").get_by_role("link").last, r"/collections/\d+/$")
    click(page.get_by_role("link", name="Build pairs"), r"/pair-sets/new/")
    click(page.get_by_role("main").get_by_role("button", name="Build pairs"), r"/pair-sets/\d+/$")
    click(page.get_by_role("link", name="Export as DPO"), r"/exports/new/")
    click(page.get_by_role("button", name="Create export"), r"/exports/\d+/$")
    download = page.get_by_role("link", name="Download").first
    download.wait_for(timeout=DEADLINE * 1000)
    with page.expect_download() as saved:
        click(download)
    rows = read_rows(Path(saved.value.path()))
    assert rows
    assert all(row["chosen"] != row["rejected"] for row in rows)
    page.goto(f"{page.url.split('/exports')[0]}/")
    assert page.locator(".steps").count() == 0
    assert wrong == []
    assert click.count <= MAX_CLICKS
    context.close()


def read_failures(page: Page, click: Clicks, number: int) -> None:
    examples = page.get_by_test_id("cause").locator("tbody td.first a")
    assert examples.count() >= number
    for place in range(number):
        click(examples.nth(place), r"/rollouts/\d+/")
        expect(page.locator("#rollout-trace .event.verification")).to_be_visible()
        page.go_back()


def read_rows(file: Path) -> list[dict[str, object]]:
    with tarfile.open(file) as archive:
        [name] = [one for one in archive.getmembers() if one.name.endswith(".jsonl")]
        content = archive.extractfile(name)
        assert content is not None
        return [json.loads(line) for line in content]
