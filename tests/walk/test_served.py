"""Ours as servers in processes of their own, started by their commands, driven by clients who know nothing of us."""

import asyncio
import json
import os
import re
import select
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import openai
import pytest

from apps.gym.calls.outbound import Outbound
from apps.gym.calls.outbound_policy import OutboundPolicy
from apps.gym.loop.agent_loop import Attempt, Harness
from apps.gym.resources.inprocess import InProcessServer
from apps.gym.resources.nemo_gym_http import HttpResourceServer
from apps.gym.resources.server_calls import Caller
from apps.gym.wires.scripted import ScriptedPolicy
from tests.deadlines import DEADLINE

ROOT = Path(__file__).resolve().parents[2]
ROW = {
    "responses_create_params": {"input": [{"role": "user", "content": "What is (3 + 4) * 12? Box it."}]},
    "expected_answer": "84",
}
PREPARE = """
from apps.environments.models import Environment
from apps.policies.models import PolicyModel
PolicyModel.objects.create(slug="scripted", name="Scripted", provider="scripted", mistake_rate=0.0)
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def var(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    for command in (["migrate", "-v0"], ["shell", "-v0", "-c", PREPARE]):
        subprocess.run([sys.executable, "manage.py", *command], cwd=ROOT, env=_environ(folder), check=True)
    return folder


def _environ(folder, **more):
    given = {**os.environ, "GYMWEB_VAR": str(folder), "DJANGO_SETTINGS_MODULE": "gymweb.settings", **more}
    return {name: value for name, value in given.items() if name not in {"GYMWEB_DATABASE_URL", "GYMWEB_REDIS_URL"}}


@contextmanager
def served(var, *command, **environ):
    """The port, and what the command printed for the other side."""
    process = subprocess.Popen(
        [sys.executable, "manage.py", *command],
        cwd=ROOT,
        env=_environ(var, PYTHONUNBUFFERED="1", **environ),
        stdout=subprocess.PIPE,
    )
    try:
        said = ""
        while not re.search(r"      port: \d+\n", said):
            assert select.select([process.stdout], [], [], DEADLINE)[0], said
            # Not readline: what it keeps for the next call, select does not see.
            block = os.read(process.stdout.fileno(), 65536).decode()
            assert block, f"the command ended: {said}"
            said += block
        yield int(re.search(r"Serving at http://127\.0\.0\.1:(\d+)", said)[1]), said
    finally:
        process.terminate()
        rest, _ = process.communicate(timeout=DEADLINE)
        assert process.returncode == 0, rest


def post(port, path, body, cookie=""):
    headers = {"Content-Type": "application/json", **({"Cookie": cookie} if cookie else {})}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/{path}", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=DEADLINE) as reply:
        return json.loads(reply.read()), (reply.headers.get("Set-Cookie") or "").split(";")[0]


def test_an_environment_is_a_resource_server_at_the_root_of_its_port(var):
    with served(var, "serve_environment", "calculator") as (port, said):
        assert "calculator:\n  resources_servers:\n    calculator:\n" in said
        seeded, cookie = post(port, "seed_session", ROW)
        assert (seeded, cookie.startswith("GymWeb___calculator=")) == ({"supports_explicit_close": True}, True)
        result, newer = post(port, "calculator", {"expression": "(3 + 4) * 12"}, cookie)
        assert (result, newer) == ({"result": 84}, cookie)
        output = [{"type": "message", "role": "assistant", "content": "\\boxed{84}"}]
        verdict, _ = post(port, "verify", {**ROW, "response": {"output": output}}, newer)
        assert verdict["reward"] == 1.0


def test_a_task_row_posted_to_an_agent_comes_back_with_reward_and_response(var):
    command = ["serve_agent", "default", "--model", "scripted", "--environment", "calculator"]
    with served(var, *command) as (port, said):
        assert "responses_api_agents" in said
        reply, _ = post(port, "run", ROW)
        kinds = [item["type"] for item in reply["response"]["output"]]
        assert (reply["reward"], "function_call" in kinds, kinds[-1]) == (1.0, True, "message")
        response, _ = post(port, "v1/responses", ROW["responses_create_params"])
        assert response["object"] == "response"


def test_the_openai_package_drives_a_served_model(var):
    with served(var, "serve_model", "scripted") as (port, said):
        assert "responses_api_models" in said
        with openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0) as client:
            text = ROW["responses_create_params"]["input"][0]["content"]
            assert "84" in client.responses.create(model="scripted", input=text).output_text
            messages = [{"role": "user", "content": text}]
            completion = client.chat.completions.create(model="scripted", messages=messages)
            assert "84" in completion.choices[0].message.content


def test_an_agent_of_one_process_uses_the_environment_and_the_model_of_two_others(var):
    with (
        served(var, "serve_environment", "calculator") as (environment, _),
        served(var, "serve_model", "scripted") as (
            model,
            _,
        ),
    ):
        rows = f"""
from apps.environments.models import Environment
from apps.policies.models import PolicyModel
Environment.objects.create(slug="far", name="Far", adapter="http", base_url="http://127.0.0.1:{environment}")
PolicyModel.objects.create(slug="far", name="Far", base_url="http://127.0.0.1:{model}/v1", model_name="scripted")
"""
        shell = [sys.executable, "manage.py", "shell", "-v0", "-c", rows]
        subprocess.run(shell, cwd=ROOT, env=_environ(var), check=True)
        allowed = {"GYMWEB_OUTBOUND_ALLOW": "127.0.0.1"}
        command = ["serve_agent", "default", "--model", "far", "--environment", "far"]
        with served(var, *command, **allowed) as (port, _):
            reply, _ = post(port, "run", ROW)
            outputs = [item for item in reply["response"]["output"] if item["type"] == "function_call_output"]
            assert (reply["reward"], json.loads(outputs[-1]["output"])) == (1.0, {"result": 84})


def test_serve_reports_a_port_in_use_and_an_invalid_host_name(var):
    with served(var, "serve_model", "scripted") as (port, _):
        for command, words in (
            (["serve_model", "scripted", "--port", str(port)], f"Cannot listen on 127.0.0.1:{port}"),
            (["serve_environment", "nothing"], "Choose one of: calculator"),
        ):
            ended = subprocess.run(
                [sys.executable, "manage.py", *command],
                cwd=ROOT,
                env=_environ(var),
                capture_output=True,
                text=True,
                check=False,
            )
            assert (ended.returncode, words in ended.stderr) == (1, True), ended.stderr


KEY = """
from apps.accounts.api_keys import create_api_key
from apps.accounts.models import User
user = User.objects.create_user(username="program", role="engineer")
print(create_api_key(user=user, name="program", scopes=["admin"])[1])
"""


@contextmanager
def site(var):
    """The main server, without a worker."""
    process = subprocess.Popen(
        [sys.executable, "manage.py", "serve", "--port", "0", "--no-worker"],
        cwd=ROOT,
        env=_environ(var, PYTHONUNBUFFERED="1"),
        stdout=subprocess.PIPE,
    )
    try:
        said = ""
        while not (found := re.search(r"GymWeb is at http://127\.0\.0\.1:(\d+)/", said)):
            assert select.select([process.stdout], [], [], DEADLINE)[0], said
            block = os.read(process.stdout.fileno(), 65536).decode()
            assert block, f"the server ended: {said}"
            said += block
        yield int(found[1])
    finally:
        process.terminate()
        process.communicate(timeout=DEADLINE)


def test_our_own_adapter_drives_an_environment_of_the_main_server_with_a_key(var):
    shell = [sys.executable, "manage.py", "shell", "-v0", "-c", KEY]
    made = subprocess.run(shell, cwd=ROOT, env=_environ(var), check=True, capture_output=True, text=True)

    async def attempts(port):
        outbound = Outbound(OutboundPolicy(["127.0.0.1"]))
        url = f"http://127.0.0.1:{port}/gym/environments/calculator"
        options = {"call_timeout": 20, "max_tries": 1, "api_key": made.stdout.strip()}
        far = HttpResourceServer(Caller(outbound, name="calculator", base_url=url, **options), verify_timeout=120.0)
        here = InProcessServer("calculator", name="calculator")
        try:
            return [await asyncio.gather(*(trace(server, seed) for seed in range(24))) for server in (here, far)]
        finally:
            await outbound.close()

    async def trace(server, seed):
        policy = ScriptedPolicy(mistake_rate=0.5)
        run = Attempt(row=ROW, server=server, policy=policy, harness=Harness(), seed=seed, elapsed=lambda: 0.0)
        return [event async for event in run.events()]

    with site(var) as port:
        here, far = asyncio.run(attempts(port))
    assert far == here
    assert {events[-1].reward for events in far} == {0.0, 1.0}
