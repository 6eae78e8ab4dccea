"""Work of a long queue: planning it, and claiming from it, on the database of Django's settings."""

import statistics
import time
from typing import Any

from django.db import connection
from django.utils import timezone

from apps.agents.models import Agent
from apps.environments.models import Environment
from apps.policies.models import PolicyModel, Provider
from apps.policies.policy_clients import open_outbound
from apps.rollouts.engine.circuit_breakers import Endpoint
from apps.rollouts.engine.claimed_work import fetch_work
from apps.rollouts.engine.claiming import Claim
from apps.rollouts.engine.connections import Settings
from apps.rollouts.engine.judge_seats import JudgeSeats
from apps.rollouts.engine.recording import End, record_batch
from apps.rollouts.engine.reservations import Reservations
from apps.rollouts.engine.shared_limits import InUse
from apps.rollouts.engine.throttling import Throttles
from apps.rollouts.engine.worker_leases import Vitals, renew_lease, take_lease
from apps.rollouts.plans.plan_spec import Plan
from apps.rollouts.plans.planning import plan_collection
from apps.tasks.models import Dataset
from scripts.reference_work import make_dataset, rss_mb

COLLECTIONS = 8
COLLECTIONS_A_CLAIM = 4
"""Number of collections that a claim covers, because each model has fewer slots than there are seats."""
TASKS = 1_000
CLAIMS = 1_000
WARM_UP = 20
SEATS = 64


def measure_claims(*, queued: int) -> dict[str, Any]:
    """Plan `queued` rollouts in several collections, then claim 64 at a time and end them."""
    planned = _plan(queued)
    worker = take_lease(seats=SEATS)
    reservations = Reservations()
    settings_in_use = Settings(open_outbound(), _watch, JudgeSeats(), Throttles())
    started: set[int] = set()
    seconds: list[float] = []
    for number in range(min(CLAIMS + WARM_UP, queued // SEATS // 2)):
        if number % 100 == 0:
            renew_lease(worker_id=worker.pk, vitals=Vitals())
        began = time.perf_counter()
        fetched = fetch_work(
            lease=worker.pk,
            seats=SEATS,
            in_use=InUse([], lease=worker.pk, claiming=[(worker.pk, "")]),
            reports={},
            started=started,
            settings_in_use=settings_in_use,
            reservations=reservations,
        )
        seconds.append(time.perf_counter() - began)
        if len(fetched.work) != SEATS:
            raise SystemExit(f"{len(fetched.work)} were claimed instead of {SEATS}")
        record_batch(events=[], ends=[completed_end(work.claim) for work in fetched.work], now=timezone.now())
    milliseconds = sorted(one * 1000 for one in seconds[WARM_UP:])
    return {
        **planned,
        "claims": len(milliseconds),
        "claim_p50_ms": round(statistics.median(milliseconds), 2),
        "claim_p99_ms": round(statistics.quantiles(milliseconds, n=100)[98], 2),
        "claim_max_ms": round(milliseconds[-1], 2),
        "database": connection.vendor,
    }


def _plan(queued: int) -> dict[str, Any]:
    dataset = make_dataset(Environment.objects.get(slug="calculator"), tasks=min(TASKS, queued // COLLECTIONS))
    repeats = queued // COLLECTIONS // min(TASKS, queued // COLLECTIONS)
    before, began = rss_mb(), time.perf_counter()
    total = sum(_plan_one(dataset, number, repeats) for number in range(COLLECTIONS))
    wall = time.perf_counter() - began
    return {
        "queued": total,
        "collections": COLLECTIONS,
        "plan_s": round(wall, 1),
        "planned_per_s": round(total / wall),
        "plan_rss_mb": rss_mb(),
        "plan_grew_mb": rss_mb() - before,
    }


def _plan_one(dataset: Dataset, number: int, repeats: int) -> int:
    """Plan a collection with its own model and agent, like collections of different users."""
    model = PolicyModel.objects.create(
        slug=f"m{number}", name=f"m{number}", provider=Provider.SCRIPTED, concurrency=SEATS // COLLECTIONS_A_CLAIM
    )
    agent = Agent.objects.create(slug=f"a{number}", name=f"a{number}")
    return plan_collection(Plan(dataset=dataset, agent=agent, policy_model=model, repeats=repeats)).total


def completed_end(claim: Claim) -> End:
    return End(
        id=claim.rollout_id,
        lease=claim.lease,
        collection=claim.collection_id,
        attempt=claim.attempt,
        status="completed",
        reward=1.0,
        stop_reason="answered",
    )


def _watch(endpoint: Endpoint, slug: str, outcome: str, message: str) -> None:
    """Do nothing, because no calls are made here."""
