"""Real command line agents with a scripted model: each solves a file task with two calls and one tool result.

They are left out by name where they are not installed: see scripts/fetch_command_agents.py.
"""

import hashlib
import json
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from gymweb_client import AsyncGymWeb

from apps.gym.boxes.command_presets import PRESETS
from apps.gym.capture.capture_server import WIRES
from apps.gym.traces.canonical_items import item_digest, message_texts
from apps.gym.traces.items import call_arguments
from scripts.fetch_command_agents import cache_folder, find_missing
from tests.capture.test_command_agents import rollouts, run_one, trace
from tests.clients.site import Site
from tests.gym.sandbox.needing import needs_sandbox
from tests.rollouts.work import serve_chat

pytestmark = [pytest.mark.slow, needs_sandbox]
WIRE_PATHS = {"claude-code": "v1/messages", "codex": "v1/responses"}
SESSIONS = {"claude-code": '"$HOME"/.claude/projects/*/*.jsonl', "codex": ".codex/sessions/*/*/*/*.jsonl"}
CALLS = {
    "claude-code": ("Write", {"file_path": "/work/answer.txt", "content": "4"}),
    "codex": ("exec_command", {"cmd": "printf 4 > answer.txt"}),
}


def find_problem(name: str) -> str:
    """Why a preset cannot be tested here; empty if it can."""
    missing = find_missing(PRESETS[name].package)
    return missing or ("" if WIRE_PATHS[name] in WIRES else f"the capture server has no /{WIRE_PATHS[name]}")


def named(reasons: dict[str, str]) -> list[Any]:
    """The names as parameters, those with a reason left out by name."""
    return [
        pytest.param(name, marks=[pytest.mark.skipif(bool(why), reason=f"SKIPPED by name: {name}: {why}")])
        for name, why in reasons.items()
    ]


def presets() -> list[Any]:
    return named({name: find_problem(name) for name in PRESETS})


def call_tool(tool: str, arguments: Any, call_id: str) -> dict[str, Any]:
    """The delta of a reply that calls a tool."""
    function = {"name": tool, "arguments": json.dumps(arguments)}
    return {"tool_calls": [{"index": 0, "id": call_id, "type": "function", "function": function}]}


def solve(name: str) -> Callable[[list[Any]], dict[str, Any]]:
    """Write the file, then end."""

    def reply(messages: list[Any]) -> dict[str, Any]:
        is_done = any(one["role"] == "tool" for one in messages)
        return {"content": "The file is written."} if is_done else call_tool(*CALLS[name], "call_1")

    return reply


def delegate(messages: list[Any]) -> dict[str, Any]:
    """Start a subagent, which calls a tool, and write the file meanwhile."""
    done = sum(one["role"] == "tool" for one in messages)
    if any("SUBTASK-7" in json.dumps(one) for one in messages if one["role"] == "user"):
        seven = {"command": "echo seven", "description": "Say seven"}
        return {"content": "Seven."} if done else call_tool("Bash", seven, "call_sub")
    task = {"description": "Count", "prompt": "SUBTASK-7: count to seven", "subagent_type": "general-purpose"}
    told = [call_tool("Agent", task, "call_1"), call_tool(*CALLS["claude-code"], "call_2")]
    return told[done] if done < len(told) else {"content": "The file is written."}


def token_ids(messages: list[Any], delta: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of a chunk and of its choice: an ID for the role of each message and three for its content."""

    def content_ids(message: dict[str, Any]) -> list[int]:
        content = message.get("content") or ""
        text = content if isinstance(content, str) else "".join(str(part.get("text")) for part in content)
        calls = [(one["id"], one["function"]) for one in message.get("tool_calls", ())]
        called = [(call_id, one["name"], json.loads(one["arguments"])) for call_id, one in calls]
        digest = hashlib.sha256(json.dumps([text, called], sort_keys=True).encode()).digest()
        return [10 + int.from_bytes(digest[place : place + 2]) for place in (0, 2, 4)]

    roles = ["system", "developer", "user", "tool", "assistant"]
    prompt = [one for message in messages for one in (roles.index(message["role"]), *content_ids(message))]
    sampled = content_ids(delta)
    logprobs = {"content": [{"token": "x", "logprob": -0.5} for _ in sampled]}
    return {"prompt_token_ids": [*prompt, roles.index("assistant")]}, {"token_ids": sampled, "logprobs": logprobs}


@asynccontextmanager
async def scripted_model(reply: Callable[[list[Any]], dict[str, Any]], asked: list[Any]) -> AsyncIterator[str]:
    """A model that streams the delta that `reply` gives for the messages. `asked` gets each request.

    The delta may contain the usage. If the request asks for token IDs, equal messages have equal IDs.
    """

    async def answer(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        asked.append(body)
        delta = dict(reply(body["messages"]))
        usage = delta.pop("usage", {"prompt_tokens": 20, "completion_tokens": 5})
        prompt, sampled = token_ids(body["messages"], delta) if body.get("return_token_ids") else ({}, {})
        if prompt:
            counts = len(prompt["prompt_token_ids"]), len(sampled["token_ids"])
            usage = {"prompt_tokens": counts[0], "completion_tokens": counts[1]}
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        ends = {"index": 0, "delta": {}, "finish_reason": "tool_calls" if "tool_calls" in delta else "stop"}
        for chunk in (
            {
                "choices": [{"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": None, **sampled}],
                **prompt,
            },
            {"choices": [ends]},
            {"choices": [], "usage": usage},
        ):
            line = json.dumps({"id": f"c{len(asked)}", "model": "scripted", "object": "chat.completion.chunk", **chunk})
            await response.write(f"data: {line}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
        return response

    runner, port = await serve_chat(answer)
    try:
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        await runner.cleanup()


def agent_of(name: str) -> dict[str, Any]:
    """The agent of a preset. It keeps its session file as an artifact."""
    settings = msgspec.to_builtins(PRESETS[name].spec)
    keep = f'"$@" && cat {SESSIONS[name]} > session.jsonl'
    settings |= {
        "command": ["sh", "-c", keep, "sh", *settings["command"]],
        "mounts": [str(cache_folder())],
        "answer_file": "answer.txt",
        "artifacts": ["session.jsonl"],
    }
    return {"kind": "command", "command_settings": settings}


def events_of(events: list[Any], kind: str) -> list[Any]:
    return [event["event"] for event in events if event["kind"] == kind]


def told(call: dict[str, Any]) -> Any:
    """What a reply says, which tools it calls and what it cost."""
    texts = [text for item in call["items"] for text in message_texts(item)]
    calls = [(item["name"], call_arguments(item)) for item in call["items"] if item["type"] == "function_call"]
    return texts, calls, call["finish_reason"], call["usage"]["input_tokens"], call["usage"]["output_tokens"]


def request_of(name: str, items: list[Any]) -> Any:
    """The items of a first request, without what the agent does not write to its session file."""
    first, *rest = items
    if name == "codex":  # It writes all instructions of the model, and sends those for its tools.
        return "".join(message_texts(first))[:1000], [item_digest(item) for item in rest]
    texts = [text for text in message_texts(first) if not text.startswith("x-anthropic-billing-header")]
    return texts, [item_digest(item) for item in rest]


async def import_session(gym: AsyncGymWeb, session: str, folder: Path) -> list[Any]:
    """The trace of an imported session file."""
    path, name = folder / "session.jsonl", f"session-{uuid.uuid4().hex[:8]}"
    path.write_text(session)
    await gym.request("POST", "datasets/", {"slug": name, "name": name, "environment": "exact_match"})
    collection = (await gym.import_rollouts(name, [path], agent="default"))["collection"]["id"]
    (row,) = await rollouts(gym, collection)
    return await trace(gym, row["id"])


@pytest.mark.parametrize("name", presets())
async def test_a_preset_solves_a_file_task_with_two_calls(agents_site: Site, name: str, tmp_path: Path) -> None:
    asked: list[Any] = []
    async with AsyncGymWeb(agents_site.base, agents_site.key) as gym, scripted_model(solve(name), asked) as url:
        row = await run_one(gym, agents_site, agent_of(name), model={"base_url": url})
        assert (row["status"], row["reward"], row["turns"]) == ("completed", 1.0, 2), row["error_message"]
        events = await trace(gym, row["id"])
        (end,) = events_of(events, "agent_end")
        stored = await import_session(gym, end["artifacts"]["session.jsonl"], tmp_path)
    calls = events_of(events, "model_call")
    assert [call.get("parent", 0) for call in calls] == [0, 1]
    outputs = [item for item in calls[1]["items_in"] if item.get("type") == "function_call_output"]
    assert [item["call_id"] for item in outputs] == [
        item["call_id"] for item in calls[0]["items"] if item["type"] == "function_call"
    ]
    assert len(asked) == 2
    # The session file of the agent tells the same.
    imported = events_of(stored, "model_call")
    assert [told(call) for call in imported] == [told(call) for call in calls]
    results = [(each["call_id"], each["output"]) for each in events_of(stored, "tool_result")]
    assert results == [(item["call_id"], item["output"]) for item in outputs]
    (prompt,) = events_of(stored, "prompt")
    assert request_of(name, prompt["items"]) == request_of(name, calls[0]["items_in"])
    (session,) = events_of(stored, "session")
    assert session.get("tools", []) == ([] if name == "codex" else calls[0]["tools_in"])


@pytest.mark.parametrize("name", [one for one in presets() if one.values == ("claude-code",)])
async def test_a_subagent_of_claude_code_is_a_lineage(agents_site: Site, name: str, tmp_path: Path) -> None:
    async with AsyncGymWeb(agents_site.base, agents_site.key) as gym, scripted_model(delegate, []) as url:
        row = await run_one(gym, agents_site, agent_of(name), model={"base_url": url})
        assert (row["status"], row["reward"]) == ("completed", 1.0), row["error_message"]
        calls = events_of(await trace(gym, row["id"]), "model_call")
    roots = [
        (call["root_reason"], call["lineage"], call.get("spawned_by", 0)) for call in calls if "parent" not in call
    ]
    assert roots == [("first", 1, 0), ("subagent", 2, 1)]
    assert sum(call["lineage"] == 2 for call in calls) == 2


@pytest.mark.parametrize("name", [one for one in presets() if one.values == ("codex",)])
async def test_codex_calls_the_tools_of_the_environment(agents_site: Site, name: str) -> None:
    def reply(messages: list[Any]) -> dict[str, Any]:
        is_done = any(one["role"] == "tool" for one in messages)
        compute = call_tool("mcp__gymweb__calculator", {"expression": "2 + 2"}, "call_1")
        return {"content": "The answer is \\boxed{4}."} if is_done else compute

    settings = msgspec.to_builtins(PRESETS[name].spec) | {"mounts": [str(cache_folder())]}
    settings["files"][".codex/config.toml"] += '\n[mcp_servers.gymweb]\nurl = "{mcp_url}"\n'
    agent = {"kind": "command", "command_settings": settings}
    asked: list[Any] = []
    async with AsyncGymWeb(agents_site.base, agents_site.key) as gym, scripted_model(reply, asked) as url:
        row = await run_one(gym, agents_site, agent, model={"base_url": url}, environment="calculator")
        assert (row["status"], row["reward"], row["turns"]) == ("completed", 1.0, 2), row["error_message"]
        events = await trace(gym, row["id"])
    assert "mcp__gymweb__calculator" in [tool["function"]["name"] for tool in asked[0]["tools"]]
    assert [call.get("parent", 0) for call in events_of(events, "model_call")] == [0, 1]
    (result,) = events_of(events, "tool_result")
    assert (result["name"], result["call_id"], json.loads(result["output"])) == ("calculator", "call_1", {"result": 4})
