"""Check periodically for alerts about lasting states: failing endpoints, low disks, failing collections."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from django.utils import timezone

from apps.accounts.disk_space import find_low_disks, show_bytes
from apps.accounts.job_declarations import background_job
from apps.alerts.event_outbox import delete_old_events, record_event
from apps.alerts.models import EventKind, Subscription
from apps.environments.models import Environment
from apps.policies.models import Health, PolicyModel
from apps.rollouts.collection_alerts import record_failure_shares
from apps.rollouts.models import Breaker, Collection, Throttle

DOWN_AFTER = timedelta(minutes=1)
THROTTLED_AFTER = timedelta(minutes=10)
_OPEN_STATES = [Collection.State.RUNNING, Collection.State.PAUSED]


class _Trouble(NamedTuple):
    """A failing or throttled endpoint."""

    endpoint: PolicyModel | Environment
    since: datetime


@background_job(
    thread="alerts", waiting=lambda: Subscription.objects.filter(is_enabled=True), every=30.0, on_full_disk=True
)
def check_alerts() -> bool:
    """Background job: record events about states that last. Delete old events."""
    now = timezone.now()
    for trouble in _find_down(now - DOWN_AFTER):
        _record(EventKind.ENDPOINT_DOWN, trouble, "is down")
    for trouble in _find_throttled(now, now - THROTTLED_AFTER):
        _record(EventKind.ENDPOINT_THROTTLED, trouble, "is throttled")
    record_failure_shares(Collection.objects.listed().filter(state__in=_OPEN_STATES))
    _record_low_disks(now)
    delete_old_events()
    return False


def _find_down(since: datetime) -> Iterator[_Trouble]:
    shut = Breaker.objects.exclude(state=Breaker.State.CLOSED).filter(opened_at__lte=since)
    for breaker in shut.select_related("policy_model", "environment"):
        endpoint = breaker.policy_model or breaker.environment
        assert endpoint is not None and breaker.opened_at is not None  # guaranteed by table constraints
        yield _Trouble(endpoint, breaker.opened_at)
    for environment in Environment.objects.filter(health=Health.UNHEALTHY, unwell_since__lte=since):
        assert environment.unwell_since is not None
        yield _Trouble(environment, environment.unwell_since)


def _find_throttled(now: datetime, since: datetime) -> Iterator[_Trouble]:
    limited = Throttle.objects.filter(limited_until__gt=now, limited_since__lte=since)
    for throttle in limited.select_related("policy_model", "environment"):
        endpoint = throttle.policy_model or throttle.environment
        assert endpoint is not None and throttle.limited_since is not None
        yield _Trouble(endpoint, throttle.limited_since)


def _record(kind: EventKind, trouble: _Trouble, state: str) -> None:
    endpoint = trouble.endpoint
    is_model = isinstance(endpoint, PolicyModel)
    noun = "policy model" if is_model else "environment"
    record_event(
        kind,
        key=f"{noun} {endpoint.pk} {trouble.since.isoformat()}",
        text=f"The {noun} {endpoint.name} {state} since {trouble.since:%Y-%m-%d %H:%M} UTC",
        page=("model_detail" if is_model else "environment_detail", endpoint.slug),
        kind_of_endpoint=noun.replace(" ", "_"),
        slug=endpoint.slug,
        name=endpoint.name,
        since=trouble.since.isoformat(),
    )


def _record_low_disks(now: datetime) -> None:
    for disk in find_low_disks():
        record_event(
            EventKind.DISK_LOW,
            key=f"{disk.place.value} {now:%Y-%m-%d}",
            text=f"{disk.disk[0].upper()}{disk.disk[1:]} is almost full: {show_bytes(disk.free)} free",
            page=("home",),
            disk=disk.place.value,
            free_bytes=disk.free,
            reserve_bytes=disk.needed,
        )
