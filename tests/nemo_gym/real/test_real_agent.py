"""NeMo Gym's own agent, unmodified, drives an environment and a model of ours. Its replies are rollout rows."""

import asyncio
import json
import threading
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from apps.gym.environments.calculator.environment import CALCULATOR_TOOL
from apps.gym.resources.inprocess import InProcessServer
from apps.gym.serving.own_port import serve_port
from apps.gym.serving.served_environment import serve_environment
from apps.gym.serving.served_model import ServedModel
from apps.gym.wires.scripted import ScriptedPolicy
from apps.rollouts.imports.import_spec import ImportOrder
from apps.rollouts.imports.rollout_import import import_rollouts
from apps.rollouts.reverification.reverification_jobs import queue_reverification
from apps.rollouts.reverification.reverification_spec import ReverificationOrder
from scripts.servers import free_port
from tests.deadlines import DEADLINE
from tests.factories import make_agent, make_dataset, make_environment
from tests.nemo_gym.real.installed import PACKAGES, PYTHON, child, needs_nemo_gym
from tests.rollouts.finished import finish_reverification
from tests.rollouts.stored import as_file

pytestmark = [*needs_nemo_gym, pytest.mark.django_db]
SUMS = {"(3 + 4) * 12": "84", "17 - 29": "-12", "2 ** 10": "1024"}


def row(number, expression, answer):
    asked = {"role": "user", "content": f"What is {expression}? Box it."}
    return {
        "responses_create_params": {"input": [asked], "tools": [CALCULATOR_TOOL]},
        "expected_answer": answer,
        "_ng_task_index": number,
        "_ng_rollout_index": 0,
    }


@contextmanager
def ours():
    """Ports of a calculator and a scripted model of ours, in a thread of their own."""
    ports, ready, ended = {}, threading.Event(), threading.Event()

    async def serve():
        stop = asyncio.Event()
        calculator = InProcessServer("calculator", name="calculator")
        served = {
            "environment": await serve_environment(calculator, most_sessions=100, session_seconds=60.0),
            "model": ServedModel(name="scripted", policy=ScriptedPolicy(), sampling={}),
        }

        def started(name, port):
            ports[name] = port
            if len(ports) == len(served):
                ready.set()

        serving = [
            asyncio.create_task(
                serve_port(
                    each,
                    host="127.0.0.1",
                    port=0,
                    max_body=2**24,
                    seconds=30.0,
                    stop=stop,
                    started=lambda port, name=name: started(name, port),
                )
            )
            for name, each in served.items()
        ]
        while not ended.is_set():
            await asyncio.sleep(0.05)
        stop.set()
        await asyncio.gather(*serving)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(20)
        yield ports
    finally:
        ended.set()
        thread.join()


@contextmanager
def their_agent(ports):
    port = free_port()
    script = Path(__file__).with_name("real_agent.py")
    own = [str(port), "calculator", str(ports["environment"]), str(ports["model"])]
    with child([PYTHON, script, PACKAGES, *own], port):
        yield port


def run(port, task):
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/run", json.dumps(task).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=DEADLINE) as reply:
        return json.loads(reply.read())


def test_their_agent_gets_our_rewards_and_its_rows_are_imported_and_verified_again():
    tasks = [row(number, *item) for number, item in enumerate(SUMS.items())]
    with ours() as ports, their_agent(ports) as port:
        replies = [run(port, task) for task in tasks]
    assert [reply["reward"] for reply in replies] == [1.0] * 3
    for reply in replies:
        kinds = [item["type"] for item in reply["response"]["output"]]
        assert "function_call_output" in kinds
    stored = [{**reply, "_ng_task_index": number, "_ng_rollout_index": 0} for number, reply in enumerate(replies)]
    dataset = make_dataset(rows=[], environment=make_environment(builtin="calculator"))
    collection = import_rollouts(ImportOrder(dataset=dataset, agent=make_agent()), files=[as_file(*stored)]).collection
    done = finish_reverification(reverification=queue_reverification(ReverificationOrder(collection=collection)))
    assert (done.verified, done.changed, done.failed) == (3, 0, 0)
