"""The fleet as Prometheus metrics. What each means stands in its help text, and in docs/deploy.md how to read them."""

from collections.abc import Iterator
from itertools import accumulate
from typing import Any, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from apps.rollouts.engine.worker_counters import BUCKETS
from apps.rollouts.engine.worker_leases import LIVE
from apps.rollouts.metrics.fleet_gauges import Fleet
from apps.rollouts.models import Breaker, Worker


class Count(NamedTuple):
    """A counter of the workers: the name in their meters, the name and help in the exposition, and its labels."""

    name: str
    shown: str
    help: str
    labels: tuple[str, ...] = ()


COUNTS = (
    Count("attempts", "gymweb_attempts", "Attempts that ended, by how", ("status", "error_kind")),
    Count("tries", "gymweb_calls", "Tries of calls to models and environments", ("kind", "endpoint", "result")),
    Count("tool_calls", "gymweb_tool_calls", "Tool calls of policy models, by what they met", ("result",)),
    Count("retries", "gymweb_model_call_retries", "Tries of model calls after the first one"),
    Count("tokens", "gymweb_tokens", "Tokens of attempts that ended", ("direction",)),
    Count("judge_tokens", "gymweb_judge_tokens", "Tokens that judge models read and wrote", ("direction",)),
    Count("claims", "gymweb_claims", "Claims that found rollouts"),
    Count("claimed", "gymweb_claimed_rollouts", "Rollouts that were claimed"),
)
BOUNDS = [*(f"{bound:g}" for bound in BUCKETS), "+Inf"]


def expose(fleet: Fleet) -> Iterator[Metric]:
    yield from _expose_rollouts(fleet)
    yield from _expose_workers(fleet)
    yield from _expose_meters(fleet.workers)
    yield _expose_breakers(fleet.breakers)


def _expose_rollouts(fleet: Fleet) -> Iterator[Metric]:
    queued = GaugeMetricFamily(
        "gymweb_queue_rollouts", "Rollouts that wait", labels=["collection_state", "collection_priority"]
    )
    running = GaugeMetricFamily(
        "gymweb_running_rollouts", "Rollouts that run", labels=["collection_state", "collection_priority"]
    )
    for queue in fleet.queues:
        labels = [queue.state, str(queue.priority)]
        queued.add_metric(labels, queue.queued)
        running.add_metric(labels, queue.running)
    ended = GaugeMetricFamily("gymweb_ended_rollouts", "Rollouts of all collections that ended", labels=["status"])
    for status, number in fleet.ended.items():
        ended.add_metric([status], number)
    yield from (queued, running, ended)
    yield GaugeMetricFamily(
        "gymweb_queue_oldest_seconds",
        "Since the oldest running collection with queued rollouts was planned",
        value=fleet.oldest_queued,
    )
    yield GaugeMetricFamily(
        "gymweb_retried_attempts", "Failed attempts of all collections that were queued again", value=fleet.retried
    )
    yield GaugeMetricFamily("gymweb_cost_usd", "What all collections have cost", value=fleet.cost)


def _expose_workers(fleet: Fleet) -> Iterator[Metric]:
    live = [worker for worker in fleet.workers if worker.state in LIVE]
    labels = ["worker", "host", "pid", "group", "state"]
    about = GaugeMetricFamily("gymweb_worker_info", "Workers that live or ended lately: always 1", labels=labels)
    for each in fleet.workers:
        about.add_metric([str(each.pk), each.host, str(each.pid), each.group, each.state], 1)
    yield about
    for name, text, read in (
        ("seats", "Rollouts it may run at once", lambda worker: worker.seats),
        ("busy_seats", "Rollouts it ran at its last heartbeat", lambda worker: worker.busy),
        ("backlog", "Ended rollouts that waited to be stored at its last heartbeat", lambda worker: worker.backlog),
        (
            "reply_memory_bytes",
            "Memory that its replies and unstored events took",
            lambda worker: _memory(worker, "used"),
        ),
        ("reply_memory_limit_bytes", "GYMWEB_WORKER_MEMORY_MB", lambda worker: _memory(worker, "limit")),
        (
            "replies_waiting_for_memory",
            "Large replies that waited to be read",
            lambda worker: _memory(worker, "waiting"),
        ),
        ("trouble", "1 while something keeps it from claiming", lambda worker: int(bool(worker.trouble))),
        ("heartbeat_age_seconds", "Since its last heartbeat", lambda worker: _seconds(fleet.now, worker.heartbeat_at)),
        ("lease_left_seconds", "Until its lease runs out", lambda worker: _seconds(worker.lease_expires_at, fleet.now)),
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
    phases = HistogramMetricFamily("gymweb_phase_seconds", "How long each phase took", labels=["worker", "phase"])
    for worker in workers:
        for phase, seen in worker.meters.get("phases", {}).items():
            counts = zip(BOUNDS, accumulate(seen["counts"]), strict=True)
            phases.add_metric([str(worker.pk), phase], list(counts), seen["sum"])
    yield phases


def _expose_breakers(breakers: list[Breaker]) -> Metric:
    """Endpoints that never failed so often have no row, and are closed."""
    family = GaugeMetricFamily("gymweb_breaker", "1 at the state it is in", labels=["kind", "endpoint", "state"])
    for breaker in breakers:
        kind, endpoint = (
            ("policy_model", breaker.policy_model) if breaker.policy_model else ("environment", breaker.environment)
        )
        for state in Breaker.State.values:
            family.add_metric([kind, endpoint.slug if endpoint else "", state], int(breaker.state == state))
    return family
