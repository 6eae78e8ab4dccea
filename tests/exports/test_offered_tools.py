"""Exported RL tasks include the tools that their attempts were offered, and name an agent that can call them."""

import json

import pytest

from apps.exports.export_folders import rows_path
from apps.exports.export_jobs import write_export
from apps.exports.export_orders import ExportOrder, queue_export
from apps.gym.traces.events import SessionOpened
from apps.gym.traces.messages import nested_tools
from apps.rollouts.imports.import_spec import ImportOrder
from apps.rollouts.imports.rollout_import import import_rollouts
from tests.factories import (
    make_agent,
    make_collection,
    make_dataset,
    make_policy_model,
    make_rollout,
    make_row,
    make_trace,
)
from tests.gym.traces import WEATHER_TOOL, decode_lines
from tests.rollouts.stored import as_file, stored_row

pytestmark = pytest.mark.django_db

OTHER_TOOL = {**WEATHER_TOOL, "name": "look_outside"}


@pytest.fixture(autouse=True)
def exports_folder(settings, tmp_path):
    settings.EXPORTS_DIR = tmp_path / "exports"


def offered(*tools):
    return [SessionOpened(environment="weather", tools=list(tools)), *make_trace(tool_call=False)[1:]]


@pytest.fixture
def collection():
    """Tasks with tools of their own, of the environment, without any, with one by one attempt, and nobody began it."""
    own = make_row("own")
    own["responses_create_params"]["tools"] = [OTHER_TOOL]
    rows = [own, *(make_row(name) for name in ("seeded", "none", "differing", "unknown", "failed"))]
    made = make_collection(dataset=make_dataset(rows), policy_model=make_policy_model(slug="scripted", model_name=""))
    tasks = list(made.version.tasks.order_by("index"))
    make_rollout(made, task=tasks[0], trace=offered(OTHER_TOOL))
    again = make_rollout(made, task=tasks[1], trace=offered(OTHER_TOOL))
    again.attempt = 2
    again.save()
    again.events.update(attempt=1)
    again.events.create(attempt=2, seq=0, kind="session", payload=session_of(WEATHER_TOOL))
    make_rollout(made, task=tasks[2], trace=offered())
    make_rollout(made, task=tasks[3], trace=offered(WEATHER_TOOL))
    make_rollout(made, task=tasks[3], trace=offered(WEATHER_TOOL, OTHER_TOOL))
    make_rollout(made, task=tasks[4], status="queued", attempt=0, reward=None, started_at=None, finished_at=None,
                 stop_reason="", trace=[])  # fmt: skip
    make_rollout(made, task=tasks[5], status="failed", reward=None, error_kind="environment_error", stop_reason="",
                 trace=[])  # fmt: skip
    return made


def session_of(*tools):
    return json.dumps({"type": "session", "environment": "weather", "tools": list(tools)})


def written(collection, format):
    export = write_export(export=queue_export(ExportOrder(format=format, collection=collection)))
    assert export.state == "ready", export.message
    return export, decode_lines(rows_path(export, "train.jsonl").read_bytes())


TOOLS = [[OTHER_TOOL], [WEATHER_TOOL], [], [WEATHER_TOOL], [], []]


def test_task_rows_of_nemo_gym_have_the_tools_that_the_environment_named(collection):
    export, rows = written(collection, "nemo_rl_tasks")
    assert [row["responses_create_params"].get("tools", []) for row in rows] == TOOLS
    assert export.manifest["tools"] == {"offered": 3, "none": 1, "unknown": 2, "differing": 1}


def test_rows_of_verl_go_to_the_agent_that_can_call_their_tools(collection):
    export, rows = written(collection, "verl_rl")
    agents = ["tool_agent" if tools else "single_turn_agent" for tools in TOOLS]
    assert [row["agent_name"] for row in rows] == agents
    assert [json.loads(row["extra_info"]["tools"]) for row in rows] == [nested_tools(tools) for tools in TOOLS]
    card = rows_path(export, "README.md").read_text()
    assert "attempted by `scripted`" in card
    assert "had tools in attempts at 3 tasks" in card
    assert "the first attempt: 1 tasks" in card
    assert "2 tasks without attempts have no tools" in card


def test_a_truncated_file_counts_only_its_own_tools(collection):
    export = write_export(
        export=queue_export(ExportOrder(format="verl_rl", collection=collection, filters={"max_rows": 2}))
    )
    assert export.manifest["tools"] == {"offered": 2, "none": 0, "unknown": 0, "differing": 0}


def test_tasks_of_imported_rollouts_go_to_the_agent_that_they_were_imported_with():
    agent_ref = {"type": "responses_api_agents", "name": "their_agent"}
    files = [as_file(stored_row(agent_ref=agent_ref), stored_row("Another?"))]
    collection = import_rollouts(
        ImportOrder(dataset=make_dataset(rows=[]), agent=make_agent(slug="ours")), files=files
    ).collection
    _, rows = written(collection, "nemo_rl_tasks")
    assert [row["agent_ref"]["name"] for row in rows] == ["their_agent", "ours"]
