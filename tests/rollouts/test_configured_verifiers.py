"""Environments without code: a configured verifier scores what workers collect, from the plan to the figures."""

import asyncio

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import ValidationError

from apps.environments.environment_changes import save_environment
from apps.environments.models import Adapter, Environment
from apps.gym.errors import VerifierError
from apps.gym.loop.agent_loop import Attempt, Harness
from apps.gym.resources.own_verifier import ToollessServer, VerifiedServer
from apps.gym.traces.events import JudgeCall
from apps.gym.traces.items import message
from apps.gym.verifiers.processes.process_pool import shared_pool
from apps.gym.wires.protocol import Reply
from apps.policies.models import Provider
from apps.rollouts.metrics.collection_figures import measure_collection
from apps.rollouts.models import Rollout
from apps.rollouts.plans.plan_spec import Plan
from apps.rollouts.plans.planning import plan_collection
from apps.rollouts.reverification.reverification_jobs import apply_reverification, queue_reverification
from apps.rollouts.reverification.reverification_spec import ReverificationOrder
from apps.rollouts.steering.local_worker import finish_collection
from tests.factories import make_agent, make_dataset, make_environment, make_policy_model, make_row, make_user
from tests.rollouts.finished import finish_reverification

pytestmark = pytest.mark.usefixtures("migrated")

BOTH = {
    "type": "hybrid",
    "components": [
        {"name": "right", "weight": 3, "verifier": {"type": "numeric"}},
        {"name": "form", "verifier": {"type": "regex", "wanted": [r"^Answer: \d+$"]}},
    ],
}
HANGS = {"type": "math", "expected": "7", "time_limit": 120}


@pytest.fixture(autouse=True)
def quick_engine(settings):
    settings.WORKER_BACKGROUND_JOBS = []
    settings.WORKER_GRACE_SECONDS = 5


def declared(**fields):
    environment = Environment(
        **{"slug": "sums", "name": "Sums", "adapter": Adapter.DECLARED, "verifier": BOTH, **fields}
    )
    return save_environment(environment=environment, user=make_user())


def plan(environment, rows, **fields):
    model = make_policy_model(provider=Provider.SCRIPTED, mistake_rate=0.0)
    return plan_collection(
        Plan(dataset=make_dataset(rows, environment=environment), agent=make_agent(), policy_model=model, **fields)
    )


def finish(collection):
    return async_to_sync(finish_collection)(collection, progress=lambda _: None)


def test_an_environment_without_code_scores_rollouts():
    rows = [make_row(f"What is {n} * 3?", str(n * 3)) for n in range(4)]
    collection = finish(plan(declared(), rows, repeats=2))
    assert (collection.completed, collection.failed) == (8, 0)
    assert collection.snapshot["environment"]["verifier"] == BOTH
    metrics = measure_collection(collection)
    assert metrics.components["right"] == 1.0
    assert sorted(metrics.components) == ["form", "form.forbidden", "form.wanted", "right"]
    rollout = Rollout.objects.first()
    assert rollout.reward == (3 * rollout.components["right"] + rollout.components["form"]) / 4
    assert "right 1: " in rollout.trace()[-1].explanation


def test_a_task_brings_a_verifier_of_its_own_and_that_one_goes_first():
    rows = [
        make_row("What is 2 * 3?", "6", verifier={"type": "contains", "wanted": ["no such text"]}),
        make_row("What is 2 * 3?", "6"),
    ]
    finish(plan(declared(verifier={"type": "numeric"}), rows))
    rewards = Rollout.objects.order_by("task__index").values_list("reward", "components")
    assert list(rewards) == [(0.0, {"wanted": 0.0, "forbidden": 1.0}), (1.0, {"numeric_correctness": 1.0})]


def test_the_plan_keeps_its_verifier_when_the_environment_gets_another():
    environment = declared(verifier={"type": "numeric"})
    collection = plan(environment, [make_row("What is 2 * 3?", "6")])
    environment.verifier = {"type": "contains", "wanted": ["no such text"]}
    save_environment(environment=environment, user=make_user())
    assert finish(collection).mean_reward == 1.0


def test_a_verifier_that_hangs_times_out_and_never_gives_a_reward():
    rows = [
        make_row(
            "What is 2 * 3?", "6", verifier={"type": "regex", "wanted": [r"(?s)^(?:.|\w|\s)+#$"], "time_limit": 0.5}
        )
    ]
    collection = finish(plan(declared(), rows))
    rollout = Rollout.objects.get()
    assert (collection.completed, collection.failed) == (0, 1)
    assert (rollout.status, rollout.error_kind, rollout.reward) == ("failed", "verifier_timeout", None)
    assert "stopped after 0.5 s without a result" in rollout.error_message


def test_a_row_without_what_the_verifier_needs_is_a_verifier_error():
    rows = [{"responses_create_params": {"input": "What is 2 * 3?"}}]
    finish(plan(declared(verifier={"type": "numeric"}), rows))
    rollout = Rollout.objects.get()
    assert (rollout.error_kind, rollout.reward) == ("verifier_error", None)
    assert "`expected_answer`" in rollout.error_message


def test_no_token_is_spent_on_a_row_whose_own_verifier_cannot_be():
    rows = [make_row("What is 2 * 3?", "6", verifier={"type": "numeric", "absolute_tolerance": "much"})]
    finish(plan(declared(), rows))
    rollout = Rollout.objects.get()
    assert (rollout.error_kind, rollout.input_tokens) == ("verifier_error", 0)
    told = 'the task\'s own verifier cannot be used: /verifier/absolute_tolerance is "much": give a number of 0 or more'
    assert rollout.error_message == told


def test_a_built_in_with_a_configured_verifier_keeps_its_tools():
    environment = make_environment(builtin="calculator", verifier={"type": "contains", "wanted": ["no such text"]})
    finish(plan(environment, [make_row("What is 2 * 3?", "6")]))
    rollout = Rollout.objects.get()
    assert rollout.tool_calls > 0
    assert (rollout.reward, sorted(rollout.components)) == (0.0, ["forbidden", "wanted"])


def test_a_bug_in_a_verifier_is_a_verifier_error():
    async def verify():
        server = VerifiedServer(ToollessServer(name="lab"), verifier={"type": "contains", "wanted": ["x"]})
        session = await server.seed_session({}, seed=1)
        await session.verify({"output": [{"type": "message", "role": "assistant", "content": [{"text": 3}]}]})

    with pytest.raises(VerifierError, match="Contains strings: TypeError"):
        asyncio.run(verify())


def test_an_environment_with_a_verifier_that_cannot_be_is_refused_with_the_place():
    with pytest.raises(ValidationError) as refused:
        declared(verifier={"type": "numeric", "absolute_tolerance": -1, "time_limt": 3})
    unknown, negative = refused.value.message_dict["verifier"]
    assert (unknown.startswith("/time_limt "), "did you mean time_limit?" in unknown) == (True, True)
    assert (negative.startswith("/absolute_tolerance is -1: "), "0 or more" in negative) == (True, True)


def test_a_verifier_with_a_judge_wants_a_judge_model_and_keeps_it():
    judged = {"type": "hybrid", "components": [{"name": "style", "verifier": {"type": "llm_judge"}}]}
    with pytest.raises(ValidationError) as refused:
        declared(verifier=judged)
    assert list(refused.value.message_dict) == ["judge_model"]
    model = make_policy_model()
    assert declared(verifier=judged, judge_model=model).judge_model == model
    assert declared(slug="plain", judge_model=model).judge_model is None


def test_a_judge_in_a_hybrid_is_a_component_with_calls_in_the_trace():
    judged = {
        "type": "hybrid",
        "components": [
            {"name": "right", "verifier": {"type": "numeric"}},
            {"name": "clear", "verifier": {"type": "llm_judge", "rubric": "Is it easy to follow?"}},
        ],
    }
    environment = declared(verifier=judged, judge_model=make_policy_model(provider=Provider.SCRIPTED))
    finish(plan(environment, [make_row("What is 2 * 3?", "6")]))
    rollout = Rollout.objects.get()
    assert (rollout.status, sorted(rollout.components)) == ("completed", ["clear", "right"])
    assert rollout.reward == (1.0 + rollout.components["clear"]) / 2
    [asked] = [event for event in rollout.trace() if isinstance(event, JudgeCall)]
    assert "Is it easy to follow?" in str(asked.prompt)


def test_a_judge_that_fails_fails_the_hybrid_and_counts_as_no_zero(settings):
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    judged = {
        "type": "hybrid",
        "components": [
            {"name": "right", "verifier": {"type": "numeric"}},
            {"name": "clear", "verifier": {"type": "llm_judge"}},
        ],
    }
    gone = make_policy_model(provider=Provider.VLLM, base_url="http://127.0.0.1:9/v1", model_name="gone", max_tries=1)
    environment = declared(verifier=judged, judge_model=gone)
    finish(plan(environment, [make_row("What is 2 * 3?", "6")], max_attempts=1))
    rollout = Rollout.objects.get()
    assert (rollout.status, rollout.error_kind, rollout.reward) == ("failed", "judge_error", None)


def test_stored_rollouts_are_scored_by_another_verifier():
    environment = declared(verifier={"type": "contains", "wanted": ["no such text"]})
    collection = finish(plan(environment, [make_row("What is 2 * 3?", "6")]))
    assert collection.mean_reward == 0.0
    environment.verifier = {"type": "numeric"}
    save_environment(environment=environment, user=make_user())
    done = finish_reverification(reverification=queue_reverification(ReverificationOrder(collection=collection)))
    finish_reverification(reverification=apply_reverification(reverification=done))
    rollout = Rollout.objects.get()
    assert (rollout.reward, rollout.components) == (1.0, {"numeric_correctness": 1.0})


class Answers:
    """Answers each attempt after three turns, with a short wait before each, as a model would."""

    def __init__(self, answer: str) -> None:
        self.answer = answer

    async def ask(self, ask):
        await asyncio.sleep(0.05)
        if sum(item.get("role") == "assistant" for item in ask.items) < 2:
            call = {"type": "function_call", "call_id": "c", "name": "note", "arguments": "{}"}
            return Reply(items=[message("assistant", "I note that."), call], finish_reason="tool_calls")
        return Reply(items=[message("assistant", self.answer)], finish_reason="stop")


def test_hundreds_of_loops_end_beside_symbolic_mathematics_that_hangs():
    """If a verifier that hangs blocked the event loop, it would have ended, by its time limit, before the loops do."""
    server = VerifiedServer(ToollessServer(name="lab"), verifier={"type": "exact_match"})
    question = {"responses_create_params": {"input": "?"}, "expected_answer": "42"}

    async def attempt(row, policy):
        harness = Harness()
        run = Attempt(row=row, server=server, policy=policy, harness=harness, seed=1, elapsed=lambda: 0.0)
        async for event in run.events():
            last = event
        return last

    async def run_loops(hanging: int):
        policy, endless = Answers(r"It is \boxed{42}"), Answers(r"\boxed{9^{9^{9^{9}}}}")
        stuck = [asyncio.ensure_future(attempt({**question, "verifier": HANGS}, endless)) for _ in range(hanging)]
        await asyncio.sleep(0.5)
        ends = await asyncio.gather(*(attempt(question, policy) for _ in range(300)))
        still_stuck = sum(not task.done() for task in stuck)
        for child in list(shared_pool()._children):
            child.process.kill()
        await asyncio.gather(*stuck, return_exceptions=True)
        return [end.reward for end in ends], still_stuck

    hanging = shared_pool().size
    assert asyncio.run(run_loops(hanging)) == ([1.0] * 300, hanging)
