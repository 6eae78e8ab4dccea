"""Reward models in the real worker: rewards and components of a collection, shared calls, and failures."""

import asyncio

import pytest
from aiohttp import web
from asgiref.sync import async_to_sync, sync_to_async

from apps.gym.traces.events import JudgeCall
from apps.rollouts.models import Rollout
from apps.rollouts.plans.plan_spec import Plan
from apps.rollouts.plans.planning import plan_collection
from apps.rollouts.steering.local_worker import finish_collection
from tests.deadlines import DEADLINE
from tests.factories import make_agent, make_dataset, make_environment, make_policy_model, make_row
from tests.gym.verifiers.test_reward_model import TOO_LONG, probs

pytestmark = pytest.mark.usefixtures("migrated")
SIGMOID = {"type": "reward_model", "calibration": "sigmoid", "slope": 2.0, "intercept": -1.0}


@pytest.fixture(autouse=True)
def quick_engine(settings):
    settings.WORKER_BACKGROUND_JOBS = []
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]


def collect(answer):
    """Two tasks, three rollouts each, scored by a classifier on loopback: the collection, and the requests."""
    asked = []

    async def reply(request):
        asked.append(await request.json())
        status, body = answer(asked[-1])
        return web.json_response(body, status=status)

    def plan(port):
        model = make_policy_model(
            provider="vllm",
            base_url=f"http://127.0.0.1:{port}/v1",
            model_name="rm",
            max_tries=1,
            input_price=1_000.0,
            output_price=0.0,
        )
        rows = [make_row(f"What is {n} * 3?", str(n * 3)) for n in (2, 5)]
        environment = make_environment(adapter="declared", builtin="", judge_model=model, verifier=SIGMOID)
        policy = make_policy_model(mistake_rate=0.0)
        dataset = make_dataset(rows, environment=environment)
        return plan_collection(Plan(dataset=dataset, agent=make_agent(), policy_model=policy, repeats=3))

    async def run():
        app = web.Application()
        app.router.add_post("/classify", reply)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        planned = await sync_to_async(plan)(runner.addresses[0][1])
        async with asyncio.timeout(DEADLINE):
            collection = await finish_collection(planned, progress=lambda _: None)
        await runner.cleanup()
        return collection

    return async_to_sync(run)(), asked


def test_equal_rollouts_share_a_call_and_each_trace_has_it():
    collection, asked = collect(lambda body: (200, probs(0.5)))
    assert (collection.completed, collection.failed, collection.mean_reward) == (6, 0, pytest.approx(0.5))
    texts = {str(body["messages"]) for body in asked}
    assert len(asked) == len(texts) < 6
    assert all(body["use_activation"] is False for body in asked)
    calls = []
    for rollout in Rollout.objects.all():
        assert rollout.components == {"reward_model": 0.5, "raw_score": 0.5}
        calls += [event for event in rollout.trace() if isinstance(event, JudgeCall)]
    assert sorted(call.question for call in calls) == ["reward"] * len(asked) + ["reward, cached"] * (6 - len(asked))
    assert collection.judge_tokens == 17 * len(asked)
    assert collection.cost == pytest.approx(0.017 * len(asked))


def test_a_refused_rollout_has_a_judge_error_and_no_reward():
    collection, _ = collect(lambda body: (400, TOO_LONG) if "5 * 3" in str(body["messages"]) else (200, probs(0.5)))
    assert (collection.completed, collection.failed) == (3, 3)
    failed = Rollout.objects.filter(status="failed")
    assert set(failed.values_list("error_kind", "reward")) == {("judge_error", None)}
    assert all("context_length" in message for message in failed.values_list("error_message", flat=True))
