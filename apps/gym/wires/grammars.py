"""Find requests in which the server may constrain the reply by a grammar.

A grammar forces tokens: their captured logprobs are then not those of the model, and do not belong in a loss.
"""

from collections.abc import Iterable
from typing import Any

from apps.gym.traces.events import ModelCall, SessionOpened, TraceUnion
from apps.gym.traces.items import Tool
from apps.gym.trainability import FORCED_CALLS, RESPONSE_FORMAT, STRICT_TOOLS

_GRAMMAR_FIELDS = frozenset(
    {
        "ebnf",
        "grammar",
        "guided_choice",
        "guided_grammar",
        "guided_json",
        "guided_regex",
        "json_schema",
        "regex",
        "structural_tag",
        "structured_outputs",
    }
)
"""Fields in which vLLM, SGLang and llama.cpp take a grammar."""
_FREE_CHOICES = (None, "auto", "none")


def has_grammar(body: dict[str, Any]) -> bool:
    """Return True for strict tools, a forced tool choice, a response format or guided decoding, on any wire."""
    # Called for each model call: most bodies have none of these fields.
    if "tools" in body and _has_strict_tools(body["tools"], body.get("tool_choice")):
        return True
    if "response_format" in body and _is_format(body["response_format"]):
        return True
    if "text" in body and isinstance(body["text"], dict) and _is_format(body["text"].get("format")):
        return True
    if isinstance(config := body.get("output_config"), dict) and _is_format(config.get("format")):
        return True
    return not _GRAMMAR_FIELDS.isdisjoint(body) and any(body.get(field) for field in _GRAMMAR_FIELDS)


def name_grammar(events: Iterable[TraceUnion]) -> str:
    """Return what made the server use a grammar in a trace: a key of GRAMMARS, or an empty string without a grammar."""
    tools: list[Tool] = []
    for event in events:
        if isinstance(event, SessionOpened):
            tools = event.tools
        elif isinstance(event, ModelCall):
            tools = tools if event.tools_in is None else event.tools_in
            if event.grammar:
                if has_strict_tools(tools):
                    return STRICT_TOOLS
                return FORCED_CALLS if _is_forced(event.sampling.get("tool_choice")) else RESPONSE_FORMAT
    return ""


def has_strict_tools(tools: list[Tool]) -> bool:
    return any(map(_is_strict, tools))


def _has_strict_tools(tools: Any, choice: Any) -> bool:
    if not isinstance(tools, list) or not tools:
        return False
    return any(map(_is_strict, tools)) or (choice is not None and _is_forced(choice))


def _is_format(form: Any) -> bool:
    return isinstance(form, dict) and form.get("type") not in (None, "text")


def _is_strict(tool: Any) -> bool:
    """Return True for a strict tool, flat or nested as in Chat Completions."""
    if not isinstance(tool, dict):
        return False
    if tool.get("strict"):
        return True
    function = tool.get("function")
    return isinstance(function, dict) and bool(function.get("strict"))


def _is_forced(choice: Any) -> bool:
    if not isinstance(choice, dict):
        return choice not in _FREE_CHOICES
    allowed = choice.get("allowed_tools")
    mode = choice.get("mode") or (allowed.get("mode") if isinstance(allowed, dict) else None)
    return choice.get("type") not in _FREE_CHOICES and mode != "auto"
