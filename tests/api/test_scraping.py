"""/metrics: who may read it, what it says of rows and workers, and that Prometheus' own parser reads it."""

import re
from datetime import timedelta
from importlib import import_module
from pathlib import Path

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from apps.accounts.api_keys import create_api_key
from apps.accounts.models import Role
from apps.api.fleet.prometheus_metrics import COUNTS
from apps.gym.traces.events import JudgeCall, ModelCall, ToolResult, Verification
from apps.rollouts.engine.worker_counters import BUCKETS, Meters
from apps.rollouts.metrics.fleet_gauges import read_fleet
from apps.rollouts.models import Breaker, Collection, Rollout, Worker
from tests.factories import make_collection, make_environment, make_policy_model, make_rollout, make_user

pytestmark = pytest.mark.django_db
ROOT = Path(__file__).resolve().parents[2]
WAITING = {"status": Rollout.Status.QUEUED, "reward": None, "stop_reason": "", "trace": []}


def scrape(accept: str = "", role: str = Role.VIEWER) -> str:
    _, token = create_api_key(user=make_user(role), name="Prometheus", scopes=["admin"])
    reply = Client().get("/metrics", headers={"Authorization": f"Bearer {token}", "Accept": accept})
    assert reply.status_code == 200
    return reply.content.decode()


def samples(name: str, text: str | None = None) -> dict[tuple[str, ...], float]:
    """The values of a metric by the values of its labels, in the order of the labels' names."""
    families = parse(scrape() if text is None else text)
    return {
        tuple(value for _, value in sorted(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
        if sample.name == name
    }


def make_worker(**fields: object) -> Worker:
    soon = timezone.now() + timedelta(minutes=10)
    return Worker.objects.create(
        **{"host": "alpha", "pid": 7, "seats": 64, "busy": 3, "backlog": 2, "lease_expires_at": soon, **fields}
    )


def meters() -> Meters:
    """As a worker counts them."""
    counted = Meters()
    counted.count_event(ModelCall(seen=1, items=[], model="m", duration=0.3, retries=2))
    counted.count_event(ModelCall(seen=1, items=[], model="m", duration=4000.0))
    counted.count_event(ToolResult(call_id="c", name="t", output="", duration=0.01))
    counted.count_event(ToolResult(call_id="c", name="t", output="", error="timeout"))
    usage = {"input_tokens": 30, "output_tokens": 3}
    counted.count_event(JudgeCall(judge="j", question="score", prompt=[], usage=usage, duration=0.2))
    counted.count_event(Verification(reward=1.0, components={}, explanation="", stop_reason="answered"))
    counted.count_try("policy_model", "qwen", "ok")
    counted.count_try("policy_model", "qwen", "throttled")
    counted.count_try("environment", "weather", "server_error")
    counted.count_end("completed", "", 2.0, 100, 20)
    counted.count_end("failed", "policy_error", 1.0, 50, 0)
    counted.count("claims")
    counted.count("claimed", by=64)
    return counted


def test_strangers_and_bad_keys_read_nothing():
    client = Client()
    assert client.get("/metrics").status_code == 401
    assert client.get("/metrics", headers={"Authorization": "Bearer gw_no_such"}).status_code == 401
    assert client.get("/metrics", headers={"Accept": "text/plain"}).status_code == 401
    client.force_login(make_user(Role.VIEWER))
    assert client.get("/metrics").status_code == 200


def test_the_whole_text_is_what_prometheus_reads():
    import_module("gymweb.asgi")  # counts sockets
    make_worker(meters=meters().read())
    names = {family.name for family in parse(scrape())}
    wanted = {
        "gymweb_queue_rollouts",
        "gymweb_running_rollouts",
        "gymweb_ended_rollouts",
        "gymweb_queue_oldest_seconds",
        "gymweb_worker_seats",
        "gymweb_worker_lease_left_seconds",
        "gymweb_phase_seconds",
        "gymweb_breaker",
        "gymweb_websocket_connections",
        "process_resident_memory_bytes",
        *(count.shown for count in COUNTS),
    }
    assert wanted - names == set()
    strict = scrape(accept="application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1")
    assert {family.name for family in parse_openmetrics(strict)} >= wanted


def test_the_queue_is_what_the_counters_leave():
    running = make_collection(total=10, completed=3, failed=1, priority=-1)
    make_rollout(running, **WAITING | {"status": Rollout.Status.RUNNING, "lease": 5})
    make_collection(total=7, priority=-1)
    make_collection(total=4, state=Collection.State.PAUSED, pause_reason="asked")
    make_collection(total=9, completed=9, state=Collection.State.COMPLETED)
    dropping = make_collection(total=5, cancelled=4, state=Collection.State.CANCELLED)
    make_rollout(dropping, **WAITING | {"status": Rollout.Status.RUNNING, "lease": 5})
    text = scrape()
    assert samples("gymweb_queue_rollouts", text) == {
        ("-1", "running"): 12.0,
        ("0", "paused"): 4.0,
        ("0", "cancelled"): 0.0,
    }
    assert samples("gymweb_running_rollouts", text) == {
        ("-1", "running"): 1.0,
        ("0", "paused"): 0.0,
        ("0", "cancelled"): 1.0,
    }
    ended = {("completed",): 12.0, ("failed",): 1.0, ("cancelled",): 4.0}
    assert samples("gymweb_ended_rollouts", text) == ended


def test_the_oldest_queued_rollout_is_that_of_a_running_collection():
    def plan(hours: float, **fields: object) -> None:
        collection = make_collection(total=1, **fields)
        make_rollout(collection, **WAITING)
        Collection.objects.filter(pk=collection.pk).update(created_at=timezone.now() - timedelta(hours=hours))

    assert samples("gymweb_queue_oldest_seconds") == {(): 0.0}
    plan(1)
    plan(2)
    plan(5, state=Collection.State.PAUSED, pause_reason="asked")
    make_collection(total=1)
    assert round(samples("gymweb_queue_oldest_seconds")[()], -1) == 7200.0


def test_live_workers_show_seats_and_recently_ended_ones_their_counts():
    long_ago = timezone.now() - timedelta(minutes=16)
    memory = {"used": 300, "limit": 500, "waiting": 4}
    alive = make_worker(trouble="The database is slow.", group="gpu", meters={**meters().read(), "memory": memory})
    stopped = make_worker(state=Worker.State.STOPPED, meters=meters().read())
    make_worker(state=Worker.State.LOST, heartbeat_at=long_ago, meters=meters().read())
    text = scrape()
    key, gone = (str(alive.pk),), (str(stopped.pk),)
    for name, value in (("seats", 64.0), ("busy_seats", 3.0), ("backlog", 2.0), ("trouble", 1.0)):
        assert samples(f"gymweb_worker_{name}", text) == {key: value}
    for name, value in (("reply_memory_bytes", 300.0), ("reply_memory_limit_bytes", 500.0)):
        assert samples(f"gymweb_worker_{name}", text) == {key: value}
    assert samples("gymweb_worker_replies_waiting_for_memory", text) == {key: 4.0}
    assert 0 < samples("gymweb_worker_lease_left_seconds", text)[key] <= 600
    assert 0 <= samples("gymweb_worker_heartbeat_age_seconds", text)[key] < 5
    assert samples("gymweb_worker_info", text) == {
        ("gpu", "alpha", "7", "active", *key): 1.0,
        ("", "alpha", "7", "stopped", *gone): 1.0,
    }
    assert samples("gymweb_claimed_rollouts_total", text) == {key: 64.0, gone: 64.0}


def test_every_count_of_a_worker_is_a_counter_with_its_labels():
    worker = str(make_worker(meters=meters().read()).pk)
    text = scrape()
    assert samples("gymweb_attempts_total", text) == {
        ("", "completed", worker): 1.0,
        ("policy_error", "failed", worker): 1.0,
    }
    assert samples("gymweb_calls_total", text) == {
        ("qwen", "policy_model", "ok", worker): 1.0,
        ("qwen", "policy_model", "throttled", worker): 1.0,
        ("weather", "environment", "server_error", worker): 1.0,
    }
    assert samples("gymweb_tool_calls_total", text) == {("ok", worker): 1.0, ("timeout", worker): 1.0}
    assert samples("gymweb_tokens_total", text) == {("input", worker): 150.0, ("output", worker): 20.0}
    assert samples("gymweb_judge_tokens_total", text) == {("input", worker): 30.0, ("output", worker): 3.0}
    assert samples("gymweb_model_call_retries_total", text) == {(worker,): 2.0}
    assert samples("gymweb_claims_total", text) == {(worker,): 1.0}


def test_durations_are_histograms_by_phase():
    worker = str(make_worker(meters=meters().read()).pk)
    text = scrape()
    calls = {key[0]: n for key, n in samples("gymweb_phase_seconds_bucket", text).items() if key[1] == "model_call"}
    assert {float(bound): n for bound, n in calls.items()} == {
        **{bound: float(bound >= 0.3) for bound in BUCKETS},
        float("inf"): 2.0,
    }
    phases = {"model_call": 2, "tool_call": 2, "judge_call": 1, "verification": 1, "rollout": 2}
    assert samples("gymweb_phase_seconds_count", text) == {(name, worker): count for name, count in phases.items()}
    assert samples("gymweb_phase_seconds_sum", text)["model_call", worker] == 4000.3


def test_nothing_that_workers_count_is_left_out():
    engine = ROOT / "apps" / "rollouts"
    counted = {
        name
        for path in engine.rglob("*.py")
        for name in re.findall(r'(?:self|self\._meters|meters)\.count\(\s*"(\w+)"', path.read_text())
    }
    assert {count.name for count in COUNTS} == counted
    assert len(counted) >= 7


def test_a_breaker_is_one_at_the_state_it_is_in():
    now = timezone.now()
    opened = {"opened_at": now, "retry_at": now}
    Breaker.objects.create(policy_model=make_policy_model(slug="qwen"), state=Breaker.State.OPEN, **opened)
    Breaker.objects.create(environment=make_environment(slug="weather"))
    assert {key: n for key, n in samples("gymweb_breaker").items() if n} == {
        ("qwen", "policy_model", "open"): 1.0,
        ("weather", "environment", "closed"): 1.0,
    }


def test_what_people_call_things_cannot_break_the_text():
    make_worker(host='a"b\\c\nd')
    assert [key[1] for key in samples("gymweb_worker_info")] == ['a"b\\c\nd']


def test_no_query_of_a_scrape_reads_the_queue():
    collection = make_collection(total=3)
    for _ in range(3):
        make_rollout(collection, **WAITING)
    with CaptureQueriesContext(connection) as captured:
        read_fleet()
    assert len(captured) == 6
    about_rollouts = [query["sql"] for query in captured if "rollouts_rollout" in query["sql"]]
    assert len(about_rollouts) == 2
    if connection.vendor == "sqlite":
        assert {plan_of(sql) for sql in about_rollouts} == {"rollout_queue", "rollout_leases"}


def plan_of(sql: str) -> str:
    """The one index by which SQLite reads the table of rollouts."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {sql}")
        lines = [line for *_, line in cursor.fetchall() if re.search(r"\b(rollouts_rollout|U0)\b", line)]
    [found] = [re.fullmatch(r"SEARCH \w+ USING (?:COVERING )?INDEX (\w+) .*", line) for line in lines]
    return found[1] if found else lines[0]
