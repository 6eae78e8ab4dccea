"""Captured tokens over real wires: from the model's reply through the database into a file and onto the page."""

from itertools import pairwise
from pathlib import Path

import pytest
from asgiref.sync import async_to_sync
from django.test import Client

from apps.environments.models import Environment
from apps.exports.export_jobs import write_export
from apps.exports.export_orders import ExportOrder, queue_export
from apps.gym.traces.events import ModelCall
from apps.policies.models import PolicyModel
from apps.rollouts.models import TraceEvent
from apps.rollouts.plans.plan_spec import Plan
from apps.rollouts.plans.planning import plan_collection
from apps.rollouts.steering.local_worker import finish_collection
from scripts.mock_replies import TOOL_TOKENS, USAGE
from tests.factories import make_agent, make_dataset, make_row, make_user
from tests.gym.traces import decode_lines
from tests.walk.processes import process

ROOT = Path(__file__).resolve().parents[2]
TOKENS = 30
FIELDS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")

pytestmark = [pytest.mark.usefixtures("migrated"), pytest.mark.slow]


def collect(settings, *, capture):
    """A finished collection of four rollouts, three turns each, of a model that offers its tokens."""
    settings.OUTBOUND_ALLOW, settings.WORKER_BACKGROUND_JOBS = ["127.0.0.1"], []
    call = ("--tool-name", "calculator", "--tool-args", '{"expression": "6 * 7"}', "--final", "\\boxed{42}")
    with process(ROOT / "scripts" / "mock_model.py", "--port", "PORT", "--tokens", TOKENS, *call) as port:
        model = PolicyModel.objects.create(
            slug="mock",
            name="Mock",
            base_url=f"http://127.0.0.1:{port}/v1",
            model_name="mock",
            capture_tokens=capture,
        )
        dataset = make_dataset([make_row("6 * 7?", "42")], environment=Environment.objects.get(slug="calculator"))
        planned = plan_collection(Plan(dataset=dataset, agent=make_agent(), policy_model=model, repeats=4))
        collection = async_to_sync(finish_collection)(planned, progress=lambda _: None)
    assert (collection.completed, collection.mean_reward) == (4, 1.0)
    return collection


def test_tokens_are_in_the_file_on_the_last_item_of_each_turn_and_once_in_the_database(settings, tmp_path):
    settings.EXPORTS_DIR = tmp_path
    collection = collect(settings, capture=True)
    order = ExportOrder(format="nemo_gym_rollouts", collection=collection, options={"grammar_calls": "keep"})
    export = write_export(export=queue_export(order))
    rows = decode_lines((Path(export.path) / "train.jsonl").read_bytes())
    assert len(rows) == 4
    assert {row["gymweb"]["grammar_calls"] for row in rows} == {3}, "the calculator is a strict tool"
    for row in rows:
        turns = [item for item in row["response"]["output"] if "prompt_token_ids" in item]
        assert [item["type"] for item in turns] == ["function_call", "function_call", "message"]
        assert [len(item["generation_log_probs"]) for item in turns] == [TOKENS] * 3
        for earlier, later in pairwise(turns):
            seen = earlier["prompt_token_ids"] + earlier["generation_token_ids"]
            assert later["prompt_token_ids"][: len(seen)] == seen
    # A header, the ids that are new in the prompt, and an id and a float32 for each generated token.
    fresh = [USAGE["input"], TOOL_TOKENS, TOOL_TOKENS]
    for rollout in collection.rollouts.all():
        calls = [event for event in rollout.trace(tokens=True) if isinstance(event, ModelCall)]
        assert [len(call.tokens) for call in calls] == [16 + 4 * new + 8 * TOKENS for new in fresh]
        assert [call.tokens for call in rollout.trace() if isinstance(call, ModelCall)] == [None] * 3
    assert not [payload for payload in TraceEvent.objects.values_list("payload", flat=True) if "token_ids" in payload]
    assert not TraceEvent.objects.exclude(kind="model_call").filter(tokens__isnull=False).exists()


def test_the_page_says_how_many_tokens_were_captured(settings):
    rollout = collect(settings, capture=True).rollouts.earliest("id")
    client = Client()
    client.force_login(make_user("viewer"))
    page = client.get(f"/rollouts/{rollout.pk}/").content.decode()
    assert "captured tokens" in page
    assert f"{USAGE['input'] + 2 * (TOKENS + TOOL_TOKENS)} in, {TOKENS} out" in page


def test_a_model_that_was_not_told_to_capture_leaves_no_tokens(settings):
    collect(settings, capture=False)
    assert not TraceEvent.objects.filter(tokens__isnull=False).exists()
