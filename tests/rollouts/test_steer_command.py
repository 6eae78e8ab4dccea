"""`manage.py steer_collection`, and what `collect` says of limits and breakers."""

import json
import re

import pytest
from django.core.management import CommandError, call_command

from apps.environments.models import Environment
from apps.policies.models import PolicyModel
from apps.rollouts.models import Breaker, Collection, Rollout
from tests.factories import make_agent, make_breaker, make_collection, make_dataset, make_policy_model, make_rollout

pytestmark = pytest.mark.django_db


def steer(capsys, collection, *words):
    call_command("steer_collection", str(collection.pk), *words)
    return capsys.readouterr().out


def test_pausing_and_resuming_say_how_it_stands(capsys):
    collection = make_collection(total=4, completed=1)
    said = steer(capsys, collection, "pause")
    assert f"{collection.label} is paused: 1 of 4 rollouts have ended." in said
    assert "since paused by a user: resume it" in said
    resumed = steer(capsys, collection, "resume")
    assert f"{collection.label} is running" in resumed
    assert "No worker is alive: start one with manage.py rolloutworker." in resumed


def test_the_json_is_one_object(capsys):
    collection = make_collection(total=1, failed=1)
    make_breaker(policy_model=collection.policy_model)
    call_command("steer_collection", "--json", str(collection.pk), "show")
    report = json.loads(capsys.readouterr().out)
    assert (report["collection"], report["state"], report["failed"]) == (collection.pk, "running", 1)
    (held,) = report["held_back_by"]
    name = collection.policy_model.name
    assert held.startswith(f"policy model {name}: 12 calls failed in a row: connection refused; next try in ")


def test_json_may_be_asked_for_before_and_after_the_action(capsys):
    collection = make_collection(total=1)
    for words in (["--json", "show"], ["show", "--json"], ["adjust", "--priority", "5", "--json"], ["pause", "--json"]):
        report = json.loads(steer(capsys, collection, *words))
        assert (report["collection"], report["total"]) == (collection.pk, 1), words
    assert "is paused" in steer(capsys, collection, "show")


def test_failed_rollouts_are_queued_again_by_kind(capsys):
    collection = make_collection(total=2, failed=2, state="completed")
    for kind in ("timed_out", "policy_error"):
        make_rollout(collection, status="failed", reward=None, stop_reason="", error_kind=kind, trace=[])
    assert "1 failed rollout was queued again." in steer(capsys, collection, "retry", "--error-kind", "timed_out")
    assert list(Rollout.objects.order_by("pk").values_list("status", flat=True)) == ["queued", "failed"]


def test_limits_are_set_and_removed(capsys):
    collection = make_collection(total=2)
    said = steer(capsys, collection, "adjust", "--max-tokens", "500", "--max-seconds", "none", "--priority", "-3")
    collection.refresh_from_db()
    assert (collection.max_tokens, collection.max_seconds, collection.priority) == (500, None, -3)
    assert "max_seconds = none" in said


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["adjust"], "Say what to change"),
        (["adjust", "--concurrency", "0"], "--concurrency: Give a number of at least 1."),
        (["adjust", "--priority", "5000"], "--priority: Give a number of at most 1,000."),
        (["adjust", "--priority", "-1001"], "--priority: Give a number of at least -1,000."),
        (["adjust", "--max-cost", "nan"], "--max-cost: Give a finite number."),
        (["adjust", "--max-tokens", "many"], "is not a whole number or none"),
        (["resume"], "is completed: only a paused collection can be resumed"),
        (["dance"], "invalid choice: 'dance'"),
    ],
)
def test_what_cannot_be_done_is_an_error_with_its_reason(words, complaint):
    state = "completed" if words == ["resume"] else "running"
    collection = make_collection(total=1, state=state)
    with pytest.raises(CommandError, match=complaint):
        call_command("steer_collection", str(collection.pk), *words)


def test_a_collection_that_is_not_there_is_named():
    with pytest.raises(CommandError, match="There is no collection 999"):
        call_command("steer_collection", "999", "show")


@pytest.fixture
def quick(migrated, settings):
    settings.WORKER_BACKGROUND_JOBS = []
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    settings.BREAKER_FAILURES = 2


def collect(model, *words):
    dataset = make_dataset(environment=Environment.objects.get(slug="calculator"))
    given = ["--dataset", dataset.slug, "--agent", make_agent().slug, "--model", model.slug, "--json"]
    call_command("collect", *given, *words)


def test_collect_ends_with_the_limit_that_paused_it(quick, capsys):
    with pytest.raises(
        CommandError, match=r"is paused after \d+ of 300 rollouts, since its tokens are used up: raise or remove"
    ):
        collect(
            make_policy_model(mistake_rate=0),
            "--max-tokens",
            "1",
            "--concurrency",
            "1",
            "--seats",
            "1",
            "--repeats",
            "100",
        )
    report = json.loads(capsys.readouterr().out)
    assert (report["state"], 0 < report["completed"] < 300) == ("paused", True)
    assert Collection.objects.get().pause_reason == "max_tokens"


def test_collect_says_which_endpoint_holds_it_back(quick, capsys):
    model = PolicyModel.objects.create(
        slug="gone", name="Gone", base_url="http://127.0.0.1:9/v1", model_name="x", max_tries=1
    )
    with pytest.raises(CommandError, match="its time is used up"):
        collect(model, "--max-seconds", "2")
    said = capsys.readouterr().err
    assert re.search(r"Held back by policy model Gone: \d+ calls failed in a row: ", said)
    assert said.count("Held back by") == 1
    assert Breaker.objects.get().policy_model == model


def test_collect_refuses_a_limit_that_cannot_be(quick):
    with pytest.raises(CommandError, match="--max-attempts: Give a number of at most 20"):
        collect(make_policy_model(), "--max-attempts", "21")
    assert Collection.objects.count() == 0


def test_a_collection_is_archived_restored_and_deleted_by_command(capsys):
    collection = make_collection(total=0, state="completed")
    assert json.loads(steer(capsys, collection, "archive", "--json"))["archived"] is True
    assert json.loads(steer(capsys, collection, "restore", "--json"))["archived"] is False
    assert "deletion = " in steer(capsys, collection, "delete")
    with pytest.raises(CommandError, match=f"There is no collection {collection.pk}"):
        steer(capsys, collection, "show")
