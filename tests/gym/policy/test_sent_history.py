"""The history that is sent to a server which parses it, as vLLM's chat templates do."""

import asyncio
import json
import re

import pytest
from aiohttp import web

from apps.gym.calls.outbound import Outbound
from apps.gym.calls.outbound_policy import OutboundPolicy
from apps.gym.traces.items import UNPARSED, message
from apps.gym.wires.chat import chat_request
from apps.gym.wires.dialect import Dialect
from apps.gym.wires.messages_content import read_call_id, write_call_id
from apps.gym.wires.messages_request import messages_request
from apps.gym.wires.protocol import Ask
from apps.gym.wires.responses_wire import responses_request
from tests.plain_policies import plain_policy

MALFORMED = ['{"q": "pear', '{"q": "a\tb"}', '{"q": "pear"}}', "{'q': 'pear'}", '["pear"]', "null", '{"q": "\\ud800"}']
REPLIES = {
    "chat": {"id": "c", "choices": [{"message": {"content": "4"}, "finish_reason": "stop"}]},
    "responses": {"id": "r", "output": [{"type": "message", "role": "assistant", "content": "4"}]},
    "messages": {"id": "m", "content": [{"type": "text", "text": "4"}], "stop_reason": "end_turn"},
}


def called(arguments, call_id="c1"):
    return {"type": "function_call", "id": "fc", "call_id": call_id, "name": "find", "arguments": arguments}


def output(call_id="c1", text="Invalid arguments."):
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def sent_inputs(wire, body):
    """Return the arguments of all calls in a request, as a server parses them."""
    if wire == "chat":
        calls = [call for one in body["messages"] for call in one.get("tool_calls", ())]
        return [json.loads(call["function"]["arguments"]) for call in calls]
    if wire == "responses":
        return [json.loads(item["arguments"]) for item in body["input"] if item.get("type") == "function_call"]
    blocks = [block for one in body["messages"] if isinstance(one["content"], list) for block in one["content"]]
    return [block["input"] for block in blocks if block["type"] == "tool_use"]


def ask_strict_server(wire, items):
    """Send the items to a server that returns 400 unless all arguments are objects. Return reply and arguments."""
    seen = []

    async def handle(request):
        try:
            seen[:] = sent_inputs(wire, await request.json())
        except ValueError as error:
            return web.json_response({"error": {"message": str(error)}}, status=400)
        if not all(isinstance(one, dict) for one in seen):
            return web.json_response({"error": {"message": "Not an object."}}, status=400)
        return web.json_response(REPLIES[wire])

    async def main():
        runner = web.ServerRunner(web.Server(handle))
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        outbound = Outbound(OutboundPolicy(["127.0.0.1"]))
        url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}/v1"
        policy = plain_policy(outbound, base_urls=[url], model_name="m", wire=wire, api_key="", max_tries=1)
        try:
            return await policy.ask(Ask(items=items))
        finally:
            await outbound.close()
            await runner.cleanup()

    return asyncio.run(main()), seen


@pytest.mark.parametrize("wire", ["chat", "responses", "messages"])
@pytest.mark.parametrize("arguments", MALFORMED)
def test_a_malformed_call_is_resent_in_an_object_and_stays_as_sampled(wire, arguments):
    items = [message("user", "Hi"), called(arguments), output()]
    reply, seen = ask_strict_server(wire, items)
    assert seen == [{UNPARSED: arguments}]
    assert (items[1]["arguments"], reply.finish_reason) == (arguments, "stop")


@pytest.mark.parametrize("wire", ["chat", "responses", "messages"])
@pytest.mark.parametrize("arguments", ["", "  \n"])
def test_a_call_without_arguments_is_resent_with_an_empty_object(wire, arguments):
    _, seen = ask_strict_server(wire, [message("user", "Hi"), called(arguments), output()])
    assert seen == [{}]


@pytest.mark.parametrize("request_of", [chat_request, responses_request])
def test_valid_arguments_are_sent_character_for_character(request_of):
    written = ' {"b":1,  "a": 123456789012345678901234567890}'
    body = request_of(Ask(items=[message("user", "Hi"), called(written), output()]), model_name="m")
    assert json.dumps(written) in json.dumps(body)


@pytest.mark.parametrize(("form", "wanted"), [("empty", {"content": ""}), ("null", {"content": None}), ("omitted", {})])
def test_content_beside_calls_has_the_form_of_the_setting(form, wanted):
    ask = Ask(items=[message("user", "Hi"), called("{}"), output()])
    sent = chat_request(ask, model_name="m", dialect=Dialect(call_content=form))["messages"][1]
    assert {key: value for key, value in sent.items() if key == "content"} == wanted
    assert chat_request(ask, model_name="m")["messages"][1]["content"] == ""


@pytest.mark.parametrize("form", ["empty", "null", "omitted"])
def test_reasoning_in_the_text_stays_beside_calls(form):
    thought = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}]}
    ask = Ask(items=[message("user", "Hi"), thought, called("{}"), output()])
    dialect = Dialect(call_content=form, reasoning="text")
    assert chat_request(ask, model_name="m", dialect=dialect)["messages"][1]["content"] == "<think>\nhm\n</think>\n\n"


def test_reasoning_is_sent_back_in_both_fields_of_vllm_when_its_tokens_are_captured():
    thought = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}]}
    ask = Ask(items=[message("user", "Hi"), thought, called("{}"), output()])
    sent = chat_request(ask, model_name="m", dialect=Dialect(asks_tokens=True))["messages"][1]
    assert (sent["reasoning_content"], sent["reasoning"]) == ("hm", "hm")
    assert "reasoning" not in chat_request(ask, model_name="m")["messages"][1]


@pytest.mark.parametrize("wire", ["chat", "responses", "messages"])
def test_integers_beyond_64_bits_are_sent_exactly(wire):
    reply, seen = ask_strict_server(wire, [message("user", "Hi"), called('{"n": 123456789012345678901}'), output()])
    assert (seen, reply.finish_reason) == ([{"n": 123456789012345678901}], "stop")


def message_ids(items):
    """Return the ids of calls and of results in a Messages request, in order."""
    blocks = [
        block
        for one in messages_request(Ask(items=items), model_name="m")["messages"]
        if isinstance(one["content"], list)
        for block in one["content"]
    ]
    calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
    return calls, [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]


FIND = "gymweb_ZnVuY3Rpb25zLmZpbmQ6MA"  # functions.find:0


def test_call_ids_that_messages_refuses_are_replaced_in_call_and_result():
    turn = [called("{}", "functions.find:0"), called("{}", "ok-1"), output("functions.find:0"), output("ok-1")]
    assert message_ids([message("user", "Hi"), *turn]) == ([FIND, "ok-1"], [FIND, "ok-1"])
    assert [item["call_id"] for item in turn] == ["functions.find:0", "ok-1", "functions.find:0", "ok-1"]


@pytest.mark.parametrize("own", ["functions.find:0", "ok_1", "gymweb_1", FIND, "", "é", "\ud800", "a b"])
def test_a_written_call_id_is_valid_unique_and_read_back(own):
    written = write_call_id(own)
    assert re.fullmatch("[a-zA-Z0-9_-]+", written)
    assert read_call_id(written) == own


def test_ids_of_others_that_look_written_are_kept():
    # No base64, a text that needs no replacement, no UTF-8.
    for foreign in ("gymweb_1", "gymweb_b2s", "gymweb__w", "toolu_01"):
        assert read_call_id(foreign) == foreign


def test_repeated_call_ids_are_told_apart_in_one_turn_and_in_a_later_one():
    same = [called("{}", "c"), called("{}", "c"), output("c", "1"), output("c", "2")]
    later = [called("{}", "c"), output("c", "3")]
    user = message("user", "Hi")
    assert message_ids([user, *same, *later]) == (["c", "call_2", "call_5"], ["c", "call_2", "call_5"])
    assert message_ids([user, *same])[0] == ["c", "call_2"]


def test_a_result_belongs_to_the_latest_turn_with_its_id():
    user = message("user", "Hi")
    # The second call of the first turn stays without a result.
    first = [called("{}", "c"), called("{}", "c"), output("c")]
    later = [called("{}", "c"), output("c")]
    assert message_ids([user, *first, *later]) == (["c", "call_2", "call_4"], ["c", "call_4"])
    # A second result of a call is not one of another call.
    again = [called("{}", "c"), output("c"), output("c")]
    assert message_ids([user, *again, *later]) == (["c", "call_4"], ["c", "c", "call_4"])
    assert message_ids([user, *later, *again])[1] == ["c", "call_3", "call_3"]


def test_a_replaced_id_is_not_the_id_of_another_call():
    items = [message("user", "Hi"), called("{}", "call_2"), called("{}", "call_2"), called("{}", "call_2_")]
    assert message_ids(items)[0] == ["call_2", "call_2__", "call_2_"]


def test_empty_call_ids_and_results_without_a_call_get_a_valid_id():
    items = [message("user", "Hi"), called("{}", ""), output(""), output("x:y")]
    items[1]["id"] = ""
    assert message_ids(items) == (["gymweb_"], ["gymweb_", "gymweb_eDp5"])
