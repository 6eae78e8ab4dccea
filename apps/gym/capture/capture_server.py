"""The HTTP server in a worker through which captured agents call the model.

Agents call `/capture/<secret>/v1/chat/completions`, or `/capture/v1/chat/completions` with the secret as API key. NeMo
Gym's agents call `/ng-rollout/<secret>/v1/responses`. A secret belongs to one attempt and ends with it.
`handle_command` answers the requests of web processes.
"""

import hashlib
import logging
import math
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast, get_args

import orjson
from aiohttp import web

from apps.gym.capture.capture_wires import CaptureWire, ChatWire
from apps.gym.capture.captured_attempt import CapturedAttempt
from apps.gym.capture.captured_commands import CallRefused, attempt_ended, outcome
from apps.gym.capture.captured_messages import MessagesWire
from apps.gym.capture.captured_responses import ResponsesWire
from apps.gym.capture.command_paths import COMMANDS
from apps.gym.capture.delta_stream import DeltaStream, check_length
from apps.gym.capture.mcp_answers import answer_mcp
from apps.gym.errors import GymError, PolicyError, TimedOut
from apps.gym.redaction.shortening import cut
from apps.gym.serving.completions import BadCompletion
from apps.gym.serving.served_request import Refused, read_object
from apps.gym.traces.call_records import Declared, Role
from apps.gym.wires.dialect import SamplingRefused
from apps.gym.wires.messages_reply import write_models, write_token_count
from apps.gym.wires.messages_request import BadMessages

logger = logging.getLogger(__name__)

MAX_BODY = 32 * 1024 * 1024
"""Maximum bytes of a request, enough for images."""
MAX_ENDED = 10_000
"""Maximum number of ended attempts to remember, so that late calls get `attempt_ended`, not `invalid_api_key`."""
KEEP_ALIVE_SECONDS = 75.0
SHUTDOWN_SECONDS = 5.0
PREFIX = "cs_"
"""The start of every secret; the number of the worker follows."""

WIRES: dict[str, CaptureWire] = {
    "v1/chat/completions": ChatWire(),
    "v1/responses": ResponsesWire(),
    "v1/messages": MessagesWire(),
    "v1/messages/count_tokens": MessagesWire(),
}
"""API formats by the path of their requests."""
ROLLOUT, TOKEN_CAPTURE = "ng-rollout/", "training-token-capture/"
"""Parts of the paths of NeMo Gym's agents: `ng-rollout/<id>/v1/…`, where the secret is the id."""
MCP = "mcp"
"""Path of the environment's tools."""
_THREAD_HEADERS = (
    "thread-id",  # Codex's window id has another number after each compaction.
    "session-id",
    "x-claude-code-agent-id",  # Only subagents send it.
    "x-claude-code-session-id",
)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class CaptureServer:
    """The server, used on one event loop. `handle_command` answers POST requests below COMMANDS, if there is one."""

    def __init__(self, handle_command: Handler | None = None) -> None:
        self._attempts: dict[bytes, CapturedAttempt] = {}
        self._ended: OrderedDict[bytes, None] = OrderedDict()
        self._runner: web.AppRunner | None = None
        self._handle_command = handle_command

    async def start(self, host: str) -> str:
        """Listen on a free port of the host. Return host and port. Raises OSError."""
        runner = await self._set_up()
        await web.TCPSite(runner, host, 0).start()
        found, port = runner.addresses[0][:2]
        return f"[{found}]:{port}" if ":" in found else f"{found}:{port}"

    async def start_unix(self, path: str) -> None:
        """Listen on a Unix socket. Raises OSError."""
        await web.UnixSite(await self._set_up(), path).start()

    async def _set_up(self) -> web.AppRunner:
        application = web.Application(client_max_size=MAX_BODY)
        if self._handle_command is not None:
            application.router.add_post(COMMANDS + "/{path:.*}", self._handle_command)
        for prefix in ("/capture/", f"/{ROLLOUT}"):
            application.router.add_route("*", prefix + "{path:.*}", self._handle)
        times: dict[str, Any] = {"keepalive_timeout": KEEP_ALIVE_SECONDS, "shutdown_timeout": SHUTDOWN_SECONDS}
        # An access log would contain the secrets.
        self._runner = web.AppRunner(application, access_log=None, handler_cancellation=True, **times)
        await self._runner.setup()
        return self._runner

    async def close(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    def open(self, attempt: CapturedAttempt, worker: int) -> str:
        """Return a new secret of an attempt. Only its hash is kept."""
        secret = f"{PREFIX}{worker}_{secrets.token_urlsafe(32)}"
        self._attempts[_hash(secret)] = attempt
        return secret

    def forget(self, attempt: CapturedAttempt) -> None:
        """Refuse further calls of an attempt."""
        for digest in [digest for digest, known in self._attempts.items() if known is attempt]:
            del self._attempts[digest]
            self._ended[digest] = None
        while len(self._ended) > MAX_ENDED:
            self._ended.popitem(last=False)

    def _find(self, secret: str) -> CapturedAttempt:
        digest = _hash(secret)
        if found := self._attempts.get(digest):
            return found
        if digest in self._ended:
            raise attempt_ended()
        raise CallRefused(401, "Invalid API key. Use the key from the response of POST /attempts/.", "invalid_api_key")

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        wire: CaptureWire = ChatWire()
        attempt: CapturedAttempt | None = None
        try:
            secret, tail = read_secret(request.path, request.headers)
            wire = WIRES.get(tail, wire)
            attempt = self._find(secret)
            if request.method in ("GET", "HEAD", "DELETE"):
                return _describe(request.method, tail)
            if request.method != "POST" or tail not in {*WIRES, MCP}:
                raise CallRefused(404, f"There is no {request.method} /{tail} here.", "not_found")
            body = await request.read()
            if tail == MCP:
                status, answer = await answer_mcp(body, attempt.list_tools, attempt.call_tool)
                return _json(answer, status) if answer is not None else web.Response(status=status)
            return await self._answer(request, attempt, wire, body)
        except web.HTTPRequestEntityTooLarge:
            refusal = _Refusal(413, f"The body is larger than {MAX_BODY:,} bytes.", "request_too_large")
        except (CallRefused, BadCompletion, BadMessages, Refused, SamplingRefused, GymError) as problem:
            refusal = _as_refusal(problem)
            if attempt and refusal.code == "invalid_request":
                attempt.refusal = str(refusal)
        except (ConnectionError, web.HTTPException):
            raise  # The client disconnected, or its request is not HTTP.
        except Exception:
            # Without the path, which may contain the secret.
            logger.exception("a captured call failed unexpectedly")
            refusal = _Refusal(500, "The call failed unexpectedly, or could not be stored.", "server_error")
        written = wire.write_error(refusal.status, str(refusal), code=refusal.code, param=refusal.param)
        return _json(written, refusal.status, refusal.headers)

    async def _answer(
        self, request: web.Request, attempt: CapturedAttempt, wire: CaptureWire, body: bytes
    ) -> web.StreamResponse:
        captured = wire.read(read_object(body), attempt.responses)
        if request.path.endswith("/count_tokens"):
            return _json(write_token_count(captured.items, captured.tools))
        repeats = request.headers.get("x-stainless-retry-count", "0")
        stream = DeltaStream(request) if captured.stream else None
        call = attempt.ask(
            captured,
            wire=wire.name,
            digest=hashlib.sha256(body).digest(),
            is_repeated=repeats.isdigit() and int(repeats) > 0,
            **read_links(request.headers),
            on_delta=stream.add if stream else None,
        )
        is_whole, name = False, attempt.responses.name(call.number)
        try:
            if stream:
                response, is_whole = await stream.run(call, wire.open_stream(captured, name))
            else:
                written = wire.write(check_length(await outcome(call.reply)), captured, name)
                response = await _send(request, orjson.dumps(written))
                is_whole = True
        finally:
            attempt.mark_served(call, is_whole=is_whole)
        return response


def read_links(headers: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments `hint` and `declared` of `CapturedAttempt.ask`. Raises CallRefused for an unknown role."""
    name, parent, role = (headers.get(f"x-gymweb-{part}", "").strip() for part in ("conversation", "parent", "role"))
    if role not in get_args(Role):
        roles = ", ".join(filter(None, get_args(Role)))
        raise CallRefused(400, f"x-gymweb-role is {cut(role, 40)!r}. Choose one of: {roles}.", "invalid_request")
    if name or role:
        return {"hint": name, "declared": Declared(cast("Role", role or "conversation"), parent)}
    return {"hint": next((headers[name] for name in _THREAD_HEADERS if name in headers), "")}


async def _send(request: web.Request, content: bytes) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.content_length = len(content)
    await response.prepare(request)
    await response.write(content)
    await response.write_eof()
    return response


def read_secret(path: str, headers: Mapping[str, str]) -> tuple[str, str]:
    """Return the secret and the rest of the path. Raises CallRefused for a missing one, or for two different ones."""
    tail = path.removeprefix("/capture").lstrip("/").removeprefix(ROLLOUT).strip("/")
    given = ""
    if tail.startswith(PREFIX):
        given, _, tail = tail.partition("/")
        tail = tail.removeprefix(TOKEN_CAPTURE)
    bearer = headers.get("Authorization", "")
    keys = [headers.get("x-api-key", ""), bearer[7:] if bearer.lower().startswith("bearer ") else ""]
    keys = [key.strip() for key in keys if key.strip().startswith(PREFIX)]
    secret = given or next(iter(keys), "")
    if not secret:
        raise CallRefused(401, "Give the key of an attempt in the path, as Bearer or as x-api-key.", "invalid_api_key")
    if any(key != secret for key in keys):
        raise CallRefused(401, "The path and the headers have different keys of attempts.", "invalid_api_key")
    return secret, tail


def worker_of(secret: str) -> int | None:
    """Return the number of the worker that a secret names."""
    number = secret.removeprefix(PREFIX).partition("_")[0]
    is_number = number.isascii() and number.isdecimal() and len(number) < 19
    return int(number) if secret.startswith(PREFIX) and is_number else None


def _describe(method: str, tail: str) -> web.Response:
    """Answer what clients ask before they begin: whether the server is there, and its models."""
    if tail == MCP or method == "DELETE":
        # MCP streams and sessions are not supported. Clients then use POST.
        raise CallRefused(405, f"There is no {method} /{tail} here.", "not_allowed")
    if tail == "v1/models":
        return _json(write_models(["policy"]))
    if tail in ("", "v1"):
        return _json({"status": "ok"})
    raise CallRefused(404, f"There is no /{tail} here.", "not_found")


class _Refusal(CallRefused):
    """A refusal with headers. `param` is the place of the problem in the request."""

    def __init__(
        self, status: int, message: str, code: str, headers: dict[str, str] | None = None, param: str | None = None
    ) -> None:
        super().__init__(status, message, code)
        self.headers, self.param = headers or {}, param


def _as_refusal(problem: Exception) -> _Refusal:
    if isinstance(problem, CallRefused):
        waits = {"Retry-After": "1"} if problem.status == 429 else {}
        return _Refusal(problem.status, str(problem), problem.code, waits)
    if isinstance(problem, BadCompletion):
        return _Refusal(400, str(problem), problem.code, param=problem.param)
    if isinstance(problem, BadMessages | SamplingRefused | Refused):
        why = f"The body cannot be read: {problem.detail}" if isinstance(problem, Refused) else str(problem)
        return _Refusal(400, why, "invalid_request")
    if isinstance(problem, TimedOut):
        return _Refusal(504, str(problem), "timeout")
    if isinstance(problem, PolicyError) and problem.refused_by is not None:
        code = "insufficient_quota" if problem.refused_by == "quota" else "rate_limit_exceeded"
        # If the endpoint does not say when to retry, tell the client 1 s: this server makes the next call wait, too.
        headers = {"Retry-After": str(math.ceil(problem.retry_after or 1))} if code == "rate_limit_exceeded" else {}
        return _Refusal(429, str(problem), code, headers)
    return _Refusal(502, str(problem), "policy_error")


def _json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(body=orjson.dumps(value), status=status, content_type="application/json", headers=headers)


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="replace")).digest()
