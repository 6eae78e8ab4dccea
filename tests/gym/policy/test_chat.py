"""Items to Chat Completions and back: nothing that chat can say is lost."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.gym.errors import PolicyError
from apps.gym.traces.chat_turns import chat_messages
from apps.gym.traces.items import message, text_of
from apps.gym.wires.chat import chat_request, chat_sampling, chat_tool
from apps.gym.wires.chat_reply import CallsMissing, ReplyMalformed, read_chat_reply
from apps.gym.wires.dialect import Dialect, SamplingRefused
from apps.gym.wires.protocol import Ask
from apps.gym.wires.responses_wire import responses_request


def said(text):
    return {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }


def thought(text):
    return {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": text}]}


def called(call_id, name="calculator", arguments='{"expression": "1+1"}'):
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def returned(call_id, output):
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def chat_call(call_id, name="calculator", arguments='{"expression": "1+1"}'):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_a_turn_of_reasoning_text_and_calls_is_one_assistant_message():
    items = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "What is 1+1 and 2+2?"},
        thought("Two sums."),
        said("Let me see."),
        called("a"),
        called("b", arguments='{"expression": "2+2"}'),
        returned("a", "2"),
        returned("b", "4"),
        thought("Done."),
        said("2 and 4"),
    ]
    assert chat_messages(items) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is 1+1 and 2+2?"},
        {
            "role": "assistant",
            "content": "Let me see.",
            "reasoning_content": "Two sums.",
            "tool_calls": [chat_call("a"), chat_call("b", arguments='{"expression": "2+2"}')],
        },
        {"role": "tool", "tool_call_id": "a", "content": "2"},
        {"role": "tool", "tool_call_id": "b", "content": "4"},
        {"role": "assistant", "content": "2 and 4", "reasoning_content": "Done."},
    ]


def test_calls_without_text_have_no_content():
    assert chat_messages([called("a")]) == [{"role": "assistant", "content": None, "tool_calls": [chat_call("a")]}]


def test_an_empty_arguments_string_is_an_empty_object():
    assert chat_messages([called("a", arguments="")])[0]["tool_calls"] == [chat_call("a", arguments="{}")]


def test_malformed_arguments_are_sent_back_as_they_came():
    assert chat_messages([called("a", arguments="{oops")])[0]["tool_calls"] == [chat_call("a", arguments="{oops")]


def test_content_parts_are_kept_in_chat_form():
    content = [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "low"},
        {"type": "input_file", "file_id": "f1", "filename": None},
        {"type": "something_new", "x": 1},
    ]
    assert chat_messages([{"role": "user", "content": content}]) == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is this?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA", "detail": "low"}},
                {"type": "file", "file": {"file_id": "f1"}},
                {"type": "something_new", "x": 1},
            ],
        }
    ]


def test_a_refusal_stays_a_refusal():
    item = {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
    assert chat_messages([item]) == [{"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}]


def test_reasoning_with_raw_content_is_read_from_it():
    item = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
    assert chat_messages([item, said("4")]) == [{"role": "assistant", "content": "4", "reasoning_content": "Hm."}]


def test_an_item_that_chat_has_no_word_for_is_an_error():
    with pytest.raises(PolicyError, match="'web_search_call' cannot be sent"):
        chat_messages([{"type": "web_search_call"}])


def test_instructions_become_the_first_system_message():
    body = chat_request(
        Ask(items=[{"role": "user", "content": "Hi"}], sampling={"instructions": "Be brief."}), model_name="m"
    )
    assert body == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
    }


def test_tools_are_nested_and_nulls_left_out():
    flat = {"type": "function", "name": "f", "description": None, "parameters": {"type": "object"}, "strict": True}
    assert chat_tool(flat) == {
        "type": "function",
        "function": {"name": "f", "parameters": {"type": "object"}, "strict": True},
    }


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (
            {"max_output_tokens": 64, "temperature": 0.5, "top_k": 20},
            {"max_completion_tokens": 64, "temperature": 0.5, "top_k": 20},
        ),
        ({"temperature": None, "truncation": "disabled", "instructions": "Be brief."}, {}),
        ({"tool_choice": "required"}, {"tool_choice": "required"}),
        (
            {"tool_choice": {"type": "function", "name": "f"}},
            {"tool_choice": {"type": "function", "function": {"name": "f"}}},
        ),
        (
            {
                "tool_choice": {
                    "type": "allowed_tools",
                    "mode": "required",
                    "tools": [{"type": "function", "name": "f"}],
                }
            },
            {
                "tool_choice": {
                    "type": "allowed_tools",
                    "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "f"}}]},
                }
            },
        ),
        ({"reasoning": {"effort": "low", "summary": "auto"}}, {"reasoning_effort": "low"}),
        ({"text": {"format": {"type": "text"}, "verbosity": "low"}}, {"verbosity": "low"}),
        ({"text": {"format": {"type": "json_object"}}}, {"response_format": {"type": "json_object"}}),
        (
            {"text": {"format": {"type": "json_schema", "name": "n", "schema": {}, "strict": True}}},
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, "strict": True}}},
        ),
        ({"top_logprobs": 2}, {"logprobs": True, "top_logprobs": 2}),
        ({"metadata": {"extra_body": '{"seed": 7}', "x": "y"}}, {"seed": 7}),
        ({"seed": 3, "metadata": {"extra_body": '{"seed": 99, "top_k": 5}'}}, {"seed": 3, "top_k": 5}),
    ],
)
def test_sampling_is_said_in_chat_words(given, wanted):
    assert chat_sampling(given, has_tools=True) == wanted


@pytest.mark.parametrize("request_of", [chat_request, responses_request])
@pytest.mark.parametrize(
    ("extra", "why"),
    [
        ('{"messages": [], "model": "other"}', "cannot set messages, model"),
        ('{"input": "x"}', "cannot set input"),
        ('{"tools": []}', "cannot set tools"),
        ('{"n": 3}', "cannot set n"),
        ('{"stream": true}', "cannot set stream"),
        ('{"seed": ', "is not JSON"),
        ("[1]", "is not a JSON object"),
    ],
)
def test_a_task_cannot_replace_what_its_trace_says_was_sent(extra, why, request_of):
    ask = Ask(items=[{"role": "user", "content": "Hi"}], sampling={"metadata": {"extra_body": extra}})
    with pytest.raises(PolicyError, match=why) as refusal:
        request_of(ask, model_name="m")
    assert not refusal.value.transient


@pytest.mark.parametrize("request_of", [chat_request, responses_request])
@pytest.mark.parametrize("name", ["n", "prompt", "messages", "input", "model", "tools", "previous_response_id"])
def test_sampling_that_would_change_what_the_trace_tells_is_refused_and_not_left_out(request_of, name):
    ask = Ask(items=[{"role": "user", "content": "Hi"}], sampling={name: 3, "best_of": None})
    with pytest.raises(SamplingRefused, match=f"^Sampling cannot set {name}, which the rollout sets.$") as told:
        request_of(ask, model_name="m")
    assert not told.value.transient


def test_request_fields_of_a_task_are_sent_over_both_wires():
    sampling = {"seed": 3, "metadata": {"extra_body": '{"seed": 99, "top_k": 5}', "x": "y"}}
    ask = Ask(items=[{"role": "user", "content": "Hi"}], sampling=sampling)
    said = {"model": "m", "seed": 3, "top_k": 5}
    assert chat_request(ask, model_name="m") == {**said, "messages": ask.items}
    assert responses_request(ask, model_name="m") == {
        **said,
        "input": ask.items,
        "stream": False,
        "metadata": {"x": "y"},
    }
    assert sampling["metadata"]["x"] == "y"


def test_an_extra_body_replaces_nothing_that_a_rollout_sends():
    dialect = Dialect(extra_body={"tools": [{}], "n": 3, "prompt": "x", "top_k": 5})
    ask = Ask(items=[{"role": "user", "content": "Hi"}])
    assert chat_request(ask, model_name="m", dialect=dialect) == {"model": "m", "messages": ask.items, "top_k": 5}


def test_a_tool_choice_without_tools_is_not_sent():
    assert chat_sampling({"tool_choice": "auto", "parallel_tool_calls": True}, has_tools=False) == {}


def reply(message, finish_reason="stop", **fields):
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish_reason}
    return orjson.dumps({"id": "c1", "object": "chat.completion", "model": "m", "choices": [choice], **fields})


def test_a_reply_becomes_reasoning_message_and_calls_in_that_order():
    body = reply(
        {"content": "Let me see.", "reasoning": "A sum.", "tool_calls": [chat_call("a")]},
        "tool_calls",
        usage={
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 8},
            "completion_tokens_details": {"reasoning_tokens": 3},
        },
    )
    got = read_chat_reply(body)
    assert got.items == [
        {"type": "reasoning", "id": "rs_c1", "summary": [{"type": "summary_text", "text": "A sum."}]},
        {
            "type": "message",
            "id": "msg_c1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Let me see.", "annotations": []}],
        },
        {
            "type": "function_call",
            "id": "fc_c1_0",
            "call_id": "a",
            "name": "calculator",
            "arguments": '{"expression": "1+1"}',
            "status": "completed",
        },
    ]
    assert (got.finish_reason, got.model, got.response_id) == ("tool_calls", "m", "c1")
    assert got.usage == {"input_tokens": 10, "output_tokens": 5, "reasoning_tokens": 3, "cached_tokens": 8}


@pytest.mark.parametrize("key", ["reasoning", "reasoning_content"])
def test_reasoning_is_read_from_either_key(key):
    assert read_chat_reply(reply({"content": "4", key: "Hm."})).items[0] == {
        "type": "reasoning",
        "id": "rs_c1",
        "summary": [{"type": "summary_text", "text": "Hm."}],
    }


@pytest.mark.parametrize("tool_calls", [{}, {"tool_calls": None}, {"tool_calls": []}])
def test_absent_null_and_empty_tool_calls_are_none(tool_calls):
    got = read_chat_reply(reply({"content": "4", **tool_calls}))
    assert [item["type"] for item in got.items] == ["message"]
    assert got.finish_reason == "stop"


def test_a_named_tool_choice_ends_with_stop_and_still_calls():
    assert read_chat_reply(reply({"tool_calls": [chat_call("a")]}, "stop")).finish_reason == "tool_calls"


def test_announced_calls_that_are_missing_have_a_name():
    with pytest.raises(CallsMissing, match="has no tool call"):
        read_chat_reply(reply({"content": None}, "tool_calls"))


@pytest.mark.parametrize(
    ("given", "wanted"),
    [("length", "max_output_tokens"), ("content_filter", "content_filter"), ("stop", "stop"), (None, "stop")],
)
def test_finish_reasons_have_our_names(given, wanted):
    assert read_chat_reply(reply({"content": "x"}, given)).finish_reason == wanted


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("stop", ""),
        ("length", ""),
        (None, ""),
        (7, ""),
        ("eos_token", "eos_token"),
        ("STOP", "STOP"),
        ("model_length", "model_length"),
        ("odd\x00\n" + "x" * 200, "odd  " + "x" * 95),
    ],
)
def test_a_finish_reason_that_the_wire_does_not_have_is_told_in_the_servers_word(given, told):
    assert read_chat_reply(reply({"content": "x"}, given)).server_finish_reason == told


def test_a_call_that_was_cut_off_by_the_limit_says_so():
    assert read_chat_reply(reply({"tool_calls": [chat_call("a")]}, "length")).finish_reason == "max_output_tokens"


def test_a_refusal_is_a_part_of_the_message():
    got = read_chat_reply(reply({"content": None, "refusal": "No."}))
    assert got.items[0]["content"] == [{"type": "refusal", "refusal": "No."}]


def test_an_empty_reply_has_no_items():
    assert read_chat_reply(reply({"content": ""})).items == []


def test_arguments_given_as_an_object_become_text_and_a_missing_id_is_made():
    got = read_chat_reply(reply({"tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}, "tool_calls"))
    assert (got.items[0]["arguments"], got.items[0]["call_id"]) == ('{"a":1}', "call_c1_0")


def test_calls_of_replies_without_any_id_are_told_apart():
    unnamed = {"choices": [{"message": {"tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}}]}
    first, second = (read_chat_reply(orjson.dumps(unnamed)).items[0] for _ in range(2))
    assert first["call_id"] != second["call_id"]
    assert first["id"] != second["id"]


def test_token_ids_and_logprobs_are_kept_beside_the_items():
    message = {"role": "assistant", "content": "4"}
    choice = {
        "message": message,
        "finish_reason": "stop",
        "token_ids": [7, 8],
        "logprobs": {"content": [{"token": "4", "logprob": -0.1}, {"token": "", "logprob": -0.2}]},
    }
    body = orjson.dumps({"id": "c", "choices": [choice], "prompt_token_ids": [1, 2, 3]})
    assert read_chat_reply(body).tokens is None
    got = read_chat_reply(body, asked_tokens=True)
    assert got.tokens.fields() == {
        "prompt_token_ids": [1, 2, 3],
        "generation_token_ids": [7, 8],
        "generation_log_probs": [-0.1, -0.2],
    }
    assert [set(item) for item in got.items] == [{"type", "id", "role", "status", "content"}]


@pytest.mark.parametrize(
    ("fields", "prompt", "note"),
    [
        ({}, None, "no_token_ids"),
        ({}, [1], "no_reply_ids"),
        ({"token_ids": [7]}, None, "no_prompt_ids"),
        ({"logprobs": {"content": [{"logprob": 0, "id": 7}]}}, None, "no_prompt_ids"),
        ({"provider_specific_fields": {"token_ids": [7]}}, None, "no_prompt_ids"),
        ({"token_ids": [7]}, [1], "no_logprobs"),
        ({"token_ids": [7], "logprobs": None}, [1], "no_logprobs"),
        ({"token_ids": [7], "logprobs": {"content": None}}, [1], "no_logprobs"),
        ({"token_ids": [7, 8], "logprobs": {"content": [{"logprob": 0}]}}, [1], "counts_differ"),
        ({"token_ids": [-1], "logprobs": {"content": [{"logprob": 0}]}}, [1], "not_token_ids"),
        ({"token_ids": [2**32], "logprobs": {"content": [{"logprob": 0}]}}, [1], "not_token_ids"),
        ({"token_ids": "7", "logprobs": {"content": [{"logprob": 0}]}}, [1], "malformed_tokens"),
        ({"token_ids": [7], "logprobs": [0.5]}, [1], "malformed_tokens"),
        *(
            ({"token_ids": [7], "logprobs": {"content": [{"logprob": given}]}}, [1], note)
            for given, note in (
                (None, "logprob_not_finite"),
                ("NaN", "logprob_not_finite"),
                (0.5, "logprob_above_0"),
                (3.2, "logprob_above_0"),
                (1.1e-5, "logprob_above_0"),
                (-9999, "logprob_placeholder"),
                (-1e4, "logprob_placeholder"),
            )
        ),
    ],
)
def test_tokens_that_do_not_fit_together_cost_a_note_and_never_the_reply(fields, prompt, note):
    choice = {"message": {"role": "assistant", "content": "4"}, "finish_reason": "stop", **fields}
    body = orjson.dumps({"id": "c", "choices": [choice], "prompt_token_ids": prompt})
    got = read_chat_reply(body, asked_tokens=True)
    assert (got.tokens, got.tokens_note, text_of(got.items[-1])) == (None, note, "4")


@pytest.mark.parametrize("given", [0, 0.0, -0.0, 1e-6, 9.9e-6, -9998.9])
def test_rounding_errors_and_small_probabilities_are_kept_as_they_are(given):
    got = read_chat_reply(
        token_body(
            {"token_ids": [7, 8], "logprobs": {"content": [{"logprob": -1}, {"logprob": given}]}}, prompt_token_ids=[1]
        ),
        asked_tokens=True,
    )
    assert (got.tokens_note, got.tokens.fields()["generation_log_probs"]) == ("", [-1, given])


def test_missing_tokens_are_noted_only_if_requested():
    got = read_chat_reply(reply({"content": "4"}))
    assert (got.tokens, got.tokens_note) == (None, "")


def test_tokens_are_asked_for_in_the_words_of_vllm():
    asked = chat_request(Ask(items=[message("user", "Hi")]), model_name="m", dialect=Dialect(asks_tokens=True))
    assert asked == {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "return_token_ids": True,
        "logprobs": True,
    }


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b'{"choices": []}',
        b'{"choices": [{}]}',
        b'{"choices": [{"message": 1}]}',
        b"\xff\xfe",
    ],
)
def test_an_invalid_chat_completion_is_malformed(body):
    with pytest.raises(ReplyMalformed):
        read_chat_reply(body)


def test_an_aborted_reply_is_malformed():
    with pytest.raises(ReplyMalformed, match="abort"):
        read_chat_reply(reply({"content": "half"}, "abort"))


words = st.text(min_size=1, max_size=20)
calls = st.lists(st.tuples(words, words, words), max_size=3)
turns = st.lists(st.tuples(words, st.none() | words, st.none() | words, calls, st.lists(words, max_size=3)), max_size=4)


def replayed(text, reasoning, content, tool_calls):
    """One chat reply with the given pieces, read into items."""
    message = {"content": content}
    if reasoning:
        message["reasoning_content"] = reasoning
    if tool_calls:
        message["tool_calls"] = [chat_call(call_id, name, arguments) for call_id, name, arguments in tool_calls]
    return read_chat_reply(reply(message, "tool_calls" if tool_calls else "stop")).items, message


@given(turns)
def test_chat_to_items_to_chat_gives_the_same_messages(turns):
    items, messages = [], []
    for question, reasoning, content, tool_calls, _ in turns:
        items.append({"role": "user", "content": question})
        messages.append({"role": "user", "content": question})
        own, message = replayed(question, reasoning, content, tool_calls)
        items += own
        if content or reasoning or tool_calls:
            wanted = {"role": "assistant", "content": content if content or tool_calls else "", **message}
            wanted["content"] = content or (None if tool_calls else "")
            messages.append(wanted)
        for call_id, _name, _arguments in tool_calls:
            items.append(returned(call_id, f"result of {call_id}"))
            messages.append({"role": "tool", "tool_call_id": call_id, "content": f"result of {call_id}"})
    assert chat_messages(items) == messages


@pytest.mark.parametrize(
    ("usage", "wanted"),
    [
        ({"prompt_tokens": -1, "completion_tokens": -3_000_000}, {}),
        ({"prompt_tokens": "x", "completion_tokens": 1e30}, {}),
        ({"prompt_tokens": 7.0, "completion_tokens": "3"}, {"input_tokens": 7, "output_tokens": 3}),
        ("many", {}),
    ],
)
def test_a_usage_that_cannot_be_is_not_believed_and_never_costs_the_reply(usage, wanted):
    got = read_chat_reply(reply({"content": "4"}, usage=usage))
    assert {key: got.usage[key] for key in got.usage if key in ("input_tokens", "output_tokens")} == wanted
    assert text_of(got.items[0]) == "4"


@pytest.mark.parametrize(
    ("message", "fields", "wanted"),
    [
        ({"content": "4"}, {"id": None}, {"type": "message"}),
        ({"content": "4"}, {"id": 7}, {"type": "message", "id": "msg_7"}),
        ({"tool_calls": [{**chat_call("a"), "id": 12}]}, {}, {"call_id": "12"}),
        ({"reasoning_content": [{"type": "text", "text": "Hm."}]}, {}, {"type": "reasoning"}),
        ({"function_call": {"name": "f", "arguments": "{}"}}, {}, {"type": "function_call", "name": "f"}),
        ({"content": "4", "refusal": False, "annotations": "x"}, {}, {"type": "message"}),
    ],
)
def test_trifles_never_cost_the_reply(message, fields, wanted):
    item = read_chat_reply(reply(message, **fields)).items[0]
    assert {key: item[key] for key in wanted} == wanted


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("model_length", "context_length"),
        ("max_completion_tokens", "max_output_tokens"),
        ("SAFETY", "content_filter"),
        (3, "stop"),
    ],
)
def test_other_names_of_finish_reasons_are_known(given, wanted):
    assert read_chat_reply(reply({"content": "x"}, given)).finish_reason == wanted


@pytest.mark.parametrize("calls", [[], None])
@pytest.mark.parametrize("reason", ["tool_calls", "function_call"])
def test_a_text_with_the_finish_reason_of_calls_is_kept(calls, reason):
    got = read_chat_reply(reply({"content": "4", "tool_calls": calls}, reason))
    assert (text_of(got.items[0]), got.finish_reason) == ("4", "stop")


def test_a_reply_that_lacks_resources_is_tried_again():
    with pytest.raises(ReplyMalformed, match="insufficient_system_resource"):
        read_chat_reply(reply({"content": "4"}, "insufficient_system_resource"))


def test_a_reply_stopped_for_repetition_is_cut_and_names_the_reason():
    got = read_chat_reply(reply({"content": "4 4 4 4"}, "repetition"))
    assert (got.finish_reason, got.server_finish_reason) == ("max_output_tokens", "repetition")
    assert read_chat_reply(reply({"content": "4"}, "repetition_truncation")).finish_reason == "max_output_tokens"


def token_body(choice=None, usage=None, **fields):
    whole = {"message": {"role": "assistant", "content": "4"}, "finish_reason": "stop", **(choice or {})}
    usage = usage or {"prompt_tokens": 1, "completion_tokens": 2}
    return orjson.dumps({"id": "c", "model": "m", "choices": [whole], "usage": usage, **fields})


LOGPROBS = {"content": [{"logprob": -0.5, "id": 7}, {"logprob": -0.25, "id": 8}]}


@pytest.mark.parametrize(
    "choice",
    [
        {"token_ids": [7, 8], "logprobs": LOGPROBS},
        {"provider_specific_fields": {"token_ids": [7, 8], "stop_reason": None}, "logprobs": LOGPROBS},
        {"logprobs": LOGPROBS},
    ],
)
def test_token_ids_are_found_where_servers_and_gateways_place_them(choice):
    got = read_chat_reply(token_body(choice, prompt_token_ids=[1]), asked_tokens=True)
    assert (got.tokens_note, got.tokens.fields()["generation_token_ids"]) == ("", [7, 8])


@pytest.mark.parametrize("usage", [{"prompt_tokens": 1, "completion_tokens": 4}, {"prompt_tokens": 3}])
@pytest.mark.parametrize("message", [{"content": "4"}, {"content": "4", "reasoning": "Hm."}])
def test_tokens_that_differ_from_the_usage_in_number_are_not_captured(usage, message):
    choice = {"token_ids": [7, 8], "logprobs": LOGPROBS, "message": {"role": "assistant", **message}}
    got = read_chat_reply(token_body(choice, usage, prompt_token_ids=[1]), asked_tokens=True)
    assert (got.tokens, got.tokens_note, text_of(got.items[-1])) == (None, "usage_differs", "4")


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_in_the_fields_of_a_gateway_is_read(name):
    message = {"content": "4", "reasoning_content": None, "provider_specific_fields": {name: "Hm."}}
    got = read_chat_reply(reply(message, usage={"prompt_tokens": 1, "completion_tokens": 2}))
    assert [(item["type"], text_of(item)) for item in got.items] == [("reasoning", "Hm."), ("message", "4")]
    # A thought in both places is read once.
    both = read_chat_reply(reply({**message, "reasoning_content": "Hm."}))
    assert [(item["type"], text_of(item)) for item in both.items] == [("reasoning", "Hm."), ("message", "4")]
