"""Send requests to find out what an endpoint supports. Each named check reports its exact error if it failed."""

import asyncio
import contextlib
import time
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from apps.gym.calls.outbound import OutboundFailed, OutboundReply
from apps.gym.calls.outbound_policy import OutboundRefused
from apps.gym.calls.refusals import explain_refusal
from apps.gym.calls.time_limits import TimeLimit
from apps.gym.errors import GymError
from apps.gym.storable import clean_line
from apps.gym.traces.items import Tool, as_object, function_calls, message, read_json
from apps.gym.wires.hidden_secrets import hide_secrets
from apps.gym.wires.protocol import Ask, Policy, Reply, has_all_counts
from apps.gym.wires.scores.score_endpoint import ScoreEndpoint, ScoringPolicy
from apps.gym.wires.sending import Sender

LIST_SECONDS = 10.0
CALL_SECONDS = 30.0
"""The model lists of all servers are requested together and then one call is made. A checkup takes at most
LIST_SECONDS + CALL_SECONDS."""

CALL_TOKENS = 512
"""Enough for a model that reasons first."""

_MESSAGE_CHARACTERS = 500
_NAMED_MODELS = 8
_ENGINES = ("vllm", "sglang", "llamacpp")
"""Values of `owned_by` that name the engine. Others name the owner of a model, or a proxy."""

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
QUESTION = "What color is the sky on a clear day? Report it with the tool."

# A model cannot be made to call a tool while `thinking` is on.
_NOT_FOR_A_CHECK = frozenset({"text", "parallel_tool_calls", "thinking"})

Status = Literal["ok", "warning", "failed", "not_applicable"]


class Check(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The result of one check.

    `name` is reachable, model, tool_call, usage, tokens, latency, or a name of apps.policies.setup_checks; `target` is
    the URL of the server in checks named `reachable`.
    """

    name: str
    status: Status
    message: str
    target: str = ""
    seconds: float | None = None


class Checkup(msgspec.Struct):
    """The results of all checks.

    `capabilities` has, as far as known, `max_model_len` and `max_output_tokens`, `engine` and `server_version`, and
    `root` and `parent` of the model as vLLM lists them: its checkpoint, and the base model of an adapter. vLLM tells
    `dtype` and `generation_config` in its development mode only.
    """

    checks: list[Check]
    capabilities: dict[str, Any]

    @property
    def failures(self) -> list[Check]:
        return [check for check in self.checks if check.status == "failed"]


class Endpoint(msgspec.Struct, kw_only=True):
    """An endpoint to check.

    `lists_models` is False if the endpoint's list has other names (Azure), or lacks some (Anthropic's aliases).
    """

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
    """The answer of one server to the first requests: a reply or a problem."""

    url: str
    seconds: float
    reply: OutboundReply | None = None
    problem: str = ""
    version: str = ""
    config: dict[str, Any] = {}
    models: list[dict[str, Any]] | None = None


async def check_endpoint(endpoint: Endpoint) -> Checkup:
    """Check an endpoint. Never raises for its errors."""
    servers = await asyncio.gather(*(_look(endpoint, index) for index in range(len(endpoint.sender.servers))))
    capabilities = _capabilities(endpoint, servers)
    checks = [_reachable(server) for server in servers] + [_model(endpoint, servers)]
    if why := _not_worth_a_call(servers):
        skipped = ("tool_call", "usage", "tokens", "latency")
        checks += [Check(name=name, status="not_applicable", message=f"Not checked: {why}.") for name in skipped]
    else:
        checks += await _call(endpoint, servers, capabilities)
        _excuse_list(endpoint, servers, checks)
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
                told = await endpoint.sender.get("/server_info?config_format=json", server=index, at_root=True)
                server.config = _model_config(told)
    except (OutboundFailed, OutboundRefused) as error:
        server.problem = str(error)
    except TimeoutError:
        server.problem = f"No answer within {LIST_SECONDS:g} s."
    if server.reply is not None:
        # A server that lists its models is healthy, even if it does not tell its version.
        server.problem = ""
        server.models = _listed(server.reply)
    return server


def _version(reply: OutboundReply) -> str:
    given = as_object(read_json(reply.body)) if reply.status == 200 else {}
    return clean_line(str(given.get("version") or ""), 100)


def _model_config(reply: OutboundReply) -> dict[str, Any]:
    given = as_object(read_json(reply.body)) if reply.status == 200 else {}
    return as_object(as_object(given.get("vllm_config")).get("model_config"))


def _listed(reply: OutboundReply) -> list[dict[str, Any]] | None:
    given: Any = read_json(reply.body) if reply.status == 200 else None
    try:
        return [{**model, "id": clean_line(str(model["id"]), 200)} for model in given["data"]]
    except (KeyError, TypeError):
        return None


def _reachable(server: _Server) -> Check:
    if server.reply is None:
        return Check(name="reachable", status="failed", message=server.problem, target=server.url)
    version = f", version {server.version}" if server.version else ""
    return Check(
        name="reachable",
        status="ok",
        message=f"The server responds{version}.",
        target=server.url,
        seconds=server.seconds,
    )


def _not_worth_a_call(servers: list[_Server]) -> str:
    replies = [server.reply for server in servers if server.reply is not None]
    if not replies:
        return "no server is reachable"
    return "the endpoint rejects all requests" if all(reply.status in (401, 403) for reply in replies) else ""


# ── the model ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _model(endpoint: Endpoint, servers: list[_Server]) -> Check:
    problems = [
        f"{server.url}: {problem}" if len(servers) > 1 else problem
        for server in servers
        if server.reply is not None and (problem := _problem_of_list(endpoint, server.reply, server.models))
    ]
    if problems:
        return Check(name="model", status="failed", message=" ".join(problems))
    if all(server.reply is None for server in servers):
        return Check(name="model", status="not_applicable", message="Not checked: no server is reachable.")
    if not endpoint.lists_models:
        message = "The endpoint does not list all its models; the call below checks this one."
        return Check(name="model", status="not_applicable", message=message)
    length = _capabilities(endpoint, servers).get("max_model_len")
    room = f" Its context has {length:,} tokens." if length else ""
    return Check(name="model", status="ok", message=f"The endpoint has the model {endpoint.model_name!r}.{room}")


def _problem_of_list(endpoint: Endpoint, reply: OutboundReply, models: list[dict[str, Any]] | None) -> str:
    status = reply.status
    if status in (401, 403):
        hint = "the stored API key was rejected" if endpoint.has_key else "no API key is stored"
        return f"The endpoint returned {status}: {hint}. {_said(reply)}".strip()
    if not endpoint.lists_models:
        return ""
    if status != 200:
        lacks = "has no /models. Give the base URL with /v1"
        return f"The endpoint {lacks if status == 404 else f'returned {status}'}. {_said(reply)}".strip()
    if models is None:
        return "The endpoint's list of models cannot be read: is this an OpenAI-compatible base URL?"
    names = [model["id"] for model in models]
    if endpoint.model_name in names:
        return ""
    known = ", ".join(names[:_NAMED_MODELS]) + (", …" if len(names) > _NAMED_MODELS else "")
    return f"The endpoint has no model {endpoint.model_name!r}; it has: {known or 'none'}."


def _excuse_list(endpoint: Endpoint, servers: list[_Server], checks: list[Check]) -> None:
    """Accept a single server without a readable list of models if it served the call."""
    [model] = [check for check in checks if check.name == "model"]
    served = any(check.name == "tool_call" and check.status == "ok" for check in checks)
    if model.status == "failed" and served and len(servers) == 1 and servers[0].models is None:
        model.status = "not_applicable"
        model.message = f"The list of models failed, but the call below was served. {model.message}"


def _said(reply: OutboundReply) -> str:
    said, _ = explain_refusal(reply.body)
    return f"Message: {said}" if said and said != "{}" else ""


def _capabilities(endpoint: Endpoint, servers: Iterable[_Server]) -> dict[str, Any]:
    """Return the capabilities. `max_model_len` is the minimum, because a rollout may go to any of the servers."""
    found: dict[str, Any] = {}
    lengths = []
    servers = list(servers)
    for name, values in {
        "server_version": [server.version for server in servers],
        "dtype": [str(server.config.get("dtype", "")).removeprefix("torch.") for server in servers],
        "generation_config": [str(server.config.get("generation_config", "")) for server in servers],
    }.items():
        if known := ", ".join(dict.fromkeys(clean_line(value, 100) for value in values if value)):
            found[name] = known
    for server in servers:
        for model in server.models or []:
            if model["id"] != endpoint.model_name:
                continue
            if model.get("owned_by") in _ENGINES:
                found["engine"] = model["owned_by"]
            of_llama = as_object(model.get("meta")).get("n_ctx")
            own = (model.get(key) for key in ("max_model_len", "context_length", "max_input_tokens"))
            length = next((one for one in (*own, of_llama) if one), None) or _length_of_parent(model, server)
            lengths += [length] if type(length) is int and length > 0 else []
            output = model.get("max_output_tokens") or model.get("max_tokens")
            if type(output) is int and output > 0:
                found["max_output_tokens"] = min(output, found.get("max_output_tokens", output))
            for key in ("root", "parent"):
                if isinstance(model.get(key), str):
                    found.setdefault(key, clean_line(model[key], 200))
    if lengths:
        found["max_model_len"] = min(lengths)
    return found


def _length_of_parent(adapter: dict[str, Any], server: _Server) -> Any:
    """Return the context of an adapter's base model: vLLM lists none for adapters."""
    parents = (model for model in server.models or [] if model["id"] == adapter.get("parent") != adapter["id"])
    return next((model.get("max_model_len") for model in parents), None)


# ── the call ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _call(endpoint: Endpoint, servers: list[_Server], capabilities: dict[str, Any]) -> list[Check]:
    limit = min(CALL_TOKENS, capabilities.get("max_model_len", 2 * CALL_TOKENS) // 2)
    given = {key: value for key, value in endpoint.sampling.items() if key not in _NOT_FOR_A_CHECK}
    ask = Ask(
        items=[message("user", QUESTION)],
        tools=[TOOL],
        sampling={**given, "tool_choice": "required", "max_output_tokens": limit},
    )
    began = time.perf_counter()
    try:
        with TimeLimit(CALL_SECONDS):
            reply = await endpoint.policy.ask(ask)
    except GymError as error:
        if error.refused_by == "rate_limit":
            return _unanswered(f"Not checked: the endpoint throttles calls for now. {error}", "not_applicable")
        if "404" in str(error) and await _returns_scores(endpoint.policy):
            return _unanswered("The server returns scores instead of text. Use it as a reward model.", "not_applicable")
        return _unanswered(str(error))
    except TimeoutError:
        return _unanswered(f"No reply within {CALL_SECONDS:g} s.")
    seconds = time.perf_counter() - began
    return [_tool_call(reply, limit), _usage(reply), _tokens(endpoint, reply, capabilities), _latency(servers, seconds)]


async def _returns_scores(policy: Policy) -> bool:
    if not isinstance(policy, ScoringPolicy):
        return False
    with contextlib.suppress(GymError, TimeoutError), TimeLimit(LIST_SECONDS):
        await policy.at(ScoreEndpoint(path="pooling", text=True)).ask(Ask(items=[message("user", QUESTION)]))
        return True
    return False


def _unanswered(problem: str, status: Status = "failed") -> list[Check]:
    return [
        Check(name="tool_call", status=status, message=problem),
        Check(name="usage", status="not_applicable", message="No reply."),
        Check(name="tokens", status="not_applicable", message="No reply."),
        Check(name="latency", status="not_applicable", message="No reply."),
    ]


def _tool_call(reply: Reply, limit: int) -> Check:
    calls = function_calls(reply.items)
    named = [call for call in calls if call.get("name") == TOOL["name"]]
    if reply.finish_reason == "max_output_tokens" and not named:
        problem = f"The reply was cut at {limit} tokens, before it called the tool."
    elif not calls:
        problem = "The reply has no tool call although one was required. Check that the server has a tool call parser."
    elif not named:
        problem = f"The reply calls {str(calls[0].get('name'))!r} instead of the tool {TOOL['name']!r}."
    elif not isinstance(read_json(str(named[0].get("arguments"))), dict):
        problem = "The arguments of the call are not a JSON object."
    else:
        return Check(name="tool_call", status="ok", message="It called the tool.")
    return Check(name="tool_call", status="failed", message=problem)


def _usage(reply: Reply) -> Check:
    if has_all_counts(reply.usage):
        read, written = reply.usage["input_tokens"], reply.usage["output_tokens"]
        return Check(name="usage", status="ok", message=f"Token counts: {read:,} input, {written:,} output.")
    problem = (
        "The reply has no token counts, so token and cost limits do not work, and costs"
        ' are too low. For streaming servers, set `"stream_options": {"include_usage": true}`.'
    )
    return Check(name="usage", status="failed", message=problem)


def _tokens(endpoint: Endpoint, reply: Reply, capabilities: dict[str, Any]) -> Check:
    if not endpoint.wants_tokens:
        return Check(name="tokens", status="not_applicable", message="Token capture is off.")
    if reply.tokens is None:
        why = reply.tokens_note or "none came"
        return Check(name="tokens", status="failed", message=f"The reply's tokens cannot be captured: {why}.")
    fields = reply.tokens.fields()
    prompt_ids, reply_ids = len(fields["prompt_token_ids"]), len(fields["generation_token_ids"])
    text = f"{prompt_ids:,} prompt ids and {reply_ids:,} reply ids with logprobs."
    if capabilities.get("generation_config") not in (None, "vllm"):
        text += " The model's generation_config.json sets the sampling fields that requests leave out."
    return Check(name="tokens", status="ok", message=text)


def _latency(servers: list[_Server], seconds: float) -> Check:
    fastest = min(server.seconds for server in servers if server.reply is not None)
    text = f"Reply: {_time(seconds)}; model list: {_time(fastest)}."
    return Check(name="latency", status="ok", message=text, seconds=seconds)


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"
