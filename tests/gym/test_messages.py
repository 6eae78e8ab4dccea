"""Items become chat messages: one assistant message a turn, arguments as objects, nothing null, nothing lost."""

import pytest

from apps.gym.traces.chat_turns import chat_messages
from apps.gym.traces.events import EnvironmentTurn, ModelCall, SessionOpened, ToolResult
from apps.gym.traces.items import message, text_of
from apps.gym.traces.messages import (
    completion_messages,
    flat_text,
    nested_tools,
    offered_tools,
    prompt_messages,
)
from apps.gym.trainability import Dropped
from tests.gym.traces import WEATHER_TOOL, call, row, said, thought, trace, turn, weather_trace


def test_a_tool_calling_attempt_becomes_one_assistant_message_a_turn():
    assert completion_messages(weather_trace()) == [
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "I should look.",
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": {"city": "Paris"}},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": '{"temp": 22}', "name": "get_weather"},
        {"role": "assistant", "content": "It is 22 °C.", "reasoning_content": "The tool says 22."},
    ]


def test_reasoning_text_and_parallel_calls_of_a_turn_stay_together():
    events = trace(
        turn(thought("Two cities."), said("Let me look."), call(), call('{"city": "Oslo"}', "call_2")),
        ToolResult(call_id="call_1", name="get_weather", output="22"),
        ToolResult(call_id="call_2", name="get_weather", output="-3"),
        turn(said("22 and -3.")),
    )
    first, *rest = completion_messages(events)
    assert first["content"] == "Let me look."
    assert first["reasoning_content"] == "Two cities."
    assert [one["function"]["arguments"] for one in first["tool_calls"]] == [{"city": "Paris"}, {"city": "Oslo"}]
    assert [(one["role"], one.get("tool_call_id")) for one in rest] == [
        ("tool", "call_1"),
        ("tool", "call_2"),
        ("assistant", None),
    ]


def test_two_model_calls_side_by_side_stay_two_turns():
    events = trace(turn(said("One moment.")), turn(said("It is 22 °C.")))
    assert [one["content"] for one in completion_messages(events)] == ["One moment.", "It is 22 °C."]


def test_a_model_call_without_items_adds_no_message():
    assert completion_messages(trace(turn(), turn(said("22")))) == [{"role": "assistant", "content": "22"}]


def test_a_turn_that_only_thinks_drops_the_row():
    with pytest.raises(Dropped) as why:
        completion_messages(trace(turn(thought("Hm.")), turn(said("22"))))
    assert why.value.reason == "empty_turn"


def test_what_follows_the_last_turn_of_the_model_is_left_out():
    events = trace(turn(said("hit")), EnvironmentTurn(items=[message("user", "bust")]))
    assert completion_messages(events) == [{"role": "assistant", "content": "hit"}]


def test_observations_between_turns_are_user_messages():
    events = trace(turn(said("hit")), EnvironmentTurn(items=[message("user", "16")]), turn(said("stand")))
    assert completion_messages(events)[1] == {"role": "user", "content": "16"}


def test_the_environment_may_answer_calls_itself():
    output = {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": "22"}]}
    events = trace(turn(call()), EnvironmentTurn(items=[output]), turn(said("22")))
    expected = {"role": "tool", "tool_call_id": "call_1", "content": "22", "name": "get_weather"}
    assert completion_messages(events)[1] == expected


@pytest.mark.parametrize(
    "arguments",
    ["{oops", '["Paris"]', '"Paris"', "null", '{"x": NaN}', '{"x": [1e400]}', '{"x": -1e400}', "[" * 100_000],
)
def test_arguments_that_are_no_object_drop_the_row(arguments):
    with pytest.raises(Dropped) as why:
        completion_messages(trace(turn(call(arguments)), turn(said("22"))))
    assert why.value.reason == "malformed_arguments"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [("", {}), (" ", {}), ('{"n": 123456789012345678901}', {"n": 123456789012345678901}), ('{"x": null}', {"x": None})],
)
def test_arguments_keep_what_the_model_said(arguments, expected):
    (first,) = completion_messages(trace(turn(call(arguments))))
    assert first["tool_calls"][0]["function"]["arguments"] == expected


def test_arguments_that_are_an_object_already_stay_one():
    given = {**call(), "arguments": {"city": "Paris"}}
    (first,) = completion_messages(trace(turn(given)))
    assert first["tool_calls"][0]["function"]["arguments"] == {"city": "Paris"}


def test_developer_becomes_system_and_the_opening_ones_become_one():
    prompt = [message("system", "Be brief."), message("developer", "Use tools."), message("user", "Hi")]
    assert prompt_messages(trace(prompt=prompt)) == [
        {"role": "system", "content": "Be brief.\n\nUse tools."},
        {"role": "user", "content": "Hi"},
    ]


def test_a_later_system_message_stays_where_it_is():
    prompt = [message("user", "Hi"), message("developer", "Be brief."), message("user", "Well?")]
    assert [one["role"] for one in prompt_messages(trace(prompt=prompt))] == ["user", "system", "user"]


def test_few_shot_calls_in_the_prompt_are_split_where_the_other_side_speaks():
    output = {"type": "function_call_output", "call_id": "call_0", "output": "22"}
    prompt = [
        message("user", "Paris?"),
        thought("Look."),
        call(call_id="call_0"),
        output,
        said("22"),
        {"role": "user", "content": "Oslo?"},
    ]
    messages = prompt_messages(trace(prompt=prompt))
    assert [one["role"] for one in messages] == ["user", "assistant", "tool", "assistant", "user"]
    assert messages[2]["name"] == "get_weather"


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ({"role": "user", "content": [{"type": "input_image", "image_url": "data:"}]}, "image_content"),
        ({"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}, "file_content"),
        ({"role": "user", "content": [{"type": "hologram"}]}, "unknown_content"),
        ({"role": "user", "content": 5}, "unknown_content"),
        ({"role": "narrator", "content": "x"}, "unknown_role"),
        ({"type": "web_search_call", "id": "ws_1"}, "unknown_item"),
        ({"type": "function_call_output", "call_id": "nobody", "output": "x"}, "orphan_tool_output"),
        ({"type": "function_call_output", "output": "x"}, "malformed_item"),
        ({"type": "function_call", "arguments": "{}"}, "malformed_item"),
    ],
)
def test_conversations_that_templates_refuse_are_dropped_with_a_reason(item, reason):
    with pytest.raises(Dropped) as why:
        prompt_messages(trace(prompt=[message("user", "Hi"), item]))
    assert why.value.reason == reason


def test_a_hosted_tool_in_a_turn_drops_the_row():
    with pytest.raises(Dropped) as why:
        completion_messages(trace(turn({"type": "web_search_call", "id": "ws_1"}, said("22"))))
    assert why.value.reason == "unknown_item"


def test_a_trace_without_a_reply_is_dropped():
    with pytest.raises(Dropped) as why:
        completion_messages(trace())
    assert why.value.reason == "no_assistant_turn"


def test_text_parts_become_lines_and_a_refusal_becomes_text():
    parts = [{"type": "output_text", "text": "a"}, "b", {"type": "refusal", "refusal": "No."}]
    assert flat_text(parts) == "a\nb\nNo."


@pytest.mark.parametrize("kind", ["content", "summary"])
def test_a_text_or_thought_in_several_parts_is_what_the_model_wrote_byte_for_byte(kind):
    thinking = {"type": "reasoning", kind: [{"type": "summary_text", "text": text} for text in ("Six ", "", "sevens.")]}
    saying = said("")
    saying["content"] = [{"type": "output_text", "text": text} for text in ("The answer is ", "42", "\n")]
    (written,) = completion_messages(trace(turn(thinking, saying)))
    (shown,) = chat_messages([thinking, saying])
    assert (
        written == shown == {"role": "assistant", "content": "The answer is 42\n", "reasoning_content": "Six sevens."}
    )
    assert (text_of(thinking), text_of(saying)) == ("Six sevens.", "The answer is 42\n")


def test_texts_of_a_turn_that_are_items_of_their_own_are_written_as_the_model_is_shown_them():
    items = [thought("One."), said("Let me look."), thought("Two."), said("It is 22 °C.")]
    (written,) = completion_messages(trace(turn(*items)))
    assert written["content"] == "Let me look.\n\nIt is 22 °C."
    assert [written] == chat_messages(items)


def test_a_summary_replaces_hidden_reasoning():
    hidden = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Looked it up."}]}
    assert completion_messages(trace(turn(hidden, said("22"))))[0]["reasoning_content"] == "Looked it up."


def test_tools_are_nested_without_nulls():
    assert nested_tools(
        [WEATHER_TOOL, {"type": "function", "name": "ping", "description": None, "parameters": None}]
    ) == [
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "description": "Current weather",
                "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
            },
        },
        {
            "type": "function",
            "function": {"name": "ping", "description": "", "parameters": {"type": "object", "properties": {}}},
        },
    ]


def test_a_null_that_a_schema_means_stays_also_in_a_parameter_that_is_called_as_a_keyword():
    parameters = {
        "type": "object",
        "description": None,
        "properties": {
            "unit": {"const": None, "title": None},
            "top": {"enum": [None, 1], "default": None, "examples": [{"x": None}]},
            "default": {"type": "string", "format": None},
        },
        "required": None,
    }
    [tool] = nested_tools([{"type": "function", "name": "ping", "parameters": parameters}])
    assert tool["function"]["parameters"] == {
        "type": "object",
        "properties": {
            "unit": {"const": None},
            "top": {"enum": [None, 1], "default": None, "examples": [{"x": None}]},
            "default": {"type": "string"},
        },
    }


@pytest.mark.parametrize("wanted", ["object", "exact_object", "text"])
def test_a_number_that_no_float_holds_drops_the_row_unless_any_text_is_wanted(wanted):
    events = trace(turn(call('{"x": 1e400}')))
    with pytest.raises(Dropped) as why:
        completion_messages(events, arguments=wanted)
    assert why.value.reason == "malformed_arguments"
    (kept,) = completion_messages(events, arguments="any_text")
    assert kept["tool_calls"][0]["function"]["arguments"] == '{"x": 1e400}'


def test_nested_tools_are_unchanged():
    nested = nested_tools([WEATHER_TOOL])
    assert nested_tools(nested) == nested


@pytest.mark.parametrize("tool", [{"type": "web_search"}, {"type": "function"}, {"name": ""}])
def test_a_tool_that_is_no_function_drops_the_row(tool):
    with pytest.raises(Dropped) as why:
        nested_tools([tool])
    assert why.value.reason == "tool_not_function"


def test_the_tools_come_from_the_session_or_the_task():
    task = {"responses_create_params": {"tools": [{"name": "own"}]}}
    assert offered_tools([SessionOpened(environment="e", tools=[WEATHER_TOOL])], task) == [WEATHER_TOOL]
    assert offered_tools([SessionOpened(environment="e")], task) == [{"name": "own"}]
    assert offered_tools([], row()) == []


def test_a_row_has_the_tools_of_the_last_call_if_they_include_all_earlier_ones():
    other, redefined = {**WEATHER_TOOL, "name": "sun"}, {**WEATHER_TOOL, "description": "Another."}
    session = SessionOpened(environment="e", tools=[WEATHER_TOOL])
    grown = ModelCall(seen=1, items=[], tools_in=[other, WEATHER_TOOL])
    same = ModelCall(seen=2, items=[])
    assert offered_tools([session, grown, same], row()) == [other, WEATHER_TOOL]
    for tools in ([], [other], [redefined]):
        with pytest.raises(Dropped) as why:
            offered_tools([session, same, ModelCall(seen=3, items=[], tools_in=tools)], row())
        assert why.value.reason == "tools_changed"
