"""The fleet for scripts: who lives, what each runs, and asking one to leave."""

from datetime import timedelta

import pytest
from django.utils import timezone

from apps.rollouts.models import Worker
from tests.factories import make_collection, make_rollout, make_worker

pytestmark = pytest.mark.django_db


def test_a_worker_says_how_it_is(viewer):
    worker = make_worker(
        group="gpu",
        backlog=3,
        trouble="The database is slow: 3 ended rollouts wait to be stored.",
        meters={"rate": 12.5},
        heartbeat_at=timezone.now() - timedelta(seconds=4),
    )
    shown = viewer.get(f"/api/v1/workers/{worker.pk}/").json()
    told = {name: shown[name] for name in ("group", "seats", "busy", "backlog", "rate", "state", "is_stale")}
    assert told == {
        "group": "gpu",
        "seats": 8,
        "busy": 3,
        "backlog": 3,
        "rate": 12.5,
        "state": "active",
        "is_stale": False,
    }
    assert (shown["trouble"].startswith("The database is slow"), 4 <= shown["heartbeat_age"] < 60) == (True, True)


def test_one_whose_lease_ran_out_is_stale_and_a_stopped_one_has_no_rate(viewer):
    long_ago = timezone.now() - timedelta(minutes=3)
    stale = make_worker(heartbeat_at=long_ago, lease_expires_at=long_ago, meters={"rate": 2.0})
    stopped = make_worker(state="stopped", lease_expires_at=long_ago, meters={"rate": 2.0})
    shown = {row["id"]: row for row in viewer.get("/api/v1/workers/").json()["results"]}
    assert (shown[stale.pk]["is_stale"], shown[stopped.pk]["is_stale"]) == (True, False)
    assert shown[stopped.pk]["rate"] is None


def test_workers_are_filtered_by_group(viewer):
    make_worker()
    near = make_worker(group="gpu")
    assert [row["id"] for row in viewer.get("/api/v1/workers/?group=gpu").json()["results"]] == [near.pk]


def test_rollouts_are_filtered_by_worker(viewer):
    worker, other, collection = make_worker(), make_worker(), make_collection()
    runs = {"status": "running", "reward": None, "stop_reason": "", "trace": [], "finished_at": None}
    mine = make_rollout(collection, lease=worker.pk, **runs)
    make_rollout(collection, lease=other.pk, **runs)
    make_rollout(collection)
    rows = viewer.get(f"/api/v1/rollouts/?worker={worker.pk}").json()["results"]
    assert [row["id"] for row in rows] == [mine.pk]
    assert viewer.get("/api/v1/rollouts/?worker=x").status_code == 400


def test_a_worker_is_asked_to_leave_once(engineer, viewer):
    worker = make_worker()
    assert viewer.post(f"/api/v1/workers/{worker.pk}/drain/").status_code == 403
    for _ in range(2):
        drained = engineer.post(f"/api/v1/workers/{worker.pk}/drain/")
        assert (drained.status_code, drained.json()["state"]) == (200, "draining")


def test_one_that_has_left_cannot_be_asked_to(engineer):
    worker = make_worker(state="stopped")
    refused = engineer.post(f"/api/v1/workers/{worker.pk}/drain/")
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:gymweb:problem:cannot-steer")
    assert Worker.objects.get().state == "stopped"
