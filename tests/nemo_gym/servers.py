"""Servers that speak NeMo Gym's protocol to the letter, on real sockets.

A kind says what is particular: tools, fields of the row, rule of the reward. The rest is here: a signed cookie that is
new with every reply, bodies checked as FastAPI checks them, replies filtered to what the server declares.
"""

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Row = dict[str, Any]

PARAMETERS = frozenset(
    [
        "background",
        "include",
        "input",
        "instructions",
        "max_output_tokens",
        "max_tool_calls",
        "metadata",
        "model",
        "parallel_tool_calls",
        "previous_response_id",
        "prompt",
        "reasoning",
        "service_tier",
        "store",
        "temperature",
        "text",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "truncation",
        "user",
        "stream",
    ]
)
SESSION: web.RequestKey[str] = web.RequestKey("session", str)
TOKEN = "X-NeMo-Gym-Session-Token"
RESPONSE = ("id", "created_at", "model", "object", "output", "parallel_tool_calls", "tool_choice", "tools")


class Refused(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, detail: Any) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


@dataclass
class Tool:
    """`required` are the arguments; further ones are refused where `strict`."""

    call: Callable[[dict[str, Any], Row], Any]
    required: dict[str, type] = field(default_factory=dict)
    strict: bool = False
    description: str = ""


@dataclass
class Kind:
    """One resource server: its tools, its rule, and the fields that its reply to /verify declares."""

    name: str
    verify: Callable[[Row, list[dict[str, Any]], dict[str, Any]], Row] | None = None
    tools: dict[str, Tool] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    declares: tuple[str, ...] = ()
    seed: Callable[[Row, dict[str, Any]], None] = lambda row, state: None
    anything: Callable[[str, dict[str, Any], dict[str, Any]], Any] | None = None  # a catch-all route
    needs_session: bool = False
    over_mcp: bool = False  # its tools are exposed over MCP too, as `expose_tools_over_mcp` does
    reset: Callable[[Row, dict[str, Any]], tuple[str | None, Row]] | None = None
    step: Callable[[Row, list[dict[str, Any]], dict[str, Any]], tuple[str | None, float, bool, bool, Row]] | None = None


class Server:
    """`seen` are the calls in their order; `stale` counts cookies that were not the newest of their session."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.cookie = f"{kind.name.title().replace('_', '')}Server___{kind.name}"
        self.sessions: dict[str, dict[str, Any]] = {}
        self.seen: list[tuple[str, Row]] = []
        self.spoken: list[str] = []  # over MCP
        self.stale = 0
        self.base_url = ""
        self._key = secrets.token_bytes(16)
        self._newest: dict[str, str] = {}

    def application(self) -> web.Application:
        app = web.Application(client_max_size=64 * 1024**2, middlewares=[self._carry])
        app.router.add_get("/", self._root)
        app.router.add_get("/openapi.json", self._document)
        if self.kind.step is not None:
            app.router.add_post("/reset", self._reset)
            app.router.add_post("/step", self._step)
            app.router.add_post("/close", self._close)
        else:
            app.router.add_post("/seed_session", self._seed)
            app.router.add_post("/verify", self._verify)
            app.router.add_route("*", "/mcp", self._mcp)
            app.router.add_post("/{tool}", self._tool)
        return app

    @web.middleware
    async def _carry(self, request: web.Request, handler: Any) -> web.StreamResponse:
        given = request.cookies.get(self.cookie)
        session = self._read(given) or secrets.token_hex(8)
        if given is not None and self._newest.get(session) != given:
            self.stale += 1
        request[SESSION] = session
        try:
            reply = await handler(request)
        except Refused as refused:
            reply = web.json_response({"detail": refused.detail}, status=refused.status)
        except web.HTTPNotFound:
            reply = web.json_response({"detail": "Not Found"}, status=404)
        except web.HTTPMethodNotAllowed:
            reply = web.json_response({"detail": "Method Not Allowed"}, status=405)
        except Exception as bug:
            reply = web.json_response(repr(bug), status=500)
        self._newest[session] = self._sign(session)
        reply.set_cookie(self.cookie, self._newest[session], path="/", max_age=1209600, httponly=True, samesite="lax")
        return reply

    def _sign(self, session: str) -> str:
        stamp = secrets.token_hex(3)
        payload = base64.urlsafe_b64encode(json.dumps({"session_id": session}).encode()).decode()
        return f"{payload}.{stamp}.{self._mac(payload, stamp)}"

    def _mac(self, payload: str, stamp: str) -> str:
        return hmac.new(self._key, f"{payload}.{stamp}".encode(), hashlib.sha1).hexdigest()

    def _read(self, cookie: str | None) -> str | None:
        payload, _, rest = (cookie or "").partition(".")
        stamp, _, mac = rest.partition(".")
        if not payload or not hmac.compare_digest(mac, self._mac(payload, stamp)):
            return None
        return str(json.loads(base64.urlsafe_b64decode(payload))["session_id"])

    async def _body(self, request: web.Request) -> Row:
        try:
            body = json.loads(await request.read())
        except ValueError as error:
            raise Refused(422, [{"type": "json_invalid", "loc": ["body", 1], "msg": str(error), "input": {}}]) from None
        self.seen.append((request.path, body))
        return body

    def _check_row(self, row: Row) -> None:
        params = row.get("responses_create_params")
        if not isinstance(params, dict):
            raise _missing("responses_create_params", row)
        wrong = [
            {"type": "extra_forbidden", "loc": ["body", "responses_create_params", key], "msg": "Extra inputs"}
            for key in params
            if key not in PARAMETERS
        ]
        wrong += [
            {"type": "list_type", "loc": ["body", "responses_create_params", key], "msg": "Input should be valid"}
            for key in ("tools", "tool_choice", "parallel_tool_calls")
            if key in params and params[key] is None
        ]
        if wrong:
            raise Refused(422, wrong)
        for name in self.kind.needs:
            if name not in row:
                raise _missing(name, row)

    def _check_response(self, body: Row) -> list[dict[str, Any]]:
        if "response" not in body:
            raise _missing("response", body)
        for name in RESPONSE:
            if name not in body["response"]:
                raise _missing(f"response.{name}", body)
        output = body["response"]["output"]
        if not all(isinstance(item, dict) and "type" in item for item in output):
            raise Refused(422, [{"type": "union_tag_not_found", "loc": ["body", "response", "output"]}])
        return output

    async def _root(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _document(self, request: web.Request) -> web.Response:
        gymnasium = self.kind.step is not None
        names = ["reset", "step", "close"] if gymnasium else ["seed_session", "verify", "aggregate_metrics"]
        paths: Row = {f"/{name}": {"post": {"summary": name}} for name in names}
        if self.kind.anything:
            paths["/{path}"] = {"post": {"summary": "Any tool"}}
        schemas = {}
        for name, tool in self.kind.tools.items():
            schemas[name] = _schema(tool)
            schema = {"$ref": f"#/components/schemas/{name}"}
            content = {"application/json": {"schema": schema}}
            paths[f"/{name}"] = {"post": {"description": tool.description, "requestBody": {"content": content}}}
        return web.json_response({"openapi": "3.1.0", "paths": paths, "components": {"schemas": schemas}})

    async def _seed(self, request: web.Request) -> web.Response:
        row = await self._body(request)
        state: dict[str, Any] = {}
        self.kind.seed(row, state)
        self.sessions[request[SESSION]] = state
        if not self.kind.over_mcp:
            return web.json_response({})
        headers = {TOKEN: self._sign(request[SESSION])}
        told = {"server_name": self.kind.name, "url_path": "/mcp", "transport": "http", "headers": headers}
        return web.json_response({"mcp": told})

    async def _mcp(self, request: web.Request) -> web.StreamResponse:
        """MCP of the version with sessions, as event streams: one message a stream."""
        session = self._read(request.headers.get(TOKEN))
        if session is None or not self.kind.over_mcp:
            raise Refused(401, "no session token")
        self.spoken.append(request.method)
        if request.method != "POST":
            return web.json_response({}, status=200 if request.method == "DELETE" else 405)
        asked = await request.json()
        self.spoken.append(asked["method"])
        first = asked["method"] == "initialize"
        if not first and request.headers.get("Mcp-Session-Id") != "s-1":
            error = {"code": -32600, "message": "Bad Request: Missing session ID"}
            return web.json_response({"jsonrpc": "2.0", "id": None, "error": error}, status=400)
        if "id" not in asked:
            return web.Response(status=202)
        result = self._answer_mcp(asked["method"], asked.get("params") or {}, self.sessions.setdefault(session, {}))
        message = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result})
        reply = web.Response(text=f"event: message\ndata: {message}\n\n", content_type="text/event-stream")
        if first:
            reply.headers["Mcp-Session-Id"] = "s-1"
        return reply

    def _answer_mcp(self, method: str, params: Row, state: dict[str, Any]) -> Row:
        if method == "initialize":
            server = {"name": self.kind.name, "version": "1"}
            return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": server}
        if method == "tools/list":
            tools = self.kind.tools.items()
            shown = [
                {"name": name, "description": tool.description, "inputSchema": _schema(tool)} for name, tool in tools
            ]
            return {"tools": shown}
        assert method == "tools/call", method
        tool, arguments = self.kind.tools[params["name"]], params.get("arguments") or {}
        missing = [key for key in tool.required if key not in arguments]
        text = f"Field required: {missing[0]}" if missing else json.dumps(tool.call(arguments, state))
        return {"content": [{"type": "text", "text": text}], "isError": bool(missing)}

    async def _tool(self, request: web.Request) -> web.Response:
        name = request.match_info["tool"]
        arguments = await self._body(request)
        state = self.sessions.get(request[SESSION])
        if self.kind.needs_session and state is None:
            raise Refused(400, "Session not initialized. Please call seed_session first.")
        state = self.sessions.setdefault(request[SESSION], {})
        if self.kind.anything:
            return web.json_response(self.kind.anything(name, arguments, state))
        tool = self.kind.tools.get(name)
        if tool is None:
            raise Refused(404, "Not Found")
        for key, kind in tool.required.items():
            if key not in arguments:
                raise _missing(key, arguments)
            if not isinstance(arguments[key], kind):
                raise Refused(422, [{"type": f"{_TYPES[kind]}_type", "loc": ["body", key], "input": arguments[key]}])
        return web.json_response(tool.call(arguments, state))

    async def _verify(self, request: web.Request) -> web.Response:
        body = await self._body(request)
        self._check_row(body)
        output = self._check_response(body)
        assert self.kind.verify is not None
        verdict = self.kind.verify(body, output, self.sessions.get(request[SESSION], {}))
        both = sorted(set(verdict) & set(body))
        if set(both) - set(self.kind.declares):
            raise TypeError(f"got multiple values for keyword argument {both[0]!r}")
        kept = {name: body[name] for name in self.kind.declares if name in body}
        echo = {key: body[key] for key in ("responses_create_params", "response")}
        return web.json_response({**echo, **kept, **verdict})

    async def _reset(self, request: web.Request) -> web.Response:
        row = await self._body(request)
        self._check_row(row)
        assert self.kind.reset is not None
        state = self.sessions[request[SESSION]] = {}
        observation, info = self.kind.reset(row, state)
        return web.json_response({"observation": observation, "info": info})

    async def _step(self, request: web.Request) -> web.Response:
        body = await self._body(request)
        self._check_row(body)
        output = self._check_response(body)
        assert self.kind.step is not None
        state = self.sessions[request[SESSION]]
        observation, reward, terminated, truncated, info = self.kind.step(body, output, state)
        told = {"observation": observation, "reward": reward, "terminated": terminated, "truncated": truncated}
        return web.json_response({**told, "info": info})

    async def _close(self, request: web.Request) -> web.Response:
        await self._body(request)
        self.sessions.pop(request[SESSION], None)
        return web.json_response({})


_TYPES: dict[type, str] = {str: "string", int: "integer", list: "array", bool: "boolean"}


def _schema(tool: Tool) -> Row:
    properties = {key: {"type": _TYPES[kind], "title": key} for key, kind in tool.required.items()}
    return {"type": "object", "properties": properties, "required": list(tool.required)}


def _missing(name: str, given: Row) -> Refused:
    return Refused(422, [{"type": "missing", "loc": ["body", name], "msg": "Field required", "input": given}])


@asynccontextmanager
async def serving(kind: Kind) -> AsyncIterator[Server]:
    """The server, at its `base_url` while the block lasts."""
    server = Server(kind)
    runner = web.AppRunner(server.application(), shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()
