"""Attempts of the loop itself at a faithful server, over a real socket."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from apps.gym.calls.outbound import Outbound
from apps.gym.calls.outbound_policy import OutboundPolicy
from apps.gym.loop.agent_loop import Attempt, Harness
from apps.gym.resources.gymnasium import GymnasiumServer
from apps.gym.resources.nemo_gym_http import HttpResourceServer
from apps.gym.resources.server_calls import Caller
from apps.gym.traces.events import TraceUnion
from tests.nemo_gym.rows import OWN
from tests.nemo_gym.servers import Server
from tests.nemo_gym.solving import Solver

SHARED = Path(os.environ.get("GYMWEB_SHARED", "../shared")) / "data" / "nemo_gym"

needs_shared = pytest.mark.skipif(
    not SHARED.is_dir(), reason="the example rows of NeMo Gym are not beside the checkout"
)


def read_rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (SHARED / f"{name}.jsonl").read_text().splitlines()]


def rows_of(name: str, *, own: bool) -> list[dict[str, Any]]:
    return OWN[name] if own else read_rows(f"{name}.example")


def connect(server: Server, outbound: Outbound, **options: Any) -> HttpResourceServer | GymnasiumServer:
    given = {"name": server.kind.name, "base_url": server.base_url, "call_timeout": 120.0, "max_tries": 2, **options}
    verify_timeout = given.pop("verify_timeout", 120.0)
    if server.kind.step is not None:
        return GymnasiumServer(Caller(outbound, **given))
    return HttpResourceServer(Caller(outbound, **given), verify_timeout=verify_timeout)


def loopback() -> Outbound:
    return Outbound(OutboundPolicy(["127.0.0.1"]))


async def attempt(server: Any, row: dict[str, Any], moves: Any, **harness: Any) -> list[TraceUnion]:
    began = time.perf_counter()
    run = Attempt(
        row=row,
        server=server,
        policy=Solver(row, moves),
        harness=Harness(**harness),
        seed=1,
        elapsed=lambda: time.perf_counter() - began,
    )
    return [event async for event in run.events()]
