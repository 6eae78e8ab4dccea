"""`manage.py collect`: plan, wait, print; failures are named, not hidden."""

import json

import pytest
from django.core.management import CommandError, call_command

from apps.environments.models import Environment
from tests.factories import make_agent, make_dataset, make_policy_model, make_row

pytestmark = pytest.mark.usefixtures("migrated")


@pytest.fixture(autouse=True)
def quick_engine(settings):
    settings.WORKER_CHORES = []


def collect(rows, capsys, **options):
    dataset = make_dataset(rows, environment=Environment.objects.get(slug="calculator"))
    given = {"dataset": dataset.slug, "agent": make_agent().slug, "model": make_policy_model(mistake_rate=0).slug}
    call_command("collect", **{**given, **options})
    return capsys.readouterr()


def test_the_json_is_one_object_with_the_metrics(capsys):
    said = collect([make_row()], capsys, repeats=3, json=True)
    report = json.loads(said.out)
    assert {name: report[name] for name in ("state", "rollouts", "completed", "failed", "mean_reward", "errors")} == {
        "state": "completed",
        "rollouts": 3,
        "completed": 3,
        "failed": 0,
        "mean_reward": 1.0,
        "errors": {},
    }


def test_failures_are_named_with_their_reason(capsys):
    broken = {"responses_create_params": {"input": "What is 1 + 1?"}}
    said = collect([make_row(), broken], capsys, json=True)
    assert json.loads(said.out)["errors"] == {"verifier_error": 1}
    assert "1 of 2 rollouts failed" in said.err
    assert "expected_answer" in said.err


def test_a_collection_without_one_completed_rollout_is_a_failure(capsys):
    with pytest.raises(CommandError, match="No rollout was completed"):
        collect([{"responses_create_params": {"input": "What is 1 + 1?"}}], capsys)


def test_an_unknown_name_lists_those_that_exist(capsys):
    make_agent(slug="real")
    with pytest.raises(CommandError, match=r"No agent 'unreal'; there are: .*real"):
        collect([make_row()], capsys, agent="unreal")
