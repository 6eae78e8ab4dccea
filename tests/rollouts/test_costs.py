"""What a rollout was asked with and what it cost stands with it, and its collection has the sum."""

import csv
import io

import pytest
from aiohttp import web
from asgiref.sync import async_to_sync, sync_to_async

from apps.gym.traces.events import ModelCall
from apps.rollouts.models import Rollout
from apps.rollouts.plans.plan_spec import Plan
from apps.rollouts.plans.planning import plan_collection
from apps.rollouts.steering.local_worker import finish_collection
from apps.rollouts.streams.rollout_stream import describe_rollout
from tests.api.conftest import client_of
from tests.dashboard.pages import signed_in
from tests.factories import make_agent, make_collection, make_dataset, make_policy_model, make_row
from tests.rollouts.work import serve_chat

pytestmark = pytest.mark.usefixtures("migrated")

USAGE = {
    "prompt_tokens": 1000,
    "completion_tokens": 200,
    "prompt_tokens_details": {"cached_tokens": 600, "cache_write_tokens": 100},
}


@pytest.fixture(autouse=True)
def quick_engine(settings):
    settings.WORKER_BACKGROUND_JOBS, settings.OUTBOUND_ALLOW = [], ["127.0.0.1"]


def collect(
    *, rows, sampling=None, agent=None, model=None, usage=USAGE, finish="stop", limits=None, failing=None, **fields
):
    """A finished collection, and the bodies that its endpoint was sent. `usage` may be a list: one for each call.

    `failing` is how many calls fail first, by question.
    """
    bodies = []

    async def answer(request):
        bodies.append(await request.json())
        asked = [body["messages"][-1]["content"] for body in bodies]
        if asked.count(asked[-1]) <= (failing or {}).get(asked[-1], 0):
            return web.Response(status=500)
        spoken = {"role": "assistant", "content": "\\boxed{4}"}
        choice = {"index": 0, "finish_reason": finish, "message": spoken}
        told = usage[len(bodies) - 1] if isinstance(usage, list) else usage
        return web.json_response({"model": "m", "choices": [choice], "usage": told})

    def plan(port):
        base_url = f"http://127.0.0.1:{port}/v1"
        given = {"provider": "vllm", "base_url": base_url, "model_name": "m", "sampling": model or {}}
        return plan_collection(
            Plan(
                dataset=make_dataset(rows),
                agent=make_agent(sampling=agent or {}),
                policy_model=make_policy_model(**given, **fields),
                sampling=sampling or {},
                **(limits or {}),
            )
        )

    async def play():
        runner, port = await serve_chat(answer)
        try:
            return await finish_collection(await sync_to_async(plan)(port), progress=lambda _: None)
        finally:
            await runner.cleanup()

    return async_to_sync(play)(), bodies


def test_tokens_of_the_cache_have_their_prices_on_the_rollout_the_collection_and_their_pages():
    prices = {"cached_input_price": 100.0, "cache_write_price": 1_200.0, "output_price": 4_000.0}
    collection, _ = collect(rows=[make_row(), make_row("What is 1 + 3?")], input_price=1_000.0, **prices)
    each = (300 * 1_000 + 600 * 100 + 100 * 1_200 + 200 * 4_000) / 1e6
    rollouts = Rollout.objects.all()
    assert [rollout.cost for rollout in rollouts] == pytest.approx([each, each])
    assert collection.cost == pytest.approx(2 * each)
    viewer = client_of("viewer")
    assert viewer.get(f"/api/v1/rollouts/{rollouts[0].pk}/").json()["cost"] == pytest.approx(each)
    assert viewer.get(f"/api/v1/collections/{collection.pk}/").json()["cost"] == pytest.approx(2 * each)
    page = signed_in("viewer")
    assert "<dd>$1.28</dd>" in page.get(f"/rollouts/{rollouts[0].pk}/").text
    assert "<dd>$2.56</dd>" in page.get(f"/collections/{collection.pk}/").text


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


PARTLY = [USAGE, None, {"prompt_tokens": 1000}, {"prompt_tokens": -5, "completion_tokens": 1e30}]


def test_replies_that_tell_no_tokens_are_counted_where_limits_and_costs_cannot_count_them():
    collection, _ = collect(
        rows=[make_row(f"What is {number} + 1?") for number in range(4)],
        usage=PARTLY,
        limits={"max_tokens": 1_000_000, "max_cost": 5.0},
        input_price=1_000.0,
    )
    assert (collection.calls_without_usage, collection.input_tokens, collection.output_tokens) == (3, 2_000, 200)
    assert collection.cost == pytest.approx(2.0)
    counts = dict(Rollout.objects.values_list("pk", "calls_without_usage"))
    lacking = sorted(pk for pk, number in counts.items() if number)
    assert sorted(counts.values()) == [0, 1, 1, 1]

    api = client_of("viewer")
    assert api.get(f"/api/v1/collections/{collection.pk}/").json()["calls_without_usage"] == 3
    found = api.get("/api/v1/rollouts/?lacks_usage=true").json()["results"]
    assert sorted((each["id"], each["calls_without_usage"]) for each in found) == [(pk, 1) for pk in lacking]
    assert len(api.get("/api/v1/rollouts/?lacks_usage=false").json()["results"]) == 1

    pages = signed_in("viewer")
    page = pages.get(f"/collections/{collection.pk}/").text
    assert "3 replies have no token counts" in page
    assert "so the collection may exceed" in page
    table = pages.get(f"/rollouts/?collection={collection.pk}&usage=missing&columns=tokens").text
    assert [f'<a href="/rollouts/{pk}/?list=' in table for pk in counts] == [pk in lacking for pk in counts]
    assert table.count("1 reply without counts") == 3
    assert "1 reply without counts" in pages.get(f"/rollouts/{lacking[0]}/").text


def test_complete_token_counts_need_no_note():
    collection, _ = collect(rows=[make_row()])
    rollout = Rollout.objects.get()
    assert (collection.calls_without_usage, rollout.calls_without_usage) == (0, 0)
    pages = signed_in("viewer")
    assert "without counts" not in pages.get(f"/collections/{collection.pk}/").text
    assert "without counts" not in pages.get(f"/rollouts/{rollout.pk}/").text
    assert "No rollouts match" in pages.get("/rollouts/?usage=missing").text


def test_a_servers_own_finish_reason_is_in_the_trace():
    collection, _ = collect(rows=[make_row()], finish="eos_token")
    (call,) = [event for event in collection.rollouts.get().trace() if isinstance(event, ModelCall)]
    assert (call.finish_reason, call.server_finish_reason) == ("stop", "eos_token")
    page = signed_in("viewer").get(f"/rollouts/{collection.rollouts.get().pk}/").text
    assert "eos_token" in page


def test_retried_calls_are_counted_on_the_rollout_the_collection_and_their_pages():
    rows = [make_row(f"What is {number} + 1?") for number in range(4)]
    # A call that fails twice is one retried call.
    collection, bodies = collect(rows=rows, failing={"What is 0 + 1?": 1, "What is 2 + 1?": 2})
    counts = sorted(Rollout.objects.values_list("retried_calls", flat=True))
    assert (len(bodies), collection.retried, collection.retried_calls) == (7, 0, 2)
    assert counts == [0, 0, 1, 1]
    api, pages = client_of("viewer"), signed_in("viewer")
    assert api.get(f"/api/v1/collections/{collection.pk}/").json()["retried_calls"] == collection.retried_calls
    shown = api.get(f"/api/v1/rollouts/?collection={collection.pk}").json()["results"]
    assert sorted(each["retried_calls"] for each in shown) == counts
    assert f"Retried calls</dt><dd>{collection.retried_calls}<" in pages.get(f"/collections/{collection.pk}/").text
    retried = Rollout.objects.get(pk=max(shown, key=lambda each: each["retried_calls"])["id"])
    assert "Retried calls</dt><dd>1<" in pages.get(f"/rollouts/{retried.pk}/").text


def test_calls_that_fail_after_their_retries_count_as_retried_calls():
    rows, fields = [make_row(f"What is {number} + 1?") for number in range(2)], {"max_tries": 2}
    limits = {"max_attempts": 2}
    # All calls of the first attempts fail, and the first call of one second attempt.
    failing = {"What is 0 + 1?": 2, "What is 1 + 1?": 3}
    collection, bodies = collect(rows=rows, failing=failing, limits=limits, **fields)
    assert (collection.completed, collection.retried, len(bodies)) == (2, 2, 7)
    assert collection.retried_calls == 3
    assert sorted(Rollout.objects.values_list("retried_calls", flat=True)) == [0, 1]
    rows, always = [make_row("Why?")], {"Why?": 99}
    lost, bodies = collect(rows=rows, failing=always, limits=limits, **fields)
    assert (lost.failed, lost.retried, len(bodies), lost.retried_calls) == (1, 1, 4, 2)
    assert "Retried calls</dt><dd>2<" in signed_in().get(f"/collections/{lost.pk}/").text
    found = client_of("viewer").get(f"/api/v1/collections/{lost.pk}/").json()
    assert found["retried_calls"] == 2
    # Without a retry, a failure counts as none.
    once, bodies = collect(rows=rows, failing=always, max_tries=1, limits=limits)
    assert (len(bodies), once.retried_calls) == (2, 0)


@pytest.mark.parametrize(("price", "cost", "told"), [(0.0, None, "–</span>"), (1_000.0, 1.0, "$1.00")])
def test_a_cost_without_prices_is_unknown_and_never_zero(price, cost, told):
    collection, _ = collect(rows=[make_row()], input_price=price)
    rollout = Rollout.objects.get()
    api, pages = client_of("viewer"), signed_in("viewer")
    for url in (f"/api/v1/collections/{collection.pk}/", f"/api/v1/rollouts/{rollout.pk}/"):
        assert api.get(url).json()["cost"] == cost
    [row] = api.get("/api/v1/collections/matrix/").json()["rows"]
    assert row["cost"] == cost
    assert api.get(f"/api/v1/collections/{collection.pk}/metrics/").json()["cost"] == cost
    [share] = api.get(f"/api/v1/collections/{collection.pk}/breakdown/?by=model_version").json()["results"]
    assert share["cost"] == cost
    assert describe_rollout(rollout, rollout.graph())["cost"] == cost
    text = pages.get(f"/collections/{collection.pk}/figures/breakdown.csv?by=model_version").text
    [line] = csv.DictReader(io.StringIO(text))
    assert line["cost"] == ("" if cost is None else str(cost))
    alike = {"dataset": collection.dataset, "policy_model": collection.policy_model}
    other = make_collection(**alike, input_tokens=10, cost=price / 1_000.0)
    for url in (
        "/collections/",
        f"/collections/compare/?a={collection.pk}&b={other.pk}",
        "/matrix/",
        f"/collections/{collection.pk}/breakdown/?by=model_version",
        f"/rollouts/?collection={collection.pk}&columns=cost",
        f"/rollouts/{rollout.pk}/",
    ):
        page = pages.get(url).text
        assert (url, told in page, "$0.00" in page) == (url, True, False)
        assert ("the model has no prices" in page) == (cost is None)


def test_a_scripted_model_costs_nothing():
    collection = make_collection(input_tokens=10, policy_model=make_policy_model())
    assert collection.known_cost == 0.0
