"""Endpoints that answer in unusual ways: the right outcome for each, and no crash."""

import asyncio

import orjson
import pytest
from aiohttp import web

from apps.gym.calls.outbound import Outbound
from apps.gym.calls.outbound_policy import OutboundPolicy
from apps.gym.calls.retries import Pauses
from apps.gym.errors import PolicyError
from apps.gym.traces.items import message
from apps.gym.wires.protocol import Ask
from tests.plain_policies import plain_policy

ASK = Ask(items=[message("user", "What is 6 * 7?")])
GOOD = {"id": "r", "choices": [{"message": {"content": "42"}, "finish_reason": "stop"}]}


def ask(*answers, wire="chat"):
    """The reply, and how many calls it took; each answer is a function from request to response."""
    given = list(answers)
    calls = []

    async def handle(request):
        calls.append(await request.read())
        return await given.pop(0)(request)

    async def main():
        runner = web.ServerRunner(web.Server(handle), shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        outbound = Outbound(OutboundPolicy(["127.0.0.1"]))
        base_url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        policy = plain_policy(
            outbound, base_urls=[base_url], model_name="m", wire=wire, max_tries=2, pauses=Pauses(first=0.0)
        )
        try:
            return await policy.ask(ASK), len(calls)
        finally:
            await outbound.close()
            await runner.cleanup()

    return asyncio.run(main())


def says(body, **headers):
    async def answer(request):
        return web.Response(body=orjson.dumps(body), content_type=headers.get("content_type", "application/json"))

    return answer


def streams(*chunks, cut=False):
    """A stream of server-sent events; a cut one ends with the connection, amid the body."""

    async def answer(request):
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(b"data: " + (chunk if isinstance(chunk, bytes) else orjson.dumps(chunk)) + b"\n\n")
        if cut:
            request.transport.abort()
        return response

    return answer


def delta(finish=None, **said):
    return {"id": "r", "model": "m", "choices": [{"index": 0, "delta": said, "finish_reason": finish}]}


WHOLE = (delta(role="assistant", content=""), delta(content="4"), delta("stop", content="2"), b"[DONE]")


def text(reply):
    return "".join(part["text"] for item in reply.items for part in item["content"])


def test_a_streamed_reply_is_read_as_a_whole_one():
    reply, calls = ask(streams(*WHOLE))
    assert (text(reply), reply.finish_reason, calls) == ("42", "stop", 1)


@pytest.mark.parametrize("cut", [True, False])
def test_a_stream_that_is_cut_mid_way_is_tried_again(cut):
    reply, calls = ask(streams(*WHOLE[:2], cut=cut), streams(*WHOLE))
    assert (text(reply), reply.retries, calls) == ("42", 1, 2)


def test_a_stream_that_is_always_cut_is_a_policy_error():
    with pytest.raises(PolicyError, match="ended before its reply did"):
        ask(streams(*WHOLE[:2]), streams(*WHOLE[:2]))


def test_a_stream_that_breaks_off_with_an_error_names_it():
    broken = {"error": {"message": "out of memory"}}
    with pytest.raises(PolicyError, match="out of memory"):
        ask(streams(WHOLE[0], broken), streams(WHOLE[0], broken))


def test_calls_are_put_together_from_their_pieces():
    pieces = [
        {"index": 0, "id": "c1", "type": "function", "function": {"name": "calculator", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"expression": '}},
        {"index": 1, "id": "c2", "type": "function", "function": {"name": "calculator", "arguments": '{"a"'}},
        {"index": 0, "function": {"arguments": '"6*7"}'}},
        {"index": 1, "function": {"arguments": ": 1}"}},
    ]
    chunks = [delta(tool_calls=[piece]) for piece in pieces]
    reply, _ = ask(streams(*chunks, delta("tool_calls"), b"[DONE]"))
    assert [(item["call_id"], item["arguments"]) for item in reply.items] == [
        ("c1", '{"expression": "6*7"}'),
        ("c2", '{"a": 1}'),
    ]


def test_a_body_that_is_cut_mid_way_is_tried_again():
    async def cut(request):
        response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": "1000"})
        await response.prepare(request)
        await response.write(orjson.dumps(GOOD)[:20])
        request.transport.abort()
        return response

    reply, calls = ask(cut, says(GOOD))
    assert (text(reply), calls) == ("42", 2)


def test_a_reply_of_5_mb_is_kept_whole():
    long = "x" * (5 * 1024 * 1024)
    reply, _ = ask(says({"id": "r", "choices": [{"message": {"content": long}, "finish_reason": "length"}]}))
    assert (text(reply) == long, reply.finish_reason) == (True, "max_output_tokens")


@pytest.mark.parametrize("finish", ["eos", "", None, "stop_sequence"])
def test_an_unknown_finish_reason_is_a_stop(finish):
    reply, _ = ask(says({"id": "r", "choices": [{"message": {"content": "42"}, "finish_reason": finish}]}))
    assert (text(reply), reply.finish_reason) == ("42", "stop")


def test_missing_usage_counts_nothing():
    assert ask(says(GOOD))[0].usage == {}


def test_unknown_fields_are_ignored():
    body = {
        **GOOD,
        "service_tier": "x",
        "choices": [{**GOOD["choices"][0], "extra": {"deep": [1]}}],
        "prompt_logprobs": 3,
    }
    assert text(ask(says(body))[0]) == "42"


@pytest.mark.parametrize("body", [{"choices": []}, {"choices": [{}]}, [], {"object": "error"}, {"choices": "none"}])
def test_a_200_that_is_no_reply_is_a_policy_error_after_its_tries(body):
    with pytest.raises(PolicyError, match="The endpoint's reply"):
        ask(says(body), says(body))


def test_a_page_of_html_is_a_policy_error():
    async def page(request):
        return web.Response(text="<html>502 Bad Gateway</html>", content_type="text/html")

    with pytest.raises(PolicyError, match="is not a chat completion"):
        ask(page, page)
