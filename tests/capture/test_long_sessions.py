"""Sessions of 50 turns of real command line agents, with a subagent and a compaction, against a scripted model.

Every turn of the main conversation continues the turn before, apart from the compaction. They are left out by name
where the agents are not installed: see scripts/fetch_command_agents.py.
"""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest
from gymweb_client import AsyncGymWeb

from apps.gym.boxes.command_presets import PRESETS
from apps.gym.traces.canonical_items import message_texts
from apps.gym.traces.events import decode_event
from apps.gym.traces.graph import TraceGraph
from scripts.fetch_command_agents import cache_folder, find_missing
from tests.capture.session_breaks import describe_breaks, find_breaks
from tests.capture.test_command_agents import run_one, trace
from tests.capture.test_command_examples import EXAMPLES
from tests.capture.test_command_presets import call_tool, named, scripted_model
from tests.clients.site import Site
from tests.gym.sandbox.needing import needs_sandbox

pytestmark = [pytest.mark.slow, needs_sandbox]
TURNS = 50
DELEGATES, IS_FULL = 10, 30
"""Turns: the first starts a subagent. The context is full after the second."""
WINDOW, USED = 40_000, 38_000
SUBTASK = "SUBTASK-7: count to seven"


class Agent(NamedTuple):
    """A command line agent: its package, its shell, how it starts a subagent and how it asks for a summary."""

    package: str
    settings: Callable[[], dict[str, Any]]
    shell: Callable[[str], tuple[str, Any]]
    delegate: tuple[str, Any]
    asks_for_summary: str


def claude_code() -> dict[str, Any]:
    settings: dict[str, Any] = msgspec.to_builtins(PRESETS["claude-code"].spec)
    settings["variables"]["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] = str(WINDOW)
    return settings


def codex() -> dict[str, Any]:
    settings: dict[str, Any] = msgspec.to_builtins(PRESETS["codex"].spec)
    limits = f"model_context_window = {WINDOW}\nmodel_auto_compact_token_limit = {WINDOW - 10_000}\n"
    settings["files"][".codex/config.toml"] = limits + settings["files"][".codex/config.toml"]
    return settings


def opencode() -> dict[str, Any]:
    """The example, but opencode has the model write a title."""
    settings: dict[str, Any] = json.loads((EXAMPLES / "opencode.json").read_text())["command_settings"]
    settings["command"] = [word for word in settings["command"] if word not in ("--title", "gymweb")]
    limit = {"limit": {"context": WINDOW, "output": 8000}}
    config = settings["files"]["opencode.json"]
    settings["files"]["opencode.json"] = config.replace('"{model}": {}', f'"{{model}}": {json.dumps(limit)}')
    return settings


AGENTS = {
    "claude-code": Agent(
        package="@anthropic-ai/claude-code",
        settings=claude_code,
        shell=lambda command: ("Bash", {"command": command, "description": "Run"}),
        delegate=("Agent", {"description": "Count", "prompt": SUBTASK, "subagent_type": "general-purpose"}),
        asks_for_summary="Respond with TEXT ONLY",
    ),
    "codex": Agent(
        package="@openai/codex",
        settings=codex,
        shell=lambda command: ("exec_command", {"cmd": command}),
        delegate=("multi_agent_v1__spawn_agent", {"message": SUBTASK, "agent_type": "default"}),
        asks_for_summary="CONTEXT CHECKPOINT COMPACTION",
    ),
    "opencode": Agent(
        package="opencode-ai",
        settings=opencode,
        shell=lambda command: ("bash", {"command": command, "description": "Run"}),
        delegate=("task", {"description": "Count", "prompt": SUBTASK, "subagent_type": "general"}),
        asks_for_summary="Here is the conversation so far",
    ),
}


class Script:
    """The replies of a session. Their first words tell which conversation they belong to."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.turns = 0

    def __call__(self, messages: list[Any]) -> dict[str, Any]:
        if "title generator" in json.dumps(messages[0]):
            return {"content": "Title: a sum"}
        if self._agent.asks_for_summary in json.dumps(messages[-1]):
            return {"content": "Summary: <summary>The steps so far went well, and nothing failed.</summary>"}
        if any(SUBTASK in json.dumps(one) for one in messages if one["role"] == "user"):
            done = sum(one["role"] == "tool" for one in messages)
            return self._step("Subtask", done + 1, f"echo {done + 1}") if done < 3 else {"content": "Subtask done."}
        self.turns += 1
        if self.turns > TURNS:
            return {"content": "4"}
        command = f"echo step {self.turns} of a long session"
        if self.turns == TURNS // 2:
            command = "seq 1 20000"
        elif self.turns == TURNS:
            command = "printf 4 > answer.txt"
        reply = self._step("Step", self.turns, command)
        if self.turns == DELEGATES:
            reply |= call_tool(*self._agent.delegate, "delegated")
        used = USED if self.turns == IS_FULL else 1000 + 100 * self.turns
        return {**reply, "usage": {"prompt_tokens": used, "completion_tokens": 10}}

    def _step(self, kind: str, number: int, command: str) -> dict[str, Any]:
        return {"content": f"{kind} {number}.", **call_tool(*self._agent.shell(command), f"{kind.lower()}_{number}")}


def find_conversations(graph: TraceGraph) -> dict[str, list[int]]:
    """Return the calls by the first word of their replies."""
    found: dict[str, list[int]] = {}
    for number, call in graph.calls.items():
        (text,) = [text for item in call.items for text in message_texts(item)]
        word = text.partition(" ")[0].rstrip(":")
        found.setdefault("Step" if word == "4" else word, []).append(number)
    return found


@pytest.mark.parametrize("name", named({name: find_missing(agent.package) for name, agent in AGENTS.items()}))
async def test_a_session_of_50_turns_is_one_conversation(agents_site: Site, name: str) -> None:
    agent, asked = AGENTS[name], list[Any]()
    settings = {**agent.settings(), "mounts": [str(cache_folder())], "answer_file": "answer.txt"}
    command = {"kind": "command", "command_settings": settings, "max_steps": 2 * TURNS}
    async with (
        AsyncGymWeb(agents_site.base, agents_site.key) as gym,
        scripted_model(Script(agent), asked) as url,
    ):
        row = await run_one(gym, agents_site, command, model={"base_url": url, "capture_tokens": True})
        assert (row["status"], row["reward"]) == ("completed", 1.0), row["error_message"]
        events = [decode_event(json.dumps(one["event"] | {"type": one["kind"]})) for one in await trace(gym, row["id"])]
        tokens = await gym.request("GET", f"rollouts/{row['id']}/tokens/")
    graph = TraceGraph(events)
    found = find_conversations(graph)
    main, sub, summaries = found["Step"], found["Subtask"], found["Summary"]
    assert (len(main), len(sub), len(summaries)) == (TURNS + 1, 4, 1), found
    (summary,) = summaries

    # The main conversation is one lineage with one break, the compaction.
    report = describe_breaks(graph, main)
    before, after = main[IS_FULL - 1], main[IS_FULL]
    assert find_breaks(graph, main) == [(after, "compaction")], report
    assert {graph.calls[call].lineage for call in main} == {graph.calls[main[0]].lineage}, report
    assert (graph.main_leaf, graph.main_path.reason) == (main[-1], "answer"), report

    # The call of the tool links the subagent.
    root = graph.calls[sub[0]]
    assert (root.root_reason, root.spawned_by) == ("subagent", main[DELEGATES - 1])
    assert find_breaks(graph, sub) == [], describe_breaks(graph, sub)
    assert graph.is_aside(sub[-1])

    # opencode asks for the summary in a conversation of its own.
    leaves = {before, main[-1]} if name == "opencode" else {summary, main[-1]}
    if name == "opencode":
        assert [graph.reason_of(call) for call in (*found["Title"], summary)] == ["auxiliary"] * 2
    elif name == "claude-code":
        leaves.add(before)  # Claude Code asks for the summary without the last turn, and repeats this turn afterwards.
    assert set(graph.conversation_leaves) == leaves, report

    # Each call but the roots continues another one token for token, so each leaf is one sequence.
    roots = [call for call in graph.calls if not graph.parent(call)]
    figures = tokens["figures"]
    assert (figures["captured"], figures["exact"]) == (len(graph.calls), len(graph.calls) - len(roots)), figures
    assert (figures["segments"], figures["breaks"]) == (len(graph.leaves), [])

    # The client's own line in the system prompt of Claude Code is the same up to the compaction.
    if name == "claude-code":
        prompts = [graph.request(call)[0]["content"][0]["text"] for call in main]
        assert all(text.startswith("x-anthropic-billing-header: ") for text in prompts)
        assert len(set(prompts[:IS_FULL])) == len(set(prompts[IS_FULL:])) == 1
