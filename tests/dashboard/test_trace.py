"""The trace as a page shows it, from events alone."""

import pytest

from apps.dashboard.traces.bodies import indent_text
from apps.dashboard.traces.card_building import build_trace, read_capture
from apps.dashboard.traces.cards import Capture, Trace
from apps.gym.traces.events import (
    EnvironmentTurn,
    ErrorRaised,
    ModelCall,
    Prompt,
    SessionOpened,
    ToolResult,
    TraceUnion,
    Verification,
    encode_event,
    event_kind,
    event_tokens,
)
from apps.gym.traces.items import message
from tests.factories import make_trace
from tests.gym.traces import with_tokens


def call(call_id: str = "call_1", arguments: object = '{"a": 1}') -> dict[str, object]:
    return {"type": "function_call", "call_id": call_id, "name": "add", "arguments": arguments}


def shown(*events: TraceUnion) -> Trace:
    return build_trace(
        (seq, event_kind(event), encode_event(event), event_tokens(event)) for seq, event in enumerate(events)
    )


def test_a_result_is_shown_below_its_call():
    trace = shown(*make_trace())
    assert [card.kind for card in trace.cards] == ["session", "prompt", "model_call", "model_call", "verification"]
    (block,) = trace.cards[2].blocks
    assert (block.kind, block.title, block.body.indented) == ("call", "calculator", '{\n  "expression": "2+2"\n}')
    assert (block.result.body.text, block.result.seq) == ("4", 3)


def test_parallel_calls_get_their_own_results_whatever_the_order():
    trace = shown(
        ModelCall(seen=1, items=[call("a"), call("b")]),
        ToolResult(call_id="b", name="add", output="for b"),
        ToolResult(call_id="a", name="add", output="for a", error="timed out", duration=2.0),
    )
    first, second = trace.cards[0].blocks
    assert (first.result.body.text, first.result.error, first.result.duration) == ("for a", "timed out", 2.0)
    assert second.result.body.text == "for b"
    assert len(trace.cards) == 1


def test_a_call_id_used_in_every_turn_is_paired_turn_by_turn():
    trace = shown(
        ModelCall(seen=1, items=[call()]),
        ToolResult(call_id="call_1", name="add", output="first"),
        ModelCall(seen=3, items=[call()]),
        ToolResult(call_id="call_1", name="add", output="second"),
        ModelCall(seen=5, items=[call()]),
    )
    results = [card.blocks[0].result for card in trace.cards]
    assert [result.body.text if result else None for result in results] == ["first", "second", None]


def test_a_result_that_no_call_asked_for_is_shown_with_a_mark():
    trace = shown(ToolResult(call_id="x", name="add", output="lost"))
    (card,) = trace.cards
    assert (card.kind, card.blocks[0].body.text, card.blocks[0].mark) == ("tool_result", "lost", "no matching call")


def test_a_few_shot_call_in_the_prompt_is_paired_with_the_output_item_after_it():
    output = {"type": "function_call_output", "call_id": "call_1", "output": "3"}
    (card,) = shown(Prompt(items=[message("user", "hi"), call(), output])).cards
    assert [block.kind for block in card.blocks] == ["text", "call"]
    assert (card.blocks[1].result.body.text, card.blocks[1].result.seq) == ("3", None)


def test_malformed_arguments_are_shown_raw_with_a_mark():
    for raw in ['{"a": ', "[1]", "NaN", "[" * 100_000]:
        (card,) = shown(ModelCall(seen=0, items=[call(arguments=raw)])).cards
        assert card.blocks[0].body.text == raw
        assert card.blocks[0].mark == "malformed arguments: not a JSON object"


def test_arguments_that_are_an_object_already_are_indented():
    (card,) = shown(ModelCall(seen=0, items=[call(arguments={"a": "é"})])).cards
    assert (card.blocks[0].body.text, card.blocks[0].mark) == ('{\n  "a": "é"\n}', "")


@pytest.mark.parametrize(
    ("written", "indented"),
    [
        ('{"a":1e400,"a":2.50}', '{\n  "a": 1e400,\n  "a": 2.50\n}'),
        ("[12345678901234567890.10, {}, []]", "[\n  12345678901234567890.10,\n  {},\n  []\n]"),
        ('{"a":"\\u4f60, [x]: \\n"}', '{\n  "a": "你, [x]: \\n"\n}'),
    ],
)
def test_json_of_a_tool_is_unchanged_in_the_page(written, indented):
    result = ToolResult(call_id="call_1", name="add", output=written)
    (card,) = shown(ModelCall(seen=0, items=[call(arguments=written)]), result).cards
    (block,) = card.blocks
    assert (block.result.body.text, block.result.body.indented) == (written, indented)
    if written.startswith("{"):
        assert (block.body.text, block.body.indented) == (written, indented)


def test_json_that_is_cut_is_laid_out_as_far_as_it_goes():
    assert indent_text('{"a": [1.0, "\\ud800", "b') == '{\n  "a": [\n    1.0,\n    "\\ud800","b'


def test_reasoning_is_separate_from_text():
    reasoning = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "think"}]}
    (card,) = shown(ModelCall(seen=0, items=[reasoning, message("assistant", "say")])).cards
    assert [(block.kind, block.body.text) for block in card.blocks] == [("reasoning", "think"), ("text", "say")]


def test_reasoning_without_text_is_shown_as_json():
    (card,) = shown(ModelCall(seen=0, items=[{"type": "reasoning", "encrypted_content": "abc"}])).cards
    assert '"encrypted_content": "abc"' in card.blocks[0].body.text


def test_items_and_parts_of_unknown_kinds_become_json():
    image = {"type": "input_image", "image_url": "data:,"}
    content = [{"type": "input_text", "text": "look"}, image]
    items = [{"type": "web_search_call", "id": "ws"}, {"role": "user", "content": content}]
    (card,) = shown(EnvironmentTurn(items=items)).cards
    assert [(block.kind, block.title) for block in card.blocks] == [
        ("json", "web_search_call"),
        ("text", "user"),
        ("json", "user: part"),
    ]
    assert '"image_url": "data:,"' in card.blocks[2].body.text


def test_an_event_of_an_unknown_kind_becomes_json():
    stored = '{"type": "telemetry", "load": 3}'
    (card,) = build_trace([(7, "telemetry", stored, None)]).cards
    assert (card.seq, card.title, card.blocks[0].body.text) == (7, "telemetry", stored)


def test_a_refusal_is_marked():
    refusal = {"role": "assistant", "content": [{"type": "refusal", "refusal": "I will not."}]}
    (card,) = shown(ModelCall(seen=0, items=[refusal])).cards
    assert (card.blocks[0].body.text, card.blocks[0].mark) == ("I will not.", "refusal")


def test_a_model_call_says_its_usage_and_what_else_is_known():
    usage = {"input_tokens": 1200, "output_tokens": 7, "reasoning_tokens": 5}
    event = ModelCall(seen=3, items=[], model="m", finish_reason="stop", usage=usage, retries=2, sampling={"n": 1})
    (card,) = shown(event).cards
    assert card.facts == (
        ("model", "m"),
        ("finish reason", "stop"),
        ("tokens in", "1,200"),
        ("tokens out", "7"),
        ("reasoning tokens", "5"),
        ("input items", "3"),
        ("HTTP retries", "2"),
    )
    assert [(block.kind, block.title) for block in card.blocks] == [("fold", "sampling")]


@pytest.mark.parametrize(("usage", "told"), [({}, "unknown"), ({"input_tokens": 9}, "incomplete")])
def test_a_model_call_that_did_not_tell_its_tokens_says_so(usage, told):
    (card,) = shown(ModelCall(seen=3, items=[message("assistant", "4")], finish_reason="stop", usage=usage)).cards
    assert ("usage", told) in card.facts


def test_a_verification_shows_reward_components_explanation_and_details():
    (card,) = shown(
        Verification(
            reward=0.5, components={"items": 0.5}, explanation="half", details={"x": 1}, stop_reason="answered"
        )
    ).cards
    assert (card.reward, card.components, card.facts) == (0.5, (("items", 0.5),), (("stop reason", "answered"),))
    assert [block.title for block in card.blocks] == ["explanation", "details"]


def test_an_error_shows_its_kind_and_message():
    (card,) = shown(ErrorRaised(kind="policy_error", message="no route")).cards
    assert (card.facts, card.blocks[0].body.text) == ((("kind", "policy_error"),), "no route")


def test_a_long_text_is_whole_and_folded():
    (card,) = shown(ModelCall(seen=0, items=[message("assistant", "x" * 100_000)])).cards
    body = card.blocks[0].body
    assert (len(body.text), body.is_folded, body.size) == (100_000, True, 100_000)


def test_the_tools_of_a_session_are_listed():
    (card,) = shown(SessionOpened(environment="e", seed=4, tools=[{"type": "function", "name": "add"}])).cards
    assert (card.blocks[0].title, dict(card.facts)["seed"]) == ("add", "4")


def captured(*events: TraceUnion) -> Capture | None:
    calls = ((seq, event_tokens(event)) for seq, event in enumerate(events) if isinstance(event, ModelCall))
    return read_capture(calls)


def test_captured_calls_that_go_on_exactly_are_one_segment():
    capture = captured(*with_tokens(make_trace(), ([1, 2], [3]), ([1, 2, 3, 4], [5, 6])))
    assert (capture.figures.captured, capture.figures.segments, capture.first_break) == (2, 1, None)
    assert (capture.first_break_seq, capture.more_breaks) == (None, 0)


def test_the_first_break_names_its_event():
    capture = captured(*with_tokens(make_trace(), ([1, 2], [3]), ([1, 9], [5, 6])))
    assert (capture.first_break.after, capture.first_break.within, capture.first_break_seq) == (1, "prompt", 4)


def test_without_captured_tokens_nothing_is_said_of_segments():
    assert captured(*make_trace()) is None
