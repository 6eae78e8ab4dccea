"""The Chat Completions wire: convert the body of a reply to the items of a turn."""

import secrets
from typing import Any, Generic, TypeVar

import msgspec

from apps.gym.errors import PolicyError
from apps.gym.storable import clean_line
from apps.gym.traces.chat_turns import Reasoning, assistant_items
from apps.gym.traces.items import Item, TokenUsage, as_object
from apps.gym.traces.known_ids import KnownIds
from apps.gym.traces.tokens import TokenCapture, capture_tokens
from apps.gym.wires.chat_tokens import Logprobs, check_counts, read_tokens
from apps.gym.wires.plain_reply import read_plain_reply
from apps.gym.wires.protocol import Reply, read_detail, read_usage


class ReplyMalformed(PolicyError):
    """Raised if the endpoint sent 200 with an invalid reply."""

    unreadable = True


class ReplyInterrupted(ReplyMalformed):
    """Raised if the endpoint began or replaced a reply, and reported an error or closed the stream."""

    unreadable = False


class CallsMissing(ReplyInterrupted):
    """Raised if the finish reason is tool_calls, but the reply has neither a call nor a text.

    vLLM does this when it cannot parse a required call's arguments: it drops the call and keeps the reason.
    """


_FINISH = {
    "length": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "max_output_tokens": "max_output_tokens",
    "model_length": "context_length",
    "content_filter": "content_filter",
    "safety": "content_filter",
}


_STANDARD_REASONS = frozenset({"stop", "length", "tool_calls", "function_call", "content_filter"})
_MAX_REASON = 100  # maximum characters of an unknown reason


# Fields that make up the turn are typed: a wrong type makes the reply malformed. Others are ignored if they have the
# wrong type.


class _Function(msgspec.Struct):
    name: str
    arguments: msgspec.Raw = msgspec.Raw(b'"{}"')


class _Call(msgspec.Struct):
    function: _Function
    id: Any = None


class _Message(msgspec.Struct):
    content: str | list[Any] | None = None
    refusal: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_details: Any = None
    provider_specific_fields: Any = None  # of LiteLLM
    tool_calls: list[_Call] | None = None
    function_call: _Function | None = None
    annotations: Any = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: Any = None


class _TokenChoice(_Choice):
    token_ids: list[int] | None = None
    provider_specific_fields: Any = None  # of LiteLLM
    logprobs: Logprobs | None = None


Choice = TypeVar("Choice", bound=_Choice)


class _ChatReply(msgspec.Struct, Generic[Choice]):
    choices: list[Choice]
    id: Any = ""
    model: Any = None
    usage: Any = None


class _TokenReply(_ChatReply[_TokenChoice]):
    prompt_token_ids: list[int] | None = None


class _Refusal(msgspec.Struct):
    error: dict[str, Any] | str


_refusal_decoder = msgspec.json.Decoder(_Refusal)
_decoder = msgspec.json.Decoder(_ChatReply[_Choice])
_token_decoder = msgspec.json.Decoder(_TokenReply)


def read_chat_reply(
    body: bytes,
    known_ids: KnownIds | None = None,
    *,
    asked_tokens: bool = False,
    reasoning: Reasoning = "field",
) -> Reply:
    """Return the first choice as items. With `asked_tokens`, add its tokens or a note with the reason for missing ones.

    `known_ids` has the token IDs of the previous call of the conversation, and keeps those of this one.

    Raises ReplyMalformed, or CallsMissing if the finish reason is tool_calls but the reply is empty.
    """
    if reasoning != "text" and (plain := read_plain_reply(body, asked_tokens=asked_tokens, known_ids=known_ids)):
        return plain
    try:
        reply = _decode_with_tokens(body) if asked_tokens else _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if reported := _reported_error(body):
            raise ReplyInterrupted(reported) from None
        raise ReplyMalformed(f"The endpoint's reply is not a chat completion: {error}") from None
    if not reply.choices:
        raise ReplyMalformed("The endpoint's reply has no choices.")
    choice, response_id = reply.choices[0], as_name(reply.id)
    calls = _calls(choice.message)
    try:
        # Ids are derived from the id of the reply, because otherwise ids of two turns would collide.
        name = response_id or secrets.token_hex(8)
        items = assistant_items(_plain_message(choice.message, calls), name, reasoning=reasoning)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ReplyMalformed(f"The endpoint's message cannot be read: {error}") from None
    finish = _finish_reason(choice.finish_reason, has_calls=bool(calls), has_text=has_message(items))
    usage = _usage(reply.usage)
    tokens, note = check_counts(*_tokens(reply), usage) if asked_tokens else (None, "")
    return Reply(
        items=items,
        finish_reason=finish,
        server_finish_reason=foreign_reason(choice.finish_reason, _STANDARD_REASONS),
        usage=usage,
        model=as_name(reply.model),
        response_id=response_id,
        tokens=tokens,
        tokens_note=note,
    )


def read_error(body: bytes) -> dict[str, Any] | str | None:
    """Return the error that some servers send with 200 in place of a reply, or None."""
    try:
        return _refusal_decoder.decode(body).error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _reported_error(body: bytes) -> str:
    error = read_error(body)
    message = error.get("message") if isinstance(error, dict) else error
    return f"The endpoint failed to answer: {message}" if message and isinstance(message, str) else ""


def _plain_message(message: _Message, calls: list[_Call]) -> dict[str, Any]:
    """Return the message with fields of the right types; others are dropped."""
    content = message.content
    if isinstance(content, list):
        content = [part for part in content if _is_part(part)]
    annotations = message.annotations if isinstance(message.annotations, list) else []
    return {
        "content": content,
        "refusal": message.refusal if isinstance(message.refusal, str) else None,
        "reasoning_content": message.reasoning_content,
        "reasoning": message.reasoning,
        "provider_specific_fields": message.provider_specific_fields,
        "reasoning_details": message.reasoning_details,
        "annotations": [one for one in annotations if isinstance(one, dict)],
        "tool_calls": [_plain_call(call) for call in calls],
    }


def _is_part(part: Any) -> bool:
    return isinstance(part, dict) and (part.get("type") != "refusal" or isinstance(part.get("refusal"), str))


def _calls(message: _Message) -> list[_Call]:
    """Return the calls. `function_call` is the older form of a single call."""
    if message.tool_calls or message.function_call is None:
        return message.tool_calls or []
    return [_Call(function=message.function_call)]


def _plain_call(call: _Call) -> dict[str, Any]:
    """Return a call with its arguments character for character, even if they are an object instead of text."""
    written = bytes(call.function.arguments)
    if written.startswith(b'"'):
        arguments = msgspec.json.decode(written, type=str)
    else:
        arguments = "{}" if written == b"null" else written.decode()
    return {"id": as_name(call.id), "function": {"name": call.function.name, "arguments": arguments}}


def as_name(given: Any) -> str:
    """Return an id or model name as text, because some servers send a number or null."""
    if isinstance(given, str):
        return given
    return str(given) if isinstance(given, int) and not isinstance(given, bool) and abs(given) < 2**64 else ""


def foreign_reason(given: Any, known: frozenset[str]) -> str:
    """Return the endpoint's own finish reason if the wire does not define it, or an empty text."""
    return clean_line(given, _MAX_REASON) if isinstance(given, str) and given not in known else ""


def is_repetition(reason: str) -> bool:
    """Return True if the server cut the reply because it repeats itself: `repetition` (vLLM), or a longer name."""
    return reason.lower().startswith("repetition")


def has_message(items: list[Item]) -> bool:
    """Return True if a turn has a text or a refusal."""
    return any(item["type"] == "message" for item in items)


def _finish_reason(given: Any, *, has_calls: bool, has_text: bool) -> str:
    given = given.lower() if isinstance(given, str) else None
    if given in _FINISH:
        return _FINISH[given]
    if given and is_repetition(given):
        return "max_output_tokens"
    # DeepSeek interrupts replies if it lacks resources.
    if given in ("abort", "error", "insufficient_system_resource"):
        raise ReplyInterrupted(f"The endpoint aborted the reply (finish reason {given!r}).")
    if has_calls:
        # A named tool choice ends with `stop`, others with `tool_calls`.
        return "tool_calls"
    if given in ("tool_calls", "function_call") and not has_text:
        raise CallsMissing("The reply's finish reason is tool_calls, but it has no tool call and no text.")
    return "stop"


def _decode_with_tokens(body: bytes) -> _ChatReply[Any]:
    try:
        return _token_decoder.decode(body)
    except msgspec.ValidationError:
        # If a server sends tokens in another format, they are lost, but the reply is not.
        return _decoder.decode(body)


def _tokens(reply: _ChatReply[Any]) -> tuple[TokenCapture | None, str]:
    """Return the token IDs and logprobs. If any of them are missing, return None and the reason."""
    if not isinstance(reply, _TokenReply):
        return None, "malformed_tokens"
    choice = reply.choices[0]
    generation = choice.token_ids or as_object(choice.provider_specific_fields).get("token_ids")
    if generation and not (isinstance(generation, list) and all(type(one) is int for one in generation)):
        return None, "not_token_ids"
    if not generation and choice.logprobs:
        # llama.cpp and mlx-lm name each token beside its logprob.
        ids = [entry.id for entry in choice.logprobs.content or ()]
        generation = None if None in ids else ids
    return read_tokens(reply.prompt_token_ids, generation, choice.logprobs, capture_tokens)


def _usage(usage: Any) -> TokenUsage:
    if not isinstance(usage, dict):
        return {}
    return read_usage(
        input_tokens=usage.get("prompt_tokens"),
        output_tokens=usage.get("completion_tokens"),
        cached_tokens=read_detail(usage, "prompt_tokens_details", "cached_tokens"),
        cache_write_tokens=read_detail(usage, "prompt_tokens_details", "cache_write_tokens"),
        reasoning_tokens=read_detail(usage, "completion_tokens_details", "reasoning_tokens"),
    )
