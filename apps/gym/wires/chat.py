"""The Chat Completions wire: convert an ask to the body of a request."""

from collections.abc import Callable
from typing import Any

from apps.gym.traces.chat_turns import HistoryForm, SentMessages
from apps.gym.traces.items import Tool
from apps.gym.wires.dialect import PLAIN, Dialect, check_sampling, read_task_body
from apps.gym.wires.protocol import Ask

# Keys of a Responses request that chat lacks or places elsewhere. `metadata` is dropped because chat accepts it only
# with `store`.
_NOT_FOR_CHAT = frozenset(
    {"background", "include", "instructions", "max_tool_calls", "metadata", "stream", "truncation"}
)
_NEEDS_TOOLS = frozenset({"tool_choice", "parallel_tool_calls"})


def chat_request(ask: Ask, *, model_name: str, dialect: Dialect = PLAIN) -> dict[str, Any]:
    """Return the body of POST /chat/completions. Unknown sampling keys (top_k, min_p, …) are passed on.

    The next call with the same `sent` may change this body.

    Raises SamplingRefused for sampling that would contradict the trace, and PolicyError for an item without a chat
    message or a task's `metadata.extra_body` that cannot be merged.
    """
    sent = ask.sent or SentMessages()
    fields = sent.keep_fields(ask.tools, ask.sampling, lambda: _fields(ask, model_name, dialect))
    messages = sent.extend(
        ask.items,
        instructions=ask.sampling.get("instructions"),
        reasoning=dialect.reasoning,
        form=HistoryForm(dialect.call_content, valid_arguments=True, both_fields=dialect.asks_tokens),
    )
    fields[dialect.renamed.get("messages", "messages")] = messages
    return fields


def _fields(ask: Ask, model_name: str, dialect: Dialect) -> dict[str, Any]:
    """Return the body, with None in place of the messages."""
    check_sampling(ask.sampling)
    body: dict[str, Any] = {"model": model_name, "messages": None}
    if ask.tools:
        body["tools"] = [chat_tool(tool) for tool in ask.tools]
    if ask.sampling:
        body |= chat_sampling(ask.sampling, has_tools=bool(ask.tools))
    if dialect.asks_tokens:
        body |= {"return_token_ids": True, "logprobs": True}
    return dialect.finish(body)


def chat_tool(tool: Tool) -> dict[str, Any]:
    """Return a flat Responses tool in the nested chat form.

    Nested tools and tools other than functions are unchanged.
    """
    if tool.get("type") != "function" or "function" in tool:
        return tool
    return {"type": "function", "function": {k: v for k, v in tool.items() if k != "type" and v is not None}}


def chat_sampling(sampling: dict[str, Any], *, has_tools: bool) -> dict[str, Any]:
    """Translate Responses sampling keys to Chat Completions keys.

    Nulls mean "the endpoint's default" and are left out.

    Raises PolicyError for a task's `metadata.extra_body` that cannot be merged.
    """
    body: dict[str, Any] = {}
    for key, value in sampling.items():
        if value is None or key in _NOT_FOR_CHAT or (key in _NEEDS_TOOLS and not has_tools):
            continue
        if key in _TRANSLATE:
            body |= _TRANSLATE[key](value)
        else:
            body[key] = value
    return body | read_task_body(sampling)


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
