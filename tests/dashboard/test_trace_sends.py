"""Pages of trace destinations, and of sends on the page of an export."""

import pytest
from django.urls import reverse

from apps.accounts.models import Role
from apps.exports.export_jobs import write_export
from apps.exports.export_orders import ExportOrder, queue_export
from apps.exports.models import TraceDestination, TraceSend
from apps.exports.trace_sends.destination_changes import open_destination
from tests.api.rows import make_trace_destination
from tests.dashboard.pages import signed_in
from tests.factories import make_collection, make_rollout, make_trace

pytestmark = pytest.mark.django_db
TOKEN = "Basic cGstbGYtc2VjcmV0"


@pytest.fixture
def engineer():
    return signed_in(Role.ENGINEER)


@pytest.fixture
def export(settings, tmp_path):
    settings.EXPORTS_DIR = tmp_path
    collection = make_collection()
    make_rollout(collection, reward=0.5, trace=make_trace())
    return write_export(export=queue_export(ExportOrder(format="otel_genai", collection=collection)))


def save(client, pk=None, **fields):
    name, args = ("trace_edit", [pk]) if pk else ("trace_create", [])
    return client.post(reverse(f"dashboard:{name}", args=args), fields)


def test_a_destination_is_created_and_its_headers_are_not_shown_again(engineer):
    url = "https://otlp.example.com/v1/traces"
    answer = save(engineer, name="Team", url=url, headers=f"Authorization: {TOKEN}\nX-Project: gym")
    assert answer.status_code == 302
    destination = TraceDestination.objects.get()
    assert open_destination(destination) == (url, {"Authorization": TOKEN, "X-Project": "gym"})
    for page in ("trace_list", "trace_edit"):
        shown = engineer.get(reverse(f"dashboard:{page}", args=[destination.pk] if page == "trace_edit" else [])).text
        assert TOKEN not in shown and url not in shown
        assert "X-Project" in shown
    assert save(engineer, destination.pk, name="Team B", url="", headers="").status_code == 302
    assert open_destination(TraceDestination.objects.get(name="Team B"))[1]["Authorization"] == TOKEN
    assert save(engineer, destination.pk, name="Team B", url="", headers="", remove_headers="on").status_code == 302
    assert open_destination(TraceDestination.objects.get()) == (url, {})


def test_an_invalid_destination_keeps_its_name_and_names_the_field(engineer):
    answer = save(engineer, name="Team", url="http://10.0.0.1/v1/traces", headers=TOKEN)
    assert answer.status_code == 422
    form = answer.context["form"]
    assert set(form.errors) == {"url", "headers"}
    assert TOKEN not in str(form.errors)
    assert 'value="Team"' in answer.text


def test_a_header_given_twice_is_refused(engineer):
    answer = save(engineer, name="Team", url="https://otlp.example.com/", headers="X-Project: a\nx-project: b")
    assert (answer.status_code, set(answer.context["form"].errors)) == (422, {"headers"})
    assert not TraceDestination.objects.exists()


def test_an_export_is_sent_from_its_page_cancelled_and_resumed(engineer, export):
    page = reverse("dashboard:export_detail", args=[export.pk])
    assert "trace-sends" in engineer.get(page).text
    destination = make_trace_destination()
    sending = reverse("dashboard:trace_send_create", args=[export.pk])
    assert engineer.post(sending, {"destination": destination.pk}).headers["Location"] == page
    send = TraceSend.objects.get()
    assert (send.state, send.created_by.role) == ("queued", Role.ENGINEER)
    shown = engineer.get(page).text
    assert destination.name in shown and "every 2s" in shown
    cancel = reverse("dashboard:trace_send_cancel", args=[send.pk])
    assert cancel in shown
    engineer.post(cancel)
    shown = engineer.get(page).text
    assert reverse("dashboard:trace_send_resume", args=[send.pk]) in shown and "every 2s" not in shown
    engineer.post(reverse("dashboard:trace_send_resume", args=[send.pk]))
    send.refresh_from_db()
    assert send.state == "queued"


def test_a_refused_send_is_explained_on_the_page(engineer, export):
    destination = make_trace_destination()
    for _ in range(2):
        sending = reverse("dashboard:trace_send_create", args=[export.pk])
        answer = engineer.post(sending, {"destination": destination.pk}, follow=True)
    assert "already being sent" in answer.text
    assert "Choose a destination" in engineer.post(sending, {}, follow=True).text
    assert TraceSend.objects.count() == 1


def test_other_exports_and_viewers_have_no_form(export):
    viewer = signed_in(Role.VIEWER)
    shown = viewer.get(reverse("dashboard:export_detail", args=[export.pk])).text
    assert reverse("dashboard:trace_send_create", args=[export.pk]) not in shown
    other = queue_export(ExportOrder(format="trl_sft", collection=export.collection, filters={"min_reward": 0.0}))
    write_export(export=other)
    shown = signed_in(Role.ENGINEER).get(reverse("dashboard:export_detail", args=[other.pk])).text
    assert "trace-sends" not in shown


def test_a_send_is_in_the_activity_menu(engineer, export):
    engineer.post(
        reverse("dashboard:trace_send_create", args=[export.pk]), {"destination": make_trace_destination().pk}
    )
    shown = engineer.get("/").text
    assert "trace send" in shown
    assert reverse("dashboard:export_detail", args=[export.pk]) in shown
