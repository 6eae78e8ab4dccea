"""A real MCP server as an environment, over both transports, scored by a verifier that was configured."""

import asyncio
import sys
from pathlib import Path

import orjson
import pytest
from asgiref.sync import async_to_sync, sync_to_async

from apps.environments.environment_changes import save_environment
from apps.environments.environment_health import probe_environment
from apps.environments.models import Environment
from apps.gym.serving.served_request import IncomingRequest, answer_always
from apps.gym.traces.events import ToolResult
from apps.policies.models import PolicyModel
from apps.policies.policy_clients import open_outbound
from apps.rollouts.models import Rollout
from apps.rollouts.plans.plan_spec import Plan
from apps.rollouts.plans.planning import plan_collection
from apps.rollouts.serving.served_connections import connect_served_environment
from apps.rollouts.steering.local_worker import finish_collection
from tests.deadlines import DEADLINE
from tests.factories import make_agent, make_dataset
from tests.nemo_gym.model_server import playing
from tests.nemo_gym.solving import call, says
from tests.walk.processes import process

pytestmark = pytest.mark.usefixtures("migrated")

LAB = Path(__file__).resolve().parents[1] / "gym" / "resources" / "mcp_lab.py"
ROWS = [
    {"responses_create_params": {"input": [{"role": "user", "content": f"{n} + 5?"}]}, "expected_answer": str(n + 5)}
    for n in range(3)
]


@pytest.fixture(autouse=True)
def quick_engine(settings):
    settings.OUTBOUND_ALLOW, settings.WORKER_BACKGROUND_JOBS = ["127.0.0.1"], []
    settings.MCP_COMMANDS = {"lab": {"command": [sys.executable, str(LAB), "stdio"], "environment": {}}}


@pytest.fixture(params=["mcp", "mcp_process"])
def way(request):
    if request.param == "mcp_process":
        yield {"adapter": "mcp_process", "command": "lab", "concurrency": 4}
        return
    with process(LAB, "http", "PORT") as port:
        yield {"adapter": "mcp", "base_url": f"http://127.0.0.1:{port}/mcp"}


def adds(row, said, prompt):
    """Asks the tool, by the name that an MCP client would use, and says what it said."""
    done = [item["output"] for item in said if item.get("type") == "function_call_output"]
    if done:
        return [says(f"The answer is {done[0]}")]
    return [call("mcp__lab__add", {"a": int(row["expected_answer"]) - 5, "b": 5})]


def make_lab(way, **fields):
    environment = Environment(**{"slug": "lab", "name": "Lab", "verifier": {"type": "numeric"}, **way, **fields})
    return save_environment(environment=environment, user=None)


def collect(environment):
    async def run():
        async with playing(ROWS, adds) as url:

            def plan():
                fields = {"slug": "solver", "name": "Solver", "wire": "responses", "model_name": "solver"}
                model = PolicyModel.objects.create(base_url=url, **fields)
                dataset = make_dataset(ROWS, environment=environment)
                return plan_collection(Plan(dataset=dataset, agent=make_agent(), policy_model=model, repeats=2))

            return await finish_collection(await sync_to_async(plan)(), progress=lambda _: None)

    return async_to_sync(run)()


def test_its_tools_act_and_our_verifier_scores(way):
    lab = make_lab(way)
    checked = probe_environment(environment=lab)
    assert (checked.health, checked.survey["tools"][0]["name"]) == ("healthy", "add")
    collection = collect(lab)
    assert (collection.completed, collection.failed, collection.mean_reward) == (6, 0, 1.0)
    results = [event for event in Rollout.objects.first().trace() if isinstance(event, ToolResult)]
    assert [(event.name, event.output, event.error) for event in results] == [("mcp__lab__add", "5", "")]


def test_without_a_verifier_rollouts_name_the_missing_part(way):
    collection = collect(make_lab(way, verifier={}))
    assert (collection.completed, collection.failed) == (0, 6)
    rollout = Rollout.objects.first()
    assert rollout.error_kind == "verifier_error"
    assert "neither the environment nor the task row has a verifier" in rollout.error_message


def test_a_command_that_the_operator_took_away_fails_its_rollouts_and_its_check(settings):
    lab = make_lab({"adapter": "mcp_process", "command": "lab", "concurrency": 4})
    settings.MCP_COMMANDS = {}
    checked = probe_environment(environment=lab)
    assert (checked.health, checked.health_message) == (
        "unhealthy",
        "lab: GYMWEB_MCP_COMMANDS of this worker has no command named 'lab'",
    )


def test_a_served_process_has_no_more_sessions_than_its_environment_rollouts_and_none_to_verify(settings, tmp_path):
    started = tmp_path / "started"
    words = ["sh", "-c", f"echo one >> {started}; exec {sys.executable} {LAB} stdio"]
    settings.MCP_COMMANDS = {"lab": {"command": words, "environment": {}}}
    environment = make_lab({"adapter": "mcp_process", "command": "lab", "concurrency": 2})
    reply = {"output": [says("The answer is 5")]}

    async def ask(served, path, body):
        answer = await answer_always(
            served, IncomingRequest(method="POST", path=path, body=orjson.dumps(body)), seconds=30.0
        )
        return answer.status, orjson.loads(answer.body)

    async def run():
        async with asyncio.timeout(DEADLINE):
            outbound = open_outbound()
            served = await connect_served_environment(environment, outbound)
            try:
                seeded = [(await ask(served, "seed_session", ROWS[0]))[0] for _ in range(3)]
                before = started.read_text().count("one")
                body = {**ROWS[0], "response": reply}
                verdicts = [await ask(served, "verify", body) for _ in range(3)]
                return seeded, before, [(status, said.get("reward")) for status, said in verdicts]
            finally:
                await served.close()
                await outbound.close()

    seeded, before, verdicts = async_to_sync(run)()
    assert (seeded, before) == ([200, 200, 503], 3)  # the first of the three was the look at its tools
    assert (verdicts, started.read_text().count("one")) == ([(200, 1.0)] * 3, 3)
