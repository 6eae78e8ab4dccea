"""The page of outbound calls."""

import pytest
from django.urls import reverse

from apps.accounts.models import Role
from apps.exports.models import TraceDestination
from apps.exports.trace_sends.destination_changes import save_destination
from apps.tracking.models import Tracker
from apps.tracking.tracker_changes import save_tracker
from tests.alerts.receiver import subscribe
from tests.dashboard.pages import signed_in

pytestmark = pytest.mark.django_db


def test_the_page_lists_trackers_trace_destinations_and_webhooks(settings):
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    settings.WANDB_SERVERS = ["https://api.wandb.ai", "http://wandb.internal"]
    destination = TraceDestination(name="Traces")
    save_destination(destination=destination, url="http://127.0.0.1:4318/v1/traces", headers={})
    for kind, url in (("mlflow", "http://127.0.0.1:5000"), ("wandb", "http://wandb.internal")):
        save_tracker(tracker=Tracker(kind=kind, name=kind, address=url), secret="a-key-of-the-tracker")
    subscribe("http://127.0.0.1:7000/hook/token")
    settings.WANDB_SERVERS = ["https://api.wandb.ai"]
    shown = signed_in(Role.ENGINEER).get(reverse("dashboard:settings_outbound"))
    called = {one["address"]: one["refusal"] for one in shown.context["called"]}
    assert list(called) == [
        "http://127.0.0.1:4318/…",
        "http://127.0.0.1:7000/…",
        "http://127.0.0.1:5000",
        "http://wandb.internal",
    ]
    assert [bool(refusal) for refusal in called.values()] == [False, False, False, True]
    assert "/hook/token" not in shown.text
