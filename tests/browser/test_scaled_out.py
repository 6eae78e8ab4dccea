"""Web and worker in processes of their own, on PostgreSQL and Redis: pages follow, also when Redis is killed."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import expect

from scripts.servers import ServerMissing, postgres, redis
from tests.browser.conftest import ROOT, Site, open_site, sign_in
from tests.browser.test_live_trace import EVENTS, begin, seqs, until_ended
from tests.deadlines import DEADLINE

pytestmark = pytest.mark.slow


@contextmanager
def working(site: Site) -> Iterator[None]:
    command = [sys.executable, "manage.py", "rolloutworker", "--seats", "8"]
    worker = subprocess.Popen(command, cwd=ROOT, env=site.environment, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        worker.terminate()
        worker.wait(DEADLINE)


def test_a_page_follows_over_redis_and_goes_on_without_it(chromium, tmp_path):
    try:
        with postgres() as database, redis() as layer:
            urls = {
                "GYMWEB_DATABASE_URL": database.create_database("pages"),
                "GYMWEB_REDIS_URL": f"redis://127.0.0.1:{layer.port}/0",
            }
            with open_site(tmp_path, "--no-worker", **urls) as site, working(site):
                tab = chromium.new_context(storage_state=sign_in(chromium, site)).new_page()
                # Without its own looks at the server, what comes came over the socket.
                tab.route("**/rollouts/*/?seen=*", lambda route: route.abort())
                begin(site, tab)
                until_ended(tab)
                assert seqs(tab) == list(range(EVENTS))
                tab.unroute("**/rollouts/*/?seen=*")
                begin(site, tab)
                tab.wait_for_selector("#e3")
                layer.kill()
                until_ended(tab)
                assert seqs(tab) == list(range(EVENTS))
                collection = site.plan(repeats=1, limit=2)
                tab.goto(f"{site.base}/collections/{collection['id']}/")
                progress = tab.locator("#collection-progress")
                expect(progress).to_contain_text("2 of 2 rollouts")
                tab.context.close()
    except ServerMissing as missing:
        pytest.skip(str(missing))
