"""Alerts over REST: write-only addresses and secrets, a test event, the delivery log, and its replay."""

import pytest

from apps.accounts.models import Role
from apps.alerts.models import Delivery, Subscription
from apps.api.framework.body_examples import REQUESTS
from apps.policies.secrets import decrypt_secret
from tests.api.conftest import client_of
from tests.api.rows import make_delivery, make_subscription

pytestmark = pytest.mark.django_db
BODY = REQUESTS["SubscriptionRequest"]
PATH = "/api/v1/alert-subscriptions/"


@pytest.fixture
def api():
    return client_of(Role.ADMIN)


def send(api, method, path, body=None):
    return getattr(api, method)(path, body or {}, content_type="application/json")


def test_address_and_secret_can_be_written_but_not_read(api):
    created = send(api, "post", PATH, BODY)
    shown = created.json()
    assert (created.status_code, shown["address_hint"]) == (201, "https://alerts.example.com/…")
    for text in (created.content.decode(), api.get(PATH).content.decode()):
        assert (BODY["secret"] in text, BODY["address"] in text) == (False, False)
    changed = send(api, "patch", f"{PATH}{shown['id']}/", {"min_failure_share": 0.5})
    assert changed.json()["min_failure_share"] == 0.5
    assert decrypt_secret(Subscription.objects.get().secret_encrypted) == BODY["secret"]


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"address": "http://127.0.0.1/"}, "/address"),
        ({"secret": "weak"}, "/secret"),
        ({"event_kinds": []}, "/event_kinds"),
        ({"event_kinds": ["test"]}, "/event_kinds/0"),
        ({"colour": "red"}, "/colour"),
    ],
)
def test_a_problem_names_the_invalid_field(api, fields, pointer):
    refused = send(api, "post", PATH, {**BODY, **fields})
    assert (refused.status_code, [one["pointer"] for one in refused.json()["errors"]]) == (400, [pointer])


def test_a_used_name_is_refused(api):
    send(api, "post", PATH, BODY)
    refused = send(api, "post", PATH, BODY)
    assert (refused.status_code, [one["pointer"] for one in refused.json()["errors"]]) == (400, ["/name"])


def test_a_test_appears_in_the_log_of_its_subscription(api):
    subscription, other = make_subscription(), make_delivery()
    assert send(api, "post", f"{PATH}{subscription.pk}/test/").status_code == 200
    log = api.get(f"/api/v1/alert-deliveries/?subscription={subscription.pk}").json()["results"]
    assert [(one["kind"], one["state"]) for one in log] == [("test", "pending")]
    failed = api.get("/api/v1/alert-deliveries/?state=failed").json()["results"]
    assert [one["id"] for one in failed] == [other.pk]


def test_a_disabled_subscription_cannot_be_tested(api):
    subscription = make_subscription()
    Subscription.objects.update(is_enabled=False)
    refused = send(api, "post", f"{PATH}{subscription.pk}/test/")
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:gymweb:problem:alert-refused")


def test_only_an_ended_delivery_is_replayed(api):
    replay = f"/api/v1/alert-deliveries/{make_delivery().pk}/replay/"
    assert send(api, "post", replay).json()["state"] == "pending"
    assert send(api, "post", replay).status_code == 409


def test_deleting_a_subscription_deletes_its_log(api):
    delivery = make_delivery()
    assert api.delete(f"{PATH}{delivery.subscription_id}/").status_code == 204
    assert Delivery.objects.count() == 0
