"""Validate the parameters of a task row, which contain its prompt: names, types and ranges."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from apps.gym.redaction.shortening import pointer_step
from apps.gym.tasks.file_rows import RowRefused, expect, wrong_type
from apps.gym.traces.items import TaskRow

ROLES = ("user", "assistant", "system", "developer")
OWN_TYPES = ("message", "function_call", "function_call_output", "reasoning")
# Other item types of the Responses API, passed on unchanged.
_OTHERS = (
    "apply_patch_call apply_patch_call_output code_interpreter_call compaction computer_call computer_call_output "
    "custom_tool_call custom_tool_call_output file_search_call image_generation_call item_reference local_shell_call "
    "local_shell_call_output mcp_approval_request mcp_approval_response mcp_call mcp_list_tools shell_call "
    "shell_call_output web_search_call"
)
TYPES = frozenset([*OWN_TYPES, *_OTHERS.split()])
TOOL_CHOICES = ("auto", "none", "required")

Found = tuple[str, str, str]
"""Code, place below the item, requirement."""


def find_item_problem(item: Mapping[str, Any]) -> Found | None:
    """Return why this is not a valid item of a prompt, or None."""
    kind, role = item.get("type"), item.get("role")
    if not isinstance(kind, str) and not isinstance(role, str):
        return "missing", "", "has neither role nor type"
    if kind is not None and (not isinstance(kind, str) or kind not in TYPES):
        return "unknown_type", "/type", f"must be {_any_of(OWN_TYPES)}, or another item of the Responses API"
    if kind == "function_call":
        return _text_problem(item, ("name", "call_id", "arguments"))
    if kind == "function_call_output":
        return _output_problem(item)
    return _message_problem(item) if kind in (None, "message") else None


def find_choice_problem(value: object) -> Found | None:
    """Return why this is not a valid `tool_choice`, or None."""
    if isinstance(value, str):
        if value not in TOOL_CHOICES:
            return "wrong_value", "", f"must be {_any_of(TOOL_CHOICES)}, or an object that names a tool"
        return None
    if not isinstance(value, dict):
        return "wrong_type", "", "must be text or an object"
    return _text_problem(value, ("type", "name") if value.get("type") == "function" else ("type",))


def _message_problem(item: Mapping[str, Any]) -> Found | None:
    if item.get("role") not in ROLES:
        return "wrong_value", "/role", f"must be {_any_of(ROLES)}"
    content = item.get("content")
    if isinstance(content, str):
        return None
    if not isinstance(content, list):
        return "wrong_type", "/content", "must be text or a list of parts"
    for index, part in enumerate(content):
        if not isinstance(part, dict) or not isinstance(part.get("type"), str):
            return "wrong_type", f"/content/{index}", "must be an object with a type"
    return None


def _output_problem(item: Mapping[str, Any]) -> Found | None:
    if not isinstance(item.get("output"), str | list):
        return "wrong_type", "/output", "must be text or a list of parts"
    return _text_problem(item, ("call_id",))


def _text_problem(holder: Mapping[str, Any], names: tuple[str, ...]) -> Found | None:
    for name in names:
        if not isinstance(holder.get(name), str):
            return "wrong_type" if name in holder else "missing", f"/{name}", "must be text"
    return None


def _any_of(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


PARAMS = "responses_create_params"
_NAMES = (
    "background context_management conversation include input instructions max_output_tokens max_tool_calls metadata "
    "model moderation parallel_tool_calls previous_response_id prompt prompt_cache_key prompt_cache_retention "
    "reasoning safety_identifier service_tier store stream stream_options temperature text tool_choice tools "
    "top_logprobs top_p truncation user"
)
PARAM_KEYS = frozenset(_NAMES.split())


def find_params(row: TaskRow) -> dict[str, Any]:
    """Return the parameters object, with known names only. Raises RowRefused."""
    if PARAMS not in row:
        close = get_close_matches(PARAMS, row, n=1)
        hint = f" (did you mean {PARAMS} instead of {close[0]}?)" if close else ""
        raise RowRefused("missing", f"is missing: the object that holds the prompt{hint}", pointer=f"/{PARAMS}")
    params = expect(row[PARAMS], dict, "an object", f"/{PARAMS}")
    for key in params:
        if key not in PARAM_KEYS:
            close = get_close_matches(key, PARAM_KEYS, n=1)
            hint = f"Did you mean {close[0]}? " if close else ""
            allowed = ", ".join(sorted(PARAM_KEYS))
            shown = pointer_step(key, 80)
            message = f"is not a known key. {hint}Allowed keys: {allowed}"
            raise RowRefused("unknown_key", message, pointer=f"/{PARAMS}/{shown}")
    return params


def drop_null_params(row: TaskRow) -> dict[str, Any]:
    """Remove null parameters from the row, and return the others: a null means that the parameter is not given."""
    params: dict[str, Any] = row[PARAMS]
    for key in [key for key, value in params.items() if value is None]:
        del params[key]
    return params


def check_params(params: dict[str, Any]) -> None:
    """Raise RowRefused for the first invalid parameter, or without `input`.

    An empty `input` is valid: the environment or the agent gives the prompt.
    """
    for key, value in params.items():
        if check := _CHECKS.get(key):
            check(value, f"/{PARAMS}/{key}")
    if "input" not in params:
        raise RowRefused("missing", "is missing: the prompt, as text or as a list of items", pointer=f"/{PARAMS}/input")


def _check_input(value: object, pointer: str) -> None:
    if isinstance(value, str):
        return
    items = expect(value, list, "text or a list of items", pointer)
    for index, item in enumerate(items):
        at = f"{pointer}/{index}"
        _refuse_found(find_item_problem(expect(item, dict, "an object with role or type", at)), at)


def _refuse_found(found: Found | None, pointer: str) -> None:
    if found:
        code, place, message = found
        raise RowRefused(code, message, pointer=f"{pointer}{place}")


def _check_tools(value: object, pointer: str) -> None:
    for index, given in enumerate(expect(value, list, "a list", pointer)):
        at = f"{pointer}/{index}"
        tool = expect(given, dict, "an object", at)
        if isinstance(tool.get("function"), dict):
            message = "is not allowed. Tools are flat: all keys are next to type"
            raise RowRefused("wrong_shape", message, pointer=f"{at}/function")
        if tool.get("type", "function") != "function":
            raise RowRefused("wrong_type", "must be function", pointer=f"{at}/type")
        if not isinstance(tool.get("name"), str) or not tool["name"]:
            raise RowRefused("missing", "must be the tool's name", pointer=f"{at}/name")


def _check_metadata(value: object, pointer: str) -> None:
    for key, text in expect(value, dict, "an object of texts", pointer).items():
        expect(text, str, "text", f"{pointer}/{pointer_step(key, 80)}")


def _check_stream(value: object, pointer: str) -> None:
    if value is not False:
        raise RowRefused("wrong_type", "must be false, because streaming is not supported", pointer=pointer)


def _check_choice(value: object, pointer: str) -> None:
    _refuse_found(find_choice_problem(value), pointer)


def _text(value: object, pointer: str) -> None:
    expect(value, str, "text", pointer)


def _between(low: float, high: float) -> Callable[[object, str], None]:
    def check(value: object, pointer: str) -> None:
        if type(value) not in (int, float):
            raise wrong_type(pointer, "a number", value)
        if not low <= value <= high:  # type: ignore[operator]
            raise RowRefused("out_of_range", f"must be from {low:g} to {high:g}", pointer=pointer)

    return check


def _whole(low: int) -> Callable[[object, str], None]:
    def check(value: object, pointer: str) -> None:
        if type(value) is not int:
            raise wrong_type(pointer, "a whole number", value)
        if value < low:
            raise RowRefused("out_of_range", f"must be {low} or more", pointer=pointer)

    return check


_CHECKS: dict[str, Callable[[object, str], object]] = {
    "input": _check_input,
    "tools": _check_tools,
    "metadata": _check_metadata,
    "stream": _check_stream,
    "instructions": _text,
    "model": _text,
    "max_output_tokens": _whole(1),
    "max_tool_calls": _whole(0),
    "top_logprobs": _whole(0),
    "temperature": _between(0, 2),
    "top_p": _between(0, 1),
    "parallel_tool_calls": lambda value, pointer: expect(value, bool, "true or false", pointer),
    "tool_choice": _check_choice,
}
