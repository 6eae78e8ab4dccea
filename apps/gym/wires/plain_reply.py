"""Read the Chat Completions reply that most servers send, with one typed decode.

Such a reply has only text and calls, and needs no repair. chat_reply.py reads all replies that do not match.
"""

from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec

from apps.gym.traces.chat_turns import call_item, message_item
from apps.gym.traces.items import TokenUsage
from apps.gym.traces.known_ids import KnownIds
from apps.gym.traces.tokens import TokenCapture, TokensMissing, add_logprobs
from apps.gym.wires.chat_tokens import Logprobs, check_counts, read_tokens
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
    provider_specific_fields: None = None
    annotations: Annotated[list[Any], msgspec.Meta(max_length=0)] | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: Literal["stop", "tool_calls", "length"]


_NULL = msgspec.Raw(b"null")


class _TokenChoice(_Choice):
    token_ids: msgspec.Raw = _NULL
    logprobs: Logprobs | None = None


Choice = TypeVar("Choice", bound=_Choice)
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


class _Reply(msgspec.Struct, Generic[Choice]):
    choices: Annotated[list[Choice], msgspec.Meta(min_length=1, max_length=1)]
    id: Annotated[str, msgspec.Meta(min_length=1)]
    model: str
    usage: _Usage


class _TokenReply(_Reply[_TokenChoice]):
    prompt_token_ids: msgspec.Raw = _NULL


_decoder = msgspec.json.Decoder(_Reply[_Choice])
_token_decoder = msgspec.json.Decoder(_TokenReply)


def read_plain_reply(body: bytes, *, asked_tokens: bool = False, known_ids: KnownIds | None = None) -> Reply | None:
    """Return the reply if it needs no tolerant parsing, otherwise None. With `asked_tokens`, add its tokens."""
    reply: _Reply[Any]
    tokens, note = None, ""
    try:
        reply = (_token_decoder if asked_tokens else _decoder).decode(body)
        if isinstance(reply, _TokenReply):
            if bytes(reply.choices[0].token_ids) == b"null":
                return None  # They may be elsewhere.
            tokens, note = check_counts(*_read_tokens(reply, known_ids or KnownIds()), reply.usage.counts())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TokensMissing):
        return None
    choice, name = reply.choices[0], reply.id
    said, calls = choice.message.content, choice.message.tool_calls or []
    if not calls and choice.finish_reason == "tool_calls":
        return None
    items = [message_item(name, [{"type": "output_text", "text": said, "annotations": []}])] if said else []
    for number, call in enumerate(calls):
        function = call.function
        items.append(call_item(name, number, call_id=call.id, tool=function.name, arguments=function.arguments))
    finish = "tool_calls" if calls else "stop"
    return Reply(
        items=items,
        finish_reason="max_output_tokens" if choice.finish_reason == "length" else finish,
        usage=reply.usage.counts(),
        model=reply.model,
        response_id=name,
        tokens=tokens,
        tokens_note=note,
    )


def _read_tokens(reply: _TokenReply, known_ids: KnownIds) -> tuple[TokenCapture | None, str]:
    choice = reply.choices[0]
    ids = known_ids.read(bytes(reply.prompt_token_ids), bytes(choice.token_ids))
    return read_tokens(*ids, choice.logprobs, add_logprobs)
