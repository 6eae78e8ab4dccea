"""What `manage.py collect` says of limits and breakers."""

import json
import re

import pytest
from django.core.management import CommandError, call_command

from apps.environments.models import Environment
from apps.policies.models import PolicyModel
from apps.rollouts.models import Breaker, Collection
from tests.factories import make_agent, make_dataset, make_policy_model

pytestmark = pytest.mark.django_db


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
        CommandError, match=r"is paused after \d+ of 300 rollouts because the token limit is reached: raise or remove"
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
    with pytest.raises(CommandError, match="the time limit is reached"):
        collect(model, "--max-seconds", "2")
    said = capsys.readouterr().err
    assert re.search(r"Policy model Gone: \d+ calls failed in a row: ", said)
    assert said.count("Rollouts stay in the queue") == 1
    assert Breaker.objects.get().policy_model == model


def test_collect_refuses_a_limit_that_cannot_be(quick):
    with pytest.raises(CommandError, match="--max-attempts: Give a number of at most 20"):
        collect(make_policy_model(), "--max-attempts", "21")
    assert Collection.objects.count() == 0
