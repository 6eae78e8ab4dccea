"""Find requests in which the server may constrain the reply by a grammar.

A grammar forces tokens: their captured logprobs are then not those of the model, and do not belong in a loss.
"""

from typing import Any

_GRAMMAR_FIELDS = frozenset(
    {
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
    tools = body.get("tools")
    if isinstance(tools, list) and tools and (any(map(_is_strict, tools)) or _is_forced(body.get("tool_choice"))):
        return True
    text = body.get("text")
    formats = (body.get("response_format"), text.get("format") if isinstance(text, dict) else None)
    if any(isinstance(form, dict) and form.get("type") not in (None, "text") for form in formats):
        return True
    return any(body.get(field) for field in _GRAMMAR_FIELDS)


def _is_strict(tool: Any) -> bool:
    """Return True for a strict tool, flat or nested as in Chat Completions."""
    if not isinstance(tool, dict):
        return False
    function = tool.get("function")
    return bool(tool.get("strict") or (isinstance(function, dict) and function.get("strict")))


def _is_forced(choice: Any) -> bool:
    if not isinstance(choice, dict):
        return choice not in _FREE_CHOICES
    allowed = choice.get("allowed_tools")
    mode = choice.get("mode") or (allowed.get("mode") if isinstance(allowed, dict) else None)
    return choice.get("type") not in _FREE_CHOICES and mode != "auto"
