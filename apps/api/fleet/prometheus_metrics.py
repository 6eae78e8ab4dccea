"""Prometheus metrics of all workers. Their help texts explain them; docs/operate/monitoring.md lists them."""

from collections.abc import Iterator
from itertools import accumulate
from typing import Any, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from apps.rollouts.engine.worker_counters import BUCKETS
from apps.rollouts.engine.worker_leases import STATES_WITH_LEASE
from apps.rollouts.metrics.fleet_gauges import Fleet
from apps.rollouts.models import Breaker, Worker


class Count(NamedTuple):
    """A counter of the workers: its name in their meters, its name and help in Prometheus, and its labels."""

    name: str
    shown: str
    help: str
    labels: tuple[str, ...] = ()


COUNTS = (
    Count("attempts", "gymweb_attempts", "Finished attempts by outcome", ("status", "error_kind")),
    Count(
        "tries", "gymweb_calls", "Calls to models and environments, retries included", ("kind", "endpoint", "result")
    ),
    Count("tool_calls", "gymweb_tool_calls", "Tool calls that GymWeb ran, by result", ("result",)),
    Count("retries", "gymweb_model_call_retries", "Retries of model calls"),
    Count("tokens", "gymweb_tokens", "Tokens of finished attempts", ("direction",)),
    Count("judge_tokens", "gymweb_judge_tokens", "Tokens of judge models", ("direction",)),
    Count("claims", "gymweb_claims", "Claims with at least one rollout"),
    Count("claimed", "gymweb_claimed_rollouts", "Claimed rollouts"),
)
BOUNDS = [*(f"{bound:g}" for bound in BUCKETS), "+Inf"]


def expose(fleet: Fleet) -> Iterator[Metric]:
    yield from _expose_rollouts(fleet)
    yield from _expose_workers(fleet)
    yield from _expose_meters(fleet.workers)
    yield _expose_breakers(fleet.breakers)


def _expose_rollouts(fleet: Fleet) -> Iterator[Metric]:
    queued = GaugeMetricFamily(
        "gymweb_queue_rollouts", "Queued rollouts", labels=["collection_state", "collection_priority"]
    )
    running = GaugeMetricFamily(
        "gymweb_running_rollouts", "Running rollouts", labels=["collection_state", "collection_priority"]
    )
    for queue in fleet.queues:
        labels = [queue.state, str(queue.priority)]
        queued.add_metric(labels, queue.queued)
        running.add_metric(labels, queue.running)
    ended = GaugeMetricFamily("gymweb_ended_rollouts", "Finished rollouts of all collections", labels=["status"])
    for status, number in fleet.ended.items():
        ended.add_metric([status], number)
    yield from (queued, running, ended)
    yield GaugeMetricFamily(
        "gymweb_queue_oldest_seconds",
        "Age of the oldest running collection with queued rollouts",
        value=fleet.oldest_queued,
    )
    yield GaugeMetricFamily("gymweb_retried_attempts", "Retried attempts of all collections", value=fleet.retried)
    yield GaugeMetricFamily("gymweb_cost_usd", "Cost of all collections in USD", value=fleet.cost)


def _expose_workers(fleet: Fleet) -> Iterator[Metric]:
    live = [worker for worker in fleet.workers if worker.state in STATES_WITH_LEASE]
    labels = ["worker", "host", "pid", "group", "state"]
    about = GaugeMetricFamily("gymweb_worker_info", "Live and recently stopped workers: always 1", labels=labels)
    for each in fleet.workers:
        about.add_metric([str(each.pk), each.host, str(each.pid), each.group, each.state], 1)
    yield about
    for name, text, read in (
        ("seats", "Seats of the worker", lambda worker: worker.seats),
        ("busy_seats", "Running rollouts at the last heartbeat", lambda worker: worker.busy),
        ("backlog", "Rollouts waiting to be stored at the last heartbeat", lambda worker: worker.backlog),
        (
            "reply_memory_bytes",
            "Memory of replies and unstored events",
            lambda worker: _memory(worker, "used"),
        ),
        ("reply_memory_limit_bytes", "GYMWEB_WORKER_MEMORY_MB", lambda worker: _memory(worker, "limit")),
        (
            "replies_waiting_for_memory",
            "Large replies waiting to be read",
            lambda worker: _memory(worker, "waiting"),
        ),
        ("trouble", "1 while the worker cannot claim", lambda worker: int(bool(worker.trouble))),
        (
            "heartbeat_age_seconds",
            "Time since the last heartbeat",
            lambda worker: _seconds(fleet.now, worker.heartbeat_at),
        ),
        (
            "lease_left_seconds",
            "Time until the lease expires",
            lambda worker: _seconds(worker.lease_expires_at, fleet.now),
        ),
    ):
        family = GaugeMetricFamily(f"gymweb_worker_{name}", text, labels=["worker"])
        for worker in live:
            family.add_metric([str(worker.pk)], read(worker))
        yield family


def _memory(worker: Worker, name: str) -> int:
    number: int = worker.meters.get("memory", {}).get(name, 0)
    return number


def _seconds(later: Any, earlier: Any) -> float:
    seconds: float = (later - earlier).total_seconds()
    return seconds


def _expose_meters(workers: list[Worker]) -> Iterator[Metric]:
    for count in COUNTS:
        family = CounterMetricFamily(count.shown, count.help, labels=["worker", *count.labels])
        for worker in workers:
            for name, *labels, number in worker.meters.get("counts", []):
                if name == count.name:
                    family.add_metric([str(worker.pk), *labels], number)
        yield family
    phases = HistogramMetricFamily("gymweb_phase_seconds", "Duration of each phase", labels=["worker", "phase"])
    for worker in workers:
        for phase, seen in worker.meters.get("phases", {}).items():
            counts = zip(BOUNDS, accumulate(seen["counts"]), strict=True)
            phases.add_metric([str(worker.pk), phase], list(counts), seen["sum"])
    yield phases


def _expose_breakers(breakers: list[Breaker]) -> Metric:
    """Return the state of the breakers. Endpoints without enough failures have no row and are closed."""
    family = GaugeMetricFamily("gymweb_breaker", "1 for the current state", labels=["kind", "endpoint", "state"])
    for breaker in breakers:
        kind, endpoint = (
            ("policy_model", breaker.policy_model) if breaker.policy_model else ("environment", breaker.environment)
        )
        for state in Breaker.State.values:
            family.add_metric([kind, endpoint.slug if endpoint else "", state], int(breaker.state == state))
    return family
