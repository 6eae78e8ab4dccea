"""Replies of the mock model (scripts/mock_model.py) for both APIs, by rule, with optional faults."""

import argparse
import functools
import itertools
import random
import re
import struct
from typing import Any

import orjson

_ids = itertools.count()
FAULTS = ("streamed", "cut-once", "cut", "large", "finish", "usage", "fields")
"""The faults of replies.

Streamed over chat; cut off in the middle, the first time or always; a text of 5 MB; an unknown finish reason; without
usage; with unknown fields everywhere.
"""
LARGE = 5 * 1024 * 1024
MARK = re.compile(r"<task-([0-9a-f]{8})>")
USAGE = {"input": 120, "output": 40}
TOOL_TOKENS = 20


@functools.cache
def chat_tokens(outputs: int, count: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return additional fields of a reply and of its choice. Encoded once, so they cost almost nothing."""
    start = USAGE["input"] + outputs * (count + TOOL_TOKENS)
    ids = [(31 * position + 7) % 150_000 for position in range(start + count)]
    draw = random.Random(outputs)
    # As servers do: computed as float32, written with all digits of a double.
    logprobs = [struct.unpack("f", struct.pack("f", -draw.expovariate(2.0)))[0] for _ in range(count)]
    content = [
        {"token": "tok", "logprob": logprob, "bytes": [116, 111, 107], "top_logprobs": []} for logprob in logprobs
    ]
    usage = {"prompt_tokens": start, "completion_tokens": count, "total_tokens": start + count}
    of_choice = {
        "token_ids": orjson.Fragment(orjson.dumps(ids[start:])),
        "logprobs": orjson.Fragment(orjson.dumps({"content": content})),
    }
    return {"prompt_token_ids": orjson.Fragment(orjson.dumps(ids[:start])), "usage": usage}, of_choice


def chat_reply(outputs: int, options: argparse.Namespace, *, with_tokens: bool = False) -> dict[str, Any]:
    number = next(_ids)
    calls = outputs < options.tool_calls
    reply: dict[str, Any] = {"role": "assistant", "content": None if calls else options.final}
    if calls:
        function = {"name": options.tool_name, "arguments": options.tool_args}
        reply["tool_calls"] = [{"id": f"call_{number}", "type": "function", "function": function}]
    of_reply, of_choice = chat_tokens(outputs, options.tokens) if with_tokens else ({}, {})
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 1,
        "model": "mock",
        "choices": [{"index": 0, "message": reply, "finish_reason": "tool_calls" if calls else "stop", **of_choice}],
        "usage": {
            "prompt_tokens": USAGE["input"],
            "completion_tokens": USAGE["output"],
            "total_tokens": USAGE["input"] + USAGE["output"],
        },
        **of_reply,
    }


def judges(text: str, options: argparse.Namespace) -> argparse.Namespace:
    """Return the options for a question to a judge: no tool calls, and the verdict as the final text."""
    mark = MARK.search(text)
    try:
        verdict = orjson.loads(options.verdict)
    except ValueError:
        final = options.verdict
    else:
        final = orjson.dumps({"mark": mark[1] if mark else "", "explanation": "By rule.", **verdict}).decode()
    return argparse.Namespace(**{**vars(options), "tool_calls": 0, "final": final})


def responses_reply(outputs: int, options: argparse.Namespace) -> dict[str, Any]:
    number = next(_ids)
    item: dict[str, Any]
    if outputs < options.tool_calls:
        item = {
            "type": "function_call",
            "id": f"fc_{number}",
            "call_id": f"call_{number}",
            "name": options.tool_name,
            "arguments": options.tool_args,
            "status": "completed",
        }
    else:
        item = {
            "type": "message",
            "id": f"msg_{number}",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": options.final, "annotations": []}],
        }
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1,
        "model": "mock",
        "status": "completed",
        "output": [item],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
        "incomplete_details": None,
        "usage": {
            "input_tokens": USAGE["input"],
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": USAGE["output"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": USAGE["input"] + USAGE["output"],
        },
    }


def spoil(reply: dict[str, Any], fault: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the reply with one fault in its content."""
    is_chat = "choices" in reply
    said = reply["choices"][0]["message"] if is_chat else reply["output"][0]["content"][0]
    if fault == "large":
        said["content" if is_chat else "text"] = options.final + " " * (LARGE - len(options.final))
    elif fault == "finish" and is_chat:
        reply["choices"][0]["finish_reason"] = "eos_token"
    elif fault == "finish":
        reply |= {"status": "incomplete", "incomplete_details": {"reason": "max_tool_calls"}}
    elif fault == "usage":
        del reply["usage"]
    elif fault == "fields":
        odd = {"x_new": {"deep": [1, None, {"a": "b"}]}, "x_more": "text"}
        reply |= odd
        said |= odd
        reply["choices" if is_chat else "output"][0] |= odd
        reply["usage"] |= odd
    return reply


def as_stream(reply: dict[str, Any]) -> bytes:
    """Return a chat reply of plain text as server-sent events, one per word."""
    head = {key: reply[key] for key in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    words = re.split(r"(?<= )", reply["choices"][0]["message"]["content"])
    choices: list[dict[str, Any]] = [{"index": 0, "delta": {"content": word}, "finish_reason": None} for word in words]
    choices.append({"index": 0, "delta": {}, "finish_reason": reply["choices"][0]["finish_reason"]})
    chunks = [{**head, "choices": [choice]} for choice in choices] + [{**head, "choices": [], "usage": reply["usage"]}]
    return b"".join(b"data: " + orjson.dumps(chunk) + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"
