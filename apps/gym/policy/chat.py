"""The Chat Completions wire: Responses items to a request body, and a chat reply back to items.

Pure conversions. Items say more than chat messages do, so what has no place in a chat message (ids, statuses, encrypted
reasoning, training fields) stays behind.
"""

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import msgspec
import orjson

from apps.gym.errors import PolicyError
from apps.gym.items import Item, TokenUsage, Tool, dump_json, item_type, text_of
from apps.gym.policy.protocol import Ask, Reply
from apps.gym.tokens import TokenCapture, TokensMissing, capture_tokens


class ReplyMalformed(PolicyError):
    """The endpoint answered 200 with something that is no reply."""


class CallsMissing(ReplyMalformed):
    """The finish reason says that tools were called, and the reply holds no call.

    Seen from vLLM when a required call's arguments could not be parsed: the call is dropped, the reason stays.
    """


# Keys of a Responses request that chat has no word for. `metadata` goes because chat takes it only with `store`.
_NOT_FOR_CHAT = frozenset(
    {
        "background",
        "conversation",
        "include",
        "input",
        "instructions",
        "max_tool_calls",
        "metadata",
        "model",
        "previous_response_id",
        "prompt",
        "stream",
        "tools",
        "truncation",
    }
)
_NEEDS_TOOLS = frozenset({"tool_choice", "parallel_tool_calls"})

_FINISH = {
    "length": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "content_filter": "content_filter",
}


# ── items → request ──────────────────────────────────────────────────────────────────────────────────────────────────


def chat_request(ask: Ask, *, model_name: str, asks_tokens: bool = False) -> dict[str, Any]:
    """The body of POST /chat/completions. Unknown sampling keys (top_k, min_p, …) go through as they are.

    With `asks_tokens` the reply shall hold token ids (vLLM's `return_token_ids`) and logprobs.
    """
    body: dict[str, Any] = {
        "model": model_name,
        "messages": chat_messages(ask.items, instructions=ask.sampling.get("instructions")),
    }
    if ask.tools:
        body["tools"] = [chat_tool(tool) for tool in ask.tools]
    if ask.sampling:
        body |= chat_sampling(ask.sampling, has_tools=bool(ask.tools))
    if asks_tokens:
        body |= {"return_token_ids": True, "logprobs": True}
    return body


def chat_tool(tool: Tool) -> dict[str, Any]:
    """A flat Responses tool in the nested chat form; a tool that is already nested, or no function, stays."""
    if tool.get("type") != "function" or "function" in tool:
        return tool
    return {"type": "function", "function": {k: v for k, v in tool.items() if k != "type" and v is not None}}


def chat_sampling(sampling: dict[str, Any], *, has_tools: bool) -> dict[str, Any]:
    """Responses-style sampling keys in chat's words; nulls mean "the endpoint's default" and are left out."""
    body: dict[str, Any] = {}
    for key, value in sampling.items():
        if value is None or key in _NOT_FOR_CHAT or (key in _NEEDS_TOOLS and not has_tools):
            continue
        if key in _TRANSLATE:
            body |= _TRANSLATE[key](value)
        else:
            body[key] = value
    return body | _extra_body(sampling.get("metadata"))


def _extra_body(metadata: object) -> dict[str, Any]:
    """What NeMo Gym's task rows want merged into the request: `metadata.extra_body`, a JSON object in a string."""
    given = metadata.get("extra_body") if isinstance(metadata, dict) else None
    if not isinstance(given, str):
        return {}
    try:
        extra = orjson.loads(given)
    except orjson.JSONDecodeError as error:
        raise PolicyError(f"metadata.extra_body is not JSON: {error}") from None
    return extra if isinstance(extra, dict) else {}


def _tool_choice(choice: Any) -> dict[str, Any]:
    if isinstance(choice, dict) and choice.get("type") == "function" and "name" in choice:
        return {"tool_choice": {"type": "function", "function": {"name": choice["name"]}}}
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools" and "tools" in choice:
        tools = [chat_tool(tool) for tool in choice["tools"]]
        allowed = {"mode": choice.get("mode", "auto"), "tools": tools}
        return {"tool_choice": {"type": "allowed_tools", "allowed_tools": allowed}}
    return {"tool_choice": choice}


def _text_options(text: Any) -> dict[str, Any]:
    if not isinstance(text, dict):
        return {}
    options: dict[str, Any] = {"verbosity": text["verbosity"]} if text.get("verbosity") else {}
    form = text.get("format") or {}
    if form.get("type") == "json_schema":
        schema = {k: v for k, v in form.items() if k != "type" and v is not None}
        options["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif form.get("type") not in (None, "text"):
        options["response_format"] = form
    return options


def _reasoning_options(reasoning: Any) -> dict[str, Any]:
    effort = reasoning.get("effort") if isinstance(reasoning, dict) else None
    return {"reasoning_effort": effort} if effort else {}


_TRANSLATE: dict[str, Callable[[Any], dict[str, Any]]] = {
    "max_output_tokens": lambda limit: {"max_completion_tokens": limit},
    "tool_choice": _tool_choice,
    "text": _text_options,
    "reasoning": _reasoning_options,
    "top_logprobs": lambda count: {"logprobs": True, "top_logprobs": count},
}


def chat_messages(items: Iterable[Item], *, instructions: object = None) -> list[dict[str, Any]]:
    """Items as chat messages. Reasoning, text and calls that stand together are one assistant message: one turn."""
    messages: list[dict[str, Any]] = []
    if isinstance(instructions, str) and instructions:
        messages.append({"role": "system", "content": instructions})
    turn: list[Item] = []
    for item in items:
        kind = item_type(item)
        if kind in ("reasoning", "function_call") or (kind == "message" and item.get("role") == "assistant"):
            turn.append(item)
            continue
        if turn:
            messages.append(_assistant_message(turn))
            turn = []
        if kind == "message":
            messages.append(_plain_message(item))
        elif kind == "function_call_output":
            content = _chat_content(item.get("output", ""))
            messages.append({"role": "tool", "tool_call_id": item.get("call_id", ""), "content": content})
        else:
            raise PolicyError(f"An item of type {kind!r} cannot be sent over the Chat Completions wire.")
    if turn:
        messages.append(_assistant_message(turn))
    return messages


def _plain_message(item: Item) -> dict[str, Any]:
    # Chat templates of open models know no developer: both words mean who speaks before the user.
    role = "system" if item["role"] == "developer" else item["role"]
    named = {"name": item["name"]} if item.get("name") else {}
    return {"role": role, "content": _chat_content(item.get("content")), **named}


def _assistant_message(turn: list[Item]) -> dict[str, Any]:
    contents, thoughts, calls = [], [], []
    for item in turn:
        kind = item_type(item)
        if kind == "reasoning":
            thoughts.append(text_of(item))
        elif kind == "function_call":
            calls.append(_chat_call(item))
        else:
            contents.append(item.get("content"))
    content = _assistant_content(contents)
    message: dict[str, Any] = {"role": "assistant", "content": content if content or not calls else None}
    thought = "\n\n".join(filter(None, thoughts))
    if thought:
        message["reasoning_content"] = thought
    if calls:
        message["tool_calls"] = calls
    return message


def _chat_call(item: Item) -> dict[str, Any]:
    return {
        "id": item.get("call_id") or item.get("id") or "",
        "type": "function",
        "function": {"name": item.get("name", ""), "arguments": item.get("arguments") or "{}"},
    }


def _assistant_content(contents: list[Any]) -> Any:
    """One string where the turn's texts are only text, parts where it holds something else, such as a refusal."""
    if len(contents) == 1 and isinstance(contents[0], str):
        return contents[0]
    parts: list[Any] = []
    texts: list[str] = []
    for content in contents:
        own = _chat_content(content)
        own = [{"type": "text", "text": own}] if isinstance(own, str) else own
        parts += own
        texts.append("".join(part.get("text", "") for part in own if isinstance(part, dict)))
    if all(isinstance(part, dict) and part.get("type") == "text" for part in parts):
        return "\n\n".join(text for text in texts if text)
    return parts


def _chat_content(content: Any) -> Any:
    if isinstance(content, list):
        return [_chat_part(part) for part in content]
    return "" if content is None else content


def _chat_part(part: Any) -> Any:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in ("input_text", "output_text"):
        return {"type": "text", "text": part.get("text", "")}
    if kind == "input_image":
        image = {"url": part.get("image_url", "")}
        return {"type": "image_url", "image_url": image | ({"detail": part["detail"]} if part.get("detail") else {})}
    if kind == "input_file":
        return {"type": "file", "file": {k: v for k, v in part.items() if k != "type" and v is not None}}
    return part


# ── reply → items ────────────────────────────────────────────────────────────────────────────────────────────────────


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


def read_chat_reply(body: bytes, *, asked_tokens: bool = False) -> Reply:
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
    items = _reply_items(choice.message, reply.id)
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


def _reply_items(message: _Message, reply_id: str) -> list[Item]:
    items: list[Item] = []
    thought = message.reasoning_content or message.reasoning
    if isinstance(thought, str) and thought:
        summary = [{"type": "summary_text", "text": thought}]
        items.append({"type": "reasoning", "id": f"rs_{reply_id}", "summary": summary})
    content = _reply_content(message)
    if content:
        items.append(
            {
                "type": "message",
                "id": f"msg_{reply_id}",
                "role": "assistant",
                "status": "completed",
                "content": content,
            }
        )
    for number, call in enumerate(message.tool_calls or ()):
        arguments = call.function.arguments
        items.append(
            {
                "type": "function_call",
                "id": f"fc_{reply_id}_{number}",
                "call_id": call.id or f"call_{reply_id}_{number}",
                "name": call.function.name,
                # Some servers answer with the object itself.
                "arguments": arguments if isinstance(arguments, str) else dump_json(arguments or {}),
                "status": "completed",
            }
        )
    return items


def _reply_content(message: _Message) -> list[dict[str, Any]]:
    given = message.content
    texts = [given] if isinstance(given, str) else [part.get("text") for part in given or () if isinstance(part, dict)]
    parts: list[dict[str, Any]] = [
        {"type": "output_text", "text": text, "annotations": message.annotations or []}
        for text in texts
        if isinstance(text, str) and text
    ]
    if message.refusal:
        parts.append({"type": "refusal", "refusal": message.refusal})
    return parts


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
