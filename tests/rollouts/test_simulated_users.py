"""Simulated users in the real worker: their calls are in the trace, and their cost counts."""

from contextlib import nullcontext
from copy import deepcopy

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import ValidationError

from apps.environments.environment_changes import save_environment
from apps.environments.models import Environment
from apps.gym.environments.simulated_user.kit import twelve_tasks
from apps.gym.traces.events import EnvironmentTurn, JudgeCall
from apps.rollouts.models import Rollout
from apps.rollouts.plans.plan_spec import Plan
from apps.rollouts.plans.planning import plan_collection
from apps.rollouts.steering.local_worker import finish_collection
from tests.factories import make_agent, make_dataset, make_environment, make_policy_model

pytestmark = pytest.mark.usefixtures("migrated")


@pytest.fixture(autouse=True)
def quick_engine(settings):
    settings.WORKER_BACKGROUND_JOBS = []


def collect(**fields):
    planned = plan_collection(
        Plan(
            dataset=make_dataset(twelve_tasks()[:2], environment=make_environment(builtin="simulated_user", **fields)),
            agent=make_agent(),
            policy_model=make_policy_model(mistake_rate=0.0),
            repeats=1,
        )
    )
    return async_to_sync(finish_collection)(planned, progress=lambda _: None)


def test_the_calls_of_the_user_model_are_in_the_trace_and_counted_in_cost():
    model = make_policy_model(slug="user", input_price=3.0, output_price=5.0)
    collection = collect(judge_model=model)
    for rollout in Rollout.objects.all():
        asked = [event for event in rollout.trace() if isinstance(event, JudgeCall)]
        turns = [event for event in rollout.trace() if isinstance(event, EnvironmentTurn)]
        assert (rollout.status, rollout.reward, rollout.stop_reason) == ("completed", 0.0, "environment_done")
        assert {(call.role, call.judge) for call in asked} == {("user", "user")}
        assert turns
        assert all(turn.by_user for turn in turns)
        assert rollout.judge_calls == len(asked)
        used = [(call.usage["input_tokens"], call.usage["output_tokens"]) for call in asked]
        assert rollout.judge_tokens == sum(map(sum, used))
        assert rollout.cost == pytest.approx(sum(3.0 * read + 5.0 * said for read, said in used) / 1e6)
        assert all(0 <= call.at <= rollout.duration for call in asked)
    collection.refresh_from_db()
    assert collection.judge_tokens > 0


def test_without_a_user_model_the_user_is_scripted_and_free():
    collect()
    assert {(one.status, one.cost) for one in Rollout.objects.all()} == {("completed", 0.0)}
    assert all(one.judge_calls for one in Rollout.objects.all())


@pytest.mark.parametrize("judged", [False, True])
def test_a_plan_with_assertions_in_words_needs_a_user_model(judged):
    rows = deepcopy(twelve_tasks()[:2])
    rows[1]["evaluation_criteria"]["reward_basis"] = ["DB", "NL_ASSERTION"]
    environment = make_environment(builtin="simulated_user", judge_model=make_policy_model() if judged else None)
    plan = Plan(
        dataset=make_dataset(rows, environment=environment), agent=make_agent(), policy_model=make_policy_model()
    )
    with nullcontext() if judged else pytest.raises(ValidationError, match="Choose a user model"):
        assert plan_collection(plan).total == 2


@pytest.mark.django_db
def test_an_environment_keeps_its_user_model_and_needs_none():
    model = make_policy_model(slug="user")
    saved = save_environment(
        environment=Environment(
            slug="desk", name="Desk", adapter="builtin", builtin="simulated_user", judge_model=model
        ),
        user=None,
    )
    assert saved.judge_model == model
    saved.judge_model = None
    assert save_environment(environment=saved, user=None).judge_model is None
