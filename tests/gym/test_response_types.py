"""Every Responses object that GymWeb makes is one to the `openai` package's own types."""

import orjson
import pytest
from openai.types.responses import Response

from apps.gym.outcomes import StopReason
from apps.gym.traces.chat_turns import assistant_items
from apps.gym.traces.events import EnvironmentTurn, ModelCall, Prompt, ToolResult
from apps.gym.traces.items import message
from apps.gym.traces.responses import assemble_response
from apps.gym.wires.responses_wire import read_responses_reply
from tests.gym.traces import call, said, thought, trace, turn, weather_trace

ROW = {"responses_create_params": {"input": "How warm is it in Paris?"}, "expected_answer": "22"}
BARE = [
    {"type": "reasoning", "summary": []},
    {"role": "assistant", "content": "It is warm."},
    {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
]


@pytest.mark.parametrize(
    "events",
    [
        weather_trace(),
        trace(turn(said("Warm."))),
        trace(turn(thought("Hm."), call(), call(call_id="call_2")), ToolResult(call_id="call_1", name="t", output="1")),
        trace(ModelCall(seen=1, items=BARE, usage={"input_tokens": 3, "output_tokens": 2})),
        trace(turn(*assistant_items({"content": "4", "reasoning": "2 + 2", "tool_calls": []}, "chatcmpl-1"))),
        [Prompt(items=[message("user", "Hi")])],
    ],
)
@pytest.mark.parametrize("stop_reason", ["answered", "max_output_tokens", "content_filter"])
def test_the_response_of_an_attempt_is_one_by_the_packages_types(events, stop_reason: StopReason):
    given = assemble_response(events, ROW, stop_reason=stop_reason)
    parsed = Response.model_validate(given)
    assert [item.type for item in parsed.output] == [item["type"] for item in given["output"]]
    assert parsed.usage is not None
    assert parsed.usage.total_tokens == given["usage"]["total_tokens"]
    assert parsed.status == ("completed" if stop_reason == "answered" else "incomplete")


@pytest.mark.parametrize(
    "item",
    [
        {"type": "function_call", "arguments": {"a": 1}},
        {"type": "function_call", "name": 3, "call_id": None, "id": 4, "status": "done"},
        {"name": "f", "arguments": None},
        {"type": 5, "role": "assistant", "content": "4"},
        {"type": "message", "content": None, "id": None, "status": None},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": 4}, "five", {"text": "6"}],
        },
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "4", "annotations": None}],
        },
        {"type": "reasoning", "summary": "Hm.", "content": {"text": "Hm."}, "id": 3},
        {"type": "reasoning", "summary": None, "content": None, "encrypted_content": None, "status": None},
        {"type": "reasoning", "summary": [{"type": "text", "text": "Hm."}], "content": [{"type": "t", "text": "Hm."}]},
        {"type": "function_call", "name": "f", "call_id": "c", "arguments": "{}", "namespace": 5, "caller": "me"},
        {"type": "function_call_output", "call_id": "c", "output": "4", "id": 5, "status": "done"},
        {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "4"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "custom", "text": "4"}]},
        {
            "type": "message",
            "role": "assistant",
            "content": [
                {"type": "output_text", "text": "4", "annotations": [{"type": ["odd"]}, {"type": "file_path"}]}
            ],
        },
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "4", "annotations": [], "logprobs": [{"token": "4"}]}],
        },
    ],
)
def test_odd_items_of_an_endpoint_are_mended_into_what_the_types_want(item):
    given = assemble_response(trace(turn(item)), ROW)
    parsed = Response.model_validate(given)
    assert len(parsed.output) == 1
    read = read_responses_reply(orjson.dumps({"id": "r", "output": [item]})).items
    assert len(Response.model_validate(assemble_response(trace(turn(*read)), ROW)).output) == 1


@pytest.mark.parametrize(
    ("params", "tool", "choice"),
    [
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]}, "f", "auto"),
        ({"tools": [{"name": "f", "parameters": {}}]}, "f", "auto"),
        ({"tools": [{"type": "function", "name": "f"}], "tool_choice": "required"}, "f", "required"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "get_weather", "f"),
        ({"tool_choice": {"type": "function"}}, "get_weather", "auto"),
        ({"tool_choice": "any"}, "get_weather", "auto"),
        ({"tool_choice": 5}, "get_weather", "auto"),
    ],
)
def test_tools_and_their_choice_are_told_flat_however_a_task_wrote_them(params, tool, choice):
    row = {"responses_create_params": {"input": "How warm is it in Paris?", **params}}
    parsed = Response.model_validate(assemble_response(weather_trace(), row))
    chosen = parsed.tool_choice if isinstance(parsed.tool_choice, str) else parsed.tool_choice.name
    assert ([each.name for each in parsed.tools], chosen) == ([tool], choice)


def test_citations_of_chat_become_those_of_a_response():
    cited = {"start_index": 0, "end_index": 4, "title": "Weather", "url": "https://weather.example/"}
    said = {"content": "Warm.", "annotations": [{"type": "url_citation", "url_citation": cited}]}
    given = assemble_response(trace(turn(*assistant_items(said, "r"))), ROW)
    (part,) = Response.model_validate(given).output[0].content
    assert [one.model_dump() for one in part.annotations] == [{"type": "url_citation", **cited}]


def test_observations_are_user_messages_in_the_output():
    """The types have no place for them; the package's client, which is lenient, keeps them as they are."""
    observed = EnvironmentTurn(items=[message("user", "You see a door.")])
    given = assemble_response(trace(turn(said("I look.")), observed, turn(said("I open it."))), ROW)
    parsed = Response.construct(**given)
    assert [item.role for item in parsed.output] == ["assistant", "user", "assistant"]


def test_complete_objects_are_unchanged():
    items = assistant_items({"content": "4", "reasoning": "2 + 2"}, "r")
    output = assemble_response(trace(turn(*items)), ROW)["output"]
    assert [made is given for made, given in zip(output, items, strict=True)] == [True, True]
