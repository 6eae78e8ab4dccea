"""`manage.py collect`: plan, wait, print; failures are named, not hidden."""

import json
import socket
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from apps.environments.models import Environment
from apps.rollouts.models import Collection
from tests.factories import make_agent, make_dataset, make_next_version, make_policy_model, make_row, make_worker

pytestmark = pytest.mark.usefixtures("migrated")


@pytest.fixture(autouse=True)
def quick_engine(settings):
    settings.WORKER_BACKGROUND_JOBS = []


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


def test_an_unknown_name_lists_the_known_ones(capsys):
    make_agent(slug="real")
    with pytest.raises(CommandError, match=r"Unknown agent 'unreal'\. Choose one of: .*real"):
        collect([make_row()], capsys, agent="unreal")


def words(*more: str) -> list[str]:
    dataset = make_dataset([make_row()], environment=Environment.objects.get(slug="calculator"))
    model = make_policy_model(mistake_rate=0)
    return ["--dataset", dataset.slug, "--agent", make_agent().slug, "--model", model.slug, "--json", *more]


def test_a_plan_with_a_key_is_made_once_and_its_sampling_is_the_one_given(capsys):
    given = words("--idempotency-key", "night-1", "--sampling", '{"temperature": 0.25}')
    reports = []
    for _ in range(2):
        call_command("collect", *given)
        reports.append(json.loads(capsys.readouterr().out))
    assert reports[0] == reports[1]
    [collection] = Collection.objects.all()
    assert (collection.sampling, collection.idempotency_key) == ({"temperature": 0.25}, "night-1")
    assert (reports[0]["collection"], reports[0]["completed"]) == (collection.pk, 1)
    with pytest.raises(CommandError, match="The idempotency key 'night-1' was used for another plan"):
        call_command("collect", *given, "--repeats", "2")


@pytest.mark.parametrize(
    ("option", "value", "complaint"),
    [
        ("--sampling", "{oops", "argument --sampling: this is not JSON"),
        ("--sampling", "[1]", "argument --sampling: this is not a JSON object"),
        ("--sampling", '{"temperature": "hot"}', "--sampling: "),
        ("--idempotency-key", "x" * 129, "argument --idempotency-key: an idempotency key takes 1 to 128"),
        ("--seats", "0", "argument --seats: '0' is not a whole number from 1 to 100000"),
    ],
)
def test_an_option_that_cannot_be_is_named(option, value, complaint):
    with pytest.raises(CommandError, match=complaint):
        call_command("collect", *words(option, value))
    assert Collection.objects.count() == 0


def test_the_command_names_the_worker_that_it_waits_for(capsys):
    soon = timezone.now() + timedelta(seconds=6)
    idle = make_worker(host=socket.gethostname(), trouble="the disk is full", lease_expires_at=soon)
    call_command("collect", *words())
    said = capsys.readouterr()
    assert f"Running on {idle}, " in said.err
    assert "the disk is full" in said.err
    assert json.loads(said.out)["completed"] == 1


def test_an_estimate_is_said_and_nothing_is_planned(capsys):
    call_command("collect", *words("--repeats", "3", "--estimate"))
    said = json.loads(capsys.readouterr().out)
    assert (said["tasks"], said["rollouts"], said["based_on"], Collection.objects.count()) == (1, 3, [], 0)


def test_an_older_version_is_collected_and_a_clone_stays_with_it(capsys):
    given = words("--dataset-version", "1")
    call_command("collect", *given)
    first = Collection.objects.get()
    make_next_version(first.dataset, [make_row(), make_row("What is 3 + 3?", "6")])
    call_command("collect", "--clone", str(first.pk), "--json")
    call_command("collect", "--clone", str(first.pk), "--dataset-version", "latest", "--json")
    made = Collection.objects.order_by("pk").values_list("version__number", "total")
    assert list(made) == [(1, 1), (1, 1), (2, 2)]
    with pytest.raises(CommandError, match=r"has no version 9\. Choose one of: 2, 1"):
        call_command("collect", *given, "--dataset-version", "9")
    with pytest.raises(CommandError, match="is not a whole number or latest"):
        call_command("collect", *given, "--dataset-version", "newest")


def test_an_earlier_collection_is_cloned_or_resumed(capsys):
    call_command("collect", *words("--repeats", "2", "--seed", "4"))
    first = Collection.objects.get()
    call_command("collect", "--clone", str(first.pk), "--repeats", "1", "--json")
    again = Collection.objects.latest("pk")
    assert (again.total, again.seed, again.dataset, again.agent) == (1, 4, first.dataset, first.agent)
    with pytest.raises(CommandError, match=r"These tasks have no failed rollouts in #"):
        call_command("collect", "--resume-from", str(first.pk), "--only-failed")
    with pytest.raises(CommandError, match="Unknown collection 999"):
        call_command("collect", "--clone", "999")
    with pytest.raises(CommandError, match="needs --resume-from"):
        call_command("collect", *words("--only-failed"))
    with pytest.raises(CommandError, match="Give --dataset"):
        call_command("collect", "--model", make_policy_model().slug)
    with pytest.raises(CommandError, match="is not a name with a number"):
        call_command("collect", *words("--split-repeats", "train"))
