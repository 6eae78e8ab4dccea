"""Spans of claims, rollouts, jobs and requests reach a real receiver, without content of traces."""

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import MiddlewareNotUsed
from django.test import Client

from apps.accounts.job_declarations import load_job
from apps.accounts.models import Role
from apps.accounts.telemetry import request_spans, spans
from apps.environments.models import Environment
from apps.exports.export_orders import ExportOrder, queue_export
from apps.pairs.pair_set_jobs import make_queued_pair_set
from apps.pairs.pair_sets import PairOrder, queue_pair_set
from apps.policies.models import Provider
from apps.rollouts.engine import background_jobs, rollout_spans
from apps.rollouts.engine.claimed_work import fetch_work
from apps.rollouts.engine.running import run_rollout
from apps.rollouts.plans.plan_spec import Plan
from apps.rollouts.plans.planning import plan_collection
from apps.rollouts.steering.local_worker import finish_collection
from tests.dashboard.pages import signed_in
from tests.factories import (
    make_agent,
    make_collection,
    make_dataset,
    make_policy_model,
    make_rollout,
    make_row,
    make_trace,
)

pytestmark = pytest.mark.usefixtures("migrated")
SECRET = "What is"


def plan(**fields):
    rows = [make_row(f"{SECRET} {number} * 3?", str(number * 3)) for number in (2, 4)]
    dataset = make_dataset(rows, environment=Environment.objects.get(slug="calculator"))
    model = make_policy_model(mistake_rate=0.0)
    return plan_collection(Plan(dataset=dataset, agent=make_agent(), policy_model=model, **fields))


def finish(collection):
    return async_to_sync(finish_collection)(collection, progress=lambda _: None)


def test_each_rollout_has_a_span_with_its_calls(settings, inbox, sending):
    settings.WORKER_BACKGROUND_JOBS = []
    collection = finish(plan())
    sending()
    by_name = {}
    for span in inbox.spans:
        by_name.setdefault(span.name, []).append(span)
    rollouts = by_name["rollout"]
    assert {span.attributes["gymweb.rollout.id"] for span in rollouts} == set(
        collection.rollouts.values_list("pk", flat=True)
    )
    assert {span.attributes["gymweb.collection.id"] for span in rollouts} == {collection.pk}
    assert {span.attributes["gymweb.status"] for span in rollouts} == {"completed"}
    assert {span.attributes["gymweb.reward"] for span in rollouts} == {1.0}
    for kind in ("model_call", "tool_call", "verification"):
        assert {span.parent_id for span in by_name[kind]} == {span.span_id for span in rollouts}
    call, tool = by_name["model_call"][0].attributes, by_name["tool_call"][0].attributes
    assert call["gen_ai.usage.output_tokens"] > 0
    assert tool["gen_ai.tool.name"] == "calculator"
    assert sum(span.attributes["gymweb.rollouts"] for span in by_name["claim"]) == 2
    assert SECRET not in str(inbox.spans)
    resource = rollouts[0].resource
    assert (resource["service.name"], resource["gymweb.process"]) == ("gymweb", "worker")
    assert resource["deployment.environment"] == "test"
    assert inbox.headers[0]["authorization"] == "Bearer gw_abc"


def test_a_failed_rollout_is_a_failed_span_without_the_message(settings, inbox, sending):
    settings.WORKER_BACKGROUND_JOBS = []
    gone = make_policy_model(provider=Provider.VLLM, wire="chat", model_name="m", base_url="http://127.0.0.1:1/v1")
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    dataset = make_dataset([make_row()], environment=Environment.objects.get(slug="calculator"))
    agent = make_agent()
    finish(plan_collection(Plan(dataset=dataset, agent=agent, policy_model=gone, max_attempts=1)))
    sending()
    [span] = [span for span in inbox.spans if span.name == "rollout"]
    assert (span.failed, span.attributes["error.type"], span.events) == (True, "policy_error", [])
    assert "127.0.0.1:1" not in str(span)


def run(job):
    return background_jobs._run(load_job(f"{job.__module__}.{job.__qualname__}"), others_follow=False)


def test_export_and_pair_jobs_have_spans_if_they_found_work(inbox, sending, settings, tmp_path):
    from apps.exports.export_jobs import write_queued_export

    settings.EXPORTS_DIR = tmp_path
    collection = make_collection(state="completed")
    make_rollout(collection, reward=1.0, trace=make_trace())
    export = queue_export(ExportOrder(format="trl_sft", collection=collection))
    pairs = queue_pair_set(PairOrder(collection=collection))
    assert run(write_queued_export) and not run(write_queued_export)
    assert run(make_queued_pair_set) and not run(make_queued_pair_set)
    sending()
    jobs = {span.name: span.attributes for span in inbox.spans}
    assert jobs["job write_queued_export"]["gymweb.job.id"] == export.pk
    assert jobs["job make_queued_pair_set"]["gymweb.job.id"] == pairs.pk
    assert len(inbox.spans) == 2


def test_a_job_that_fails_is_a_failed_span(inbox, sending, settings, tmp_path, monkeypatch):
    from apps.exports import export_jobs

    settings.EXPORTS_DIR = tmp_path
    collection = make_collection(state="completed")
    queue_export(ExportOrder(format="trl_sft", collection=collection))

    def break_off(*given):
        raise ValueError(SECRET)

    monkeypatch.setattr(export_jobs, "_write_rows", break_off)
    assert run(export_jobs.write_queued_export)
    sending()
    [span] = inbox.spans
    assert (span.failed, span.attributes["error.type"]) == (True, "ValueError")
    assert SECRET not in str(span)


def requests_of(inbox):
    return [span for span in inbox.spans if "http.request.method" in span.attributes]


def test_a_request_has_a_span_with_its_route_and_ids(inbox, sending):
    client = signed_in(Role.VIEWER)
    answer = client.get("/collections/999999/")
    client.get("/healthz")
    Client().get("/sign-in/secret-token/")
    sending()
    first, second = requests_of(inbox)
    assert first.name == "GET /collections/<int:pk>/"
    given = first.attributes
    assert (given["http.response.status_code"], given["http.route"]) == (404, "/collections/<int:pk>/")
    assert given["gymweb.request_id"] == answer.headers["X-Request-ID"]
    assert given["gymweb.user_id"] == int(client.session["_auth_user_id"])
    assert "secret-token" not in str(second)


def test_a_request_continues_the_trace_of_a_trusted_proxy_only(inbox, sending, settings):
    trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    given = {"traceparent": f"00-{trace}-{parent}-01"}
    Client().get("/sign-in/", headers=given)
    settings.TRUSTED_PROXIES = 1
    Client().get("/sign-in/", headers=given)
    sending()
    alone, continued = requests_of(inbox)
    assert (alone.trace_id != trace, alone.parent_id) == (True, "")
    assert (continued.trace_id, continued.parent_id) == (trace, parent)


def test_a_server_error_is_a_failed_span(inbox, sending, monkeypatch):
    monkeypatch.setattr("apps.dashboard.views.accounts.alert_views.render", lambda *given: 1 / 0)
    client = signed_in(Role.ENGINEER)
    client.raise_request_exception = False
    assert client.get("/settings/alerts/").status_code == 500
    sending()
    [span] = requests_of(inbox)
    assert (span.failed, span.events) == (True, [])


def test_without_a_receiver_nothing_is_wrapped():
    assert rollout_spans.engine_calls() == (fetch_work, run_rollout)
    assert spans.current_tracer() is None
    with pytest.raises(MiddlewareNotUsed):
        request_spans.RequestSpanMiddleware(lambda request: None)
    spans.annotate(job=1)
    spans.mark_failed(ValueError())
