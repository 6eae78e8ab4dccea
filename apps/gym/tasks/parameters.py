"""The parameters of a task row, which hold its prompt: known ones, each of its type and in its range."""

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

import msgspec

from apps.gym.redaction.shortening import pointer_step
from apps.gym.tasks.file_rows import RowRefused, wrong_type
from apps.gym.tasks.item_checks import find_choice_problem, find_item_problem
from apps.gym.traces.items import TaskRow

PARAMS = "responses_create_params"
_NAMES = (
    "background include input instructions max_output_tokens max_tool_calls metadata model parallel_tool_calls "
    "previous_response_id prompt reasoning service_tier store temperature text tool_choice tools top_logprobs top_p "
    "truncation user stream"
)
PARAM_KEYS = frozenset(_NAMES.split())


def find_params(row: TaskRow) -> dict[str, Any]:
    """The object of them, of known names. Raises RowRefused."""
    if PARAMS not in row:
        close = get_close_matches(PARAMS, row, n=1)
        hint = f" (did you mean {PARAMS} where it says {close[0]}?)" if close else ""
        raise RowRefused("missing", f"is missing: the object that holds the prompt{hint}", pointer=f"/{PARAMS}")
    params = row[PARAMS]
    if not isinstance(params, dict):
        raise wrong_type(f"/{PARAMS}", "an object", params)
    for key in params:
        if key not in PARAM_KEYS:
            close = get_close_matches(key, PARAM_KEYS, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            allowed = ", ".join(sorted(PARAM_KEYS))
            shown = pointer_step(key, 80)
            message = f"is not a known key: {hint}allowed are {allowed}"
            raise RowRefused("unknown_key", message, pointer=f"/{PARAMS}/{shown}")
    return params


_Fields = dict[str, msgspec.Raw]


def without_null_params(text: str) -> str:
    """The same text but for keys of the parameters that are null; every other value keeps its own spelling."""
    fields = msgspec.json.decode(text, type=_Fields)
    params = msgspec.json.decode(fields[PARAMS], type=_Fields)
    kept = {key: raw for key, raw in params.items() if bytes(raw) != b"null"}
    return msgspec.json.encode({**fields, PARAMS: msgspec.Raw(msgspec.json.encode(kept))}).decode()


def check_params(params: dict[str, Any]) -> None:
    """Raises RowRefused for the first that is wrong, and where there is no prompt."""
    for key, value in params.items():
        if check := _CHECKS.get(key):
            check(value, f"/{PARAMS}/{key}")
    if "input" not in params:
        raise RowRefused("missing", "is missing: the prompt, as text or as a list of items", pointer=f"/{PARAMS}/input")


def _check_input(value: object, pointer: str) -> None:
    if isinstance(value, str):
        if not value.strip():
            raise RowRefused("empty", "is empty: a task needs a prompt", pointer=pointer)
        return
    if not isinstance(value, list):
        raise wrong_type(pointer, "text or a list of items", value)
    if not value:
        raise RowRefused("empty", "is an empty list: a task needs a prompt", pointer=pointer)
    for index, item in enumerate(value):
        if not isinstance(item, dict):
            raise wrong_type(f"{pointer}/{index}", "an object with role or type", item)
        if found := find_item_problem(item):
            code, place, message = found
            raise RowRefused(code, message, pointer=f"{pointer}/{index}{place}")


def _check_tools(value: object, pointer: str) -> None:
    if not isinstance(value, list):
        raise wrong_type(pointer, "a list", value)
    for index, tool in enumerate(value):
        at = f"{pointer}/{index}"
        if not isinstance(tool, dict):
            raise wrong_type(at, "an object", tool)
        if isinstance(tool.get("function"), dict):
            message = "must not be there: tools are flat here, all beside type"
            raise RowRefused("wrong_shape", message, pointer=f"{at}/function")
        if tool.get("type", "function") != "function":
            raise RowRefused("wrong_type", "must be function", pointer=f"{at}/type")
        if not isinstance(tool.get("name"), str) or not tool["name"]:
            raise RowRefused("missing", "must be the tool's name", pointer=f"{at}/name")


def _check_metadata(value: object, pointer: str) -> None:
    if not isinstance(value, dict):
        raise wrong_type(pointer, "an object of texts", value)
    for key, text in value.items():
        if not isinstance(text, str):
            raise wrong_type(f"{pointer}/{pointer_step(key, 80)}", "text", text)


def _of(wanted: str, *types: type) -> Callable[[object, str], None]:
    def check(value: object, pointer: str) -> None:
        if type(value) not in types:
            raise wrong_type(pointer, wanted, value)

    return check


def _check_stream(value: object, pointer: str) -> None:
    if value is not False:
        raise RowRefused("wrong_type", "can only be false: replies are recorded whole", pointer=pointer)


def _check_choice(value: object, pointer: str) -> None:
    if found := find_choice_problem(value):
        code, place, message = found
        raise RowRefused(code, message, pointer=f"{pointer}{place}")


def _between(least: float, most: float) -> Callable[[object, str], None]:
    def check(value: object, pointer: str) -> None:
        if type(value) not in (int, float):
            raise wrong_type(pointer, "a number", value)
        if not least <= value <= most:  # type: ignore[operator]
            raise RowRefused("out_of_range", f"must be from {least:g} to {most:g}", pointer=pointer)

    return check


def _whole(least: int, most: int | None = None) -> Callable[[object, str], None]:
    def check(value: object, pointer: str) -> None:
        if type(value) is not int:
            raise wrong_type(pointer, "a whole number", value)
        if value < least or (most is not None and value > most):
            wanted = f"{least} or more" if most is None else f"from {least} to {most}"
            raise RowRefused("out_of_range", f"must be {wanted}", pointer=pointer)

    return check


_text, _truth = _of("text", str), _of("true or false", bool)
_CHECKS: dict[str, Callable[[object, str], None]] = {
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
    "parallel_tool_calls": _truth,
    "tool_choice": _check_choice,
}
