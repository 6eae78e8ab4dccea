"""Two web processes, two workers, PostgreSQL and Redis: a page follows live, polls without Redis, and is live again."""

import json
import os
import signal
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from prometheus_client.parser import text_string_to_metric_families as parse

from scripts.servers import Redis
from tests.deadlines import DEADLINE
from tests.faults.installation import ROOT, Installation, wait_until

pytestmark = pytest.mark.slow

CHROMIUM = Path("/usr/bin/chromium")
PASSWORD = "correct horse battery staple"


def ask(port: int, path: str, key: str, body: dict[str, Any] | None = None) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", headers=headers, data=json.dumps(body).encode() if body else None
    )
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def plan(port: int, key: str, **wanted: Any) -> int:
    status, said = ask(port, "/api/v1/collections/", key, {"dataset": "warm", "agent": "default", **wanted})
    assert status == 201, said
    planned: int = json.loads(said)["id"]
    return planned


def measured(port: int, key: str, name: str) -> list[float]:
    status, text = ask(port, "/metrics", key)
    assert status == 200, text
    return [sample.value for family in parse(text) for sample in family.samples if sample.name == name]


class Watched:
    """A collection's page in a browser: what came over its socket, what it polled, and what it shows."""

    def __init__(self, browser: Browser, port: int, collection: int) -> None:
        self.frames: list[float] = []
        self.polls: list[float] = []
        self.page: Page = browser.new_page()
        self.page.set_default_timeout(1000 * DEADLINE)
        self.page.goto(f"http://127.0.0.1:{port}/sign-in/?next=/collections/{collection}/")
        self.page.fill("input[name=username]", "ada")
        self.page.fill("input[name=password]", PASSWORD)
        self.page.on("websocket", lambda line: line.on("framereceived", lambda _: self.frames.append(time.monotonic())))
        self.page.on("request", self._note)
        self.page.click("button[type=submit]")
        self.page.wait_for_selector("#collection-progress")

    def _note(self, request: Any) -> None:
        if request.headers.get("hx-target") in {"collection-figures", "collection-live"}:
            self.polls.append(time.monotonic())

    def ended(self) -> int:
        self.page.wait_for_timeout(20)  # lets the browser's events through
        return int(self.page.get_attribute("#collection-progress", "data-ended") or 0)

    def wait(self, times: list[float], number: int, seconds: float, what: str) -> float:
        """Seconds until so many more came."""
        began, wanted = time.monotonic(), len(times) + number
        wait_until(lambda: self.ended() >= 0 and len(times) >= wanted, seconds, what)
        return times[wanted - 1] - began


def notification_ms(cluster: Installation, port: int, key: str, times: int) -> float:
    """Between the planning of a small collection and the start of its first rollout, the median."""
    waits = []
    for _ in range(times):
        collection = plan(port, key, policy_model="quick", priority=-1)
        cluster.wait_finished(collection, seconds=30)
        [(wait,)] = cluster.rows(
            "SELECT extract(epoch FROM min(r.started_at) - c.created_at) FROM rollouts_rollout r "
            f"JOIN rollouts_collection c ON c.id = r.collection_id WHERE c.id = {collection} GROUP BY c.created_at"
        )
        waits.append(float(wait) * 1000)
    return round(statistics.median(waits))


@pytest.mark.skipif(not CHROMIUM.exists(), reason="chromium is not installed")
def test_a_page_of_another_web_process_follows_live_polls_without_redis_and_is_live_again(
    cluster: Installation, layer: Redis, show
) -> None:
    _, tools = cluster.tools("--tool-ms", 20, "--verify-ms", 20)
    planned = cluster.plan(
        key="scale",
        models={
            "slow": {"base_url": cluster.model("--latency-ms", 400)},
            "quick": {"base_url": cluster.model()},
        },
        environments={"weather": {"base_url": tools}},
        collections={"warm": {"faults": [""] * 4, "model": "quick", "environment": "weather", "repeats": 1}},
    )
    key = str(planned["key"])
    subprocess.run(
        [sys.executable, "manage.py", "create_user", "ada", "--role", "viewer"],
        env={**cluster.env, "GYMWEB_PASSWORD": PASSWORD},
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (one, planner), (other, shower) = (cluster.serve("--no-worker") for _ in range(2))
    workers = [cluster.worker(64) for _ in range(2)]
    cluster.wait_finished(planned["warm"], seconds=30)
    rung = notification_ms(cluster, planner, key, 20)
    assert ask(planner, "/readyz", "") == (200, '{"ready": true, "missing": {}}')
    collection = plan(planner, key, policy_model="slow", repeats=1_000, concurrency=16)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        watched = Watched(browser, shower, collection)
        watched.wait(watched.frames, 2, 15, "the first frames")
        live_from, seen, began = len(watched.frames), watched.ended(), time.monotonic()
        wait_until(lambda: watched.ended() > seen, 15, "the page shows what the workers do")
        wait_until(lambda: watched.ended() >= 0 and time.monotonic() - began > 10, 20, "some seconds of it")
        per_second = (len(watched.frames) - live_from) / (time.monotonic() - began)
        assert 0 < per_second <= 5.5
        assert measured(shower, key, "gymweb_websocket_connections") == [1.0]
        # It asks for figures because the socket said that they changed.
        assert 0 < len(watched.polls) <= len(watched.frames)
        assert measured(planner, key, "gymweb_websocket_connections") == [0.0]
        assert measured(planner, key, "gymweb_worker_seats") == [64.0, 64.0]

        layer.stop()
        seen = watched.ended()
        late = Watched(browser, shower, collection)
        assert ask(planner, "/readyz", "")[0] == 503
        polled_after = watched.wait(watched.polls, 2, 20, "two polls without Redis")
        wait_until(lambda: watched.ended() > seen, 10, "the page shows progress by polling")
        unrung = notification_ms(cluster, planner, key, 10)
        assert late.frames == []
        assert late.wait(late.polls, 1, 15, "a page opened without Redis polls") >= 0

        layer.start()
        live_again = watched.wait(watched.frames, 3, 20, "frames again")
        late_live = late.wait(late.frames, 1, 40, "the page that was opened without Redis is live")
        wait_until(lambda: ask(planner, "/readyz", "")[0] == 200, 10, "ready again")
        ask(planner, f"/api/v1/collections/{collection}/cancel/", key, {"why": "seen"})
        watched.page.wait_for_selector("#collection-progress[data-settled=true]", timeout=1000 * DEADLINE)
        browser.close()
    assert [worker.said.count("Traceback") for worker in (one, other, *workers)] == [0, 0, 0, 0]
    [(connections,)] = cluster.rows("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
    assert cluster.leave(*workers, one, other) == [0, 0, 0, 0]
    show(
        frames_per_s=round(per_second, 1),
        start_after_plan_ms={"with Redis": rung, "without": unrung},
        two_polls_after_s=round(polled_after, 1),
        live_again_after_s=round(live_again, 1),
        page_opened_meanwhile_live_after_s=round(late_live, 1),
        database_connections=connections - 1,
        processors=os.cpu_count(),
    )


def test_a_redis_that_hangs_holds_up_neither_planning_nor_working_nor_leaving(
    cluster: Installation, layer: Redis, show
) -> None:
    _, tools = cluster.tools()
    planned = cluster.plan(
        key="hung",
        models={"quick": {"base_url": cluster.model()}},
        environments={"weather": {"base_url": tools}},
        collections={"warm": {"faults": [""] * 4, "model": "quick", "environment": "weather", "repeats": 1}},
    )
    key = str(planned["key"])
    web, port = cluster.serve("--no-worker")
    workers = [cluster.worker(8) for _ in range(2)]
    cluster.wait_finished(planned["warm"], seconds=30)
    os.kill(layer.pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        collection = plan(port, key, policy_model="quick", repeats=50)
        planning = time.monotonic() - began
        cluster.wait_finished(collection, seconds=30)
        began = time.monotonic()
        status, said = ask(port, "/readyz", "")
        asking = time.monotonic() - began
        began = time.monotonic()
        assert cluster.leave(*workers, seconds=20) == [0, 0]
        leaving = time.monotonic() - began
        assert cluster.leave(web, seconds=20) == [0]
    finally:
        os.kill(layer.pid, signal.SIGCONT)
    assert (status, json.loads(said)["missing"]) == (503, {"layer": "unavailable; pages poll instead"})
    show(planning_s=round(planning, 1), readyz_s=round(asking, 1), leaving_s=round(leaving, 1))
