"""Calls that show whether an endpoint is set up wrongly. Their findings are warnings, never failures."""

import asyncio
from typing import Any

from apps.gym.calls.outbound import OutboundFailed, OutboundReply
from apps.gym.calls.outbound_policy import OutboundRefused
from apps.gym.calls.time_limits import TimeLimit
from apps.gym.errors import GymError
from apps.gym.setup_notices import EQUAL_ATTEMPTS, NOTICES, SetupSigns, read_notices
from apps.gym.traces.events import ModelCall
from apps.gym.traces.items import Tool, message, read_json, text_of
from apps.gym.traces.tokens import MAX_LOGPROB, PLACEHOLDER
from apps.gym.wires.endpoint_checks import CALL_SECONDS, CALL_TOKENS, QUESTION, TOOL, Check, Endpoint
from apps.gym.wires.openai_http import HttpPolicy
from apps.gym.wires.protocol import Ask

MODE_CHECK = "logprob_mode"
"""Name of the check, and of the measured mode in the capabilities."""
_COLD = 0.25
_RATIOS = {"raw_logprobs": 1.0, "processed_logprobs": 1 / _COLD}
_TOLERANCE = 0.25
_MIN_SPREAD = 0.1  # nats
SETUP_CHECKS = ("auto_call", "text", "sampling", "token_limit")
FEW_TOKENS = 16
"""The smallest limit that OpenAI accepts."""
_VARIES = "Write 20 words at random, each from another subject. Reply with the words only."
_MIN_TEXT = 20  # characters
_LONG = "Count from one to one hundred in words."
# Calls without these may have equal samples, or no tool call.
_UNSET = frozenset({"text", "parallel_tool_calls", "thinking", "top_p", "top_k", "min_p", "seed"})


async def check_setup(endpoint: Endpoint, wire: str) -> list[Check]:
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
    return [_check(name, call, warning, wire) for name, (call, warning) in zip(SETUP_CHECKS, found, strict=True)]


async def _call(endpoint: Endpoint, text: str, tools: list[Tool], **wanted: Any) -> ModelCall | None:
    sampling = {**{name: value for name, value in endpoint.sampling.items() if name not in _UNSET}, **wanted}
    try:
        with TimeLimit(CALL_SECONDS):
            reply = await endpoint.policy.ask(Ask(items=[message("user", text)], tools=tools, sampling=sampling))
    except (GymError, TimeoutError):
        return None
    return ModelCall(**reply.call_fields(), seen=1, sampling=sampling)


async def check_logprob_mode(policy: HttpPolicy, setting: str) -> tuple[Check, dict[str, Any]]:
    """Return the check whether the server computes logprobs before or after the temperature, and the capability.

    One prompt is sent at two temperatures. The differences between the alternatives of the first token are then equal
    (raw), or in the ratio of the temperatures (processed).
    """
    ask = Ask(items=[message("user", _VARIES)], sampling={"max_output_tokens": 1})
    # The extra body may set these fields, too.
    asked = {**policy.make_body(ask), "logprobs": True, "top_logprobs": 5, "stream": False}
    asked.pop("stream_options", None)
    try:
        with TimeLimit(CALL_SECONDS):
            replies = [await policy.sender.send({**asked, "temperature": each}, "", 1) for each in (1.0, _COLD)]
        warm, cold = map(_read_alternatives, replies)
        first, *_, last = sorted(warm.keys() & cold.keys(), key=warm.__getitem__)
        spread = warm[last] - warm[first]
        ratio = (cold[last] - cold[first]) / spread if spread > _MIN_SPREAD else 0.0
    except (GymError, OutboundFailed, OutboundRefused, TimeoutError, LookupError, TypeError, ValueError):
        ratio = 0.0
    mode = next((mode for mode, expected in _RATIOS.items() if abs(ratio / expected - 1) < _TOLERANCE), "")
    if not mode:
        told = "Not measured: the server returns no alternatives (top_logprobs), or no log probabilities that differ."
        return Check(name=MODE_CHECK, status="not_applicable", message=told), {}
    told = f"The server sends {mode}."
    if mode != setting:
        told += f" The setting is {setting}. Change logprob_mode; exports state the measured mode."
    return Check(name=MODE_CHECK, status="ok" if mode == setting else "warning", message=told), {MODE_CHECK: mode}


def _read_alternatives(reply: OutboundReply) -> dict[str, float]:
    """Return the logprobs of the first token's alternatives. Raise an error for any other reply, and for logits."""
    alternatives = read_json(reply.body)["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    found = {one["token"]: one["logprob"] for one in alternatives if one["logprob"] > PLACEHOLDER}
    if max(found.values()) > MAX_LOGPROB:
        raise ValueError
    return found


def _check(name: str, call: ModelCall | None, warning: str, wire: str) -> Check:
    if call is None:
        return Check(name=name, status="not_applicable", message="No reply.")
    signs = SetupSigns(tools=[str(TOOL["name"])] if name == "auto_call" else [])
    if name != "sampling":
        signs.add(call)
    told = [warning, *(f"{notice.sentence} {notice.remedy}" for notice in read_notices(signs.names(), wire))]
    text = " ".join(filter(None, told))
    return Check(name=name, status="warning" if text else "ok", message=text or "Nothing unusual.")
