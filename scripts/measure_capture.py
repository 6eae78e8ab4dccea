"""Measure what captured calls of external agents cost, and how late streamed bytes arrive.

`python -m scripts.measure_capture [--calls 400] [--events 400]` starts a model, a web process and a worker, each in a
process of its own, on a SQLite of its own. One JSON object for each measurement:

- `whole`: CPU milliseconds of worker and web process per call of `--kb` KB that is not streamed.
- `streamed`: CPU microseconds of both per event, for 8 and for 64 streams with an event each `--pause` milliseconds.
  What streams with two events and idle processes use is subtracted.
- `first`: milliseconds by which the first streamed byte arrives after the model has sent it, at 8 and at 64 streams.

With `--direct` the calls go to the worker itself (`GYMWEB_CAPTURE_DIRECT`). With `--profile PATH` the worker writes a
profile there (see the module pstats). Its figures are higher then.
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import aiohttp

from scripts.measured_server import prepare
from scripts.measuring import end_servers_when_stopped, in_own_process, is_busy, machine_load, parse_sizes, say
from scripts.model_process import ROOT, mock_model
from scripts.process_figures import run_milliseconds
from scripts.servers import own_settings
from tests.gymweb.serving import serving

ROUNDS = 3
TURNS = 10
IDLE_SECONDS = 5.0
LONGEST_SECONDS = 300.0
CONNECTIONS = 8
STREAMS = (8, 64)


def _register(var: Path, models: dict[str, int]) -> None:
    from scripts.measuring import use_database

    use_database(var, GYMWEB_OUTBOUND_ALLOW="127.0.0.1")
    from apps.agents.models import Agent
    from apps.policies.models import PolicyModel, Wire

    Agent.objects.create(slug="elsewhere", name="elsewhere", kind="external", max_steps=1000)
    for slug, port in models.items():
        url = f"http://127.0.0.1:{port}/v1"
        model = {"slug": slug, "name": slug, "wire": Wire.CHAT, "model_name": "paced", "concurrency": 10_000}
        PolicyModel.objects.create(**model, base_url=url)


class Measured:
    """A web process, a worker process and an API key."""

    def __init__(self, session: aiohttp.ClientSession, port: int, key: str, worker: int, web: int) -> None:
        self._session, self._base, self._key = session, f"http://127.0.0.1:{port}", key
        self.worker, self.web = worker, web

    async def post(self, path: str, body: Any) -> Any:
        headers = {"Authorization": f"Bearer {self._key}", "Idempotency-Key": uuid.uuid4().hex}
        async with self._session.post(f"{self._base}/api/v1/{path}", json=body, headers=headers) as reply:
            if reply.status >= 300:
                raise SystemExit(f"{path}: {reply.status} {await reply.text()}")
            return await reply.json() if reply.status != 204 else None

    async def attempts(self, model: str, number: int) -> list[dict[str, Any]]:
        """Take so many attempts of a new collection."""
        plan = {"dataset": "running", "agent": "elsewhere", "policy_model": model, "repeats": 1}
        collection = (await self.post("collections/", plan))["id"]
        body = {"collection": collection, "wait_seconds": 30}
        return [await self.post("attempts/", body) for _ in range(number)]

    async def finish(self, offers: list[dict[str, Any]]) -> None:
        for offer in offers:
            await self.post(f"attempts/{offer['rollout']}/finish/", {"attempt": offer["attempt"]})

    async def call(self, offer: dict[str, Any], messages: list[dict[str, Any]]) -> bytes:
        url = f"{offer['openai_base_url']}/chat/completions"
        async with self._session.post(url, json={"model": "m", "messages": messages}) as reply:
            content = await reply.read()
            if reply.status != 200:
                raise SystemExit(f"{reply.status} {content!r}")
            return content

    async def stream(self, offer: dict[str, Any], text: str) -> list[float]:
        """Return the delay of each event: received minus sent, in seconds."""
        url = f"{offer['openai_base_url']}/chat/completions"
        body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": text}]}
        delays: list[float] = []
        async with self._session.post(url, json=body) as reply:
            async for line in reply.content:
                if line.startswith(b"data: {"):
                    choices = json.loads(line[6:])["choices"]
                    said = choices[0]["delta"].get("content") if choices else None
                    if said:
                        delays.append(time.monotonic() - float(said.split()[0]))
        return delays

    async def idle(self) -> dict[str, float]:
        """Return the CPU milliseconds per second of processes that do nothing."""
        before = self.milliseconds()
        await asyncio.sleep(IDLE_SECONDS)
        return {name: (spent - before[name]) / IDLE_SECONDS for name, spent in self.milliseconds().items()}

    def milliseconds(self) -> dict[str, float]:
        return {"worker": run_milliseconds([self.worker]), "web": run_milliseconds([self.web])}


async def measure_whole(measured: Measured, calls: int, kilobytes: int) -> None:
    """Print the CPU time per call. Each conversation begins with a prompt of the given size, and has TURNS turns."""
    offers = await measured.attempts("whole", CONNECTIONS)
    prompt = [{"role": "user", "content": f"{place} " + "word " * 400} for place in range(kilobytes // 2)]

    async def work(offer: dict[str, Any], share: int) -> None:
        messages: list[dict[str, Any]] = []
        for number in range(share):
            if number % TURNS == 0:
                messages = [{"role": "system", "content": uuid.uuid4().hex}, *prompt]
            reply = json.loads(await measured.call(offer, messages))
            messages += [reply["choices"][0]["message"], {"role": "user", "content": f"Go on with {number}."}]

    await asyncio.gather(*(work(offer, 5) for offer in offers))
    shares, before, began = calls // CONNECTIONS, measured.milliseconds(), time.monotonic()
    await asyncio.gather(*(work(offer, shares) for offer in offers))
    seconds, after = time.monotonic() - began, measured.milliseconds()
    made = shares * CONNECTIONS
    spent = {f"{name}_cpu_ms": round((after[name] - before[name]) / made, 2) for name in after}
    say("whole", calls=made, kilobytes=kilobytes, **spent, calls_per_s=round(made / seconds), load=machine_load())
    await measured.finish(offers)


async def measure_events(measured: Measured, events: int, streams: int) -> None:
    """Print the CPU time per event of so many streams at once, beyond streams of two events."""
    idle = await measured.idle()
    spent: dict[str, dict[str, float]] = {}
    for model in ("short", "long"):
        offers = await measured.attempts(model, streams)
        await asyncio.gather(*(measured.stream(offer, "warm") for offer in offers))
        before, began = measured.milliseconds(), time.monotonic()
        for number in range(ROUNDS):
            await asyncio.gather(*(measured.stream(offer, f"round {number}") for offer in offers))
        seconds, after = time.monotonic() - began, measured.milliseconds()
        spent[model] = {name: after[name] - before[name] - seconds * idle[name] for name in after}
        await measured.finish(offers)
    number = ROUNDS * streams * (events - 2)
    each = {f"{name}_cpu_us": round(1000 * (spent["long"][name] - spent["short"][name]) / number, 1) for name in after}
    say(
        "streamed",
        events=number,
        streams=streams,
        events_per_s=round(number / seconds),
        **each,
        load=machine_load(),
    )


async def measure_first(measured: Measured, streams: int) -> None:
    """Print the delay of the first stamped event of so many streams at once."""
    offers = await measured.attempts("paced", streams)
    delays: list[float] = []
    for number in range(1 + ROUNDS):
        found = await asyncio.gather(*(measured.stream(offer, f"round {number}") for offer in offers))
        if number:
            delays += [each[0] * 1000 for each in found]
    quantiles = statistics.quantiles(delays, n=20)
    p50, p95 = round(quantiles[9], 1), round(quantiles[18], 1)
    say("first", streams=streams, p50_ms=p50, p95_ms=p95, worst_ms=round(max(delays), 1), load=machine_load())
    await measured.finish(offers)


async def measure(measured: Measured, options: Any) -> None:
    async with asyncio.timeout(LONGEST_SECONDS):
        await measure_whole(measured, options.calls, options.kb)
        for streams in STREAMS:
            await measure_events(measured, options.events, streams)
        for streams in STREAMS:
            await measure_first(measured, streams)


def main() -> None:
    parser = parse_sizes(__doc__, calls=400, events=400, kb=50, pause=20)
    parser.add_argument("--profile", default="")
    parser.add_argument("--direct", action="store_true")
    options = parser.parse_args()
    end_servers_when_stopped()
    with ExitStack() as stack:
        var = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gymweb-capture-")))
        wanted: dict[str, tuple[object, ...]] = {
            "whole": ("--reply-bytes", 1000),
            "short": ("--events", 2, "--pause-ms", options.pause),
            "long": ("--events", options.events, "--pause-ms", options.pause),
            "paced": ("--events", 10, "--pause-ms", 30),
        }
        models = {
            slug: stack.enter_context(mock_model(*given, script="paced_model.py")) for slug, given in wanted.items()
        }
        key = prepare(var)
        in_own_process(_register, var, models)
        chosen = {"GYMWEB_CAPTURE_DIRECT": str(int(options.direct)), "GYMWEB_LOG_LEVEL": "WARNING"}
        settings = own_settings(var, GYMWEB_OUTBOUND_ALLOW="127.0.0.1", **chosen)
        served = stack.enter_context(serving(var, "--no-worker", **settings))
        worker = stack.enter_context(_worker(settings, options.profile))
        asyncio.run(_run(served.port, key, worker, served.process.pid, options))
    if is_busy():
        print("The machine is busy: the delays say little.", file=sys.stderr)


async def _run(port: int, key: str, worker: int, web: int, options: Any) -> None:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        await measure(Measured(session, port, key, worker, web), options)


@contextmanager
def _worker(settings: dict[str, str], profile: str) -> Iterator[int]:
    profiled = ["-m", "cProfile", "-o", profile] if profile else []
    command = [sys.executable, *profiled, str(ROOT / "manage.py"), "rolloutworker", "--seats", "256"]
    process = subprocess.Popen(command, env={**os.environ, **settings}, cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait(timeout=30)


if __name__ == "__main__":
    main()
