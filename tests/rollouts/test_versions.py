"""A model's version changes while its rollouts run: each call tells the version that it was sent to."""

import json

import pytest
from aiohttp import web
from asgiref.sync import async_to_sync, sync_to_async

from apps.gym.traces.events import ModelCall
from apps.rollouts.engine.worker import RolloutWorker
from apps.rollouts.models import Rollout
from apps.rollouts.steering.local_worker import finish_collection
from tests.api.conftest import client_of
from tests.deadlines import wait_until_async
from tests.factories import make_policy_model, make_row
from tests.rollouts.work import plan, serve_chat

pytestmark = pytest.mark.usefixtures("migrated")


@pytest.fixture(autouse=True)
def quick_engine(settings):
    settings.WORKER_BACKGROUND_JOBS, settings.OUTBOUND_ALLOW = [], ["127.0.0.1"]


def change(slug, **fields):
    client = client_of("engineer")
    body = json.dumps(fields)
    answer = client.generic("PATCH", f"/api/v1/policy-models/{slug}/", body, content_type="application/json")
    assert answer.status_code == 200


def reply(said):
    call = {"id": "c", "type": "function", "function": {"name": "calculator", "arguments": '{"expression": "2*3"}'}}
    spoken = {"role": "assistant", "content": "\\boxed{6}"} if said else {"role": "assistant", "tool_calls": [call]}
    return web.json_response(
        {
            "model": "m",
            "choices": [{"index": 0, "finish_reason": "stop" if said else "tool_calls", "message": spoken}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1},
        }
    )


@pytest.fixture
def polls(monkeypatch):
    """Grows whenever a worker has looked for changes."""
    polls, apply_updates = [], RolloutWorker._apply_updates

    async def count(worker):
        await apply_updates(worker)
        polls.append(worker)

    monkeypatch.setattr(RolloutWorker, "_apply_updates", count)
    return polls


def collect(polls, during_the_second_call):
    """One rollout of three calls, at whose second one something is changed; the version of each call."""

    async def play():
        turns = 0

        async def answer(request):
            nonlocal turns
            turns += 1
            if turns == 2:
                await sync_to_async(during_the_second_call)()
                seen = len(polls)
                # The first look may have begun before the change.
                await wait_until_async(lambda: len(polls) >= seen + 2)
            return reply(said=turns == 3)

        runner, port = await serve_chat(answer)
        try:
            model = await sync_to_async(make_policy_model)(
                slug="trained",
                provider="compatible",
                base_url=f"http://127.0.0.1:{port}/v1",
                model_name="m",
                version="step-1",
            )
            planned = await sync_to_async(plan)([make_row("2 * 3?", "6")], repeats=1, model=model)
            await finish_collection(planned, progress=lambda _: None)
        finally:
            await runner.cleanup()

    async_to_sync(play)()
    rollout = Rollout.objects.get()
    assert (rollout.status, rollout.reward) == ("completed", 1.0)
    versions = [event.version for event in rollout.trace() if isinstance(event, ModelCall)]
    return rollout.model_version, versions


def test_a_call_sent_after_the_change_tells_the_new_version_and_the_rollout_the_one_it_began_with(polls):
    found = collect(polls, lambda: change("trained", version="step-2"))
    assert found == ("step-1", ["step-1", "step-1", "step-2"])


def test_a_rollout_whose_model_moved_to_another_name_goes_on_with_the_version_that_it_calls(polls):
    found = collect(polls, lambda: change("trained", version="step-2", model_name="m-2"))
    assert found == ("step-1", ["step-1", "step-1", "step-1"])


def test_a_scripted_model_has_versions_too(settings):
    model = make_policy_model(version="rules-7", mistake_rate=0.0)
    collection = async_to_sync(finish_collection)(plan(repeats=1, model=model), progress=lambda _: None)
    assert set(collection.rollouts.values_list("model_version", flat=True)) == {"rules-7"}
