"""The walk over real wires: rows by REST, a mock model and a resource server in processes of their own, both wires."""

import json
import os
from pathlib import Path

import pytest
from asgiref.sync import async_to_sync
from django.test import Client

from apps.accounts.api_keys import create_api_key
from apps.environments.models import Adapter, Environment
from apps.gym.traces.events import ModelCall, Prompt, SessionOpened, ToolResult, Verification
from apps.policies.models import PolicyModel
from apps.rollouts.models import Collection
from apps.rollouts.steering.local_worker import finish_collection
from apps.tasks.models import Dataset
from tests.factories import make_user
from tests.walk.processes import process

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("GYMWEB_SHARED", ROOT.parent / "shared"))
REPEATS = 8

pytestmark = [pytest.mark.usefixtures("migrated"), pytest.mark.slow]


def walk(rows: bytes, *, wire: str, model_port: int, weather_port: int) -> Collection:
    """Upload by REST, plan by REST, run, and give the collection."""
    _, token = create_api_key(user=make_user("engineer"), name="walk", scopes=["admin"])
    api = Client(headers={"authorization": f"Bearer {token}"})
    environment = Environment.objects.create(
        slug="weather", name="Weather", adapter=Adapter.HTTP, base_url=f"http://127.0.0.1:{weather_port}"
    )
    model = PolicyModel.objects.create(
        slug="mock", name="Mock", wire=wire, base_url=f"http://127.0.0.1:{model_port}/v1", model_name="mock"
    )
    made = api.post(
        "/api/v1/datasets/",
        {"slug": "weather", "name": "Weather", "environment": environment.slug},
        content_type="application/json",
    )
    assert made.status_code == 201, made.content
    upload = api.post("/api/v1/datasets/weather/uploads/?wait=true", rows, content_type="application/x-ndjson")
    assert (upload.status_code, upload.json()["rejected"]) == (201, 0), upload.content
    plan = {"dataset": "weather", "agent": "default", "policy_model": model.slug, "repeats": REPEATS}
    planned = api.post("/api/v1/collections/", plan, content_type="application/json")
    assert planned.status_code == 201, planned.content
    collection = Collection.objects.get(pk=planned.json()["id"])
    return async_to_sync(finish_collection)(collection, progress=lambda _: None)


def check(collection: Collection) -> None:
    tasks = Dataset.objects.get().latest_version().task_count
    assert (collection.completed, collection.failed) == (tasks * REPEATS, 0)
    for rollout in collection.rollouts.all():
        kinds = [type(event) for event in rollout.trace()]
        assert (rollout.reward, rollout.tool_calls, rollout.tool_errors) == (1.0, 2, 0)
        assert kinds == [SessionOpened, Prompt, *[ModelCall, ToolResult] * 2, ModelCall, Verification]
        result = next(event for event in rollout.trace() if isinstance(event, ToolResult))
        assert json.loads(result.output)["city"] == "Paris"


@pytest.mark.parametrize("wire", ["chat", "responses"])
def test_our_own_rows_run_over_both_wires(settings, wire):
    settings.OUTBOUND_ALLOW, settings.WORKER_BACKGROUND_JOBS = ["127.0.0.1"], []
    example = ROOT / "examples" / "resource_servers" / "weather"
    with (
        process(ROOT / "scripts" / "mock_model.py", "--port", "PORT") as model_port,
        process(example / "server.py", "--port", "PORT") as weather_port,
    ):
        rows = (example / "example.jsonl").read_bytes()
        check(walk(rows, wire=wire, model_port=model_port, weather_port=weather_port))


@pytest.mark.skipif(not SHARED.exists(), reason="the shared rows and mock model are not beside the checkout")
@pytest.mark.parametrize("wire", ["chat", "responses"])
def test_public_rows_run_over_both_wires(settings, wire):
    settings.OUTBOUND_ALLOW, settings.WORKER_BACKGROUND_JOBS = ["127.0.0.1"], []
    example = ROOT / "examples" / "resource_servers" / "weather"
    with (
        process(SHARED / "bench" / "mock_model.py", "--port", "PORT") as model_port,
        process(example / "server.py", "--port", "PORT") as weather_port,
    ):
        rows = (SHARED / "data" / "nemo_gym" / "example_single_tool_call.example.jsonl").read_bytes()
        check(walk(rows, wire=wire, model_port=model_port, weather_port=weather_port))
