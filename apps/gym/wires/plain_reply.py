"""Read the Chat Completions reply that most servers send, with one typed decode.

Such a reply has only text and calls, and needs no repair. chat_reply.py reads all replies that do not match.
"""

from typing import Annotated, Any, Literal

import msgspec

from apps.gym.traces.chat_turns import call_item, message_item
from apps.gym.traces.items import TokenUsage
from apps.gym.wires.protocol import MAX_CALL_TOKENS, Reply


class _Function(msgspec.Struct):
    name: str
    arguments: str


class _Call(msgspec.Struct):
    function: _Function
    id: str


class _Message(msgspec.Struct):
    content: str | None = None
    tool_calls: list[_Call] | None = None
    refusal: None = None
    reasoning_content: None = None
    reasoning: None = None
    reasoning_details: None = None
    function_call: None = None
    annotations: Annotated[list[Any], msgspec.Meta(max_length=0)] | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: Literal["stop", "tool_calls"]


_Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_CALL_TOKENS)]


class _ReadDetails(msgspec.Struct):
    cached_tokens: _Count | None = None
    cache_write_tokens: _Count | None = None


class _WrittenDetails(msgspec.Struct):
    reasoning_tokens: _Count | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: _Count
    completion_tokens: _Count
    prompt_tokens_details: _ReadDetails | None = None
    completion_tokens_details: _WrittenDetails | None = None

    def counts(self) -> TokenUsage:
        """Return the counts as `read_usage` does: a part never exceeds its whole."""
        read, written = self.prompt_tokens_details, self.completion_tokens_details
        counts: TokenUsage = {
            "input_tokens": self.prompt_tokens,
            "output_tokens": self.completion_tokens,
            "reasoning_tokens": min(written.reasoning_tokens or 0, self.completion_tokens) if written else 0,
            "cached_tokens": min(read.cached_tokens or 0, self.prompt_tokens) if read else 0,
        }
        if read and read.cache_write_tokens and (rest := self.prompt_tokens - counts["cached_tokens"]):
            counts["cache_write_tokens"] = min(read.cache_write_tokens, rest)
        return counts


class _Reply(msgspec.Struct):
    choices: Annotated[list[_Choice], msgspec.Meta(min_length=1)]
    id: Annotated[str, msgspec.Meta(min_length=1)]
    model: str
    usage: _Usage


_decoder = msgspec.json.Decoder(_Reply)


def read_plain_reply(body: bytes) -> Reply | None:
    """Return the reply if it needs no tolerant parsing, otherwise None."""
    try:
        reply = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    choice, name = reply.choices[0], reply.id
    said, calls = choice.message.content, choice.message.tool_calls or []
    if not calls and choice.finish_reason == "tool_calls":
        return None
    items = [message_item(name, [{"type": "output_text", "text": said, "annotations": []}])] if said else []
    for number, call in enumerate(calls):
        function = call.function
        items.append(call_item(name, number, call_id=call.id, tool=function.name, arguments=function.arguments))
    return Reply(
        items=items,
        finish_reason="tool_calls" if calls else "stop",
        usage=reply.usage.counts(),
        model=reply.model,
        response_id=name,
    )
