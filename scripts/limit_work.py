"""The least that a rollout costs: the calls, claims and writes of the reference work, and nothing else.

A rollout makes the same calls with aiohttp and stores one JSON document, on the database of Django's settings. It has
no leases, limits, retries, checks, redaction or event rows. With `.tokens`, it reads the token IDs and logprobs of
every reply and stores them as binary numbers. `engine.sqlite.*` and `engine.postgres.*` are compared with it, because
the ratio depends less on the machine than milliseconds do.
"""

import asyncio
import gc
import struct
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import aiohttp
import msgspec
import orjson
import uvloop
from channels.layers import get_channel_layer
from django.db import connection, transaction

from scripts.model_process import mock_model
from scripts.process_figures import cpu_seconds
from scripts.reference_work import EXPRESSION, SEATS, TOKENS

CLAIM = 64
FLUSH_SECONDS = 0.05
PROGRESS_SECONDS = 0.2
TOOLS = [{"type": "function", "function": {"name": "calculator", "description": "", "parameters": {"type": "object"}}}]
PROMPT = [
    {"role": "system", "content": "You are a helpful assistant. " * 8},
    {"role": "user", "content": "What is 6 * 7? " * 8},
]
TOKEN_FIELDS = {"logprobs": True, "return_token_ids": True}
_TABLE = """
    CREATE TABLE limit_rollout
    (id bigint PRIMARY KEY, status int, attempt int, reward float, trace text, tokens {binary})
"""
_INDEX = "CREATE INDEX limit_queued ON limit_rollout (id) WHERE status = 0"
_PICK = "SELECT id FROM limit_rollout WHERE status = 0 ORDER BY id LIMIT %s"
_CLAIM = "UPDATE limit_rollout SET status = 1, attempt = attempt + 1 WHERE id IN ({pick}) RETURNING id, attempt"
_END = """
    UPDATE limit_rollout SET status = 2, reward = %s, trace = %s, tokens = %s
    WHERE id = %s AND attempt = %s AND status = 1
"""

Row = tuple[float, str, bytes, int, int]
"""(reward, trace, tokens, id, attempt)"""


class _Logprob(msgspec.Struct, gc=False):
    logprob: float


class _Logprobs(msgspec.Struct):
    content: list[_Logprob]


class _Choice(msgspec.Struct):
    message: dict[str, Any]
    token_ids: list[int] = []
    logprobs: _Logprobs | None = None


class _Reply(msgspec.Struct):
    choices: list[_Choice]
    usage: dict[str, int]
    prompt_token_ids: list[int] = []


_read_reply = msgspec.json.Decoder(_Reply).decode


def measure_limit(bench: str, *, rollouts: int, servers: Sequence[int]) -> dict[str, Any]:
    """Return the CPU per rollout. `servers` are the pids of database and Redis."""
    over_http, with_tokens = ".http" in bench, bench.endswith(".tokens")
    with mock_model("--tokens", TOKENS if with_tokens else 0, *(() if over_http else EXPRESSION)) as port:
        _fill(rollouts)
        before = cpu_seconds(*servers)
        cpu, wall = time.process_time(), time.perf_counter()
        engine = _Engine(f"http://127.0.0.1:{port}", over_http=over_http, with_tokens=with_tokens)
        uvloop.run(engine.run(rollouts))
        used, wall = time.process_time() - cpu, time.perf_counter() - wall
        beside = cpu_seconds(*servers) - before
    with connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*), SUM(reward) FROM limit_rollout WHERE status = 2")
        if (found := cursor.fetchone()) != (rollouts, rollouts):
            raise SystemExit(f"the work was not done: {found} of {rollouts}")
    return {
        "cpu_ms_per_rollout": round((used + beside) / rollouts * 1000, 3),
        "worker_ms": round(used / rollouts * 1000, 3),
        "servers_ms": round(beside / rollouts * 1000, 3),
        "rollouts_per_s": round(rollouts / wall, 1),
        "rollouts": rollouts,
        "seats": SEATS,
    }


class _Engine:
    def __init__(self, base_url: str, *, over_http: bool, with_tokens: bool) -> None:
        self._base_url = base_url
        self._over_http = over_http
        self._fields = TOKEN_FIELDS if with_tokens else {}
        self._database = ThreadPoolExecutor(1)
        self._ended: list[Row] = []
        self._stored = 0
        self._running: set[asyncio.Task[None]] = set()
        self._freed = asyncio.Event()

    async def run(self, rollouts: int) -> None:
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as self._session:
            flushing = asyncio.create_task(self._flush_until(rollouts))
            while claimed := await self._in_database(_claim):
                for row in claimed:
                    task = asyncio.create_task(self._rollout(*row))
                    self._running.add(task)
                    task.add_done_callback(self._leave)
                while len(self._running) > SEATS - CLAIM:
                    self._freed.clear()
                    await self._freed.wait()
            await flushing
        await self._in_database(_close)

    def _leave(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        task.result()
        if len(self._running) <= SEATS - CLAIM:
            self._freed.set()

    async def _rollout(self, rollout_id: int, attempt: int) -> None:
        conversation: list[dict[str, Any]] = [*PROMPT]
        steps: list[dict[str, Any]] = []
        tokens = b""
        tool: Callable[[dict[str, Any]], Awaitable[str]] = self._call_tool if self._over_http else _multiply
        if self._over_http:
            await self._post("/environment/seed_session", {"input": PROMPT})
        while True:
            began = time.perf_counter()
            asked = {"model": "mock", "messages": conversation, "tools": TOOLS, **self._fields}
            reply = _read_reply(await self._post("/v1/chat/completions", asked))
            said = reply.choices[0].message
            if self._fields:
                tokens += _packed(reply)
            steps.append({"said": said, "usage": reply.usage, "duration": time.perf_counter() - began})
            conversation.append(said)
            if not said.get("tool_calls"):
                break
            for call in said["tool_calls"]:
                output = await tool(call["function"])
                steps.append({"output": output})
                conversation.append({"role": "tool", "tool_call_id": call["id"], "content": output})
        reward = float(r"\boxed{42}" in said["content"])
        if self._over_http:
            reward = orjson.loads(await self._post("/environment/verify", {"conversation": conversation}))["reward"]
        self._ended.append((reward, orjson.dumps([conversation, steps]).decode(), tokens, rollout_id, attempt))

    async def _call_tool(self, function: dict[str, Any]) -> str:
        reply = await self._post(f"/environment/{function['name']}", orjson.loads(function["arguments"]))
        return reply.decode()

    async def _post(self, path: str, body: object) -> bytes:
        headers = {"Content-Type": "application/json"}
        async with self._session.post(self._base_url + path, data=orjson.dumps(body), headers=headers) as response:
            response.raise_for_status()
            return await response.read()

    async def _flush_until(self, rollouts: int) -> None:
        layer, told = get_channel_layer(), 0.0
        while self._stored < rollouts:
            await asyncio.sleep(FLUSH_SECONDS)
            rows, self._ended = self._ended, []
            if rows:
                await self._in_database(_store, rows)
                self._stored += len(rows)
            if time.monotonic() - told > PROGRESS_SECONDS:
                told = time.monotonic()
                await layer.group_send("limit", {"type": "progress", "stored": self._stored})

    async def _in_database(self, work: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._database, work, *args)


def _packed(reply: _Reply) -> bytes:
    choice = reply.choices[0]
    ids = [*reply.prompt_token_ids, *choice.token_ids]
    logprobs = [entry.logprob for entry in choice.logprobs.content] if choice.logprobs else []
    return struct.pack(f"{len(ids)}I{len(logprobs)}f", *ids, *logprobs)


async def _multiply(function: dict[str, Any]) -> str:
    left, _, right = orjson.loads(function["arguments"])["expression"].partition("*")
    return str(int(left) * int(right))


def _fill(rollouts: int) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_TABLE.format(binary=connection.data_types["BinaryField"]))
        cursor.execute(_INDEX)
        rows = [(pk,) for pk in range(rollouts)]
        cursor.executemany("INSERT INTO limit_rollout VALUES (%s, 0, 0, NULL, '', NULL)", rows)


def _claim() -> list[tuple[int, int]]:
    pick = _PICK + (" FOR UPDATE SKIP LOCKED" if connection.vendor == "postgresql" else "")
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_CLAIM.format(pick=pick), [CLAIM])
        return list(cursor.fetchall())


def _close() -> None:
    # Looked up in the thread of the connection.
    connection.close()


def _store(rows: Sequence[Row]) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.executemany(_END, rows)
