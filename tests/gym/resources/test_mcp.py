"""A real MCP server of the official package, over both transports."""

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from aiohttp import web

from apps.gym.calls.memory_budget import MemoryBudget
from apps.gym.calls.outbound import Outbound
from apps.gym.calls.outbound_policy import OutboundPolicy
from apps.gym.calls.retries import Pauses
from apps.gym.errors import EnvironmentFault, TimedOut, VerifierError
from apps.gym.loop.agent_loop import Attempt, Harness
from apps.gym.resources.mcp import McpServer
from apps.gym.resources.mcp_client import Command, usual_name
from apps.gym.resources.own_verifier import UnverifiedServer
from apps.gym.resources.protocol import ToolOutput
from apps.gym.traces.events import ModelCall, ToolResult
from apps.gym.traces.graph import TraceGraph
from tests.deadlines import wait_until
from tests.images import png_url
from tests.nemo_gym.attempts import attempt
from tests.nemo_gym.solving import Solver, call, says
from tests.walk.processes import process

LAB = Path(__file__).with_name("mcp_lab.py")
ROW = {"responses_create_params": {"input": "What is 2 + 3?"}}
TOOLS = ["add", "take_marble", "look_up_word", "sleep", "environment", "fall", "shout", "draw", "process", "grow"]
TOOLS += ["shrink", "hide"]


@pytest.fixture(scope="module")
def url():
    with process(LAB, "http", "PORT") as port:
        yield f"http://127.0.0.1:{port}/mcp"


@pytest.fixture(params=["http", "stdio"])
def way(request, url):
    """How to reach the server: the same tests over both transports."""
    if request.param == "http":
        return {"url": url}
    return {"command": Command([sys.executable, str(LAB), "stdio"])}


def with_server(doing, **options):
    """What `doing(server)` gives."""

    async def run():
        outbound = Outbound(OutboundPolicy(options.pop("allow", ["127.0.0.1"])))
        given = {"call_timeout": 10.0, "max_tries": 2, "pauses": Pauses(first=0.001), **options}
        try:
            return await doing(McpServer(outbound, name="lab", **given))
        finally:
            await outbound.close()

    return asyncio.run(run())


def in_session(doing, row=ROW, **options):
    async def run(server):
        session = await server.seed_session(row, seed=1)
        try:
            await session.list_tools()
            return await doing(session)
        finally:
            await session.close()

    return with_server(run, **options)


def calling(name, arguments=None):
    async def doing(session):
        return await session.call_tool(name, arguments or {})

    return doing


def test_its_tools_are_listed_in_the_shapes_that_models_take(way):
    async def listed(session):
        return await session.list_tools()

    tools = in_session(listed, **way)
    assert [tool["name"] for tool in tools] == TOOLS
    assert tools[0]["description"] == "Add two whole numbers."
    assert tools[0]["parameters"]["required"] == ["a", "b"]
    assert {tool["type"] for tool in tools} == {"function"}


def test_a_tool_is_called_and_its_text_is_the_output(way):
    assert in_session(calling("add", {"a": 2, "b": 3}), **way) == ToolOutput(text="5")


def test_integers_beyond_64_bits_reach_a_tool_unchanged(way):
    async def doing(session):
        return await session.call_tool("add", session.read_arguments(f'{{"a": {2**64}, "b": 1}}'))

    assert in_session(doing, **way) == ToolOutput(text=str(2**64 + 1))


def test_images_of_a_tool_are_parts_of_its_output(way):
    output = in_session(calling("draw"), **way)
    parts = [{"type": "input_text", "text": "A dot:"}, {"type": "input_image", "image_url": png_url()}]
    assert output == ToolOutput(text="A dot:", parts=parts)
    assert output.output == parts


def test_errors_of_a_tool_reach_the_model(way):
    wrong = in_session(calling("add", {"a": "two"}), **way)
    assert wrong.error == "tool_error"
    assert "Field required" in wrong.text
    raised = in_session(calling("look_up_word", {"word": "gym"}), **way)
    assert raised == ToolOutput(text="Error executing tool look.up/word", error="tool_error")


def test_a_tool_that_the_server_does_not_have_is_not_asked_for(way):
    output = in_session(calling("format_disk"), **way)
    assert output == ToolOutput(text='{"error": "there is no tool named \'format_disk\'"}', error="unknown_tool")


def test_a_tool_that_takes_too_long_is_an_output(way):
    output = in_session(calling("sleep", {"seconds": 600}), call_timeout=5.0, **way)
    assert output == ToolOutput(text='{"error": "the tool gave no result within 5 s"}', error="timeout")


def test_an_output_that_no_model_reads_is_a_tool_error(way):
    output = in_session(calling("shout"), **way)
    assert output.error == "too_large"


def test_an_oversized_http_reply_is_a_tool_error(url, monkeypatch):
    async def doing(session):
        with monkeypatch.context() as patched:
            patched.setattr(MemoryBudget, "largest_reply", 100_000)
            large = await session.call_tool("shout", {})
        return large, await session.call_tool("add", {"a": 2, "b": 3})

    observed = []
    large, after = in_session(doing, url=url, observe=lambda outcome, said="": observed.append(outcome))
    assert large == ToolOutput(text='{"error": "the tool\'s result is larger than 100,000 bytes"}', error="too_large")
    assert after == ToolOutput(text="5")
    assert set(observed) == {"ok"}


def test_a_server_that_repeats_its_pages_has_each_tool_once(way):
    async def names(session):
        return [tool["name"] for tool in await session.list_tools()]

    expected = in_session(names, **way)
    repeating = {"command": Command([sys.executable, str(LAB), "stdio", "repeat"])}
    assert in_session(names, **repeating) == expected
    assert len(expected) == len(set(expected))
    assert in_session(calling("add", {"a": 2, "b": 3}), **repeating) == ToolOutput(text="5")


def test_a_call_without_a_list_before_it_knows_the_names_all_the_same(way):
    async def run(server):
        session = await server.seed_session({"responses_create_params": {"input": "hi", "tools": []}}, seed=1)
        try:
            return await session.call_tool("look_up_word", {"word": "gym"})
        finally:
            await session.close()

    assert with_server(run, **way) == ToolOutput(text="Error executing tool look.up/word", error="tool_error")


@pytest.fixture(params=["http", "stdio"])
def own_way(request):
    """A server that no other test shares, because `grow` changes its tools."""
    if request.param == "stdio":
        yield {"command": Command([sys.executable, str(LAB), "stdio"])}
        return
    with process(LAB, "http", "PORT") as port:
        yield {"url": f"http://127.0.0.1:{port}/mcp"}


BROKEN = {
    "text_for_integer": ["seven marbles", "'seven' is not of type 'integer'"],
    "missing_member": ["no marbles", "'count' is a required property"],
    "no_structure": ["some marbles", "did not return structured content"],
    "no_text": ["'eight' is not of type 'integer'"],
    "bad_schema": ["one marble", "Invalid schema for tool bad_schema"],
    "unresolved": ["two marbles", "Invalid schema for tool unresolved"],
    "endless": ["three marbles", "recursion"],
}


def test_a_result_that_breaks_its_output_schema_is_a_tool_error_with_its_text(own_way):
    async def call_broken(session):
        await session.call_tool("grow", {})
        return {name: await session.call_tool(name, {}) for name in BROKEN}, await session.call_tool("process", {})

    observed = []
    outputs, after = in_session(call_broken, observe=lambda outcome, said="": observed.append(outcome), **own_way)
    assert {output.error for output in outputs.values()} == {"tool_error"}
    for name, lines in BROKEN.items():
        given = outputs[name].text.splitlines()
        assert len(given) == len(lines)
        assert [told in line for told, line in zip(lines, given, strict=True)] == [True] * len(lines)
    assert after.error == ""
    assert set(observed) == {"ok"}


def test_tools_that_the_server_adds_are_known_and_the_others_keep_their_names(own_way):
    async def grow(session):
        calls = [("grown_later", {}), ("grow", {}), ("grown_later", {}), ("look_up_word_2", {})]
        outputs = [await session.call_tool(*call) for call in calls]
        old = await session.call_tool("look_up_word", {"word": "gym"})
        return outputs, old, [tool["name"] for tool in await session.list_tools()]

    outputs, old, names = in_session(grow, **own_way)
    assert [(output.text[:7], output.error) for output in outputs] == [
        ('{"error', "unknown_tool"),
        ("there a", ""),
        ("grown", ""),
        ("another", ""),
    ]
    assert old.text == "Error executing tool look.up/word"
    assert names == [*TOOLS, *BROKEN, "grown_later", "look_up_word_2"]


def test_the_loop_drives_it(way):
    def moves(row, said, prompt):
        done = [item["output"] for item in said if item.get("type") == "function_call_output"]
        return [says(f"It is {done[0]}.")] if done else [call("mcp__lab__add", {"a": 2, "b": 3}), call("add", {}, 2)]

    async def run(server):
        return await attempt(UnverifiedServer(server), ROW, moves)

    trace = with_server(run, **way)
    results = [event for event in trace if isinstance(event, ToolResult)]
    assert [(event.output[:1], event.error) for event in results] == [("5", ""), ("E", "tool_error")]
    assert [tool["name"] for tool in trace[0].tools] == TOOLS
    assert (trace[-1].reward, trace[-1].stop_reason) == (None, "answered")


def drive(way, *calls):
    """Return the trace of an attempt that makes these calls one after another, and the tool names of each ask."""
    asked = []

    class Asked(Solver):
        async def ask(self, ask):
            asked.append([tool["name"] for tool in ask.tools])
            return await super().ask(ask)

    def moves(row, said, prompt):
        done = sum(item["type"] == "function_call_output" for item in said)
        return [call(calls[done], {}, done)] if done < len(calls) else [says("Done.")]

    async def run(server):
        driver = Attempt(
            row=ROW,
            server=UnverifiedServer(server),
            policy=Asked(ROW, moves),
            harness=Harness(),
            seed=1,
            elapsed=lambda: 0.0,
        )
        return [event async for event in driver.events()]

    return with_server(run, **way), asked


def test_each_model_call_is_offered_the_tools_of_its_time(own_way):
    trace, asked = drive(own_way, "process", "grow", "grown_later", "shrink", "take_marble")
    grown = [*TOOLS, *BROKEN, "grown_later", "look_up_word_2"]
    left = [name for name in grown if name != "take_marble"]
    assert asked == [TOOLS, TOOLS, grown, grown, left, left]
    calls = [event for event in trace if isinstance(event, ModelCall)]
    recorded = [event.tools_in and [tool["name"] for tool in event.tools_in] for event in calls]
    assert recorded == [None, None, grown, None, left, None]
    assert [tool["name"] for tool in trace[0].tools] == TOOLS
    graph = TraceGraph(trace)
    assert [[tool["name"] for tool in graph.tools(number)] for number in graph.calls] == asked
    errors = [event.error for event in trace if isinstance(event, ToolResult)]
    assert errors[:4] == ["", "", "", ""]
    assert errors[4] != ""


def test_a_server_that_no_longer_lists_its_tools_fails_the_attempt(own_way):
    with pytest.raises(EnvironmentFault, match="the list is lost"):
        drive(own_way, "hide", "process")


def test_a_list_of_tools_in_the_row_is_all_that_the_model_is_shown(way):
    async def listed(session):
        return await session.list_tools()

    row = {"responses_create_params": {"input": "hi", "tools": []}}
    assert in_session(listed, row=row, **way) == []


def test_without_a_configured_verifier_verification_is_refused(way):
    async def verify(session):
        return await session.verify({"output": []})

    with pytest.raises(VerifierError, match="an MCP server has no verifier: configure one"):
        in_session(verify, **way)


def test_many_attempts_have_a_connection_each(way):
    async def run(server):
        sessions = await asyncio.gather(*(server.seed_session(ROW, seed=1) for _ in range(4)))
        outputs = await asyncio.gather(
            *(session.call_tool("add", {"a": n, "b": n}) for n, session in enumerate(sessions))
        )
        await asyncio.gather(*(session.close() for session in sessions))
        return [output.text for output in outputs]

    assert with_server(run, **way) == ["0", "2", "4", "6"]


def test_the_health_check_names_the_tools(way):
    async def probe(server):
        return await server.probe()

    probe_result = with_server(probe, **way)
    assert probe_result.healthy is True
    assert probe_result.message.startswith(f"reachable; {len(TOOLS)} tools over MCP 20")
    assert [tool["name"] for tool in probe_result.found["tools"]] == TOOLS


STDIO = {"command": Command([sys.executable, str(LAB), "stdio"], {"LAB_KEY": "secret"})}


def test_each_attempt_has_a_process_whose_state_is_its_own():
    taking = calling("take_marble")
    assert [in_session(taking, **STDIO).text for _ in range(2)] == ["1 taken", "1 taken"]


def test_a_process_knows_nothing_of_our_environment_but_what_it_is_given(monkeypatch):
    monkeypatch.setenv("GYMWEB_SECRET_KEY", "not for tools")
    names = in_session(calling("environment"), **STDIO).text.split()
    assert ("LAB_KEY" in names, "PATH" in names) == (True, True)
    assert [name for name in names if name.startswith("GYMWEB")] == []


def test_a_process_that_falls_is_a_fault_that_quotes_its_last_words():
    with pytest.raises(EnvironmentFault, match=r"^lab: .*it said: the lab is on fire$") as fallen:
        in_session(calling("fall"), **STDIO)
    assert fallen.value.transient is True


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["/nonexistent/server"], "No such file or directory"),
        ([sys.executable, "-c", "import sys; sys.exit('not today')"], "not today"),
    ],
)
def test_a_command_that_does_not_start_a_server_is_a_fault_that_says_why(words, told):
    with pytest.raises(EnvironmentFault, match=told):
        in_session(calling("add"), command=Command(words))

    async def probe(server):
        return await server.probe()

    found = with_server(probe, command=Command(words))
    assert (found.healthy, told in found.message) == (False, True)


def test_a_process_that_says_nothing_is_given_up_and_ended():
    silent = Command([sys.executable, "-c", "import time; time.sleep(3600)"])
    with pytest.raises((TimedOut, EnvironmentFault), match=r"^lab: "):
        in_session(calling("add"), command=silent, call_timeout=0.5, connect_timeout=0.5, max_tries=1)


PREACHING = """
import os, sys
part = sys.argv[1].encode() * 1000
while True:
    os.write(int(sys.argv[2]), part)
"""


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("no message\n", "more than 5,000 unexpected lines"),
        ('{"jsonrpc": "2.0", "method": "notifications/message", "params": {}}\n', "unexpected lines and was stopped"),
        ("endless", "a line of more than 16,777,216 bytes"),
    ],
)
def test_a_process_that_writes_endlessly_is_killed(line, told, caplog):
    command = Command([sys.executable, "-c", PREACHING, line, "1"])
    with pytest.raises(EnvironmentFault, match=told):
        in_session(calling("add"), command=command, max_tries=1)
    assert sum(len(record.getMessage()) for record in caplog.records) < 10_000


def test_an_error_output_without_end_is_neither_kept_nor_in_the_way_of_others():
    command = Command([sys.executable, "-c", PREACHING, "noise\n", "2"])

    async def while_it_preaches(server):
        ticks = 0
        seeding = asyncio.create_task(server.seed_session(ROW, seed=1))
        while not seeding.done():
            await asyncio.sleep(0.01)
            ticks += 1
        with pytest.raises((TimedOut, EnvironmentFault)) as caught:
            await seeding
        return ticks, str(caught.value)

    ticks, told = with_server(while_it_preaches, command=command, call_timeout=1.0, connect_timeout=0.5, max_tries=1)
    # A loop that is busy with the error output turns once or twice.
    assert (ticks > 5, len(told) < 2_000) == (True, True)


def test_the_last_words_of_a_process_are_more_than_its_last_line():
    told = "cannot start:\n  no such table\n  hint: migrate first"
    with pytest.raises(EnvironmentFault) as caught:
        in_session(calling("add"), command=Command([sys.executable, "-c", f"import sys; sys.exit({told!r})"]))
    assert told in str(caught.value)


def test_a_server_that_is_not_there_is_a_fault_after_its_tries():
    heard = []
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        gone = f"http://127.0.0.1:{closed.getsockname()[1]}/mcp"
        with pytest.raises(EnvironmentFault, match=gone):
            in_session(calling("add"), url=gone, observe=lambda outcome, message="": heard.append(outcome))
    assert heard == ["unreachable", "unreachable"]


def test_an_address_that_is_not_allowed_is_refused_by_the_guard(url):
    with pytest.raises(EnvironmentFault, match="GYMWEB_OUTBOUND_ALLOW") as refused:
        in_session(calling("add"), url=url, allow=[])
    assert refused.value.transient is False


def test_a_redirect_to_a_forbidden_address_is_not_followed():
    async def run():
        async def lead_away(request):
            return web.Response(status=307, headers={"Location": "http://169.254.169.254/latest/meta-data/"})

        app = web.Application()
        app.router.add_route("*", "/mcp", lead_away)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        outbound = Outbound(OutboundPolicy(["127.0.0.1"]))
        address = f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
        try:
            await McpServer(outbound, name="lab", url=address, call_timeout=120.0, max_tries=3).seed_session(
                ROW, seed=1
            )
        finally:
            await outbound.close()
            await runner.cleanup()

    with pytest.raises(EnvironmentFault, match="cloud metadata address") as refused:
        asyncio.run(run())
    assert refused.value.transient is False


@pytest.mark.parametrize("status", [401, 404])
def test_a_server_that_refuses_access_is_a_permanent_error(status):
    async def run():
        async def refuse(request):
            return web.Response(status=status, text="go away")

        app = web.Application()
        app.router.add_route("*", "/mcp", refuse)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        outbound = Outbound(OutboundPolicy(["127.0.0.1"]))
        address = f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
        try:
            server = McpServer(outbound, name="lab", url=address, call_timeout=120.0, max_tries=3)
            await server.seed_session(ROW, seed=1)
        finally:
            await outbound.close()
            await runner.cleanup()

    with pytest.raises(EnvironmentFault, match=f"lab: it returned {status}: go away") as refused:
        asyncio.run(run())
    assert refused.value.transient is False


def test_names_that_become_one_are_told_apart():
    taken = {}
    for name in ("a.b", "a/b", "a_b", "x" * 80, "x" * 90):
        taken[usual_name(name, taken)] = name
    assert list(taken) == ["a_b", "a_b_2", "a_b_3", "x" * 64, "x" * 62 + "_2"]


def test_a_process_ends_with_its_attempt_and_its_parent(tmp_path):
    async def pid_of(session):
        return int((await session.call_tool("process", {})).text)

    pid = in_session(pid_of, **STDIO)
    assert not _runs(pid)
    # Whoever started it is killed: nothing is left that could say goodbye.
    told = tmp_path / "pid"
    with subprocess.Popen([sys.executable, "-c", ORPHANING, str(LAB), str(told)], cwd=LAB.parents[3]) as child:
        try:
            wait_until(lambda: told.exists() and told.read_text() != "")
            pid = int(told.read_text())
            assert _runs(pid)
        finally:
            child.kill()
    wait_until(lambda: not _runs(pid))


ORPHANING = """
import asyncio, sys
from pathlib import Path
from apps.gym.calls.outbound_policy import OutboundPolicy
from apps.gym.calls.outbound import Outbound
from apps.gym.resources.mcp import McpServer
from apps.gym.resources.mcp_client import Command
from apps.gym.resources.own_verifier import UnverifiedServer

async def main():
    command = Command([sys.executable, sys.argv[1], "stdio"])
    server = McpServer(Outbound(OutboundPolicy()), name="lab", command=command, call_timeout=600, max_tries=1)
    session = await server.seed_session({"responses_create_params": {"input": "hi"}}, seed=1)
    Path(sys.argv[2]).write_text((await session.call_tool("process", {})).text)
    await asyncio.sleep(3600)

asyncio.run(main())
"""


def _runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
