"""The Chat Completions wire, inwards: a reply's body to the items of a turn."""

from typing import Any, Generic, TypeVar

import msgspec

from apps.gym.errors import PolicyError
from apps.gym.items import TokenUsage
from apps.gym.policy.chat_turns import Reasoning, assistant_items
from apps.gym.policy.protocol import Reply
from apps.gym.tokens import TokenCapture, TokensMissing, capture_tokens


class ReplyMalformed(PolicyError):
    """The endpoint answered 200 with something that is no reply."""


class CallsMissing(ReplyMalformed):
    """The finish reason says that tools were called, and the reply holds no call.

    Seen from vLLM when a required call's arguments could not be parsed: the call is dropped, the reason stays.
    """


_FINISH = {
    "length": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "content_filter": "content_filter",
}


class _Function(msgspec.Struct):
    name: str
    arguments: Any = "{}"


class _Call(msgspec.Struct):
    function: _Function
    id: str | None = None


class _Message(msgspec.Struct):
    content: str | list[Any] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: Any = None
    tool_calls: list[_Call] | None = None
    annotations: list[Any] | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _Logprob(msgspec.Struct, gc=False):
    logprob: float


class _Logprobs(msgspec.Struct):
    content: list[_Logprob] | None = None


class _TokenChoice(_Choice):
    token_ids: list[int] | None = None
    logprobs: _Logprobs | None = None


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _CompletionDetails(msgspec.Struct):
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None


Choice = TypeVar("Choice", bound=_Choice)


class _ChatReply(msgspec.Struct, Generic[Choice]):
    choices: list[Choice]
    id: str = ""
    model: str | None = None
    usage: _Usage | None = None


class _TokenReply(_ChatReply[_TokenChoice]):
    prompt_token_ids: list[int] | None = None


_decoder = msgspec.json.Decoder(_ChatReply[_Choice])
_token_decoder = msgspec.json.Decoder(_TokenReply)


def read_chat_reply(body: bytes, *, asked_tokens: bool = False, reasoning: Reasoning = "field") -> Reply:
    """The first choice as items, and with `asked_tokens` its tokens, or a note that says why it has none.

    Raises ReplyMalformed, or CallsMissing where calls were announced and none came.
    """
    try:
        reply = _decode_with_tokens(body) if asked_tokens else _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ReplyMalformed(f"The endpoint's reply is no chat completion: {error}") from None
    if not reply.choices:
        raise ReplyMalformed("The endpoint's reply holds no choices.")
    choice = reply.choices[0]
    items = assistant_items(msgspec.to_builtins(choice.message), reply.id, reasoning=reasoning)
    finish = _finish_reason(choice)
    tokens, note = _tokens(reply) if asked_tokens else (None, "")
    return Reply(
        items=items,
        finish_reason=finish,
        usage=_usage(reply.usage),
        model=reply.model or "",
        response_id=reply.id,
        tokens=tokens,
        tokens_note=note,
    )


def _finish_reason(choice: _Choice) -> str:
    given = choice.finish_reason
    if given in _FINISH:
        return _FINISH[given]
    if given in ("abort", "error"):
        raise ReplyMalformed(f"The endpoint gave up on the reply (finish reason {given!r}).")
    if choice.message.tool_calls:
        # A named tool choice ends with `stop`, the others with `tool_calls`.
        return "tool_calls"
    if given in ("tool_calls", "function_call"):
        raise CallsMissing("The reply's finish reason is tool_calls, but it holds no tool call.")
    return "stop"


def _decode_with_tokens(body: bytes) -> _ChatReply[Any]:
    try:
        return _token_decoder.decode(body)
    except msgspec.ValidationError:
        # A server that writes tokens in another way loses these, not the reply.
        return _decoder.decode(body)


def _tokens(reply: _ChatReply[Any]) -> tuple[TokenCapture | None, str]:
    """Token ids and logprobs, all three or none, and why none."""
    if not isinstance(reply, _TokenReply):
        return None, "malformed_tokens"
    choice = reply.choices[0]
    if not reply.prompt_token_ids or not choice.token_ids:
        return None, "no_token_ids"
    if choice.logprobs is None or not choice.logprobs.content:
        return None, "no_logprobs"
    logprobs = [entry.logprob for entry in choice.logprobs.content]
    try:
        return capture_tokens(reply.prompt_token_ids, choice.token_ids, logprobs), ""
    except TokensMissing as why:
        return None, why.note


def _usage(usage: _Usage | None) -> TokenUsage:
    if usage is None:
        return {}
    prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
    return {
        "input_tokens": usage.prompt_tokens or 0,
        "output_tokens": usage.completion_tokens or 0,
        "reasoning_tokens": (completion.reasoning_tokens if completion else None) or 0,
        "cached_tokens": (prompt.cached_tokens if prompt else None) or 0,
    }
