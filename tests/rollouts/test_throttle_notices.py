"""Pages and API say until when an endpoint is throttled, and how fast it is called."""

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from apps.rollouts.models import Throttle
from tests.factories import make_collection, make_policy_model, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def client():
    client = Client()
    client.force_login(make_user())
    return client


def throttle(model, **fields):
    until = timezone.now() + timedelta(seconds=40)
    given = {"limited_until": until, "paused_until": until, "rate": 4.8, "message": "429: Slow down."}
    return Throttle.objects.create(policy_model=model, **{**given, **fields})


def test_page_and_api_say_until_when_and_how_fast(client):
    model = make_policy_model(name="Tight")
    row = throttle(model)
    collection = make_collection(policy_model=model, total=4)
    until = f"{row.paused_until:%H:%M:%S} UTC"
    parts = (f"Throttled until {until}", "429: Slow down.", "policy model Tight", "4.8 requests/s")
    [held] = client.get(f"/api/v1/collections/{collection.pk}/").json()["held_back_by"]
    assert [part in held for part in parts] == [True] * 4
    page = client.get(f"/collections/{collection.pk}/").text
    parts = tuple(part.replace("policy model", "Policy model") for part in parts)
    assert [part in page for part in parts] == [True] * 4
    page = client.get(f"/models/{model.slug}/").text
    assert f"until {until}" in page
    assert "4.8 requests/s" in page
    shown = client.get(f"/api/v1/policy-models/{model.slug}/").json()["throttle"]
    assert (shown["is_throttled"], shown["rate"], shown["message"]) == (True, 4.8, "429: Slow down.")


def test_a_judge_that_throttles_is_named_by_the_collections_that_it_judges(client):
    judge = make_policy_model(name="Judge")
    throttle(judge, paused_until=timezone.now() - timedelta(seconds=1))
    collection = make_collection(total=4)
    collection.environment.judge_model = judge
    collection.environment.save()
    (held,) = client.get(f"/api/v1/collections/{collection.pk}/").json()["held_back_by"]
    assert [part in held for part in ("policy model Judge", "Throttled (429: Slow down.)")] == [True, True]
    assert ("until" in held, "4.8 requests/s" in held) == (False, True)


def test_nothing_is_said_of_an_endpoint_that_has_been_quiet(client):
    model = make_policy_model()
    past = timezone.now() - timedelta(seconds=1)
    throttle(model, limited_until=past, paused_until=past)
    collection = make_collection(policy_model=model, total=4)
    assert client.get(f"/api/v1/collections/{collection.pk}/").json()["held_back_by"] == []
    assert client.get(f"/api/v1/policy-models/{model.slug}/").json()["throttle"]["is_throttled"] is False


def test_a_limit_that_is_over_is_not_shown_as_one(client):
    past = timezone.now() - timedelta(seconds=1)
    model = make_policy_model()
    throttle(model, limited_until=past, paused_until=past)
    shown = client.get(f"/api/v1/policy-models/{model.slug}/").json()["throttle"]
    assert (shown["is_throttled"], shown["rate"], shown["message"]) == (False, None, "")


def test_the_page_of_a_model_names_the_exhausted_quota_while_it_keeps_a_collection_paused(client):
    model = make_policy_model()
    past = timezone.now() - timedelta(minutes=1)
    throttle(model, limited_until=past, paused_until=past, quota_message="You exceeded your quota.", quota_at=past)
    collection = make_collection(policy_model=model, state="paused", pause_reason="quota")
    assert "You exceeded your quota." in client.get(f"/models/{model.slug}/").text
    collection.state, collection.pause_reason = "running", ""
    collection.save()
    assert "You exceeded your quota." not in client.get(f"/models/{model.slug}/").text
