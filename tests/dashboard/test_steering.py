"""A collection is steered from its page, and the page says what holds it back."""

import re
from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import Role
from apps.rollouts.models import Breaker, Collection, Rollout
from tests.dashboard.markup import faults, read
from tests.dashboard.pages import signed_in, squeezed
from tests.factories import (
    make_breaker,
    make_collection,
    make_environment,
    make_policy_model,
    make_rollout,
    make_worker,
)

pytestmark = pytest.mark.django_db


def detail(collection: Collection) -> str:
    return reverse("dashboard:collection_detail", args=[collection.pk])


def steer(collection: Collection, action: str, **fields: object):
    return signed_in().post(reverse(f"dashboard:collection_{action}", args=[collection.pk]), fields, follow=True)


def limits(**fields: object) -> dict[str, object]:
    given = {"priority": 0, "concurrency": "", "rollout_timeout": "30 min", "max_attempts": 2, "max_seconds": "7 d"}
    return {**given, "max_tokens": "", "max_cost": "", **fields}


def shown_actions(page: str, collection: Collection) -> list[str]:
    """What the page's reader may do now: the forms that are there and not hidden."""
    names = ("pause", "resume", "cancel", "retry", "adjust")
    addresses = {reverse(f"dashboard:collection_{name}", args=[collection.pk]): name for name in names}
    forms = [form.attributes for form in read(page).all("form")]
    return [addresses[each["action"]] for each in forms if each.get("action") in addresses and "hidden" not in each]


@pytest.mark.parametrize(
    ("state", "reason", "actions"),
    [
        ("planning", "", ["cancel", "adjust"]),
        ("running", "", ["pause", "cancel", "adjust"]),
        ("paused", "asked", ["resume", "cancel", "adjust"]),
        ("completed", "", []),
        ("cancelled", "", []),
    ],
)
def test_the_page_offers_what_its_state_allows(state, reason, actions):
    collection = make_collection(total=1, state=state, pause_reason=reason)
    page = signed_in().get(detail(collection)).text
    assert (shown_actions(page, collection), faults(page)) == (actions, [])
    assert shown_actions(signed_in(Role.VIEWER).get(detail(collection)).text, collection) == []


def test_pausing_and_resuming_go_back_to_the_page_and_say_so():
    collection = make_collection(total=4, completed=1)
    paused = steer(collection, "pause")
    assert paused.redirect_chain == [(detail(collection), 302)]
    page = squeezed(paused.text)
    assert "is paused" in page
    assert "Paused by a user: resume" in page
    resumed = steer(collection, "resume")
    assert f"{collection} continues." in resumed.text
    collection.refresh_from_db()
    assert collection.state == "running"


def test_a_collection_that_a_limit_paused_shows_the_remedy_and_opens_the_form():
    collection = make_collection(
        total=4, state="paused", pause_reason="max_cost", max_cost=1.5, cost=1.52, started_at=timezone.now()
    )
    page = squeezed(signed_in().get(detail(collection)).text)
    assert "raise or remove the cost limit" in page
    assert '<details class="fold card" id="limits" data-states="planning running paused retryable" open>' in page
    assert '$1.52 <span class="muted">of $1.50</span>' in page
    refused = steer(collection, "resume")
    assert "stays paused because the cost limit is reached" in refused.text
    raised = steer(collection, "adjust", **limits(max_cost="3"), resume="1")
    assert f"{collection} continues." in raised.text
    collection.refresh_from_db()
    assert (collection.state, collection.max_cost) == ("running", 3.0)


def test_limits_are_written_as_people_say_them():
    collection = make_collection(total=4)
    saved = steer(
        collection,
        "adjust",
        **limits(priority=-2, concurrency=16, rollout_timeout="45 s", max_seconds="12 h", max_tokens=2_000_000),
    )
    assert "Priority and limits saved" in saved.text
    collection.refresh_from_db()
    stored = (collection.priority, collection.concurrency, collection.rollout_timeout, collection.max_seconds)
    assert (stored, collection.max_tokens, collection.max_cost) == ((-2, 16, 45.0, 43_200), 2_000_000, None)
    values = {each.attributes.get("name"): each.attributes.get("value") for each in read(saved.text).all("input")}
    assert (values["rollout_timeout"], values["max_seconds"], values["max_attempts"]) == ("45 s", "12 h", "2")


def test_odd_lengths_of_time_come_back_as_they_can_be_sent_again():
    collection = make_collection(total=4, max_seconds=1_234_567, rollout_timeout=0.25)
    values = {
        each.attributes.get("name"): each.attributes.get("value")
        for each in read(signed_in().get(detail(collection)).text).all("input")
    }
    assert (values["max_seconds"], values["rollout_timeout"]) == ("1234567 s", "0.25 s")
    steer(collection, "adjust", **limits(max_seconds=values["max_seconds"], rollout_timeout=values["rollout_timeout"]))
    collection.refresh_from_db()
    assert (collection.max_seconds, collection.rollout_timeout) == (1_234_567, 0.25)


def test_filters_of_a_page_with_a_wrong_form_lead_back_to_the_collection():
    collection = make_collection(total=4)
    address = reverse("dashboard:collection_adjust", args=[collection.pk])
    assert (
        signed_in().get(f"{address}?status=failed&after=7")["Location"] == f"{detail(collection)}?status=failed&after=7"
    )
    assert signed_in().get(address)["Location"] == detail(collection)


def test_an_emptied_limit_is_none():
    collection = make_collection(total=4, max_tokens=5)
    steer(collection, "adjust", **limits(max_seconds=""))
    collection.refresh_from_db()
    assert (collection.max_seconds, collection.max_tokens) == (None, None)


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("rollout_timeout", "soon", "for example 7 d"),
        ("rollout_timeout", "2 d", "from 0.1 s to 1 d"),
        ("max_seconds", "0", "from 1 s to 3650 d"),
        ("max_attempts", "21", "less than or equal to 20"),
        ("concurrency", "0", "greater than or equal to 1"),
        ("max_cost", "nan", "Enter a number."),
        ("rollout_timeout", "", "This field is required."),
    ],
)
def test_an_invalid_limit_is_shown_as_typed(field, value, complaint):
    collection = make_collection(total=4)
    answer = steer(collection, "adjust", **limits(**{field: value}))
    assert answer.status_code == 422
    assert complaint in answer.text
    given = {each.attributes.get("name"): each.attributes.get("value") for each in read(answer.text).all("input")}
    assert given[field] == (value or None)
    collection.refresh_from_db()
    assert (collection.rollout_timeout, collection.max_attempts, collection.max_cost) == (1800.0, 2, None)


def test_limits_of_a_finished_collection_are_refused():
    answer = steer(make_collection(state="completed"), "adjust", **limits())
    assert answer.status_code == 422


def fail(collection: Collection, error_kind: str) -> Rollout:
    return make_rollout(collection, status="failed", reward=None, stop_reason="", error_kind=error_kind, trace=[])


def test_failed_rollouts_are_retried_from_the_error_table():
    collection = make_collection(total=3, failed=3, state="completed")
    for kind in ("timed_out", "policy_error", "policy_error"):
        fail(collection, kind)
    page = signed_in().get(detail(collection)).text
    assert shown_actions(page, collection) == ["adjust", "retry", "retry", "retry"]
    assert shown_actions(signed_in(Role.VIEWER).get(detail(collection)).text, collection) == []
    assert "rollout is queued again" in steer(collection, "retry", error_kind="timed_out").text
    assert "2 failed rollouts" in steer(collection, "retry").text
    again = steer(collection, "retry")
    assert "No failures of this kind are left" in again.text
    assert "<dt>Retried</dt><dd>3</dd>" in again.text
    assert "Unknown error kind." in steer(collection, "retry", error_kind="bad_luck").text


def test_retried_rollouts_of_a_paused_collection_wait():
    collection = make_collection(total=1, failed=1, state="paused", pause_reason="asked")
    fail(collection, "timed_out")
    assert "until the collection is resumed" in steer(collection, "retry").text


@pytest.mark.parametrize(("failed", "state"), [(1, "retryable"), (0, "completed")])
def test_the_limits_stay_after_the_end_only_while_failures_can_be_retried(failed, state):
    collection = make_collection(total=1, completed=1 - failed, failed=failed, state="completed")
    page = signed_in().get(detail(collection)).text
    assert (f'data-state="{state}"' in page, 'id="limits"' in page) == (True, failed == 1)


def test_failures_of_a_cancelled_collection_are_not_retried():
    collection = make_collection(total=1, failed=1, state="cancelled")
    fail(collection, "timed_out")
    assert shown_actions(signed_in().get(detail(collection)).text, collection) == []
    assert "cannot be retried" in steer(collection, "retry").text
    assert collection.rollouts.get().status == "failed"


def test_a_viewer_steers_nothing():
    collection, client = make_collection(total=1), signed_in(Role.VIEWER)
    actions = ("pause", "resume", "adjust", "retry", "cancel")
    refused = [
        client.post(reverse(f"dashboard:collection_{each}", args=[collection.pk])).status_code for each in actions
    ]
    assert refused == [403] * 5


def test_a_breaker_that_holds_it_back_is_said_plainly():
    model = make_policy_model(name="Model X")
    collection = make_collection(total=4, policy_model=model)
    make_breaker(policy_model=model, retry_at=timezone.now() + timedelta(minutes=10))
    page = squeezed(signed_in().get(detail(collection)).text)
    assert "Policy model Model X: 12 calls failed in a row: connection refused;" in page
    assert re.search(r"next try in \d+ s", page)
    assert "<p>waiting · " in page
    Breaker.objects.update(state="half_open", retry_at=timezone.now(), rollouts=[9, 5])
    assert "(rollouts 5 and 9)" in signed_in().get(detail(collection)).text
    assert (
        reverse("dashboard:rollout_detail", args=[9])
        in signed_in().get(reverse("dashboard:model_detail", args=[model.slug])).text
    )
    assert "one rollout is testing it; the next try is due" in signed_in().get(detail(collection)).text
    Breaker.objects.update(state="closed")
    assert "Rollouts wait in the queue" not in signed_in().get(detail(collection)).text


def test_a_collection_without_a_worker_of_its_group_says_which_to_start():
    collection = make_collection(total=4, policy_model=make_policy_model(worker_group="gpu"))
    make_worker()
    assert "manage.py rolloutworker --group gpu" in signed_in().get(detail(collection)).text
    make_worker(group="gpu")
    assert "rolloutworker" not in signed_in().get(detail(collection)).text


def test_a_collection_of_no_group_needs_a_worker_without_one():
    collection = make_collection(total=4)
    page = signed_in().get(detail(collection)).text
    assert ("No worker is running" in page, "manage.py rolloutworker" in page) == (True, True)
    make_worker(group="gpu")
    page = signed_in().get(detail(collection)).text
    assert ("worker without a group" in page, "manage.py rolloutworker" in page) == (True, True)
    make_worker()
    assert "rolloutworker" not in signed_in().get(detail(collection)).text


def test_models_and_environments_show_their_breakers_and_follow_them():
    model, environment = make_policy_model(), make_environment()
    make_breaker(policy_model=model, message="<refused>"), make_breaker(environment=environment)
    client = signed_in()
    for noun, row in (("model", model), ("environment", environment)):
        address = reverse(f"dashboard:{noun}_detail", args=[row.slug])
        page = client.get(address).text
        assert "12 calls failed in a row" in page
        assert f'hx-get="{address}" hx-trigger="every 5s"' in page
        card = client.get(address, headers={"HX-Request": "true", "HX-Target": "breaker"}).text
        assert card.startswith('<section class="card" id="breaker"')
        assert "breaker open" in client.get(reverse(f"dashboard:{noun}_list")).text
    assert "&lt;refused&gt;" in client.get(reverse("dashboard:model_detail", args=[model.slug])).text
    Breaker.objects.update(state="closed")
    page = client.get(reverse("dashboard:model_detail", args=[model.slug])).text
    assert ("10 failed calls in a row" in page, "every 5s" in page) == (True, False)


def test_home_and_the_list_show_paused_collections_with_their_reason():
    make_collection(name="Waits", total=4, state="paused", pause_reason="max_tokens")
    client = signed_in()
    for address in (reverse("dashboard:home"), reverse("dashboard:collection_list")):
        assert "the token limit is reached" in client.get(address).text
    assert [each.collection.name for each in client.get(reverse("dashboard:home")).context["active"]] == ["Waits"]


def test_the_plan_form_shows_the_limits_with_their_defaults():
    page = squeezed(signed_in().get(reverse("dashboard:collection_create")).text)
    assert "Attempts per rollout 2 · Collection time limit 7 d</span>" in page


def test_an_emptied_limit_stays_empty_while_rollouts_are_counted():
    client, address = signed_in(), reverse("dashboard:collection_create")
    counted = client.post(address, {**limits(max_seconds=""), "count": "1"})
    values = {
        each.attributes.get("name"): each.attributes.get("value")
        for each in read(client.get(counted["Location"]).text).all("input")
    }
    assert (values["max_seconds"], values["rollout_timeout"]) == (None, "30 min")


def test_limits_are_raised_before_what_failed_is_tried_again():
    collection = make_collection(total=1, failed=1, state="completed", max_tokens=10, input_tokens=10)
    fail(collection, "timed_out")
    client = signed_in()
    refused = client.post(f"/collections/{collection.pk}/retry/", follow=True)
    assert "the token limit is reached: raise or remove the token limit" in refused.text
    assert 'id="limits"' in refused.text
    assert steer(collection, "adjust", **limits(max_tokens="")).status_code == 200
    assert "1 failed rollout is queued again" in client.post(f"/collections/{collection.pk}/retry/", follow=True).text


@pytest.mark.parametrize("held", [{}, {"7": 2}])
def test_a_breaker_names_the_collections_that_it_holds_back(held):
    breaker = make_breaker(policy_model=make_policy_model(slug="flaky"))
    breaker.tests = held
    breaker.save()
    page = squeezed(signed_in().get("/models/flaky/").text)
    told = 'no new rollouts: <a href="/collections/7/">#7</a>. Others go on.' if held else "No new rollouts start."
    assert f"{told} One rollout at a time tests the endpoint:" in page
