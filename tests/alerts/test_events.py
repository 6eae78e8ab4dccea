"""Each kind of event is recorded once, with names and numbers only, and for subscriptions that want it."""

import json
from datetime import timedelta

import pytest
from django.db import transaction
from django.utils import timezone

from apps.accounts.disk_space import forget
from apps.alerts.event_outbox import KEEP_EVENTS, record_event
from apps.alerts.models import Delivery, Event, EventKind
from apps.environments.models import Environment
from apps.exports.export_jobs import write_export
from apps.exports.export_orders import ExportOrder, queue_export
from apps.gym.calls.rate_control import Report
from apps.rollouts.alert_checks import check_alerts
from apps.rollouts.engine.circuit_breakers import Endpoint
from apps.rollouts.engine.claiming import claim_rollouts
from apps.rollouts.engine.collection_limits import pause_overdue, settle_collections
from apps.rollouts.engine.throttling import exchange, pause_for_quota
from apps.rollouts.engine.worker_leases import take_lease
from apps.rollouts.models import Collection, Throttle
from apps.rollouts.steering.controls import cancel_collection, pause_collection
from tests.alerts.receiver import subscribe
from tests.factories import (
    make_agent,
    make_breaker,
    make_collection,
    make_dataset,
    make_environment,
    make_policy_model,
    make_rollout,
)
from tests.reviews.queues import annotator, judge, make_queue
from tests.rollouts.work import NO_LIMITS, end, plan, record

pytestmark = pytest.mark.django_db
PUBLIC = "https://alerts.example.com/hook"


def events(*kinds: str) -> list[Event]:
    return list(Event.objects.filter(kind__in=kinds).order_by("created_at"))


def make_ended(**fields: object) -> Collection:
    """A running collection whose rollouts have all ended, yet to be settled."""
    counts = {"total": 10, "completed": 10, "rewarded": 10, "reward_sum": 5.0}
    return make_collection(**{**counts, **fields})


def test_without_subscriptions_nothing_is_recorded():
    subscribe(PUBLIC, event_kinds=["disk.low"])
    collection = make_ended()
    settle_collections([collection.pk])
    assert Event.objects.count() == 0


def test_the_end_of_a_collection_is_recorded_with_its_last_rollout():
    subscribe(PUBLIC)
    collection = plan(repeats=1)
    claims = claim_rollouts(lease=take_lease(seats=8).pk, slots=NO_LIMITS)
    record([end(claim) for claim in claims[:-1]])
    assert events("collection.ended") == []
    record([end(claims[-1])])
    (event,) = events("collection.ended")
    assert event.path == f"/collections/{collection.pk}/"
    assert (event.data["state"], event.data["completed"], event.data["mean_reward"]) == ("completed", 4, 1.0)


def test_an_event_is_rolled_back_with_its_change():
    subscribe(PUBLIC)
    collection = make_ended()
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        settle_collections([collection.pk])
        assert Event.objects.count() == 1
        _ = 1 / 0
    assert Event.objects.count() == 0


def test_cancelling_twice_is_one_event():
    subscribe(PUBLIC)
    collection = make_collection()
    cancel_collection(collection=collection)
    cancel_collection(collection=collection)
    assert [event.data["state"] for event in events("collection.ended")] == ["cancelled"]


def test_a_collection_that_ends_again_after_a_retry_is_another_event():
    subscribe(PUBLIC, event_kinds=["collection.ended"])
    collection = make_ended()
    settle_collections([collection.pk])
    settle_collections([collection.pk])
    assert Event.objects.count() == 1
    Collection.objects.update(state="running", finished_at=None)
    settle_collections([collection.pk])
    assert Event.objects.count() == 2


def test_a_pause_by_a_user_and_by_a_quota_are_events():
    subscribe(PUBLIC)
    collection = make_collection()
    pause_collection(collection=collection)
    pause_collection(collection=collection)
    other = make_collection()
    assert pause_for_quota(Endpoint("policy_model", other.policy_model_id), "secret detail") == 1
    assert [event.data["reason"] for event in events("collection.paused")] == ["asked", "quota"]
    assert "secret detail" not in json.dumps(list(Event.objects.values_list("text", "data")))


@pytest.mark.parametrize(
    ("spent", "reason"),
    [
        ({"max_tokens": 5, "input_tokens": 5}, "max_tokens"),
        ({"max_cost": 1.0, "cost": 1.5}, "max_cost"),
    ],
)
def test_a_reached_budget_is_one_event(spent, reason):
    subscribe(PUBLIC)
    collection = make_collection(total=10, **spent)
    settle_collections([collection.pk])
    settle_collections([collection.pk])
    assert [event.data["reason"] for event in events("collection.budget_reached")] == [reason]
    assert events("collection.paused") == []


def test_a_reached_time_limit_is_one_event():
    subscribe(PUBLIC)
    started = timezone.now() - timedelta(seconds=10)
    collection = make_collection(total=10, max_seconds=5, started_at=started)
    assert pause_overdue() == [collection.pk]
    assert pause_overdue() == []
    assert [event.data["reason"] for event in events("collection.budget_reached")] == ["max_seconds"]


def test_each_subscription_has_its_own_failure_threshold():
    low = subscribe(PUBLIC, min_failure_share=0.1)
    high = subscribe(PUBLIC, min_failure_share=0.5)
    collection = make_collection(total=100, completed=16, failed=3)
    check_alerts()
    assert Delivery.objects.count() == 0  # too few rollouts ended
    Collection.objects.filter(pk=collection.pk).update(completed=17)
    check_alerts()
    check_alerts()
    assert [one.subscription for one in Delivery.objects.all()] == [low]
    Collection.objects.filter(pk=collection.pk).update(failed=20)
    check_alerts()
    assert [one.subscription for one in Delivery.objects.order_by("pk")] == [low, high]


def test_the_failure_share_of_a_small_collection_counts_when_it_has_ended():
    subscribe(PUBLIC, event_kinds=["collection.failure_share"])
    collection = make_ended(total=4, completed=2, failed=2, rewarded=2)
    check_alerts()
    assert Event.objects.count() == 0
    settle_collections([collection.pk])
    assert Event.objects.get().data["failure_share"] == 0.5


def test_a_moved_reward_is_compared_with_the_previous_collection_of_the_same_setup():
    sensitive = subscribe(PUBLIC, event_kinds=["collection.reward_moved"], min_reward_change=0.1)
    subscribe(PUBLIC, event_kinds=["collection.reward_moved"], min_reward_change=0.3)
    same = {"dataset": make_dataset(), "agent": make_agent(), "policy_model": make_policy_model()}
    for reward_sum in (5.0, 7.0, 7.0):
        settle_collections([make_ended(reward_sum=reward_sum, **same).pk])
    settle_collections([make_ended(reward_sum=1.0).pk])  # of another setup
    event = Event.objects.get()
    assert (round(event.data["change"], 6), event.data["mean_reward"]) == (0.2, 0.7)
    assert [one.subscription for one in event.deliveries.all()] == [sensitive]


def test_an_endpoint_is_down_once_per_outage():
    subscribe(PUBLIC)
    now = timezone.now()
    breaker = make_breaker(policy_model=make_policy_model(slug="qwen"), message="Bearer token-1", opened_at=now)
    check_alerts()
    assert events("endpoint.down") == []
    breaker.opened_at = now - timedelta(minutes=2)
    breaker.save()
    check_alerts()
    check_alerts()
    (event,) = events("endpoint.down")
    assert (event.path, event.data["slug"]) == ("/models/qwen/", "qwen")
    assert "token-1" not in event.text + json.dumps(event.data)
    breaker.opened_at = now - timedelta(minutes=1, seconds=30)
    breaker.save()
    check_alerts()
    assert len(events("endpoint.down")) == 2


def test_an_unhealthy_environment_is_down():
    subscribe(PUBLIC)
    environment = make_environment(slug="tools")
    since = timezone.now() - timedelta(minutes=2)
    Environment.objects.filter(pk=environment.pk).update(health="unhealthy", unwell_since=since)
    check_alerts()
    assert [event.path for event in events("endpoint.down")] == ["/environments/tools/"]


def test_an_endpoint_throttled_for_long_is_one_event():
    subscribe(PUBLIC)
    endpoint = Endpoint("policy_model", make_policy_model().pk)
    exchange(endpoint, "a", Report(sent=[0.1] * 10, throttled=[0.1] * 5, retry_after=60.0, wanted=5), "slow")
    check_alerts()
    assert events("endpoint.throttled") == []
    Throttle.objects.update(limited_since=timezone.now() - timedelta(minutes=11))
    exchange(endpoint, "a", Report(sent=[0.1], throttled=[0.1], retry_after=60.0, wanted=5), "slow")
    check_alerts()
    check_alerts()
    assert len(events("endpoint.throttled")) == 1
    # After the limit has ended, the next one begins anew.
    Throttle.objects.update(limited_until=timezone.now() - timedelta(seconds=1))
    exchange(endpoint, "a", Report(sent=[0.1] * 10, throttled=[0.1] * 5, retry_after=60.0, wanted=5), "slow")
    assert Throttle.objects.get().limited_since > timezone.now() - timedelta(minutes=1)


def test_a_low_disk_is_reported_once_a_day(settings):
    subscribe(PUBLIC)
    settings.MIN_FREE_BYTES = 0
    check_alerts()
    assert events("disk.low") == []
    settings.MIN_FREE_BYTES = 2**60
    forget()
    check_alerts()
    check_alerts()
    found = [event.data["disk"] for event in events("disk.low")]
    assert (found.count("files"), len(found) == len(set(found))) == (1, True)


def test_a_queue_is_finished_with_its_last_review():
    subscribe(PUBLIC)
    queue, reviewers = make_queue(pairs=2, overlap=2), [annotator(), annotator()]
    for reviewer in [*reviewers, *reviewers]:
        assert events("queue.finished") == []
        judge(queue, reviewer)
    (event,) = events("queue.finished")
    assert (event.path, event.data["items"]) == (f"/queues/{queue.pk}/", 2)


def test_a_written_export_is_an_event():
    subscribe(PUBLIC)
    collection = make_collection(state="completed")
    make_rollout(collection)
    export = write_export(export=queue_export(ExportOrder(format="trl_sft", collection=collection)))
    (event,) = events("export.ready")
    assert (export.state, event.path, event.data["rows"]) == ("ready", f"/exports/{export.pk}/", 1)


def test_old_events_are_deleted_with_their_deliveries():
    subscribe(PUBLIC)
    record_event(EventKind.EXPORT_READY, key="1", text="old", page=("home",))
    record_event(EventKind.EXPORT_READY, key="2", text="new", page=("home",))
    Event.objects.filter(text="old").update(created_at=timezone.now() - KEEP_EVENTS - timedelta(hours=1))
    check_alerts()
    assert list(Delivery.objects.values_list("event__text", flat=True)) == ["new"]
