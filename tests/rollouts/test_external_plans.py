"""Collections of agents that run elsewhere: what may be planned, and that no worker claims them by itself."""

import pytest
from django.core.exceptions import ValidationError

from apps.agents.agent_changes import save_agent
from apps.agents.models import Agent
from apps.environments.models import Environment
from apps.policies.policy_clients import open_outbound
from apps.rollouts.engine.claimed_work import fetch_work
from apps.rollouts.engine.connections import Settings
from apps.rollouts.engine.judge_seats import JudgeSeats
from apps.rollouts.engine.reservations import Reservations
from apps.rollouts.engine.shared_limits import InUse
from apps.rollouts.engine.throttling import Throttles
from apps.rollouts.engine.worker_leases import claiming_workers, take_lease
from apps.rollouts.plans.plan_spec import Plan
from apps.rollouts.plans.planning import plan_collection
from tests.factories import make_agent, make_dataset, make_policy_model, make_row, make_user

pytestmark = pytest.mark.django_db


def plan(environment: str = "calculator", rows=None, kind: str = "external"):
    rows = rows or [make_row(f"What is {n} + 1?", str(n + 1)) for n in range(4)]
    given, _ = Environment.objects.get_or_create(
        slug=environment, defaults={"name": environment, "adapter": "builtin", "builtin": environment}
    )
    dataset = make_dataset(rows, environment=given)
    return plan_collection(Plan(dataset=dataset, agent=make_agent(kind=kind), policy_model=make_policy_model()))


def test_rollouts_of_an_external_agent_are_claimed_only_when_it_asks():
    external, other = plan(), plan(kind="builtin")
    lease = take_lease(seats=8).pk
    throttles = Throttles()
    settings = Settings(open_outbound(), lambda *_: None, JudgeSeats(), throttles)

    def fetch(**only):
        in_use = InUse([], lease=lease, claiming=claiming_workers())
        return fetch_work(
            lease=lease,
            seats=8,
            in_use=in_use,
            reports={},
            started=set(),
            settings_in_use=settings,
            reservations=Reservations(),
            **only,
        )

    found = fetch()
    assert {work.claim.collection_id for work in found.work} == {other.pk}
    assert found.has_external
    assert [work.claim.collection_id for work in fetch(only=external.pk).work] == [external.pk] * 4
    assert not fetch().has_external


@pytest.mark.parametrize("environment", ["sokoban", "twenty_questions"])
def test_an_environment_that_drives_the_turns_needs_the_built_in_loop(environment):
    with pytest.raises(ValidationError) as refused:
        plan(environment)
    assert list(refused.value.message_dict) == ["agent"]


def test_the_kind_is_in_the_snapshot_and_cannot_change():
    collection = plan()
    assert collection.snapshot["agent"]["kind"] == "external"
    assert "kind" not in plan(kind="builtin").snapshot["agent"]
    agent = collection.agent
    agent.kind = Agent.Kind.BUILTIN
    with pytest.raises(ValidationError) as refused:
        save_agent(agent=agent, user=make_user())
    assert list(refused.value.message_dict) == ["kind"]
