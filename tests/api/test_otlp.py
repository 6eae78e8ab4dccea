"""Traces received over OTLP/HTTP: from recorded requests of real instrumentations and from our own export."""

import gzip
import json
from datetime import timedelta
from pathlib import Path

import orjson
import pytest
from django.utils import timezone
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse as ExportResponse

from apps.agents.models import Agent
from apps.exports.trace_sends.otlp_requests import encode_request
from apps.rollouts.imports import received_traces
from apps.rollouts.imports.received_traces import store_complete_traces
from apps.rollouts.models import Collection, ReceivedSpan, ReceivedTrace, Rollout
from tests.factories import make_dataset
from tests.gym.exporters.test_otel_genai import row_of, weather
from tests.gym.test_genai_spans import assistant, genai, request_of, span, user

pytestmark = pytest.mark.django_db(transaction=True)
RECORDED = Path(__file__).parent / "recorded_otlp"
PROTOBUF, JSON = "application/x-protobuf", "application/json"
ROOT = f"{1:016x}"


@pytest.fixture
def dataset(steady_redactor):
    Agent.objects.get_or_create(slug="default", defaults={"name": "Default"})
    return make_dataset(slug="support")


def post(api, body, content_type=JSON, dataset="support", **headers):
    raw = body if isinstance(body, bytes) else orjson.dumps(body)
    return api.post("/otlp/v1/traces", raw, content_type=content_type, headers={"x-gymweb-dataset": dataset, **headers})


def pass_time(seconds):
    early = timezone.now() - timedelta(seconds=seconds)
    ReceivedTrace.objects.filter(finished_at=None).update(changed_at=early)


def stored():
    """Store the traces that were quiet for six seconds, and return all rollouts."""
    pass_time(6)
    while store_complete_traces():
        pass
    return list(Rollout.objects.filter(collection__idempotency_key__startswith="traces:").order_by("pk"))


def question(text, number=2, answer="Four."):
    root = span(1, {}, name="answer")
    return request_of(root, span(number, genai([user(text)], [assistant(answer)]), parent=ROOT))


@pytest.mark.parametrize("sender", ["genai", "openinference"])
def test_a_recorded_request_of_a_real_instrumentation_becomes_a_rollout(engineer, dataset, sender):
    body = gzip.compress((RECORDED / f"{sender}.bin").read_bytes())
    answer = post(engineer, body, PROTOBUF, **{"Content-Encoding": "gzip"})
    assert (answer.status_code, answer.headers["Content-Type"], answer.content) == (200, PROTOBUF, b"")
    [rollout] = stored()
    assert (rollout.answer, rollout.status, rollout.reward) == ("it is 22 c", "completed", None)
    assert (rollout.input_tokens, rollout.output_tokens, rollout.model_version) == (22, 14, "m-1")
    assert (list(rollout.tools), rollout.tool_calls, rollout.turns) == (["get_weather"], 1, 2)
    assert (rollout.collection.name, rollout.collection.policy_model.name) == ("weather-bot", "m-1")
    row = rollout.task.row["responses_create_params"]
    assert [item["content"] for item in row["input"]] == ["Be brief.", "Weather in Paris?"]
    # The instrumentation of the GenAI conventions reports no tool definitions.
    offered = ["get_weather"] if sender == "openinference" else []
    assert [tool["name"] for tool in row.get("tools", [])] == offered


def test_spans_of_one_trace_may_come_in_several_requests_out_of_order_and_twice(engineer, dataset):
    root = span(1, {}, name="answer")
    first = span(2, genai([user("2 + 2?")], [assistant("4")]), parent=ROOT)
    second = span(3, genai([user("2 + 2?"), assistant("4"), user("Sure?")], [assistant("Yes.")]), parent=ROOT)
    for one in (second, root, first, second):
        assert post(engineer, request_of(one)).json() == {}
    assert not store_complete_traces()
    [rollout] = stored()
    assert (rollout.turns, rollout.answer) == (2, "yes")
    assert post(engineer, request_of(root, first, second)).json() == {}
    assert len(stored()) == 1
    assert set(ReceivedSpan.objects.values_list("body", flat=True)) == {""}


def test_a_trace_without_its_root_waits_ten_minutes(engineer, dataset):
    post(engineer, request_of(span(2, genai([user("2 + 2?")], [assistant("4")]), parent=ROOT)))
    assert stored() == []
    pass_time(601)
    assert store_complete_traces()
    assert len(stored()) == 1


def test_a_late_span_is_refused_by_name(engineer, dataset):
    post(engineer, question("2 + 2?"))
    [rollout] = stored()
    late = post(engineer, request_of(span(9, genai([user("Late?")], [assistant("Yes")]), parent=ROOT)))
    told = late.json()["partialSuccess"]
    assert told["rejectedSpans"] == "1"
    assert f"{9:016x}" in told["errorMessage"]
    assert f"rollout {rollout.pk}" in told["errorMessage"]


@pytest.mark.parametrize("content_type", [JSON, PROTOBUF])
def test_a_span_without_content_is_refused_by_name(engineer, dataset, content_type):
    empty = span(7, {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}, name="chat m")
    body = request_of(empty)
    answer = post(engineer, encode_request([body]) if content_type == PROTOBUF else body, content_type)
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, content_type)
    if content_type == PROTOBUF:
        partial = ExportResponse.FromString(answer.content).partial_success
        rejected, message = partial.rejected_spans, partial.error_message
    else:
        partial = answer.json()["partialSuccess"]
        rejected, message = int(partial["rejectedSpans"]), partial["errorMessage"]
    assert rejected == 1
    for part in ("chat m", f"{7:016x}", "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"):
        assert part in message
    assert not ReceivedTrace.objects.exists()


def test_equal_prompts_are_attempts_at_one_task_and_the_collection_grows(engineer, dataset):
    asked = ["2 + 2?", "3 + 3?", "2 + 2?"]
    for number, text in enumerate(asked):
        body = orjson.dumps(question(text)).replace(b"ab" * 16, f"{number:032x}".encode())
        post(engineer, body, **{"x-gymweb-collection": "Support"})
        stored()
    rollouts = stored()
    [collection] = Collection.objects.filter(name="Support")
    assert [(one.task.index, one.repeat) for one in rollouts] == [(0, 0), (1, 0), (0, 1)]
    assert (collection.total, collection.completed, collection.repeats, collection.version.task_count) == (3, 3, 2, 2)
    assert collection.version.number == 2
    assert collection.snapshot["dataset"]["content_hash"] == collection.version.content_hash != ""


def test_a_full_collection_is_followed_by_another(engineer, dataset, monkeypatch):
    monkeypatch.setattr(received_traces, "MAX_TASKS", received_traces.AT_ONCE)
    for number in range(2):
        body = orjson.dumps(question(f"{number}?")).replace(b"ab" * 16, f"{number:032x}".encode())
        post(engineer, body)
        stored()
    assert [one.collection.total for one in stored()] == [1, 1]


def test_models_have_collections_of_their_own(engineer, dataset):
    for number, model in enumerate(["m", "n"]):
        body = orjson.dumps(question("2 + 2?")).replace(b"ab" * 16, f"{number:032x}".encode())
        post(engineer, body.replace(b'"stringValue":"m"', b'"stringValue":"%s"' % model.encode()))
    assert sorted(one.collection.policy_model.name for one in stored()) == ["m", "n"]


def test_our_own_export_sent_here_is_the_same_conversation_with_its_reward(engineer, dataset):
    body = gzip.compress(encode_request([row_of(weather())]))
    assert post(engineer, body, PROTOBUF, **{"Content-Encoding": "gzip"}).content == b""
    [rollout] = stored()
    assert (rollout.answer, rollout.reward, rollout.turns) == ("it is 22 °c", 1.0, 2)


def test_a_trace_without_a_model_call_is_finished_with_its_problem(engineer, dataset):
    post(engineer, request_of(span(1, {}, name="GET /")))
    assert stored() == []
    [trace] = ReceivedTrace.objects.all()
    assert "no span of a model call" in trace.problem
    again = post(engineer, request_of(span(1, {}, name="GET /")))
    assert again.json()["partialSuccess"]["rejectedSpans"] == "1"


def test_requests_that_are_not_otlp_are_refused(engineer, dataset, monkeypatch):
    assert post(engineer, b"\xff\xff\xff", PROTOBUF).status_code == 400
    assert post(engineer, b"{", JSON).status_code == 400
    assert post(engineer, {"resourceSpans": [{"scopeSpans": 3}]}).status_code == 400
    assert post(engineer, {"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "x"}]}]}]}).status_code == 400
    assert post(engineer, b"{}", "text/plain").status_code == 415
    assert post(engineer, b"{}", **{"Content-Encoding": "br"}).status_code == 415
    assert post(engineer, b"{}", **{"Content-Encoding": "gzip"}).status_code == 400
    assert post(engineer, gzip.compress(b"{}")[:-4], **{"Content-Encoding": "gzip"}).status_code == 400
    monkeypatch.setattr("apps.api.otlp_view.MAX_BODY", 100)
    assert post(engineer, b" " * 101).status_code == 413
    assert post(engineer, gzip.compress(b" " * 10_000), **{"Content-Encoding": "gzip"}).status_code == 413
    assert post(engineer, {}, dataset="").status_code == 400
    assert post(engineer, {}, dataset="unknown").status_code == 404
    assert not ReceivedTrace.objects.exists()


def test_a_trace_that_grows_too_large_is_refused(engineer, dataset, settings):
    settings.MAX_LINE_BYTES = 1_000
    answer = post(engineer, question("x" * 2_000)).json()["partialSuccess"]
    assert answer["rejectedSpans"] == "2"
    assert "GYMWEB_MAX_LINE_BYTES" in answer["errorMessage"]


def test_without_the_package_protobuf_is_refused_and_json_works(engineer, dataset, monkeypatch):
    monkeypatch.setattr("apps.api.otlp_view.is_installed", lambda: False)
    refused = post(engineer, b"\n\x00", PROTOBUF)
    assert refused.status_code == 415
    assert "requirements-otel.txt" in refused.json()["detail"]
    assert post(engineer, question("2 + 2?")).json() == {}


def test_viewers_cannot_send_traces(viewer, dataset):
    assert post(viewer, question("2 + 2?")).status_code == 403


@pytest.mark.parametrize(
    "value", [None, 3, "x", [], {}, {"a": 1}, [3], [{}], [{"role": "user"}], [{"role": "user", "parts": 3}]]
)
def test_odd_messages_are_refused_not_failures(engineer, dataset, value):
    odd = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": json.dumps(value)}
    told = {**odd, "gen_ai.output.messages": json.dumps([assistant("4")])}
    both = [
        told,
        {**told, "gen_ai.input.messages": json.dumps([user("?")]), "gen_ai.output.messages": json.dumps(value)},
    ]
    for number, one in enumerate(both, start=2):
        assert post(engineer, request_of(span(number, one))).status_code == 200
    flat = {f"llm.output_messages.0.message{end}": json.dumps(value) for end in ("", ".content", ".tool_calls")}
    assert post(engineer, request_of(span(5, {"openinference.span.kind": "LLM", **flat}))).status_code == 200
    stored()


def test_a_trace_that_cannot_be_converted_does_not_hold_back_others(engineer, dataset, monkeypatch):
    read = received_traces.read_line

    def fail(line):
        if b"broken" in line:
            raise ValueError("no converter")
        return read(line)

    monkeypatch.setattr(received_traces, "read_line", fail)
    for number, text in enumerate(["broken", "2 + 2?"], start=1):
        body = question(text)
        for one in body["resourceSpans"][0]["scopeSpans"][0]["spans"]:
            one["traceId"] = f"{number:032x}"
        assert post(engineer, body).status_code == 200
    [rollout] = stored()
    assert "2 + 2?" in str(rollout.task.row)
    broken = ReceivedTrace.objects.get(rollout=None)
    assert broken.problem == "it cannot be converted: ValueError: no converter"
    assert broken.finished_at is not None
