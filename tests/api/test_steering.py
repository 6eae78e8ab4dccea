"""Pausing, resuming, adjusting and retrying a collection; what its endpoints' breakers say."""

import json
from datetime import timedelta

import pytest
from django.utils import timezone

from apps.rollouts.models import Breaker, Collection, Rollout
from tests.factories import (
    make_agent,
    make_breaker,
    make_collection,
    make_dataset,
    make_environment,
    make_policy_model,
    make_rollout,
)

pytestmark = pytest.mark.django_db


def post(client, url, body=None):
    return client.post(f"/api/v1/{url}", json.dumps(body or {}), content_type="application/json")


def patch(client, collection, body):
    return client.patch(f"/api/v1/collections/{collection.pk}/", json.dumps(body), content_type="application/json")


def steer(client, collection, action, body=None):
    return post(client, f"collections/{collection.pk}/{action}/", body)


def failed(collection, error_kind="policy_error"):
    return make_rollout(
        collection, status="failed", reward=None, stop_reason="", error_kind=error_kind, error_message="no", trace=[]
    )


def test_a_collection_is_paused_and_resumed(engineer):
    collection = make_collection(total=4)
    paused = steer(engineer, collection, "pause")
    assert (paused.status_code, paused.json()["state"], paused.json()["pause_reason"]) == (200, "paused", "asked")
    resumed = steer(engineer, collection, "resume")
    assert (resumed.status_code, resumed.json()["state"], resumed.json()["pause_reason"]) == (200, "running", "")


@pytest.mark.parametrize(("state", "action"), [("completed", "pause"), ("cancelled", "resume"), ("cancelled", "retry")])
def test_a_finished_collection_cannot_be_steered(engineer, state, action):
    collection = make_collection(total=1, state=state)
    failed(collection)
    refused = steer(engineer, collection, action)
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:gymweb:problem:cannot-steer")
    assert f"is {state}" in refused.json()["detail"]


def test_a_reached_limit_has_to_be_raised_before_it_goes_on(engineer):
    collection = make_collection(
        total=4, state="paused", pause_reason="max_tokens", max_tokens=100, input_tokens=90, output_tokens=20
    )
    refused = steer(engineer, collection, "resume")
    assert (refused.status_code, "the token limit is reached" in refused.json()["detail"]) == (409, True)
    assert patch(engineer, collection, {"max_tokens": 200}).json()["max_tokens"] == 200
    assert steer(engineer, collection, "resume").json()["state"] == "running"


def test_priority_concurrency_and_limits_are_changed_while_it_runs(engineer):
    collection = make_collection(total=4)
    changes = {
        "priority": -5,
        "concurrency": 8,
        "rollout_timeout": 60.0,
        "max_attempts": 3,
        "max_seconds": None,
        "max_tokens": 10**12,
        "max_cost": 2.5,
    }
    answer = patch(engineer, collection, changes)
    assert answer.status_code == 200
    assert {name: answer.json()[name] for name in changes} == changes
    collection.refresh_from_db()
    assert {name: getattr(collection, name) for name in changes} == changes


def test_a_change_of_one_limit_leaves_the_others(engineer):
    collection = make_collection(total=4, max_tokens=7, priority=3)
    assert patch(engineer, collection, {"concurrency": 2}).status_code == 200
    collection.refresh_from_db()
    assert (collection.concurrency, collection.max_tokens, collection.priority) == (2, 7, 3)


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"concurrency": 0}, "/concurrency"),
        ({"concurrency": 2**40}, "/concurrency"),
        ({"max_seconds": 2**40}, "/max_seconds"),
        ({"max_tokens": 2**70}, "/max_tokens"),
        ({"max_cost": -1}, "/max_cost"),
        ({"rollout_timeout": None}, "/rollout_timeout"),
        ({"max_attempts": 21}, "/max_attempts"),
        ({"priority": 1001}, "/priority"),
        ({"state": "paused"}, "/state"),
        ({"max_token": 5}, "/max_token"),
    ],
)
def test_a_limit_that_cannot_be_is_named(engineer, body, pointer):
    answer = patch(engineer, make_collection(total=1), body)
    assert (answer.status_code, [error["pointer"] for error in answer.json()["errors"]]) == (400, [pointer])


def test_infinite_money_is_no_limit(engineer):
    collection = make_collection(total=1)
    url = f"/api/v1/collections/{collection.pk}/"
    answer = engineer.patch(url, '{"max_cost": 1e400}', content_type="application/json")
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, "/max_cost")


def test_the_limits_of_a_finished_collection_are_fixed(engineer):
    assert patch(engineer, make_collection(state="completed"), {"priority": 1}).status_code == 409


def test_all_failed_rollouts_or_one_kind_are_retried(engineer):
    collection = make_collection(total=3, failed=3, state="completed")
    failed(collection), failed(collection), failed(collection, "timed_out")
    one = steer(engineer, collection, "retry", {"error_kinds": ["timed_out"]})
    assert (one.status_code, one.json()) == (200, {"queued": 1})
    assert steer(engineer, collection, "retry").json() == {"queued": 2}
    assert steer(engineer, collection, "retry").json() == {"queued": 0}
    shown = engineer.get(f"/api/v1/collections/{collection.pk}/").json()
    assert (shown["state"], shown["failed"], shown["retried"]) == ("running", 0, 3)
    assert Rollout.objects.filter(status="queued").count() == 3


@pytest.mark.parametrize("kinds", [[], ["no_such_kind"], "timed_out"])
def test_an_unknown_error_kind_retries_nothing(engineer, kinds):
    collection = make_collection(total=1, failed=1)
    failed(collection)
    answer = steer(engineer, collection, "retry", {"error_kinds": kinds})
    assert (answer.status_code, Rollout.objects.get().status) == (400, "failed")


def test_a_viewer_sees_the_limits_and_steers_nothing(viewer):
    collection = make_collection(total=4, max_cost=1.5)
    assert viewer.get(f"/api/v1/collections/{collection.pk}/").json()["max_cost"] == 1.5
    assert {steer(viewer, collection, action).status_code for action in ("pause", "resume", "retry", "cancel")} == {403}
    assert patch(viewer, collection, {"priority": 1}).status_code == 403
    collection.refresh_from_db()
    assert (collection.state, collection.priority) == ("running", 0)


def test_a_plan_takes_its_limits_and_has_the_defaults_otherwise(engineer):
    body = {"dataset": make_dataset().slug, "agent": make_agent().slug, "policy_model": make_policy_model().slug}
    plain = post(engineer, "collections/", body).json()
    assert {name: plain[name] for name in ("max_seconds", "max_tokens", "rollout_timeout", "max_attempts")} == {
        "max_seconds": 604800,
        "max_tokens": None,
        "rollout_timeout": 1800.0,
        "max_attempts": 2,
    }
    limited = post(engineer, "collections/", {**body, "concurrency": 3, "max_cost": 0.5, "max_seconds": None}).json()
    assert (limited["concurrency"], limited["max_cost"], limited["max_seconds"]) == (3, 0.5, None)


def test_a_model_and_an_environment_of_different_groups_make_no_plan(engineer):
    dataset = make_dataset(environment=make_environment(worker_group="here"))
    model = make_policy_model(worker_group="there")
    body = {"dataset": dataset.slug, "agent": make_agent().slug, "policy_model": model.slug}
    answer = post(engineer, "collections/", body)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, "/policy_model")
    assert Collection.objects.count() == 0


def test_models_and_environments_say_what_their_breakers_do(viewer):
    model, environment = make_policy_model(), make_environment()
    breaker = make_breaker(policy_model=model, rollouts=[3, 5])
    shown = viewer.get(f"/api/v1/policy-models/{model.slug}/").json()["breaker"]
    assert (shown["state"], shown["failures"], shown["message"]) == ("open", 12, "connection refused")
    assert shown["rollouts"] == [3, 5]
    assert shown["retry_at"] == breaker.retry_at.isoformat().replace("+00:00", "Z")
    closed = {"state": "closed", "failures": 0, "message": "", "opened_at": None, "retry_at": None, "rollouts": []}
    assert viewer.get(f"/api/v1/environments/{environment.slug}/").json()["breaker"] == closed


def test_a_breaker_is_only_shown(engineer):
    model = make_policy_model()
    make_breaker(policy_model=model, retry_at=timezone.now() + timedelta(hours=1))
    url = f"/api/v1/policy-models/{model.slug}/"
    answer = engineer.patch(
        url, json.dumps({"breaker": {"state": "closed"}, "name": "New"}), content_type="application/json"
    )
    assert (answer.status_code, answer.json()["name"], answer.json()["breaker"]["state"]) == (200, "New", "open")
    assert Breaker.objects.get().state == "open"


def test_the_new_fields_of_models_environments_and_agents_are_saved(engineer):
    model, environment, agent = make_policy_model(), make_environment(), make_agent()
    for url, fields in (
        (f"policy-models/{model.slug}", {"connect_timeout": 2.5, "worker_group": "gpu", "input_price": 0.15}),
        (f"policy-models/{model.slug}", {"output_price": 0.6}),
        (f"environments/{environment.slug}", {"connect_timeout": 1.0, "worker_group": "lab"}),
        (f"agents/{agent.slug}", {"token_limit": 5000}),
    ):
        answer = engineer.patch(f"/api/v1/{url}/", json.dumps(fields), content_type="application/json")
        assert (answer.status_code, {name: answer.json()[name] for name in fields}) == (200, fields)


@pytest.mark.parametrize(
    ("noun", "body", "pointer"),
    [
        ("policy-models", '{"connect_timeout": 0}', "/connect_timeout"),
        ("policy-models", '{"worker_group": "two words"}', "/worker_group"),
        ("policy-models", '{"input_price": -0.1}', "/input_price"),
        ("policy-models", '{"output_price": 1e400}', "/output_price"),
        ("environments", '{"connect_timeout": 301}', "/connect_timeout"),
        ("agents", '{"token_limit": 0}', "/token_limit"),
    ],
)
def test_a_new_field_that_cannot_be_is_named(engineer, noun, body, pointer):
    make = {"policy-models": make_policy_model, "environments": make_environment, "agents": make_agent}[noun]
    answer = engineer.patch(f"/api/v1/{noun}/{make().slug}/", body, content_type="application/json")
    assert (answer.status_code, [error["pointer"] for error in answer.json()["errors"]]) == (400, [pointer])
