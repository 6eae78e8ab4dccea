"""Collections of command agents: workers claim their rollouts, unless they cannot run the command."""

import pytest
from django.core.exceptions import ValidationError

from apps.agents.agent_changes import save_agent
from apps.agents.models import Agent
from apps.gym.boxes.command_spec import CommandSpec
from apps.policies.policy_clients import open_outbound
from apps.rollouts.engine.connections import CannotRun, Settings
from apps.rollouts.engine.judge_seats import JudgeSeats
from apps.rollouts.engine.running_collections import read_running
from apps.rollouts.engine.throttling import Throttles
from apps.rollouts.plans.plan_spec import Plan
from apps.rollouts.plans.planning import plan_collection
from tests.factories import make_agent, make_dataset, make_policy_model, make_row

pytestmark = pytest.mark.django_db
COMMAND = {"command": ["agent", "{instruction}"], "answer_file": "answer.txt"}


@pytest.fixture(autouse=True)
def working_sandbox(monkeypatch):
    monkeypatch.setattr("apps.gym.sandbox.choosing.ChosenSandbox.find_problem", lambda _: "")


def plan(**settings):
    agent = make_agent(kind="command", command_settings={**COMMAND, **settings})
    return plan_collection(
        Plan(dataset=make_dataset([make_row("2 + 2?", "4")]), agent=agent, policy_model=make_policy_model())
    )


def connect(collection):
    return Settings(open_outbound(), lambda *_: None, JudgeSeats(), Throttles()).get(collection.pk)


def test_workers_claim_its_rollouts_and_run_the_command_as_planned():
    collection = plan()
    Agent.objects.filter(pk=collection.agent_id).update(command_settings={"command": ["changed later"]})
    assert [one.runs_in_worker for one in read_running()] == [True]
    assert connect(collection).command == CommandSpec(**COMMAND)


def test_a_worker_without_the_sandbox_runs_none_and_names_it(settings, monkeypatch):
    collection = plan()
    settings.SANDBOX = "unprivileged_process"
    with pytest.raises(
        CannotRun, match=r"^Command agents need bubblewrap, but GYMWEB_SANDBOX is unprivileged_process\.$"
    ):
        connect(collection)
    settings.SANDBOX = "bubblewrap"
    missing = "code cannot be run here: bwrap is not installed: apt-get install bubblewrap on Debian and Ubuntu"
    monkeypatch.setattr("apps.gym.sandbox.choosing.ChosenSandbox.find_problem", lambda _: missing)
    with pytest.raises(CannotRun, match="bwrap is not installed"):
        connect(collection)


def test_a_folder_that_the_operator_no_longer_allows_is_not_mounted(settings, tmp_path):
    settings.AGENT_MOUNTS = [str(tmp_path)]
    collection = plan(mounts=[str(tmp_path)])
    assert connect(collection).command.mounts == [str(tmp_path)]
    settings.AGENT_MOUNTS = []
    with pytest.raises(CannotRun, match="GYMWEB_AGENT_MOUNTS allows no folder"):
        connect(collection)


@pytest.mark.parametrize(("kind", "given"), [("builtin", COMMAND), ("external", COMMAND), ("command", {})])
def test_only_command_agents_have_a_command_and_they_need_one(kind, given):
    with pytest.raises(ValidationError) as refused:
        save_agent(agent=Agent(slug="a", name="A", kind=kind, command_settings=given), user=None)
    assert list(refused.value.message_dict) == ["command_settings"]


def test_the_folders_of_the_installation_are_not_allowed(settings, tmp_path):
    settings.VAR_DIR = tmp_path / "var"
    settings.AGENT_MOUNTS = [str(tmp_path)]
    with pytest.raises(ValidationError):
        save_agent(
            agent=Agent(
                slug="a", name="A", kind="command", command_settings={**COMMAND, "mounts": [f"{tmp_path}/var"]}
            ),
            user=None,
        )
