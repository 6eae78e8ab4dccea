"""Tools in namespaces of the Responses API: models get functions, clients get namespace and name."""

import json

from apps.gym.capture.capture_server import read_links
from apps.gym.capture.captured_responses import ResponsesWire
from apps.gym.capture.previous_responses import PreviousResponses
from apps.gym.rollout_files.shapes.codex_sessions import read_codex
from apps.gym.traces.parents import ParentFinder
from apps.gym.wires.chat_deltas import Delta
from apps.gym.wires.protocol import Reply

ADD = {"type": "function", "name": "add", "description": "Adds.", "parameters": {"type": "object"}}
TOOLS = [
    {"type": "function", "name": "run", "parameters": {"type": "object"}},
    {"type": "namespace", "name": "mcp__sums", "description": "Sums.", "tools": [ADD, {**ADD, "name": "subtract"}]},
    {"type": "web_search"},
]
CALL = {"type": "function_call", "call_id": "c1", "name": "mcp__sums__add", "arguments": "{}"}
TASK = {"type": "message", "role": "user", "content": "Add."}


def read(*items):
    return ResponsesWire().read({"input": [TASK, *items], "tools": TOOLS}, PreviousResponses())


def named(item):
    return item.get("namespace"), item["name"]


def test_the_model_gets_the_tools_of_a_namespace_as_functions():
    request = read()
    assert [tool["name"] for tool in request.tools] == ["run", "mcp__sums__add", "mcp__sums__subtract"]
    assert request.tools[1]["description"] == "Adds."
    assert request.notes == ["tool web_search was dropped"]


def test_the_client_gets_namespace_and_name_in_a_response_and_in_a_stream():
    request, reply = read(), Reply(items=[CALL, {**CALL, "name": "run"}], finish_reason="tool_calls")
    wire = ResponsesWire()
    (first, second) = wire.write(reply, request, "t_1")["output"]
    assert (named(first), named(second)) == (("mcp__sums", "add"), (None, "run"))
    for deltas in ([], [Delta("call", "mcp__sums__add", 0, "c1"), Delta("arguments", "{}", 0)]):
        stream = wire.open_stream(request, "t_1")
        written = stream.begin() + b"".join(map(stream.add, deltas)) + stream.end(reply)
        events = [json.loads(line[6:]) for line in written.decode().splitlines() if line.startswith("data: ")]
        items = [event["item"] for event in events if event["type"].startswith("response.output_item.")]
        assert items and named(items[0]) == ("mcp__sums", "add")


def test_a_call_that_comes_back_continues_the_conversation():
    finder, request = ParentFinder(), read()
    finder.complete(finder.place_request(request.items, request.tools).call, [CALL])
    own = {**CALL, "namespace": "mcp__sums", "name": "add"}
    later = read(own, {"type": "function_call_output", "call_id": "c1", "output": "3"})
    assert later.items[1] == CALL
    assert finder.place_request(later.items, later.tools).parent == 1


def test_a_thread_of_codex_is_the_same_after_a_compaction():
    links = [
        read_links({"thread-id": "a", "session-id": "a", "x-codex-window-id": f"a:{window}"}) for window in range(2)
    ]
    assert links[0] == links[1] == {"hint": "a"}


def test_an_imported_session_of_codex_has_the_same_names():
    lines = [
        {"type": "session_meta", "payload": {"id": "s"}},
        {"type": "response_item", "payload": TASK},
        {"type": "response_item", "payload": {**CALL, "namespace": "mcp__sums", "name": "add"}},
    ]
    assert read_codex(list(enumerate(lines, start=1))).calls[0].items == [CALL]
