"""Try a policy model with one prompt and show the reply as a trace. Only an audit entry is stored."""

import copy
import time
from typing import Any

import msgspec
import orjson
from asgiref.sync import async_to_sync
from django.core.exceptions import ValidationError

from apps.accounts.audit_log import record
from apps.accounts.outages import release_connection
from apps.gym.calls.time_limits import TimeLimit
from apps.gym.errors import GymError, TimedOut
from apps.gym.tasks.tool_schemas import ToolsRefused, read_tools
from apps.gym.traces.events import ErrorRaised, ModelCall, Prompt, TraceUnion
from apps.gym.traces.items import Tool, message
from apps.gym.traces.tokens import count_tokens, pack_tokens
from apps.gym.wires.hidden_secrets import hide_secrets
from apps.gym.wires.pricing import known_cost
from apps.gym.wires.protocol import Ask
from apps.gym.wires.sampling_values import find_sampling_problems
from apps.policies.models import PolicyModel
from apps.policies.policy_clients import connect_policy, open_outbound, stored_key
from apps.policies.secrets import SecretUnreadable

TRY_SECONDS = 60.0
"""Time limit of a trial in seconds, because a user is waiting."""
MAX_CHARACTERS = 200_000
"""Maximum characters of the prompt and of the system prompt."""

_TRIES = 2


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a trial. `events` are the prompt and a model call or error. `cost` is in USD, None if unknown."""

    events: list[TraceUnion]
    cost: float | None = None

    @property
    def captured(self) -> dict[str, int] | None:
        """Return the numbers of captured tokens, or None without any."""
        for event in self.events:
            if isinstance(event, ModelCall) and event.tokens is not None:
                prompt, generated = count_tokens(event.tokens)
                return {"prompt": prompt, "generated": generated}
        return None


def try_model(
    *,
    policy_model: PolicyModel,
    prompt: str,
    system: str = "",
    tools: list[Any] | None = None,
    sampling: dict[str, Any] | None = None,
    user: object,
) -> Trial:
    """Send one prompt, for at most TRY_SECONDS. Errors of the endpoint are part of the result.

    Raise ValidationError by field for invalid arguments.
    """
    wanted = sampling or {}
    offered = _check(prompt, system, tools or [], wanted)
    resolved = {**policy_model.sampling, **wanted}
    release_connection()
    trial = async_to_sync(_ask)(policy_model, prompt, system, offered, resolved)
    record(
        user=user, action="policy_model.try", target=policy_model.slug, answered=isinstance(trial.events[-1], ModelCall)
    )
    return trial


def _check(prompt: str, system: str, tools: object, sampling: dict[str, Any]) -> list[Tool]:
    errors: dict[str, list[str]] = {}
    offered: list[Tool] = []
    if not prompt.strip():
        errors["prompt"] = ["Enter a prompt."]
    for name, text in (("prompt", prompt), ("system", system)):
        if len(text) > MAX_CHARACTERS:
            errors[name] = [f"Give at most {MAX_CHARACTERS:,} characters."]
    if problems := _unsendable(tools):
        errors["tools"] = problems
    else:
        try:
            offered = read_tools(tools)
        except ToolsRefused as refused:
            errors["tools"] = refused.problems
    if problems := find_sampling_problems(sampling) or _unsendable(sampling):
        errors["sampling"] = problems
    if errors:
        raise ValidationError(errors)
    return offered


def _unsendable(given: object) -> list[str]:
    try:
        orjson.dumps(given)
    except orjson.JSONEncodeError as why:
        return [f"This cannot be sent as JSON: {why}."]
    return []


async def _ask(
    policy_model: PolicyModel, prompt: str, system: str, tools: list[Tool], sampling: dict[str, Any]
) -> Trial:
    items = [*([message("system", system)] if system.strip() else []), message("user", prompt)]
    opening = Prompt(items=items)
    began = time.perf_counter()
    try:
        with TimeLimit(TRY_SECONDS):
            call = await _call(policy_model, items, tools, sampling)
    except TimeoutError:
        failure: GymError = TimedOut(f"No reply within {TRY_SECONDS:g} s.")
    except GymError as error:
        failure = error
    else:
        call.duration = time.perf_counter() - began
        tokens = call.usage.get("input_tokens", 0) + call.usage.get("output_tokens", 0)
        cost = known_cost(policy_model.prices.cost(call.usage), tokens, is_free=policy_model.is_scripted)
        return Trial(events=[opening, call], cost=cost)
    text = hide_secrets(str(failure), [_readable_key(policy_model)])
    return Trial(events=[opening, ErrorRaised(kind=failure.kind, message=text, duration=time.perf_counter() - began)])


async def _call(policy_model: PolicyModel, items: list[Any], tools: list[Tool], sampling: dict[str, Any]) -> ModelCall:
    patient = copy.copy(policy_model)
    patient.call_timeout = min(policy_model.call_timeout, TRY_SECONDS)
    # Show errors immediately instead of retrying.
    patient.max_tries = min(policy_model.max_tries, _TRIES)
    outbound = open_outbound()
    try:
        policy = connect_policy(patient, outbound)
        reply = await policy.ask(Ask(items=items, tools=tools, sampling=sampling, session="try"))
    finally:
        await outbound.close()
    return ModelCall(
        **reply.call_fields(),
        seen=len(items),
        sampling=sampling,
        tokens=None if reply.tokens is None else pack_tokens(reply.tokens, before=b""),
    )


def _readable_key(policy_model: PolicyModel) -> str:
    try:
        return stored_key(policy_model)
    except SecretUnreadable:
        return ""
