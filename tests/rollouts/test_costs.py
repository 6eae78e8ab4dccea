"""What a rollout was asked with and what it cost stands with it, and its collection has the sum."""

import pytest
from aiohttp import web
from asgiref.sync import async_to_sync, sync_to_async

from apps.gym.events import ModelCall
from apps.rollouts.collecting import finish_collection
from apps.rollouts.models import Rollout
from apps.rollouts.planning import plan_collection
from tests.api.conftest import client_of
from tests.dashboard.pages import signed_in
from tests.factories import make_agent, make_dataset, make_policy_model, make_row
from tests.rollouts.work import serve_chat

pytestmark = pytest.mark.usefixtures("migrated")

USAGE = {"prompt_tokens": 1000, "completion_tokens": 200, "prompt_tokens_details": {"cached_tokens": 600}}


@pytest.fixture(autouse=True)
def quick_engine(settings):
    settings.WORKER_CHORES, settings.OUTBOUND_ALLOW = [], ["127.0.0.1"]


def collect(*, rows, sampling=None, agent=None, model=None, **fields):
    """A finished collection, and the bodies that its endpoint was sent."""
    bodies = []

    async def answer(request):
        bodies.append(await request.json())
        spoken = {"role": "assistant", "content": "\\boxed{4}"}
        choice = {"index": 0, "finish_reason": "stop", "message": spoken}
        return web.json_response({"model": "m", "choices": [choice], "usage": USAGE})

    def plan(port):
        base_url = f"http://127.0.0.1:{port}/v1"
        given = {"provider": "vllm", "base_url": base_url, "model_name": "m", "sampling": model or {}}
        return plan_collection(
            dataset=make_dataset(rows),
            agent=make_agent(sampling=agent or {}),
            policy_model=make_policy_model(**given, **fields),
            sampling=sampling or {},
        )

    async def play():
        runner, port = await serve_chat(answer)
        try:
            return await finish_collection(await sync_to_async(plan)(port), progress=lambda _: None)
        finally:
            await runner.cleanup()

    return async_to_sync(play)(), bodies


def test_cached_tokens_have_their_price_on_the_rollout_the_collection_and_their_pages():
    prices = {"input_price": 1_000.0, "cached_input_price": 100.0, "output_price": 4_000.0}
    collection, _ = collect(rows=[make_row(), make_row("What is 1 + 3?")], **prices)
    each = (400 * 1_000 + 600 * 100 + 200 * 4_000) / 1e6
    rollouts = Rollout.objects.all()
    assert [rollout.cost for rollout in rollouts] == pytest.approx([each, each])
    assert collection.cost == pytest.approx(2 * each)
    viewer = client_of("viewer")
    assert viewer.get(f"/api/v1/rollouts/{rollouts[0].pk}/").json()["cost"] == pytest.approx(each)
    assert viewer.get(f"/api/v1/collections/{collection.pk}/").json()["cost"] == pytest.approx(2 * each)
    page = signed_in("viewer")
    assert "<dd>$1.26</dd>" in page.get(f"/rollouts/{rollouts[0].pk}/").text
    assert "<dd>$2.52</dd>" in page.get(f"/collections/{collection.pk}/").text


def test_sampling_is_that_of_the_task_over_the_collections_over_the_agents_over_the_models():
    task = make_row()
    task["responses_create_params"] |= {"temperature": 0.4, "max_output_tokens": 44}
    collection, (body,) = collect(
        rows=[task],
        sampling={"temperature": 0.3, "top_p": 0.3},
        agent={"temperature": 0.2, "top_p": 0.2, "presence_penalty": 0.2},
        model={"temperature": 0.1, "top_p": 0.1, "presence_penalty": 0.1, "top_k": 11},
    )
    rollout = collection.rollouts.get()
    (call,) = [event for event in rollout.trace() if isinstance(event, ModelCall)]
    assert call.sampling == {
        "temperature": 0.4,
        "max_output_tokens": 44,
        "top_p": 0.3,
        "presence_penalty": 0.2,
        "top_k": 11,
        "seed": rollout.seed,
    }
    # What is stored is what was sent.
    assert (body["temperature"], body["top_p"], body["seed"]) == (0.4, 0.3, rollout.seed)
    assert (body["presence_penalty"], body["top_k"]) == (0.2, 11)
    assert body.get("max_completion_tokens", body.get("max_tokens")) == 44
    shown = client_of("viewer").get(f"/api/v1/rollouts/{rollout.pk}/trace/").json()["events"]
    assert [each["event"]["sampling"] for each in shown if each["kind"] == "model_call"] == [call.sampling]
