"""Judges in the real worker: rewards, failures that are no rewards, tokens, prices, limits, breakers and deadlines."""

import asyncio
import json
import re
from collections import Counter

import pytest
from aiohttp import web
from asgiref.sync import async_to_sync, sync_to_async
from channels.layers import get_channel_layer
from django.db import connection

from apps.environments.models import Environment
from apps.gym.traces.events import ErrorRaised, JudgeCall, ModelCall, Verification
from apps.policies.policy_clients import open_outbound
from apps.rollouts.engine.circuit_breakers import read_open_breakers
from apps.rollouts.engine.collection_limits import settle_collections, spent_limit
from apps.rollouts.engine.connections import CannotRun, Settings
from apps.rollouts.engine.judge_seats import JudgeSeats
from apps.rollouts.engine.shared_limits import InUse
from apps.rollouts.engine.throttling import Throttles
from apps.rollouts.engine.worker import RolloutWorker
from apps.rollouts.metrics.collection_figures import measure_collection
from apps.rollouts.models import Breaker, Collection, Rollout
from apps.rollouts.plans.plan_spec import Plan
from apps.rollouts.plans.planning import plan_collection
from apps.rollouts.reverification.reverification_jobs import apply_reverification, queue_reverification
from apps.rollouts.reverification.reverification_spec import ReverificationOrder
from apps.rollouts.steering.local_worker import finish_collection
from tests.deadlines import DEADLINE
from tests.factories import make_agent, make_breaker, make_dataset, make_environment, make_policy_model, make_row
from tests.rollouts.finished import finish_reverification
from tests.rollouts.work import serve_chat

pytestmark = pytest.mark.usefixtures("migrated")


@pytest.fixture(autouse=True)
def quick_engine(settings):
    settings.WORKER_BACKGROUND_JOBS = []
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]


def plan(judge=None, rows=None, environment=None, model=None, **fields):
    """Questions whose answers the scripted model knows, to be scored by a scripted judge unless another is given."""
    rows = rows or [make_row(f"What is {n} * 3?", str(n * 3)) for n in range(4)]
    judge = judge or make_policy_model(mistake_rate=0.0)
    given = environment or {}
    judged = make_environment(**{"builtin": "judged", "judge_model": judge, **given})
    return plan_collection(
        Plan(
            dataset=make_dataset(rows, environment=judged),
            agent=make_agent(),
            policy_model=model or make_policy_model(mistake_rate=0.0),
            **{"repeats": 2, **fields},
        )
    )


def finish(collection, seats=None):
    return async_to_sync(finish_collection)(collection, progress=lambda _: None, seats=seats)


def reply(content):
    message = {"role": "assistant", "content": content}
    return {
        "id": "r",
        "model": "judge-7b",
        "choices": [{"message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
    }


class HttpJudge:
    """A Chat Completions model on loopback that judges by `decide(the user's text)`, which gives a verdict's fields."""

    def __init__(self, decide):
        self.decide = decide
        self.asked = []
        self.busy = self.most = 0

    async def answer(self, request):
        asked = await request.json()
        self.asked.append(asked)
        user = asked["messages"][1]["content"]
        mark = re.search(r"<task-([0-9a-f]{8})>", user)[1]
        self.busy += 1
        self.most = max(self.most, self.busy)
        try:
            decided = self.decide(user)
            if asyncio.iscoroutine(decided):
                decided = await decided
        finally:
            self.busy -= 1
        if isinstance(decided, web.Response):
            return decided
        if isinstance(decided, str):
            return web.json_response(reply(decided))
        return web.json_response(reply(json.dumps({"mark": mark, "explanation": "I looked.", **decided})))


def judge_over_http(decide, *, seats=None, judge_fields=None, **fields):
    """A finished collection whose judge answers over a real socket, and that judge."""

    async def collect():
        judge = HttpJudge(decide)
        runner, port = await serve_chat(judge.answer)
        model = await sync_to_async(make_policy_model)(
            **{
                "provider": "compatible",
                "base_url": f"http://127.0.0.1:{port}/v1",
                "model_name": "judge-7b",
                "max_tries": 1,
                "concurrency": 4,
                **(judge_fields or {}),
            }
        )
        planned = await sync_to_async(plan)(judge=model, **fields)
        async with asyncio.timeout(DEADLINE):
            collection = await finish_collection(planned, progress=lambda _: None, seats=seats)
        await runner.cleanup()
        return collection, judge

    return async_to_sync(collect)()


def failures():
    return set(Rollout.objects.values_list("status", "error_kind", "reward", "error_message"))


def test_the_scripted_judge_rewards_what_holds_the_expected_answer_and_its_calls_are_in_the_trace():
    rows = [make_row("What is 2 * 3?", "6"), make_row("What is 2 * 3?", "7")]
    collection = finish(plan(rows=rows))
    assert (collection.completed, collection.failed) == (4, 0)
    assert list(Rollout.objects.order_by("task__index").values_list("reward", flat=True)) == [1.0, 1.0, 0.0, 0.0]
    for rollout in Rollout.objects.all():
        trace = rollout.trace()
        call, verification = trace[-2:]
        assert isinstance(call, JudgeCall)
        assert isinstance(verification, Verification)
        assert (call.question, call.tries, call.problem) == ("score", 1, "")
        assert call.verdict["value"] == rollout.reward == verification.reward
        assert rollout.components == {"judge": rollout.reward}
        assert rollout.turns == sum(isinstance(event, ModelCall) for event in trace) == 1
        assert (rollout.judge_calls, rollout.judge_tokens) == (
            1,
            sum(map(call.usage.get, ("input_tokens", "output_tokens"))),
        )
    spent = sum(Rollout.objects.values_list("judge_tokens", flat=True))
    assert collection.judge_tokens == spent > 0
    figures = measure_collection(collection).judge
    assert (figures.calls, figures.tokens, figures.failed, figures.agreement) == (4, spent, 0, None)


def test_a_real_judge_is_asked_over_http_with_a_schema_and_paid_by_its_own_prices():
    collection, judge = judge_over_http(
        lambda user: {"score": 8},
        judge_fields={"input_price": 1_000.0, "output_price": 10_000.0, "sampling": {"max_output_tokens": 900}},
        environment={"judge_rubric": "Is {answer} right?"},
    )
    assert (collection.completed, collection.mean_reward, len(judge.asked)) == (8, pytest.approx(0.8), 8)
    asked = judge.asked[0]
    assert (asked["model"], asked["temperature"]) == ("judge-7b", 0)
    assert asked["response_format"]["json_schema"]["schema"]["required"] == ["mark", "explanation", "score"]
    assert re.search(r"Is <answer-[0-9a-f]{8}> right\?", asked["messages"][0]["content"])
    # 100 tokens in and 10 out for each call; the scripted model is free.
    assert {round(cost, 6) for cost in Rollout.objects.values_list("cost", flat=True)} == {0.2}
    assert collection.cost == pytest.approx(1.6)
    assert (collection.judge_tokens, collection.state) == (880, "completed")


def test_a_collections_limit_of_tokens_counts_its_judges():
    collection = plan(judge=make_policy_model(mistake_rate=0.0), max_tokens=1)
    Collection.objects.filter(pk=collection.pk).update(input_tokens=0, judge_tokens=1)
    collection.refresh_from_db()
    assert spent_limit(collection) == "max_tokens"
    settle_collections([collection.pk])
    collection.refresh_from_db()
    assert (collection.state, collection.pause_reason) == ("paused", "max_tokens")


def prefer_first(user):
    return {"winner": "first"}


def prefer_longer(user):
    first, second = (re.search(rf"<{place}-\w+>\n(.*?)\n</{place}", user, re.S)[1] for place in ("first", "second"))
    return {"winner": "tie" if len(first) == len(second) else "first" if len(first) > len(second) else "second"}


async def never(user):
    await asyncio.sleep(10 * DEADLINE)


@pytest.mark.parametrize(
    ("decide", "asking", "message", "calls"),
    [
        (lambda user: "I would rather talk.", {}, "gave no verdict in 3 tries: there is no JSON object", 3),
        (lambda user: {"score": 12}, {"tries": 2}, "12 is outside of that", 2),
        (lambda user: '{"mark": "00000000", "score": 10}', {"tries": 1}, "has the `mark`", 1),
        (prefer_first, {"question": "compare"}, "contradicts itself: the answer is better in one order", 2),
        (never, {}, "gave no answer within 0.2 s", 1),
        (lambda user: web.Response(status=401, text="no"), {}, "failed: ", 1),
        (lambda user: web.Response(status=200, text="<html>"), {}, "failed: ", 1),
    ],
)
def test_a_judge_that_fails_is_a_judge_error_and_never_a_reward(decide, asking, message, calls):
    collection, _ = judge_over_http(
        decide,
        environment={"judge_settings": asking, "verify_timeout": 0.2 if decide is never else DEADLINE},
        rows=[make_row("What is 2 * 3?", "6")],
        repeats=1,
        max_attempts=1,
    )
    assert (collection.completed, collection.failed, collection.rewarded) == (0, 1, 0)
    ((status, kind, reward, said),) = failures()
    assert (status, kind, reward) == ("failed", "judge_error", None)
    assert message in said
    rollout = Rollout.objects.get()
    trace = rollout.trace()
    asked = [event for event in trace if isinstance(event, JudgeCall)]
    assert len(asked) == rollout.judge_calls == calls
    assert asked[-1].problem
    assert isinstance(trace[-1], ErrorRaised)
    assert not any(isinstance(event, Verification) for event in trace)


def test_calls_of_a_judge_that_fail_after_a_retry_count_as_retried_calls():
    collection, judge = judge_over_http(
        lambda user: web.Response(status=500, text="no"),
        judge_fields={"max_tries": 2},
        rows=[make_row("What is 2 * 3?", "6")],
        repeats=1,
        max_attempts=1,
    )
    rollout = Rollout.objects.get()
    [call] = [event for event in rollout.trace() if isinstance(event, JudgeCall)]
    assert (len(judge.asked), call.retries, rollout.retried_calls, collection.retried_calls) == (2, 1, 1, 1)


def test_the_swap_check_finds_out_who_follows_the_place():
    rows = [make_row(f"What is {n} * 3?", "?" * n) for n in range(1, 9)]
    given = {"environment": {"judge_settings": {"question": "compare"}}, "rows": rows, "repeats": 1}
    honest, judge = judge_over_http(prefer_longer, **given)
    biased, _ = judge_over_http(prefer_first, **given)
    assert (honest.completed, honest.failed, len(judge.asked)) == (8, 0, 16)
    figures = [measure_collection(collection).judge for collection in (honest, biased)]
    assert [(each.calls, each.failed, each.contradicted, each.agreement) for each in figures] == [
        (16, 0, 0, 1.0),
        (16, 8, 8, 0.0),
    ]


def test_the_judge_is_asked_no_more_often_at_once_than_its_concurrency_says():
    async def slowly(user):
        await asyncio.sleep(0.02)
        return {"score": 5}

    collection, judge = judge_over_http(slowly, judge_fields={"concurrency": 2}, repeats=6)
    assert (collection.completed, judge.most) == (24, 2)


def test_a_judge_that_is_away_holds_back_what_it_would_score(monkeypatch, settings):
    """Its breaker opens and rollouts wait; once it is well all have their rewards."""
    settings.BREAKER_FAILURES = 3
    monkeypatch.setattr("apps.rollouts.engine.circuit_breakers.FIRST_COOLDOWN", 0.3)
    broken = True

    def decide(user):
        return web.Response(status=503, text="loading") if broken else {"score": 10}

    async def collect():
        nonlocal broken
        judge = HttpJudge(decide)
        runner, port = await serve_chat(judge.answer)
        model = await sync_to_async(make_policy_model)(
            provider="compatible", base_url=f"http://127.0.0.1:{port}/v1", model_name="x", max_tries=1
        )
        planned = await sync_to_async(plan)(judge=model, repeats=10, max_attempts=2)
        worker = RolloutWorker(None, ["rollouts"], get_channel_layer(), seats=8)
        working = asyncio.create_task(worker.handle())
        async with asyncio.timeout(DEADLINE):
            while not await Breaker.objects.filter(policy_model=model).exclude(state="closed").aexists():
                await asyncio.sleep(0.02)
            broken = False
            while not (await Collection.objects.aget(pk=planned.pk)).is_finished:
                await asyncio.sleep(0.05)
        worker.stop()
        await working
        await runner.cleanup()
        return await Collection.objects.aget(pk=planned.pk)

    collection = async_to_sync(collect)()
    assert (collection.completed, collection.failed, collection.mean_reward) == (40, 0, 1.0)
    assert collection.retried >= 3
    assert Breaker.objects.get().state == "closed"


def test_an_open_judge_breaker_leaves_no_slots():
    collection = plan()
    judge = collection.environment.judge_model
    free = InUse([], lease=1, claiming=[(1, "")])
    slots = free.slots(8, {})
    assert slots.environments[collection.environment_id] == collection.environment.concurrency
    assert free.judge_shares == {judge.pk: judge.concurrency}
    make_breaker(policy_model=judge)
    assert InUse([], lease=1, claiming=[(1, "")]).slots(8, read_open_breakers()).environments == {
        collection.environment_id: 0
    }


def test_workers_share_a_judges_room_and_one_without_a_part_leaves_its_rollouts_to_the_others():
    collection = plan(judge=make_policy_model(concurrency=3))
    rooms, left = [], []
    for lease in (1, 2, 3, 4):
        in_use = InUse([], lease=lease, claiming=[(one, "") for one in (1, 2, 3, 4)])
        left.append(in_use.slots(8, {}).environments[collection.environment_id] > 0)
        rooms += in_use.judge_shares.values()
    assert (rooms, left) == ([1, 1, 1, 0], [True, True, True, False])


def test_questions_take_the_room_of_rollouts_that_the_judge_attempts_itself():
    judge = make_policy_model(concurrency=10)
    plan(judge=judge, model=judge)
    slots = InUse([], lease=1, claiming=[(1, "")], judge_calls=Counter({judge.pk: 4})).slots(64, {})
    assert slots.models[judge.pk] == 6


def test_only_judge_failures_are_reverified():
    """The judge follows the place for short answers; mended, it is asked again for those alone."""
    mended = False

    def decide(user):
        return prefer_longer(user) if mended or "long question" in user else prefer_first(user)

    rows = [make_row(f"What is {n} * 3?{' A long question.' * (n % 2)}", "?") for n in range(6)]

    async def collect():
        nonlocal mended
        judge = HttpJudge(decide)
        runner, port = await serve_chat(judge.answer)
        model = await sync_to_async(make_policy_model)(
            provider="compatible", base_url=f"http://127.0.0.1:{port}/v1", model_name="x", max_tries=1
        )
        compares = {"judge_settings": {"question": "compare"}}
        planned = await sync_to_async(plan)(judge=model, rows=rows, environment=compares, repeats=1)
        collection = await finish_collection(planned, progress=lambda _: None)
        before, asked, mended = (collection.completed, collection.failed), len(judge.asked), True
        queued = await sync_to_async(queue_reverification)(
            ReverificationOrder(collection=collection, filters={"judge_failures": True})
        )
        done = await asyncio.to_thread(_finish_apart, queued)
        await runner.cleanup()
        return before, done, len(judge.asked) - asked

    before, done, asked = async_to_sync(collect)()
    assert before == (3, 3)
    assert (done.total, done.verified, done.changed, done.applied, asked) == (3, 3, 3, 3, 6)
    collection = Collection.objects.get()
    assert (collection.completed, collection.failed, collection.rewarded) == (6, 0, 6)
    assert measure_collection(collection).judge.agreement == 1.0


def _finish_apart(queued):
    """In a thread of its own, as a worker does its background jobs."""
    try:
        ready = finish_reverification(reverification=queued)
        return finish_reverification(reverification=apply_reverification(reverification=ready))
    finally:
        connection.close()


def test_a_rollout_whose_time_ends_while_it_is_judged_tells_what_the_judge_was_asked():
    collection, _ = judge_over_http(
        never,
        rows=[make_row()],
        repeats=1,
        max_attempts=1,
        rollout_timeout=5.0,
        environment={"verify_timeout": DEADLINE},
    )
    rollout = Rollout.objects.get()
    assert (rollout.status, rollout.error_kind, rollout.reward) == ("failed", "timed_out", None)
    (asked,) = [event for event in rollout.trace() if isinstance(event, JudgeCall)]
    assert asked.problem == "the attempt ended before an answer"
    assert (collection.failed, rollout.judge_calls) == (1, 1)


def test_a_judge_whose_key_cannot_be_read_here_is_left_to_other_workers():
    judge = make_policy_model(
        provider="compatible", base_url="http://127.0.0.1:9/v1", model_name="x", api_key_encrypted="garbage"
    )
    collection = plan(judge=judge, rows=[make_row()], repeats=1)
    known = Settings(open_outbound(), lambda *_: None, JudgeSeats(), Throttles())
    with pytest.raises(CannotRun):
        known.get(collection.pk)
    assert "cannot be connected" in known.refusals()[str(collection.pk)]


def test_an_environment_that_lost_its_judge_says_so():
    collection = plan(rows=[make_row()], repeats=1)
    environment = collection.environment
    environment.judge_model = None
    environment.save()
    finish(collection)
    ((status, kind, reward, said),) = failures()
    assert (status, kind, reward) == ("failed", "judge_error", None)
    assert said.endswith("no judge model is set for this environment")


def test_a_model_may_judge_its_own_attempts():
    model = make_policy_model(mistake_rate=0.0, concurrency=1)
    collection = finish(plan(judge=model, model=model))
    assert (collection.completed, collection.mean_reward) == (8, 1.0)


def test_a_collection_keeps_the_rubric_and_scale_of_its_plan():
    async def collect():
        judge = HttpJudge(lambda user: {"score": 5})
        runner, port = await serve_chat(judge.answer)
        model = await sync_to_async(make_policy_model)(
            provider="compatible", base_url=f"http://127.0.0.1:{port}/v1", model_name="x"
        )
        given = {"judge_rubric": "As planned.", "judge_settings": {"scale": {"low": 0, "high": 5}}}
        planned = await sync_to_async(plan)(judge=model, environment=given)
        rows = Environment.objects.filter(pk=planned.environment_id)
        assert await rows.aupdate(judge_rubric="Another one.", judge_settings={}) == 1
        collection = await finish_collection(planned, progress=lambda _: None)
        await runner.cleanup()
        return collection, {asked["messages"][0]["content"].split("\n")[3] for asked in judge.asked}

    collection, rubrics = async_to_sync(collect)()
    assert (collection.completed, collection.mean_reward, rubrics) == (8, 1.0, {"As planned."})


HALF_JUDGED = {
    "type": "hybrid",
    "components": [
        {"name": "right", "verifier": {"type": "numeric"}},
        {"name": "style", "verifier": {"type": "llm_judge", "rubric": "Is {answer} polite?"}},
    ],
}


def test_a_judge_is_one_component_of_a_hybrid_and_its_failure_fails_the_whole():
    given = {
        "environment": {"builtin": "calculator", "verifier": HALF_JUDGED},
        "rows": [make_row("What is 2 * 3?", "6")],
    }
    collection, judge = judge_over_http(lambda user: {"score": 5}, **given)
    assert (collection.completed, collection.mean_reward, collection.judge_tokens) == (2, 0.75, 220)
    rollout = Rollout.objects.first()
    assert (rollout.components["right"], rollout.components["style"]) == (1.0, 0.5)
    assert re.search(r"Is <answer-\w+> polite\?", judge.asked[0]["messages"][0]["content"])
    broken, _ = judge_over_http(lambda user: "Well.", **given)
    kinds = set(broken.rollouts.values_list("error_kind", "reward", "judge_calls"))
    assert kinds == {("judge_error", None, 3)}
