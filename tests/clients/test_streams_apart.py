"""Streams where web and worker are apart, on PostgreSQL and Redis: from any web process, with signs of life."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scripts.servers import ServerMissing, postgres, redis
from tests.clients.site import Site, open_site
from tests.clients.test_streams import ask, open_stream, stream
from tests.deadlines import DEADLINE
from tests.gymweb.serving import ROOT, Served, serving

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A web process without a worker."""
    try:
        with postgres() as database, redis() as layer:
            settings = {"GYMWEB_DATABASE_URL": database.url, "GYMWEB_REDIS_URL": layer.url}
            with open_site(tmp_path_factory.mktemp("apart"), "--no-worker", **settings) as opened:
                yield opened
    except ServerMissing as missing:
        pytest.skip(str(missing))


@contextmanager
def second_web_process(site: Site) -> Iterator[Served]:
    with serving(Path(site.environment["GYMWEB_VAR"]), "--no-worker", **site.environment) as served:
        yield served


def test_a_stream_that_waits_gives_signs_of_life(apart: Site) -> None:
    with open_stream(apart, ask(apart, seconds=12)) as answer:
        first, *signs, last = list(answer)
    assert json.loads(first)["type"] == "collection"
    assert set(signs) == {b"\n"}
    assert (json.loads(last)["reason"], json.loads(last)["cancelled"]) == ("time", 2)


def test_any_web_process_streams_the_rollouts_of_other_workers(apart: Site) -> None:
    key = {"Idempotency-Key": "anywhere"}
    with second_web_process(apart) as other:
        elsewhere = Site(other, apart.model, apart.key, apart.viewer_key, apart.environment)
        with start_worker(apart):
            here = stream(apart, ask(apart, repeats=20, group=True), **key)
            there = stream(elsewhere, ask(elsewhere, repeats=20), **key)
    assert (here[-1]["reason"], there[-1]["reason"]) == ("completed", "completed")
    assert [len(group["rollouts"]) for group in here[1:-1]] == [20, 20]
    assert {one["rollout"] for one in there[1:-1]} == {
        one["rollout"] for group in here[1:-1] for one in group["rollouts"]
    }


@contextmanager
def start_worker(site: Site) -> Iterator[None]:
    command = [sys.executable, "manage.py", "rolloutworker", "--seats", "16"]
    worker = subprocess.Popen(
        command, cwd=ROOT, env=site.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        worker.terminate()
        worker.wait(DEADLINE)
