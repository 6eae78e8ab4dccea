"""GymWeb's loop and NeMo Gym's own agent get equal rewards from its servers, for the same rows and the same model."""

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from apps.gym.errors import GymError
from apps.gym.resources.nemo_gym_http import HttpResourceServer
from apps.gym.resources.server_calls import Caller
from apps.gym.traces.events import Verification
from scripts.servers import free_port
from tests.deadlines import DEADLINE
from tests.nemo_gym import solving
from tests.nemo_gym.attempts import attempt, loopback
from tests.nemo_gym.real.installed import PACKAGES, PYTHON, child, needs_nemo_gym, running
from tests.nemo_gym.real.test_real_servers import rows_of

pytestmark = needs_nemo_gym
ROWS = 5
ARGUMENTS = {"integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}
ANSWERS = ("expected_answer", "answer", "ground_truth", "label", "expected_output", "target")
SERVERS = [
    "agentif",
    "arc_agi",
    "bunsenbench_chemistry_mcq",
    "calendar",
    "circle_click",
    "circle_count",
    "citation_if",
    "code_gen",
    "conversational_tool_use_simulation",
    "example_mcp_weather",
    "example_multi_step",
    "example_session_state_mgmt",
    "example_single_tool_call",
    "example_tool_call_multireward",
    "gpqa_diamond",
    "graphwalks",
    "gui_coordinate",
    "hotpotqa_qa",
    "imo_gradingbench",
    "imo_proofbench_judge",
    "indirect_prompt_injection",
    "lc_niah",
    "litmus_agent",
    "longmemeval",
    "math_advanced_calculations",
    "math_formal_lean",
    "math_proof_judgement",
    "math_with_autograder",
    "math_with_code",
    "math_with_judge",
    "mcqa",
    "string_match",
]
"""Servers that need no key, no other program and, for these answers, no judge."""


def guess(row: solving.Row, said: solving.Items, prompt: solving.Items) -> solving.Items:
    """Call the first tool once, then give the answer of the row, if it has one."""
    tools = [tool for tool in row["responses_create_params"].get("tools") or [] if tool.get("type") == "function"]
    if tools and not said:
        properties = (tools[0].get("parameters") or {}).get("properties") or {}
        given = {name: ARGUMENTS.get(str(schema.get("type")), "Paris") for name, schema in properties.items()}
        return [solving.call(tools[0]["name"], given)]
    known = next((row[name] for name in ANSWERS if isinstance(row.get(name), str | int | float)), "42")
    return [solving.says(f"The answer is \\boxed{{{known}}}.")]


def give_up(row: solving.Row, said: solving.Items, prompt: solving.Items) -> solving.Items:
    return [solving.says("I do not know.")]


class Model:
    """A model with the Responses API that plays `moves` for one row at a time."""

    def __init__(self) -> None:
        self.row: solving.Row = {}
        self.moves: Any = guess
        self.prompt = 0

    def play(self, row: solving.Row, moves: Any) -> None:
        self.row, self.moves, self.prompt = row, moves, 0

    async def answer(self, request: web.Request) -> web.Response:
        items = (await request.json())["input"]
        items = items if isinstance(items, list) else [{"role": "user", "content": items}]
        self.prompt = self.prompt or len(items)
        body = {
            "id": "resp_1",
            "object": "response",
            "created_at": 1.0,
            "model": "scripted",
            "status": "completed",
            "output": self.moves(self.row, items[self.prompt :], items[: self.prompt]),
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": 7,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": 5,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 12,
            },
        }
        return web.json_response(body)


@contextmanager
def their_agent(name: str, environment: str, model_port: int) -> Iterator[str]:
    port, script = free_port(), Path(__file__).with_name("real_agent.py")
    with child([PYTHON, script, PACKAGES, port, name, environment.rpartition(":")[2], model_port], port):
        yield f"http://127.0.0.1:{port}"


def theirs(url: str, row: solving.Row) -> float | None:
    """Return the reward of NeMo Gym's agent; None if it fails, or masks the sample, for example without its judge."""
    request = urllib.request.Request(f"{url}/run", json.dumps(row).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE) as reply:
            body = json.load(reply)
    except urllib.error.HTTPError:
        return None
    return None if body.get("mask_sample") else float(body["reward"])


async def ours(server: HttpResourceServer, row: solving.Row, moves: Any) -> float | None:
    try:
        last = (await attempt(server, row, moves))[-1]
    except GymError:
        return None
    return last.reward if isinstance(last, Verification) else None


async def compare(name: str) -> list[tuple[float | None, float | None]]:
    """Return the rewards of their agent and of our loop."""
    model, port = Model(), free_port()
    app = web.Application(client_max_size=2**26)
    app.router.add_post("/v1/responses", model.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    outbound, found = loopback(), []
    with running(name) as url, their_agent(name, url, port) as agent:
        caller = Caller(outbound, name=name, base_url=url, call_timeout=120.0, max_tries=1)
        server = HttpResourceServer(caller, verify_timeout=120.0)
        for row in rows_of(name)[:ROWS]:
            for moves in (guess, give_up):
                model.play(row, moves)
                told = await asyncio.to_thread(theirs, agent, row)
                found.append((told, await ours(server, row, moves)))
    await outbound.close()
    await runner.cleanup()
    return found


@pytest.mark.parametrize("name", SERVERS)
def test_each_reward_equals_that_of_their_agent(name: str) -> None:
    found = asyncio.run(compare(name))
    assert [told for told, _ in found] == [own for _, own in found]
    assert any(told is not None for told, _ in found)
