"""Trace destinations and sends over REST: write-only secrets, a send to a real receiver, cancel and resume."""

import pytest

from apps.accounts.models import Role
from apps.api.framework.body_examples import REQUESTS
from apps.exports.export_jobs import write_export
from apps.exports.export_orders import ExportOrder, queue_export
from apps.exports.models import TraceDestination
from apps.exports.trace_sends.destination_changes import open_destination
from apps.exports.trace_sends.send_jobs import send_queued_traces
from tests.api.conftest import client_of
from tests.api.rows import make_trace_send
from tests.factories import make_collection, make_rollout, make_trace
from tests.telemetry.otlp_receiver import receive

pytestmark = pytest.mark.django_db(transaction=True)
BODY = REQUESTS["TraceDestinationRequest"]
DESTINATIONS, SENDS = "/api/v1/trace-destinations/", "/api/v1/trace-sends/"


@pytest.fixture
def api():
    return client_of(Role.ENGINEER)


@pytest.fixture
def export(settings, tmp_path):
    settings.EXPORTS_DIR = tmp_path
    collection = make_collection()
    make_rollout(collection, reward=0.5, trace=make_trace())
    return write_export(export=queue_export(ExportOrder(format="otel_genai", collection=collection)))


def send(api, method, path, body=None):
    return getattr(api, method)(path, body or {}, content_type="application/json")


def test_url_and_headers_can_be_written_but_not_read(api):
    created = send(api, "post", DESTINATIONS, BODY)
    shown = created.json()
    assert created.status_code == 201
    assert (shown["url_hint"], shown["header_names"]) == ("https://langfuse.example.com/…", ["Authorization"])
    for text in (created.text, api.get(DESTINATIONS).text):
        assert (BODY["url"] in text, BODY["headers"]["Authorization"] in text) == (False, False)
    changed = send(api, "patch", f"{DESTINATIONS}{shown['id']}/", {"name": "Other"})
    assert changed.json()["name"] == "Other"
    assert open_destination(TraceDestination.objects.get()) == (BODY["url"], BODY["headers"])
    assert send(api, "delete", f"{DESTINATIONS}{shown['id']}/").status_code == 204


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"url": "http://127.0.0.1/"}, "/url"),
        ({"url": ""}, "/url"),
        ({"headers": {"a b": "c"}}, "/headers"),
        ({"headers": ["a"]}, "/headers"),
        ({"name": ""}, "/name"),
        ({"colour": "red"}, "/colour"),
    ],
)
def test_a_problem_names_the_invalid_field(api, fields, pointer):
    refused = send(api, "post", DESTINATIONS, {**BODY, **fields})
    assert (refused.status_code, [one["pointer"] for one in refused.json()["errors"]]) == (400, [pointer])


def test_a_used_name_is_refused(api):
    send(api, "post", DESTINATIONS, BODY)
    refused = send(api, "post", DESTINATIONS, BODY)
    assert (refused.status_code, [one["pointer"] for one in refused.json()["errors"]]) == (400, ["/name"])


def test_an_export_is_sent(api, export, settings):
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    with receive() as inbox:
        given = {"name": "Local", "url": f"{inbox.url}/v1/traces"}
        destination = send(api, "post", DESTINATIONS, given).json()["id"]
        created = send(api, "post", SENDS, {"export": export.pk, "destination": destination})
        assert (created.status_code, created.json()["state"], created.json()["total"]) == (201, "queued", 1)
        again = send(api, "post", SENDS, {"export": export.pk, "destination": destination})
        assert (again.status_code, again.json()["type"]) == (409, "urn:gymweb:problem:trace-send-refused")
        assert send_queued_traces()
    [sent] = api.get(f"{SENDS}?export={export.pk}&state=sent").json()["results"]
    assert (sent["sent"], sent["spans"]) == (1, len(inbox.spans))


def test_a_send_is_cancelled_and_resumed(api):
    path = f"{SENDS}{make_trace_send().pk}"
    assert send(api, "post", f"{path}/cancel/").json()["state"] == "cancelled"
    assert send(api, "post", f"{path}/resume/").json()["state"] == "queued"
    assert send(api, "post", f"{path}/resume/").status_code == 409


def test_a_viewer_may_look_but_not_send(export):
    viewer, stored = client_of(Role.VIEWER), make_trace_send()
    assert viewer.get(SENDS).status_code == 200
    assert viewer.get(DESTINATIONS).status_code == 403
    given = {"export": export.pk, "destination": stored.destination_id}
    assert send(viewer, "post", SENDS, given).status_code == 403
    assert send(viewer, "post", DESTINATIONS, BODY).status_code == 403
