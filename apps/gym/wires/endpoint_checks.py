"""What an endpoint can do, found out by asking it: named checks, each with the exact error where it failed."""

import asyncio
import time
from collections.abc import Iterable
from typing import Any, Literal

import msgspec
import orjson

from apps.gym.calls.outbound import OutboundFailed, OutboundReply
from apps.gym.calls.outbound_policy import OutboundRefused
from apps.gym.calls.refusals import explain_refusal
from apps.gym.calls.time_limits import TimeLimit
from apps.gym.errors import GymError
from apps.gym.storable import clean_line
from apps.gym.traces.items import Tool, function_calls, message
from apps.gym.wires.openai_http import hide_secrets
from apps.gym.wires.protocol import Ask, Policy, Reply
from apps.gym.wires.sending import Sender
from apps.gym.wires.usage import tells_all

LIST_SECONDS = 10.0
CALL_SECONDS = 30.0
"""All lists are asked for at once, then one call is made: a check takes at most the sum."""

CALL_TOKENS = 512
"""Room for a model that thinks first, and no more."""

_MESSAGE_CHARACTERS = 500
_NAMED_MODELS = 8

TOOL: Tool = {
    "type": "function",
    "name": "report_color",
    "description": "Report a color.",
    "parameters": {
        "type": "object",
        "properties": {"color": {"type": "string", "enum": ["red", "green", "blue"]}},
        "required": ["color"],
        "additionalProperties": False,
    },
    "strict": True,
}
_QUESTION = "Which color has the sky on a clear day? Report it with the tool."

Status = Literal["ok", "failed", "not_applicable"]


class Check(msgspec.Struct, kw_only=True, omit_defaults=True):
    """`name` is reachable, model, tool_call, usage, tokens or latency; `target` the server, where several are asked."""

    name: str
    status: Status
    message: str
    target: str = ""
    seconds: float | None = None


class Checkup(msgspec.Struct):
    """`capabilities`: `max_model_len` (tokens), `server_version`, `served_models` and `root`, as far as it tells."""

    checks: list[Check]
    capabilities: dict[str, Any]

    @property
    def failures(self) -> list[Check]:
        return [check for check in self.checks if check.status == "failed"]


class Endpoint(msgspec.Struct, kw_only=True):
    """What is checked. `lists_models` is False where the list names other things, as Azure's does."""

    sender: Sender
    policy: Policy
    model_name: str
    secrets: list[str] = []
    has_key: bool = False
    lists_models: bool = True
    tells_version: bool = False
    wants_tokens: bool = False
    sampling: dict[str, Any] = {}


class _Server(msgspec.Struct):
    """What one server said of itself: a reply or a problem, and what it takes to tell them."""

    url: str
    seconds: float
    reply: OutboundReply | None = None
    problem: str = ""
    version: str = ""
    models: list[dict[str, Any]] | None = None


async def check_endpoint(endpoint: Endpoint) -> Checkup:
    """Never raises for what an endpoint does."""
    servers = await asyncio.gather(*(_look(endpoint, index) for index in range(len(endpoint.sender.servers))))
    capabilities = _capabilities(endpoint, servers)
    checks = [_reachable(server) for server in servers] + [_model(endpoint, servers)]
    if why := _not_worth_a_call(servers):
        skipped = ("tool_call", "usage", "tokens", "latency")
        checks += [Check(name=name, status="not_applicable", message=f"Not tried: {why}.") for name in skipped]
    else:
        checks += await _call(endpoint, servers, capabilities)
    for check in checks:
        check.message = clean_line(hide_secrets(check.message, endpoint.secrets), _MESSAGE_CHARACTERS)
    told = {
        key: hide_secrets(value, endpoint.secrets) if isinstance(value, str) else value
        for key, value in capabilities.items()
    }
    return Checkup(checks, told)


# ── the servers ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def _look(endpoint: Endpoint, index: int) -> _Server:
    server = _Server(url=endpoint.sender.servers[index], seconds=0.0)
    began = time.perf_counter()
    try:
        async with asyncio.timeout(LIST_SECONDS):
            server.reply = await endpoint.sender.get("/models", server=index)
            server.seconds = time.perf_counter() - began
            if endpoint.tells_version:
                server.version = _version(await endpoint.sender.get("/version", server=index, at_root=True))
    except (OutboundFailed, OutboundRefused) as error:
        server.problem = str(error)
    except TimeoutError:
        server.problem = f"No answer within {LIST_SECONDS:g} s."
    if server.reply is not None:
        # A server that lists its models and fails to tell its version is well.
        server.problem = ""
        server.models = _listed(server.reply)
    return server


def _version(reply: OutboundReply) -> str:
    try:
        given = orjson.loads(reply.body) if reply.status == 200 else None
    except orjson.JSONDecodeError:
        return ""
    return clean_line(str(given.get("version") or ""), 100) if isinstance(given, dict) else ""


def _listed(reply: OutboundReply) -> list[dict[str, Any]] | None:
    if reply.status != 200:
        return None
    try:
        given: Any = orjson.loads(reply.body)
        return [{**model, "id": clean_line(str(model["id"]), 200)} for model in given["data"]]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None


def _reachable(server: _Server) -> Check:
    if server.reply is None:
        return Check(name="reachable", status="failed", message=server.problem, target=server.url)
    version = f", version {server.version}" if server.version else ""
    return Check(
        name="reachable",
        status="ok",
        message=f"It answers{version}.",
        target=server.url,
        seconds=server.seconds,
    )


def _not_worth_a_call(servers: list[_Server]) -> str:
    replies = [server.reply for server in servers if server.reply is not None]
    if not replies:
        return "no server can be reached"
    return "the endpoint lets nobody in" if all(reply.status in (401, 403) for reply in replies) else ""


# ── the model ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _model(endpoint: Endpoint, servers: list[_Server]) -> Check:
    problems = []
    for server in servers:
        if server.reply is None:
            continue
        problem = _problem_of_list(endpoint, server)
        if problem:
            problems.append(f"{server.url}: {problem}" if len(servers) > 1 else problem)
    if problems:
        return Check(name="model", status="failed", message=" ".join(problems))
    if all(server.reply is None for server in servers):
        return Check(name="model", status="not_applicable", message="Not tried: no server can be reached.")
    if not endpoint.lists_models:
        message = "Deployments are not listed: the call below says whether this one is there."
        return Check(name="model", status="not_applicable", message=message)
    length = _capabilities(endpoint, servers).get("max_model_len")
    room = f" Its context holds {length:,} tokens." if length else ""
    return Check(name="model", status="ok", message=f"The endpoint has the model {endpoint.model_name!r}.{room}")


def _problem_of_list(endpoint: Endpoint, server: _Server) -> str:
    assert server.reply is not None
    status = server.reply.status
    if status in (401, 403):
        hint = "the stored API key was refused" if endpoint.has_key else "no API key is stored"
        return f"The endpoint answered {status}: {hint}. {_said(server.reply)}".strip()
    if not endpoint.lists_models:
        return ""
    if status != 200:
        lacks = "has no /models: the base URL should go up to and including /v1"
        return f"The endpoint {lacks if status == 404 else f'answered {status}'}. {_said(server.reply)}".strip()
    if server.models is None:
        return "The endpoint's list of models cannot be read: is this an OpenAI-compatible base URL?"
    names = [model["id"] for model in server.models]
    if endpoint.model_name in names:
        return ""
    known = ", ".join(names[:_NAMED_MODELS]) + (", …" if len(names) > _NAMED_MODELS else "")
    return f"The endpoint has no model {endpoint.model_name!r}; it has: {known or 'none'}."


def _said(reply: OutboundReply) -> str:
    said, _ = explain_refusal(reply.body)
    return f"It says: {said}" if said and said != "{}" else ""


def _capabilities(endpoint: Endpoint, servers: Iterable[_Server]) -> dict[str, Any]:
    """Of several servers the least: a rollout may go to any of them."""
    found: dict[str, Any] = {}
    lengths = []
    for server in servers:
        if server.version:
            found.setdefault("server_version", server.version)
        for model in server.models or []:
            if model["id"] != endpoint.model_name:
                continue
            length = model.get("max_model_len") or model.get("context_length")
            lengths += [length] if type(length) is int and length > 0 else []
            for key in ("root", "parent"):
                if isinstance(model.get(key), str):
                    found.setdefault(key, clean_line(model[key], 200))
    if lengths:
        found["max_model_len"] = min(lengths)
    return found


# ── the call ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _call(endpoint: Endpoint, servers: list[_Server], capabilities: dict[str, Any]) -> list[Check]:
    limit = min(CALL_TOKENS, capabilities.get("max_model_len", 2 * CALL_TOKENS) // 2)
    given = {key: value for key, value in endpoint.sampling.items() if key not in ("text", "parallel_tool_calls")}
    ask = Ask(
        items=[message("user", _QUESTION)],
        tools=[TOOL],
        sampling={**given, "tool_choice": "required", "max_output_tokens": limit},
    )
    began = time.perf_counter()
    try:
        async with TimeLimit(CALL_SECONDS):
            reply = await endpoint.policy.ask(ask)
    except GymError as error:
        return _unanswered(str(error))
    except TimeoutError:
        return _unanswered(f"No reply within {CALL_SECONDS:g} s.")
    seconds = time.perf_counter() - began
    return [_tool_call(reply, limit), _usage(reply), _tokens(endpoint, reply), _latency(servers, seconds)]


def _unanswered(problem: str) -> list[Check]:
    return [
        Check(name="tool_call", status="failed", message=problem),
        Check(name="usage", status="not_applicable", message="There was no reply."),
        Check(name="tokens", status="not_applicable", message="There was no reply."),
        Check(name="latency", status="not_applicable", message="There was no reply."),
    ]


def _tool_call(reply: Reply, limit: int) -> Check:
    calls = function_calls(reply.items)
    named = [call for call in calls if call.get("name") == TOOL["name"]]
    if reply.finish_reason == "max_output_tokens" and not named:
        problem = f"The reply was cut at {limit} tokens, before it called the tool."
    elif not calls:
        problem = "The reply calls no tool although one was required: does the server have a parser for tool calls?"
    elif not named:
        problem = f"The reply calls {str(calls[0].get('name'))!r} instead of the tool {TOOL['name']!r}."
    elif not _is_object(named[0].get("arguments")):
        problem = "The call's arguments are no JSON object."
    else:
        return Check(name="tool_call", status="ok", message="It called the one tool that it was given.")
    return Check(name="tool_call", status="failed", message=problem)


def _is_object(arguments: object) -> bool:
    try:
        return isinstance(orjson.loads(arguments), dict) if isinstance(arguments, str) else False
    except orjson.JSONDecodeError:
        return False


def _usage(reply: Reply) -> Check:
    if tells_all(reply.usage):
        read, written = reply.usage["input_tokens"], reply.usage["output_tokens"]
        return Check(
            name="usage", status="ok", message=f"It told the tokens read ({read:,}) and written ({written:,})."
        )
    problem = (
        "The reply does not tell how many tokens it read and wrote: limits of tokens and of cost cannot hold, and costs"
        ' are told too low. A server that streams wants `"stream_options": {"include_usage": true}`.'
    )
    return Check(name="usage", status="failed", message=problem)


def _tokens(endpoint: Endpoint, reply: Reply) -> Check:
    if not endpoint.wants_tokens:
        return Check(name="tokens", status="not_applicable", message="Tokens are not to be captured from this model.")
    if reply.tokens is None:
        why = reply.tokens_note or "none came"
        return Check(name="tokens", status="failed", message=f"The reply's tokens cannot be captured: {why}.")
    fields = reply.tokens.fields()
    asked, said = len(fields["prompt_token_ids"]), len(fields["generation_token_ids"])
    text = f"{asked:,} ids of the prompt, {said:,} of the reply, each of these with its logprob."
    return Check(name="tokens", status="ok", message=text)


def _latency(servers: list[_Server], seconds: float) -> Check:
    fastest = min(server.seconds for server in servers if server.reply is not None)
    text = f"A whole reply took {_time(seconds)}, the list of models {_time(fastest)}."
    return Check(name="latency", status="ok", message=text, seconds=seconds)


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"
