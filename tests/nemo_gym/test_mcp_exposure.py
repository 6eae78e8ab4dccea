"""Resource servers that expose their tools over MCP as well: the session that was seeded is the one whose tools act."""

import asyncio

import pytest

from apps.gym.errors import EnvironmentFault
from apps.gym.traces.events import ToolResult
from tests.gym.resources.servers import Answers, serve
from tests.nemo_gym import kinds
from tests.nemo_gym.attempts import attempt, connect, loopback
from tests.nemo_gym.servers import serving
from tests.nemo_gym.solving import call, outputs, says

ROW = {"responses_create_params": {"input": "How is Paris?"}, "verifier_metadata": {"expected_city": "Paris"}}


def drive(moves, row=ROW, kind=kinds.MCP_WEATHER):
    async def run():
        outbound = loopback()
        try:
            async with serving(kind) as server:
                return await attempt(connect(server, outbound), row, moves), server
        finally:
            await outbound.close()

    return asyncio.run(run())


def asks(name, city="Paris"):
    def moves(row, said, prompt):
        done = outputs(said)
        return [says(done[0]["weather"])] if done else [call(name, {"city": city})]

    return moves


@pytest.mark.parametrize("name", ["get_weather", "mcp__example_mcp_weather__get_weather"])
def test_tools_are_listed_and_called_over_mcp_and_the_verifier_reads_their_own_names(name):
    trace, server = drive(asks(name))
    assert [tool["name"] for tool in trace[0].tools] == ["get_weather"]
    assert trace[0].tools[0]["parameters"]["required"] == ["city"]
    assert (trace[-1].reward, trace[-1].details["tool_call_seen"]) == (1.0, True)
    asked = next(body for path, body in server.seen if path == "/verify")
    names = [item["name"] for item in asked["response"]["output"] if item["type"] == "function_call"]
    assert names == ["get_weather"]
    assert [path for path, _ in server.seen] == ["/seed_session", "/verify"]
    assert [word for word in server.spoken if word.startswith("tools/")] == ["tools/list", "tools/call", "tools/list"]


def test_the_mcp_session_is_ended_with_the_attempt():
    _, server = drive(asks("get_weather"))
    assert server.spoken[-1] == "DELETE"


def test_arguments_that_are_wrong_are_told_to_the_model():
    def moves(row, said, prompt):
        return [says("Sunny, 72 F.")] if said else [call("get_weather", {"town": "Paris"})]

    trace, _ = drive(moves)
    result = next(event for event in trace if isinstance(event, ToolResult))
    assert (result.output, result.error, trace[-1].reward) == ("Field required: city", "tool_error", 0.0)


def test_a_row_that_declares_its_tools_has_them_called_over_plain_http():
    tools = [{"type": "function", "name": "get_weather", "parameters": {"type": "object"}}]
    row = {**ROW, "responses_create_params": {"input": "How is Paris?", "tools": tools}}
    trace, server = drive(asks("mcp__example_mcp_weather__get_weather"), row=row)
    assert trace[-1].reward == 1.0
    assert server.spoken == []
    assert ("/get_weather", {"city": "Paris"}) in server.seen


def test_sessions_do_not_meet():
    async def run():
        outbound = loopback()
        try:
            async with serving(kinds.MCP_WEATHER) as server:
                driven = connect(server, outbound)
                rows = [{**ROW, "verifier_metadata": {"expected_city": city}} for city in ("Paris", "Rome")]
                return await asyncio.gather(*(attempt(driven, row, asks("get_weather")) for row in rows))
        finally:
            await outbound.close()

    assert [trace[-1].reward for trace in asyncio.run(run())] == [1.0, 0.0]


@pytest.mark.parametrize("told", [{"url_path": "http://169.254.169.254/"}, {"url_path": 7}])
def test_a_path_that_leads_elsewhere_is_not_followed(told):
    async def run():
        async with serve(Answers(seed_session={"mcp": told})) as server:
            return await attempt(server, ROW, asks("get_weather"))

    with pytest.raises(EnvironmentFault, match="invalid MCP path"):
        asyncio.run(run())
