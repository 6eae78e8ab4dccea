"""What may be trained on, said by the stream, the pages and exports of a real run with strict tools."""

import json

import msgspec
import pytest
from aiohttp import web
from asgiref.sync import async_to_sync, sync_to_async

from apps.agents.models import Agent
from apps.exports.export_jobs import write_export
from apps.exports.export_orders import ExportOrder, prepare_export, queue_export
from apps.exports.export_preview import preview_rows
from apps.gym.exporters.protocol import Options
from apps.gym.traces.events import ModelCall, SessionOpened
from apps.gym.trainability import FORCED_CALLS, RESPONSE_FORMAT, STRICT_TOOLS
from apps.gym.wires.grammars import name_grammar
from apps.rollouts.metrics.trainable_rollouts import foresee_trainability, read_trainability
from apps.rollouts.models import Collection, Rollout
from apps.rollouts.steering.local_worker import finish_collection
from apps.rollouts.streams.rollout_stream import RolloutStream
from tests.dashboard.pages import signed_in
from tests.factories import make_policy_model
from tests.rollouts.work import plan, serve_chat

pytestmark = pytest.mark.usefixtures("migrated")
STRICT = {"type": "function", "name": "calculator", "strict": True, "parameters": {}}


@pytest.fixture(autouse=True)
def quick_engine(settings):
    settings.OUTBOUND_ALLOW, settings.WORKER_BACKGROUND_JOBS = ["127.0.0.1"], []
    settings.WORKER_GRACE_SECONDS = 5


async def answer(request: web.Request) -> web.Response:
    """Reply like vLLM, with the token IDs of three prompt and two sampled tokens."""
    logprobs = [{"token": "token_id:7", "logprob": -0.5, "bytes": None, "top_logprobs": []}] * 2
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": "4"},
        "finish_reason": "stop",
        "logprobs": {"content": logprobs},
        "token_ids": [7, 8],
    }
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    return web.json_response(
        {
            "id": "c",
            "object": "chat.completion",
            "model": "m",
            "prompt_token_ids": [1, 2, 3],
            "choices": [choice],
            "usage": usage,
        }
    )


def collect() -> Collection:
    """A finished collection of four rollouts at the built-in calculator, whose tool is strict."""

    async def run() -> Collection:
        runner, port = await serve_chat(answer)
        try:
            collection = await sync_to_async(prepare)(port)
            return await finish_collection(collection, progress=lambda _: None)
        finally:
            await runner.cleanup()

    def prepare(port: int) -> Collection:
        model = make_policy_model(
            provider="vllm", base_url=f"http://127.0.0.1:{port}/v1", model_name="m", capture_tokens=True
        )
        return plan(model=model, repeats=1)

    return async_to_sync(run)()


def read_stream(collection: Collection, **options) -> list[dict]:
    async def read() -> list[dict]:
        stream = await sync_to_async(RolloutStream)(
            collection=collection, grouped=False, seconds=20.0, keep=True, user=None, **options
        )
        return [json.loads(line) async for line in stream.lines() if line.strip()]

    return async_to_sync(read)()


def test_a_run_with_strict_tools_says_everywhere_that_nothing_is_trainable(tmp_path, settings):
    settings.EXPORTS_DIR = tmp_path
    collection = collect()
    collection.refresh_from_db()
    assert list(Rollout.objects.values_list("sampled_tokens", "trainable_tokens")) == [(2, 0)] * 4
    notice = "0 of 8 sampled tokens are trainable: strict tools."
    first, *rollouts, last = read_stream(collection)
    assert (first["type"], last["type"]) == ("collection", "end")
    for line in (first, last):
        assert line["trainability"]["notice"].startswith(notice)
        assert (line["trainability"]["sampled_tokens"], line["trainability"]["trainable_tokens"]) == (8, 0)
    assert [sum(rollout["segments"][0]["mask"]) for rollout in rollouts] == [0] * 4
    kept = read_stream(collection, options=Options(grammar_calls="keep"))
    assert (kept[-1]["trainability"]["trainable_tokens"], kept[-1]["trainability"]["notice"]) == (8, "")
    assert "token" not in {one["level"] for one in kept[-1]["trainability"]["left_out"]}

    client = signed_in()
    page = client.get(f"/collections/{collection.pk}/").text
    assert notice in page
    for slug in ("trl_sft_tokens", "scored_rollouts", "nemo_gym_rollouts"):
        order = ExportOrder(format=slug, collection=collection, filters={"min_reward": None, "dedupe": False})
        preview, export = preview_rows(prepare_export(order)), write_export(export=queue_export(order))
        assert export.manifest["trainability"] == msgspec.to_builtins(preview.trainability)
        assert preview.trainability.notice.startswith(notice)

    assert collection.agent.strict_tools == "declared"
    answered = client.post(f"/agents/{collection.agent.slug}/never-strict/")
    assert answered.status_code == 302
    assert Agent.objects.get(pk=collection.agent_id).strict_tools == "never"


def test_before_the_first_rollout_the_stream_warns_of_strict_tools(db):
    model = make_policy_model(provider="vllm", base_url="http://127.0.0.1:9/v1", model_name="m", capture_tokens=True)
    collection = plan(model=model)
    assert foresee_trainability(collection).startswith("No sampled token will be trainable: strict tools.")
    assert read_trainability(collection).sampled_tokens is None
    assert foresee_trainability(plan(model=make_policy_model())) == ""
    assert foresee_trainability(plan(model=model, environment="exact_match")) == ""
    collection.snapshot["agent"]["strict_tools"] = "never"
    assert foresee_trainability(collection) == ""


@pytest.mark.parametrize(
    ("tools", "sampling", "cause"),
    [
        ([STRICT], {}, STRICT_TOOLS),
        ([{**STRICT, "strict": False}], {"tool_choice": "required"}, FORCED_CALLS),
        ([], {"text": {"format": {"type": "json_object"}}}, RESPONSE_FORMAT),
    ],
)
def test_the_cause_of_a_grammar_is_read_from_the_trace(tools, sampling, cause):
    opened = SessionOpened(environment="lab", tools=tools)
    call = ModelCall(seen=1, items=[], sampling=sampling, grammar=True)
    assert name_grammar([opened, call]) == cause
    assert name_grammar([opened, ModelCall(seen=1, items=[])]) == ""
    captured = ModelCall(seen=1, items=[], tools_in=tools, sampling=sampling, grammar=True, call=1)
    assert name_grammar([SessionOpened(environment="lab"), captured]) == cause
