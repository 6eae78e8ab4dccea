"""A streamed chat reply (server-sent events) as the one body that it would have been without streaming."""

from collections.abc import Iterator
from typing import Any

import orjson

from apps.gym.policy.chat_reply import ReplyMalformed

EVENT_STREAM = "text/event-stream"
_TEXTS = ("content", "refusal", "reasoning", "reasoning_content")


def join_chat_stream(body: bytes) -> bytes:
    """The chunks' first choice joined. Raises ReplyMalformed where the stream was cut, broke off or is none."""
    joined: dict[str, Any] = {}
    choice: dict[str, Any] = {"message": {"role": "assistant"}, "finish_reason": None}
    for chunk in _chunks(body):
        if "error" in chunk:
            raise ReplyMalformed(f"The endpoint broke off its reply: {chunk['error']}")
        for key in ("id", "model", "usage", "prompt_token_ids"):
            if chunk.get(key) is not None:
                joined[key] = chunk[key]
        for part in chunk.get("choices") or ():
            if part.get("index", 0) == 0:
                _add(choice, part)
    if choice["finish_reason"] is None:
        raise ReplyMalformed("The endpoint's stream ended before its reply did.")
    return orjson.dumps({**joined, "choices": [choice]})


def _chunks(body: bytes) -> Iterator[dict[str, Any]]:
    for line in body.splitlines():
        if not line.startswith(b"data:"):
            continue  # comments, ids and the names of events
        given = line.removeprefix(b"data:").strip()
        if given == b"[DONE]":
            return
        try:
            chunk = orjson.loads(given)
        except orjson.JSONDecodeError as error:
            raise ReplyMalformed(f"A chunk of the endpoint's stream is not JSON: {error}") from None
        if not isinstance(chunk, dict):
            raise ReplyMalformed("A chunk of the endpoint's stream is not an object.")
        yield chunk


def _add(choice: dict[str, Any], part: dict[str, Any]) -> None:
    delta, message = part.get("delta") or {}, choice["message"]
    for name in _TEXTS:
        if isinstance(delta.get(name), str):
            message[name] = message.get(name, "") + delta[name]
    for call in delta.get("tool_calls") or ():
        _add_call(message.setdefault("tool_calls", []), call)
    choice["finish_reason"] = part.get("finish_reason") or choice["finish_reason"]
    if part.get("token_ids"):
        choice.setdefault("token_ids", []).extend(part["token_ids"])
    logprobs = (part.get("logprobs") or {}).get("content")
    if logprobs:
        choice.setdefault("logprobs", {"content": []})["content"].extend(logprobs)


def _add_call(calls: list[dict[str, Any]], delta: dict[str, Any]) -> None:
    """The first delta of a call names it, the others carry its arguments piece by piece."""
    place = delta.get("index", len(calls))
    while len(calls) <= place:
        calls.append({"id": None, "type": "function", "function": {"name": "", "arguments": ""}})
    call, function = calls[place], delta.get("function") or {}
    call["id"] = delta.get("id") or call["id"]
    call["function"]["name"] += function.get("name") or ""
    call["function"]["arguments"] += function.get("arguments") or ""
