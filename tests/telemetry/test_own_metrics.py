"""The metrics that are sent are those of /metrics: the same names, labels and values."""

import json
import os
import subprocess
import sys
import urllib.request

import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.resources import Resource
from prometheus_client.parser import text_string_to_metric_families

from apps.accounts.models import Role
from apps.accounts.telemetry import exporters
from apps.accounts.telemetry.metric_export import convert_metrics
from apps.api.fleet.scraping import Everything
from apps.rollouts.engine.worker_counters import BUCKETS, Meters
from gymweb import checks
from gymweb.environment_variables import Environment
from tests.dashboard.pages import signed_in
from tests.deadlines import DEADLINE
from tests.factories import make_collection, make_worker
from tests.gymweb.serving import ROOT, serving
from tests.migrated import lay_out
from tests.telemetry.otlp_receiver import attributes_of


def points_of(metric):
    """(labels, value) of each point; histograms have sum and counts by bucket."""
    kind = metric.WhichOneof("data")
    for point in getattr(metric, kind).data_points:
        labels = tuple(sorted(attributes_of(point.attributes).items()))
        if kind == "histogram":
            yield labels, (point.sum, point.count, tuple(point.bucket_counts), tuple(point.explicit_bounds))
        else:
            yield labels, point.as_double if point.HasField("as_double") else float(point.as_int)


def sent_names(requests):
    return {
        metric.name
        for request in requests
        for resource in request.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


@pytest.mark.django_db
def test_the_series_are_those_of_a_scrape():
    meters = Meters()
    meters.count_end("completed", "", 3.0, 10, 20)
    meters.count_end("failed", "policy_error", 700.0, 0, 0)
    make_worker(meters=meters.read())
    make_collection(state="running", total=5)
    found = encode_metrics(convert_metrics(Everything().collect(), Resource({}), now=1))
    [resource] = found.resource_metrics
    sent = {metric.name: metric for metric in resource.scope_metrics[0].metrics}
    scraped = {
        family.name: family
        for family in text_string_to_metric_families(signed_in(Role.VIEWER).get("/metrics").text)
        if family.name.startswith("gymweb_") and any(not one.name.endswith("_created") for one in family.samples)
    }
    assert set(scraped) <= set(sent)
    assert len(scraped) > 15
    changing = {
        "gymweb_worker_heartbeat_age_seconds",
        "gymweb_worker_lease_left_seconds",
        "gymweb_queue_oldest_seconds",
    }
    for name, family in scraped.items():
        if family.type == "histogram" or name in changing:
            continue
        values = {
            tuple(sorted(one.labels.items())): one.value for one in family.samples if not one.name.endswith("_created")
        }
        assert dict(points_of(sent[name])) == values, name
    assert sent["gymweb_attempts"].sum.is_monotonic
    phases = {
        labels: value for labels, value in points_of(sent["gymweb_phase_seconds"]) if ("phase", "rollout") in labels
    }
    [(total, count, counts, bounds)] = phases.values()
    assert (total, count, bounds) == (703.0, 2, BUCKETS)
    assert (sum(counts), counts[BUCKETS.index(5.0)], counts[BUCKETS.index(1800.0)]) == (2, 1, 1)


# -- settings and checks


@pytest.mark.parametrize(
    ("given", "traces", "metrics"),
    [
        ({}, False, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:4318"}, True, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://a:4318/v1/traces"}, True, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:4318", "OTEL_SDK_DISABLED": "true"}, False, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:4318", "OTEL_METRICS_EXPORTER": "none"}, True, False),
    ],
    ids=["unset", "both", "traces", "disabled", "no metrics"],
)
def test_the_standard_variables_choose_what_is_sent(given, traces, metrics):
    env = Environment(given)
    assert (env.telemetry("TRACES"), env.telemetry("METRICS")) == (traces, metrics)


def test_missing_packages_and_another_protocol_are_named(settings, monkeypatch, caplog):
    assert checks.check_telemetry() == []
    settings.SEND_SPANS = True
    assert checks.check_telemetry() == []
    settings.TELEMETRY_PROTOCOL = "grpc"
    assert [one.id for one in checks.check_telemetry()] == ["gymweb.W004"]
    for module in (exporters, checks):
        monkeypatch.setattr(module, "is_installed", lambda: False)
    assert [one.id for one in checks.check_telemetry()] == ["gymweb.W003"]
    exporters.start_telemetry("worker")
    assert "requirements-otel.txt" in caplog.text


def test_a_process_that_sends_nothing_imports_nothing():
    program = (
        "import django, json, sys; django.setup()\n"
        "import apps.rollouts.engine.worker, gymweb.asgi\n"
        "from apps.accounts.telemetry.exporters import start_telemetry\n"
        "start_telemetry('worker')\n"
        "prefixes = ('opentelemetry.sdk', 'opentelemetry.exporter', 'opentelemetry.proto', 'google.protobuf')\n"
        "print(json.dumps([name for name in sys.modules if name.startswith(prefixes)]))"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    environment |= {"DJANGO_SETTINGS_MODULE": "gymweb.settings", "GYMWEB_DATABASE_URL": "sqlite://:memory:"}
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment, check=True, capture_output=True)
    assert json.loads(ran.stdout) == []


# -- real processes


@pytest.fixture
def environment(tmp_path, inbox):
    lay_out(tmp_path / "gymweb.sqlite3")
    return {
        "DJANGO_SETTINGS_MODULE": "gymweb.settings",
        "GYMWEB_DATABASE_URL": f"sqlite:///{tmp_path}/gymweb.sqlite3",
        "GYMWEB_REDIS_URL": "",
        "OTEL_EXPORTER_OTLP_ENDPOINT": inbox.url,
        "OTEL_METRIC_EXPORT_INTERVAL": "200",
        "OTEL_BSP_SCHEDULE_DELAY": "200",
    }


def test_a_server_sends_its_requests_and_all_metrics(tmp_path, inbox, environment):
    with serving(tmp_path, **environment) as server:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/sign-in/", timeout=DEADLINE) as answer:
            request_id = answer.headers["X-Request-ID"]
        assert inbox.wait_until(lambda: sent_names(inbox.metrics) >= WEB_METRICS, seconds=DEADLINE)
        assert inbox.wait_until(lambda: inbox.traces, seconds=DEADLINE)
        server.signal()
        assert server.process.wait(DEADLINE) == 0
    [span] = [span for span in inbox.spans if span.name == "GET /sign-in/"]
    assert span.attributes["gymweb.request_id"] == request_id
    assert (span.resource["gymweb.process"], span.resource["service.name"]) == ("web", "gymweb")


WEB_METRICS = {"gymweb_worker_seats", "gymweb_cost_usd", "gymweb_websocket_connections", "process_cpu_seconds"}


def test_a_worker_sends_metrics_of_its_process(tmp_path, inbox, environment):
    process = subprocess.Popen(
        [sys.executable, "manage.py", "rolloutworker"],
        cwd=ROOT,
        env={**os.environ, "GYMWEB_VAR": str(tmp_path), **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert inbox.wait_until(lambda: "process_cpu_seconds" in sent_names(inbox.metrics), seconds=DEADLINE)
    finally:
        process.terminate()
        assert process.wait(DEADLINE) == 0
    assert "gymweb_worker_seats" not in sent_names(inbox.metrics)


def test_a_receiver_that_is_away_does_not_stop_the_server(tmp_path, environment):
    environment |= {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    with serving(tmp_path, "--no-worker", **environment) as server:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/sign-in/", timeout=DEADLINE) as answer:
            assert answer.status == 200
        server.signal()
        assert server.process.wait(DEADLINE) == 0
