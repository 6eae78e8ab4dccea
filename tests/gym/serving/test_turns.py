"""Environments that answer replies are served as Gymnasium has it."""

import asyncio
import json

import pytest

from apps.gym.resources.gymnasium import GymnasiumServer
from apps.gym.resources.inprocess import InProcessServer
from apps.gym.resources.server_calls import Caller
from apps.gym.serving import served_turns
from apps.gym.serving.served_environment import serve_environment
from apps.gym.serving.served_request import IncomingRequest, Refused
from tests.gym.serving.ports import on_a_port
from tests.gym.verifiers.replies import calls, says

ROW = {
    "responses_create_params": {"input": "Play."},
    "board": ["######", "#@$ .#", "######"],
    "max_moves": 8,
}


async def serve():
    server = InProcessServer("sokoban", name="sokoban")
    return await serve_environment(server, most_sessions=10, session_seconds=60.0)


async def post(served, path, body, session=""):
    answer = await served.answer(
        IncomingRequest(method="POST", path=path, body=json.dumps(body).encode(), session=session)
    )
    return json.loads(answer.body), answer.session


def step(*output):
    return {**ROW, "response": {"output": list(output)}}


def test_an_attempt_is_opened_stepped_and_rewarded_at_its_end():
    async def play():
        served = await serve()
        opened, session = await post(served, "reset", ROW)
        first, session = await post(served, "step", step(says("Moves: right")), session)
        last, session = await post(served, "step", step(says("Moves: right")), session)
        again, _ = await post(served, "step", step(says("Moves: left")), session)
        closed, _ = await post(served, "close", {}, session)
        return opened, first, last, again, closed, len(served.sessions)

    opened, first, last, again, closed, left = asyncio.run(play())
    assert opened == {
        "observation": "```\n######\n#@$ .#\n######\n```\n\nMoves left: 8.",
        "info": {"supports_explicit_close": True},
    }
    assert (first["reward"], first["terminated"], first["truncated"]) == (0.0, False, False)
    assert first["observation"].startswith("```\n######\n# @$.#")
    assert (last["reward"], last["terminated"], last["truncated"]) == (1.0, True, False)
    assert last["info"]["reward_components"] == {"solved": 1.0, "boxes_home": 1.0}
    assert again == last
    assert (closed, left) == ({}, 0)


def test_an_attempt_that_goes_on_for_too_long_is_truncated(monkeypatch):
    monkeypatch.setattr(served_turns, "MOST_STEPS", 2)

    async def play(told):
        served = await serve()
        _, session = await post(served, "reset", ROW)
        await post(served, "step", step(says(told)), session)
        return (await post(served, "step", step(says("Moves: left")), session))[0]

    last = asyncio.run(play("Moves: left"))
    assert (last["reward"], last["terminated"], last["truncated"]) == (0.0, False, True)
    monkeypatch.setattr(served_turns, "MOST_STEPS", 1_000)
    monkeypatch.setattr(served_turns, "MOST_CHARACTERS", 5_000)
    assert asyncio.run(play("Moves: left"))["truncated"] is False
    assert asyncio.run(play("Moves: left" + " " * 5_000))["truncated"] is True


def test_a_call_in_a_game_without_tools_is_answered_as_unknown():
    async def play():
        served = await serve()
        _, session = await post(served, "reset", ROW)
        return await post(served, "step", step(calls("push")), session)

    told, _ = asyncio.run(play())
    [output] = told["info"]["tool_outputs"]
    assert (output["type"], output["call_id"]) == ("function_call_output", "c1")
    assert "there is no tool named 'push'" in output["output"]


def test_two_calls_with_one_id_have_two_outputs():
    async def play():
        served = await serve()
        _, session = await post(served, "reset", ROW)
        return await post(served, "step", step(calls("push", call_id="x"), calls("pull", call_id="x")), session)

    told, _ = asyncio.run(play())
    first, second = told["info"]["tool_outputs"]
    assert (first["call_id"], second["call_id"]) == ("x", "x")
    assert "'push'" in first["output"] and "'pull'" in second["output"]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("step", step(says("Moves: right")), 400),
        ("step", ROW, 422),
        ("reset", {}, 422),
    ],
)
def test_what_cannot_be_answered_is_refused(path, body, status):
    async def ask():
        await post(await serve(), path, body)

    with pytest.raises(Refused) as refusal:
        asyncio.run(ask())
    assert refusal.value.status == status


def test_its_document_names_the_routes_that_the_adapter_for_gymnasium_servers_looks_for():
    async def look():
        served = await serve()
        async with on_a_port(served) as (port, outbound):
            url = f"http://127.0.0.1:{port}"
            there = GymnasiumServer(Caller(outbound, name="s", base_url=url, call_timeout=120.0, max_tries=1))
            return await there.probe(), served

    probe, served = asyncio.run(look())
    assert (probe.healthy, probe.found["routes"]) == (True, ["aggregate_metrics", "close", "reset", "step"])
    assert served.name == "sokoban"
