"""Traces reach a real OTLP receiver: after outages, in parts, after a lost worker, and only where allowed."""

from datetime import timedelta

import pytest
from django.core.exceptions import ValidationError
from django.utils import timezone

from apps.accounts.models import AuditEntry
from apps.exports.export_deletion import delete_export
from apps.exports.export_jobs import write_export
from apps.exports.export_orders import ExportOrder, queue_export
from apps.exports.models import TraceDestination, TraceSend
from apps.exports.trace_sends import send_jobs
from apps.exports.trace_sends.destination_changes import delete_destination, open_destination, save_destination
from apps.exports.trace_sends.send_jobs import send_queued_traces
from apps.exports.trace_sends.send_orders import (
    TraceSendOrder,
    TraceSendRefused,
    cancel_trace_send,
    queue_trace_send,
    resume_trace_send,
)
from apps.gym import process_exit
from tests.alerts.receiver import find_port
from tests.factories import make_collection, make_rollout, make_trace
from tests.telemetry.otlp_receiver import receive, rejecting

pytestmark = pytest.mark.django_db(transaction=True)
TOKEN = "Basic cGstbGYtc2VjcmV0LXRva2Vu"
SECRET = "sk-ant-api03-" + "a1B2c3D4" * 8


@pytest.fixture(autouse=True)
def exports_folder(settings, tmp_path):
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    settings.EXPORTS_DIR = tmp_path


def exported(rollouts=3, **order):
    collection = make_collection()
    for number in range(rollouts):
        make_rollout(collection, repeat=number, reward=0.5, trace=make_trace(str(number)))
    return write(collection, **order)


def write(collection, **order):
    export = write_export(export=queue_export(ExportOrder(format="otel_genai", collection=collection, **order)))
    assert export.state == "ready", export.message
    return export


def to(url, headers=None, **fields):
    destination = TraceDestination(name=f"receiver {TraceDestination.objects.count()}", **fields)
    return save_destination(destination=destination, url=f"{url}/v1/traces", headers=headers or {})


def sent_to(inbox, export, **given):
    send = queue_trace_send(TraceSendOrder(export=export, destination=to(inbox.url, **given)))
    assert send_queued_traces()
    send.refresh_from_db()
    return send


def make_due(send):
    TraceSend.objects.filter(pk=send.pk).update(retry_at=timezone.now())


def test_each_rollout_is_one_trace_at_the_receiver():
    export = exported()
    with receive() as inbox:
        send = sent_to(inbox, export, headers={"Authorization": TOKEN, "X-Project": "gym"})
    assert (send.state, send.sent, send.total, send.rejected_spans, send.message) == ("sent", 3, 3, 0, "")
    assert (send.spans, send.finished_at is not None) == (len(inbox.spans), True)
    assert len({span.trace_id for span in inbox.spans}) == 3
    roots = [span for span in inbox.spans if not span.parent_id]
    rollouts = {span.attributes["gymweb.rollout.id"] for span in roots}
    assert rollouts == set(export.collection.rollouts.values_list("pk", flat=True))
    [headers] = inbox.headers
    assert (headers["authorization"], headers["x-project"]) == (TOKEN, "gym")
    assert headers["content-type"] == "application/x-protobuf"
    assert not send_queued_traces()


@pytest.mark.parametrize("encoding", ["jsonl", "jsonl.gz"])
def test_sending_again_sends_the_same_ids(encoding):
    export = exported(encoding=encoding)
    with receive() as inbox:
        sent_to(inbox, export)
        first = {span.span_id for span in inbox.spans}
        sent_to(inbox, write(export.collection))
    assert len(inbox.spans) == 2 * len(first)
    assert {span.span_id for span in inbox.spans} == first


def test_a_send_waits_for_a_receiver_that_is_down():
    export, port = exported(), find_port()
    send = queue_trace_send(TraceSendOrder(export=export, destination=to(f"http://127.0.0.1:{port}")))
    assert send_queued_traces()
    send.refresh_from_db()
    assert (send.state, send.attempt, send.sent) == ("queued", 0, 0)
    assert send.retry_at > timezone.now()
    assert "/v1/traces" not in send.message
    assert not send_queued_traces(), "not before it is due"
    make_due(send)
    with receive(port):
        assert send_queued_traces()
    send.refresh_from_db()
    assert (send.state, send.sent, send.message) == ("sent", 3, "")


def test_an_interrupted_send_continues_with_the_next_trace(monkeypatch):
    monkeypatch.setattr(send_jobs, "BATCH_TRACES", 1)
    export = exported()
    with receive() as inbox:
        inbox.answer = lambda number: (503, {"Retry-After": "30"}, b"") if number == 1 else (200, {}, b"")
        send = sent_to(inbox, export)
        assert (send.state, send.sent) == ("queued", 1)
        assert timedelta(seconds=20) < send.retry_at - timezone.now() <= timedelta(seconds=30)
        make_due(send)
        assert send_queued_traces()
    send.refresh_from_db()
    assert (send.state, send.sent) == ("sent", 3)
    ids = [span.span_id for span in inbox.spans]
    assert len(ids) == len(set(ids)), "no trace was sent twice"


def test_a_send_fails_after_an_hour_without_progress():
    send = queue_trace_send(TraceSendOrder(export=exported(), destination=to(f"http://127.0.0.1:{find_port()}")))
    long_ago = timezone.now() - timedelta(hours=2)
    TraceSend.objects.filter(pk=send.pk).update(failing_since=long_ago, retry_at=long_ago)
    assert send_queued_traces()
    send.refresh_from_db()
    assert (send.state, send.finished_at is not None) == ("failed", True)


def test_a_worker_that_leaves_gives_the_send_back():
    send = queue_trace_send(TraceSendOrder(export=exported(), destination=to("http://127.0.0.1:1")))
    with pytest.MonkeyPatch.context() as patch:

        def leave():
            raise process_exit.Leaving

        patch.setattr(process_exit, "check", leave)
        assert send_queued_traces()
    send.refresh_from_db()
    assert (send.state, send.attempt) == ("queued", 0)


def test_a_refusal_fails_the_send_and_names_no_secret():
    export = exported()
    with receive() as inbox:
        inbox.answer = lambda number: (401, {}, f"bad credentials: {TOKEN}".encode())
        send = sent_to(inbox, export, headers={"Authorization": TOKEN})
        assert (send.state, send.sent) == ("failed", 0)
        assert "401" in send.message
        assert "c2VjcmV0" not in send.message
        inbox.answer = lambda number: (200, {}, b"")
        assert resume_trace_send(send=send).state == "queued"
        assert send_queued_traces()
    send.refresh_from_db()
    assert (send.state, send.sent, send.message) == ("sent", 3, "")


def test_rejected_spans_are_counted():
    export = exported()
    with receive() as inbox:
        inbox.answer = lambda number: (200, {}, rejecting(2, "too old"))
        send = sent_to(inbox, export)
    assert (send.state, send.rejected_spans) == ("sent", 2)
    assert "too old" in send.message


def test_the_message_of_a_partial_success_names_no_secret():
    export = exported()
    with receive() as inbox:
        inbox.answer = lambda number: (200, {}, rejecting(2, f"too old for {TOKEN}, {TOKEN[6:]}, pk-lf-secret-token"))
        send = sent_to(inbox, export, headers={"Authorization": TOKEN})
    assert (send.state, send.rejected_spans, "too old" in send.message) == ("sent", 2, True)
    assert "c2VjcmV0" not in send.message and "pk-lf" not in send.message


def test_a_secret_at_the_cut_of_an_error_is_masked():
    export = exported()
    with receive() as inbox:
        inbox.answer = lambda number: (400, {}, b"x" * 280 + b" " + TOKEN.encode())
        send = sent_to(inbox, export, headers={"Authorization": TOKEN})
    assert send.state == "failed"
    assert "cGst" not in send.message


def test_a_request_that_is_too_large_is_sent_in_parts():
    export = exported()
    with receive() as inbox:
        inbox.answer = lambda number: (413, {}, b"") if number in (0, 2) else (200, {}, b"")
        send = sent_to(inbox, export)
    # All three; one; two; each of the two.
    assert (inbox.requests, send.state, send.rejected_spans) == (5, "sent", 0)
    assert len({span.trace_id for span in inbox.spans}) == 3


def test_a_single_trace_that_is_too_large_is_rejected():
    export = exported(1)
    with receive() as inbox:
        inbox.answer = lambda number: (413, {}, b"")
        send = sent_to(inbox, export)
    assert (send.state, send.sent, send.rejected_spans) == ("sent", 1, send.spans)


def test_a_forbidden_address_is_refused_when_saved_and_when_used(settings):
    export = exported()
    with receive() as inbox:
        send = queue_trace_send(TraceSendOrder(export=export, destination=to(inbox.url)))
        settings.OUTBOUND_ALLOW = []
        with pytest.raises(ValidationError) as refused:
            to("http://127.0.0.1:4318")
        assert list(refused.value.message_dict) == ["url"]
        assert send_queued_traces()
        send.refresh_from_db()
    assert (send.state, inbox.requests) == ("failed", 0)


def test_a_redirect_to_another_host_does_not_get_the_headers(settings):
    export = exported(1)
    with receive() as outer, receive() as inner:
        outer.answer = lambda number: (307, {"Location": f"{inner.url}/v1/traces"}, b"")
        send = sent_to(outer, export, headers={"Authorization": TOKEN})
    assert "authorization" in outer.headers[0]
    assert all("authorization" not in headers for headers in inner.headers)
    assert send.sent <= 1


def test_a_redirect_to_a_forbidden_address_fails_the_send(settings):
    export = exported(1)
    with receive() as outer, receive() as inner:
        port = outer.url.rpartition(":")[2]
        settings.OUTBOUND_ALLOW = [f"127.0.0.1:{port}"]
        outer.answer = lambda number: (307, {"Location": f"{inner.url}/v1/traces"}, b"")
        send = sent_to(outer, export)
    assert (send.state, inner.requests) == ("failed", 0)


def test_only_one_unfinished_send_of_an_export_to_a_destination():
    order = TraceSendOrder(export=exported(), destination=to("http://127.0.0.1:1"))
    send = queue_trace_send(order)
    with pytest.raises(TraceSendRefused):
        queue_trace_send(order)
    assert cancel_trace_send(send=send).state == "cancelled"
    assert cancel_trace_send(send=send).state == "cancelled"
    other = queue_trace_send(order)
    with pytest.raises(TraceSendRefused):
        resume_trace_send(send=send)
    assert not TraceSend.objects.get(pk=other.pk).is_settled
    assert list(AuditEntry.objects.filter(noun="trace_send").values_list("action", flat=True)) == [
        "trace_send.create",
        "trace_send.cancel",
        "trace_send.create",
    ]


def test_only_a_ready_export_of_traces_can_be_sent(settings, tmp_path):
    collection = make_collection()
    make_rollout(collection, reward=1.0, trace=make_trace())
    destination = to("http://127.0.0.1:1")
    queued = queue_export(ExportOrder(format="otel_genai", collection=collection))
    other = write_export(export=queue_export(ExportOrder(format="trl_sft", collection=collection)))
    for export in (queued, other):
        with pytest.raises(TraceSendRefused) as refused:
            queue_trace_send(TraceSendOrder(export=export, destination=destination))
        assert refused.value.argument == "export"


def test_without_the_packages_a_send_is_refused(monkeypatch):
    order = TraceSendOrder(export=exported(), destination=to("http://127.0.0.1:1"))
    monkeypatch.setattr("apps.exports.trace_sends.send_orders.is_installed", lambda: False)
    with pytest.raises(TraceSendRefused, match=r"requirements-otel\.txt"):
        queue_trace_send(order)


def test_a_deleted_export_or_destination_ends_its_sends():
    export = exported()
    queue_trace_send(TraceSendOrder(export=export, destination=to("http://127.0.0.1:1")))
    delete_export(export=export)
    assert not TraceSend.objects.exists()
    queue_trace_send(TraceSendOrder(export=exported(), destination=TraceDestination.objects.get()))
    delete_destination(destination=TraceDestination.objects.get())
    assert not TraceSend.objects.exists()
    assert not send_queued_traces()


def test_a_missing_file_fails_the_send(settings):
    export = exported()
    send = queue_trace_send(TraceSendOrder(export=export, destination=to("http://127.0.0.1:1")))
    for path in settings.EXPORTS_DIR.rglob("*.jsonl"):
        path.unlink()
    assert send_queued_traces()
    send.refresh_from_db()
    assert send.state == "failed"


def test_credentials_are_masked_if_the_export_masks_them():
    collection = make_collection()
    trace = make_trace()
    trace[1].items[0]["content"] = f'Use {{"key": "{SECRET}"}}'
    make_rollout(collection, reward=0.5, trace=trace)
    with receive() as inbox:
        sent_to(inbox, write(collection, mask_credentials=True))
        assert inbox.spans
        assert all(SECRET not in str(span.attributes) for span in inbox.spans)
        [asked] = {span.attributes["gen_ai.input.messages"] for span in inbox.spans if not span.parent_id}
        assert "Use" in asked


# -- destinations


def test_url_and_headers_are_stored_encrypted():
    destination = to("http://127.0.0.1:4318", headers={"Authorization": TOKEN})
    assert open_destination(destination) == ("http://127.0.0.1:4318/v1/traces", {"Authorization": TOKEN})
    stored = str(TraceDestination.objects.values().get())
    assert TOKEN not in stored and "/v1/traces" not in stored
    assert (destination.url_hint, destination.header_names) == ("http://127.0.0.1:4318/…", ["Authorization"])
    entries = str(list(AuditEntry.objects.values()))
    assert TOKEN not in entries and "/v1/traces" not in entries


def test_another_url_needs_the_headers_again():
    destination = to("http://127.0.0.1:4318", headers={"Authorization": TOKEN})
    with pytest.raises(ValidationError) as refused:
        save_destination(destination=destination, url="http://127.0.0.1:4319/v1/traces", headers=None)
    assert list(refused.value.message_dict) == ["headers"]
    renamed = save_destination(destination=TraceDestination.objects.get(), url=None, headers=None)
    assert open_destination(renamed)[1] == {"Authorization": TOKEN}
    moved = save_destination(destination=renamed, url="http://127.0.0.1:4319/v1/traces", headers={})
    assert open_destination(moved) == ("http://127.0.0.1:4319/v1/traces", {})


@pytest.mark.parametrize(
    "headers",
    [{"bad name": "x"}, {"Authorization": ""}, {"A": "x\r\nB: y"}, {"A": "ü"}, {"Host": "x"}, {"Content-Type": "x"},
     {f"X-{number}": "x" for number in range(21)}, {"X": "x" * 9_000}, {"X-A": "1", "x-a": "2"}],
    ids=["space", "empty", "line break", "not ascii", "host", "content type", "too many", "too long", "twice"],
)  # fmt: skip
def test_an_invalid_header_is_refused_without_its_value(headers):
    with pytest.raises(ValidationError) as refused:
        to("http://127.0.0.1:4318", headers=headers)
    assert list(refused.value.message_dict) == ["headers"]
    assert TraceDestination.objects.count() == 0


@pytest.mark.parametrize(
    "url", ["", "ftp://127.0.0.1/", "http://10.0.0.1/v1/traces", "not a url", "http://x/" + "a" * 2_000]
)
def test_an_invalid_url_is_refused(url):
    with pytest.raises(ValidationError) as refused:
        save_destination(destination=TraceDestination(name="one"), url=url, headers={})
    assert list(refused.value.message_dict) == ["url"]
