"""What the engine's tests plan and write."""

from datetime import timedelta

from aiohttp import web
from django.utils import timezone

from apps.environments.models import Environment
from apps.gym.wires.openai_http import PATHS
from apps.rollouts.engine.claiming import Slots
from apps.rollouts.engine.recording import End, record_batch
from apps.rollouts.models import Worker
from apps.rollouts.plans.plan_spec import Plan
from apps.rollouts.plans.planning import plan_collection
from tests.factories import make_agent, make_dataset, make_policy_model, make_row

NO_LIMITS = Slots(64)


def plan(rows=None, environment="calculator", repeats=2, model=None, **fields):
    """A planned collection of 4 tasks, scripted and without mistakes unless told otherwise."""
    rows = rows or [make_row(f"What is {n} * 3?", str(n * 3)) for n in range(4)]
    dataset = make_dataset(rows, environment=Environment.objects.get(slug=environment))
    model = model or make_policy_model(mistake_rate=0.0)
    return plan_collection(Plan(dataset=dataset, agent=make_agent(), policy_model=model, repeats=repeats, **fields))


def end(claim, status="completed", **fields):
    outcome = {"completed": {"reward": 1.0, "stop_reason": "answered"}, "failed": {"error_kind": "policy_error"}}
    return End(
        id=claim.rollout_id,
        lease=claim.lease,
        collection=claim.collection_id,
        attempt=claim.attempt,
        status=status,
        **{**outcome.get(status, {}), **fields},
    )


def record(ends):
    return record_batch(events=[], ends=ends, now=timezone.now())


def expire(worker):
    """The worker's lease runs out, unnoticed."""
    Worker.objects.filter(pk=worker.pk).update(lease_expires_at=timezone.now() - timedelta(seconds=1))


async def serve_chat(answer):
    """An endpoint on loopback for all wires; gives its runner, to be cleaned up, and its port."""
    app = web.Application()
    for path in PATHS.values():
        app.router.add_post(f"/v1{path}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, runner.addresses[0][1]
