"""Calls that show whether an endpoint is set up wrongly. Their findings are warnings, never failures."""

import asyncio
from typing import Any

from apps.gym.calls.time_limits import TimeLimit
from apps.gym.errors import GymError
from apps.gym.setup_notices import EQUAL_ATTEMPTS, NOTICES, SetupSigns, read_notices
from apps.gym.traces.events import ModelCall
from apps.gym.traces.items import Tool, message, text_of
from apps.gym.wires.endpoint_checks import CALL_SECONDS, CALL_TOKENS, QUESTION, TOOL, Check, Endpoint
from apps.gym.wires.protocol import Ask

SETUP_CHECKS = ("auto_call", "text", "sampling", "token_limit")
FEW_TOKENS = 16
"""The smallest limit that OpenAI accepts."""
_VARIES = "Write 20 words at random, each from another subject. Reply with the words only."
_MIN_TEXT = 20  # characters
_LONG = "Count from one to one hundred in words."
# Calls without these may have equal samples, or no tool call.
_UNSET = frozenset({"text", "parallel_tool_calls", "thinking", "top_p", "top_k", "min_p", "seed"})


async def check_setup(endpoint: Endpoint) -> list[Check]:
    """Ask a question with a tool, a text question twice, and one with a small token limit, all at the same time."""
    sample = {"temperature": 1.0, "max_output_tokens": CALL_TOKENS}
    called, first, second, short = await asyncio.gather(
        _call(endpoint, QUESTION, [TOOL], tool_choice="auto", max_output_tokens=CALL_TOKENS),
        # Rollouts have different seeds, too.
        _call(endpoint, _VARIES, [], **sample, seed=1),
        _call(endpoint, _VARIES, [], **sample, seed=2),
        _call(endpoint, _LONG, [], max_output_tokens=FEW_TOKENS),
    )
    texts = ["".join(map(text_of, call.items)) for call in (first, second) if call]
    is_equal = len(texts) == 2 and texts[0] == texts[1] and len(texts[0]) >= _MIN_TEXT
    equal = f"Two samples are equal. {NOTICES[EQUAL_ATTEMPTS].remedy}" if is_equal else ""
    found = ((called, ""), (first, ""), (first and second, equal), (short, ""))
    return [_check(name, call, warning) for name, (call, warning) in zip(SETUP_CHECKS, found, strict=True)]


async def _call(endpoint: Endpoint, text: str, tools: list[Tool], **wanted: Any) -> ModelCall | None:
    sampling = {**{name: value for name, value in endpoint.sampling.items() if name not in _UNSET}, **wanted}
    try:
        with TimeLimit(CALL_SECONDS):
            reply = await endpoint.policy.ask(Ask(items=[message("user", text)], tools=tools, sampling=sampling))
    except (GymError, TimeoutError):
        return None
    return ModelCall(**reply.call_fields(), seen=1, sampling=sampling)


def _check(name: str, call: ModelCall | None, warning: str) -> Check:
    if call is None:
        return Check(name=name, status="not_applicable", message="No reply.")
    signs = SetupSigns(tools=[str(TOOL["name"])] if name == "auto_call" else [])
    if name != "sampling":
        signs.add(call)
    told = [warning, *(f"{notice.sentence} {notice.remedy}" for notice in read_notices(signs.names()))]
    text = " ".join(filter(None, told))
    return Check(name=name, status="warning" if text else "ok", message=text or "Nothing unusual.")
