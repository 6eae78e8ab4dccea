"""The pages of alerts: subscribe, test, read the delivery log, replay, delete."""

import pytest

from apps.accounts.models import Role
from apps.alerts.models import Delivery, Subscription
from apps.alerts.webhook_signatures import find_secret_problem
from apps.policies.secrets import decrypt_secret
from tests.alerts.receiver import SECRET, subscribe
from tests.api.rows import make_delivery
from tests.dashboard.pages import queries_with_one_and_three
from tests.factories import make_user

pytestmark = pytest.mark.django_db
PUBLIC = "https://alerts.example.com/path-token"
FIELDS = {
    "name": "Team",
    "channel": "webhook",
    "address": PUBLIC,
    "secret": SECRET,
    "event_kinds": ["collection.ended", "disk.low"],
    "min_failure_share": "0.3",
    "min_reward_change": "0.1",
    "is_enabled": "on",
}


@pytest.fixture
def page(client):
    client.force_login(make_user())
    return client


def test_a_subscription_is_created_and_changed(page):
    proposed = page.get("/settings/alerts/new/").context["form"].initial["secret"]
    assert find_secret_problem(proposed) == ""
    created = page.post("/settings/alerts/new/", {**FIELDS, "secret": proposed})
    subscription = Subscription.objects.get()
    assert created["Location"] == f"/settings/alerts/{subscription.pk}/"
    assert (subscription.event_kinds, subscription.min_failure_share) == (["collection.ended", "disk.low"], 0.3)
    changed = {**FIELDS, "name": "Night", "address": "", "secret": "", "is_enabled": ""}
    assert page.post(f"/settings/alerts/{subscription.pk}/edit/", changed).status_code == 302
    subscription.refresh_from_db()
    assert (subscription.name, subscription.is_enabled) == ("Night", False)
    assert decrypt_secret(subscription.address_encrypted) == PUBLIC
    assert decrypt_secret(subscription.secret_encrypted) == proposed


def test_no_page_shows_the_path_or_the_secret(page):
    subscription = subscribe(PUBLIC, name="Team")
    for path in ("", f"{subscription.pk}/", f"{subscription.pk}/edit/"):
        shown = page.get(f"/settings/alerts/{path}").content.decode()
        assert ("Team" in shown, "path-token" in shown, SECRET in shown) == (True, False, False)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"address": "http://10.0.0.1/"}, "address"),
        ({"secret": "weak"}, "secret"),
        ({"event_kinds": []}, "event_kinds"),
        ({"channel": "email", "address": "team@example.org"}, "channel"),
        ({"min_failure_share": "2"}, "min_failure_share"),
    ],
)
def test_an_invalid_field_is_marked(page, settings, fields, field):
    settings.EMAIL_HOST = ""
    refused = page.post("/settings/alerts/new/", {**FIELDS, **fields})
    assert (refused.status_code, list(refused.context["form"].errors)) == (422, [field])


def test_another_channel_ignores_the_proposed_secret(page):
    assert page.post("/settings/alerts/new/", {**FIELDS, "channel": "slack"}).status_code == 302
    assert Subscription.objects.get().secret_encrypted == ""


def test_a_test_is_queued_and_logged(page):
    subscription = subscribe(PUBLIC)
    assert page.post(f"/settings/alerts/{subscription.pk}/test/").status_code == 302
    delivery = Delivery.objects.get()
    assert str(delivery.event_id) in page.get(f"/settings/alerts/{subscription.pk}/").content.decode()


def test_an_ended_delivery_is_replayed(page):
    delivery = make_delivery()
    replay = f"/settings/alerts/deliveries/{delivery.pk}/replay/"
    assert page.post(replay)["Location"] == f"/settings/alerts/{delivery.subscription_id}/"
    delivery.refresh_from_db()
    assert delivery.state == "pending"
    assert replay not in page.get(f"/settings/alerts/{delivery.subscription_id}/").content.decode()


def test_a_subscription_is_deleted(page):
    subscription = subscribe(PUBLIC)
    assert page.post(f"/settings/alerts/{subscription.pk}/delete/")["Location"] == "/settings/alerts/"
    assert Subscription.objects.count() == 0


def test_the_list_takes_the_same_queries_for_one_row_and_three():
    one, three = queries_with_one_and_three(lambda: "/settings/alerts/", make_delivery)
    assert one == three


def test_the_log_takes_the_same_queries_for_one_row_and_three():
    subscription = subscribe(PUBLIC)

    def add() -> None:
        Delivery.objects.filter(pk=make_delivery().pk).update(subscription=subscription)

    one, three = queries_with_one_and_three(lambda: f"/settings/alerts/{subscription.pk}/", add)
    assert (one, subscription.deliveries.count()) == (three, 3)


def test_viewers_may_not_see_alerts(client):
    client.force_login(make_user(Role.VIEWER))
    assert client.get("/settings/alerts/").status_code == 403
