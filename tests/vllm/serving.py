"""A real vLLM behind `manage.py vllm_serve`, one at a time: a server takes gigabytes, and tests take turns."""

import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import urllib.error
import urllib.request
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

from apps.gym.calls.outbound import Outbound
from apps.gym.calls.outbound_policy import OutboundPolicy
from apps.gym.wires.dialect import PLAIN, Dialect
from apps.gym.wires.openai_http import Wire
from apps.gym.wires.protocol import Ask, Reply
from scripts.servers import free_port
from tests.deadlines import DEADLINE
from tests.faults.installation import ROOT, Installation, Program, wait_until
from tests.plain_policies import plain_policy

TINY = ROOT / "examples" / "tiny_policy"
SERVED = re.compile(r"is served at \S+ \(pid (\d+)\)\.")
START_SECONDS = 300
Floats = "array[float]"
STOP_SECONDS = 30


class Vllm:
    """A server and its policy model, whose slug and name at the server are those of the weights.

    `start`, `kill` and `stop` may follow each other; the port stays.
    """

    def __init__(
        self, installation: Installation, name: str, folder: Path, python: Path, *options: object, dtype: str = "auto"
    ) -> None:
        self.installation = installation
        self.name = name
        self.port = free_port()
        self.base_url = f"http://127.0.0.1:{self.port}/v1"
        self._command = [
            *("manage.py", "vllm_serve", folder, "--slug", name, "--port", self.port, "--python", python),
            # See vllm_demo: a split prompt ends the engine on a CPU.
            *("--weights-version", name, f"--arguments=--max-num-batched-tokens 65536 --dtype {dtype}", *options),
        ]
        self.program: Program | None = None
        self.pid = 0

    def start(self) -> float:
        """Seconds until it was served and registered."""
        self.program = program = self.installation.start(f"vllm-{self.name}", *self._command)

        def is_served() -> bool:
            assert program.exit_code is None, f"vllm_serve ended: {program.said[-4000:]}"
            return SERVED.search(program.said) is not None

        seconds = wait_until(is_served, START_SECONDS, lambda: program.said[-4000:])
        found = SERVED.search(program.said)
        assert found is not None
        self.pid = int(found[1])
        return seconds

    def kill(self) -> int:
        """End the server and its engine as the kernel would for lack of memory; the exit code of its supervisor."""
        assert self.program is not None
        os.killpg(self.pid, signal.SIGKILL)
        return self.program.wait(STOP_SECONDS)

    def stop(self) -> int:
        """The exit code of the supervisor after SIGTERM."""
        assert self.program is not None
        if self.program.exit_code is None:
            self.program.signal(signal.SIGTERM)
        return self.program.wait(STOP_SECONDS)

    @property
    def is_up(self) -> bool:
        return self.program is not None and self.program.exit_code is None

    def post(self, path: str, body: dict[str, Any], *, at_root: bool = False) -> dict[str, Any]:
        """What the server itself answers, past GymWeb."""
        request = urllib.request.Request(
            (self.base_url.removesuffix("/v1") if at_root else self.base_url) + path,
            data=json.dumps({"model": self.name, **body}).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE) as reply:
                answer: dict[str, Any] = json.load(reply)
        except urllib.error.HTTPError as refusal:
            raise AssertionError(f"the server answered {refusal.code}: {refusal.read().decode()[:1000]}") from None
        return answer

    def gauge(self, metric: str) -> float:
        """One of the numbers that the server tells of itself."""
        with urllib.request.urlopen(f"{self.base_url.removesuffix('/v1')}/metrics", timeout=DEADLINE) as reply:
            text = reply.read().decode()
        return sum(float(value) for value in re.findall(rf"^{metric}(?:{{.*}})? (\S+)$", text, re.MULTILINE))

    async def ask(self, *asks: Ask, wire: Wire, dialect: Dialect = PLAIN) -> list[Reply]:
        """Replies to asks, one after the other, as GymWeb's own client has them."""
        outbound = Outbound(OutboundPolicy(["127.0.0.1"]))
        policy = plain_policy(
            outbound, base_urls=[self.base_url], model_name=self.name, wire=wire, dialect=dialect, max_tries=2
        )
        try:
            return [await policy.ask(ask) for ask in asks]
        finally:
            await outbound.close()


class Bench:
    """An installation, and the servers that take turns on it."""

    def __init__(self, installation: Installation, python: Path) -> None:
        self.installation = installation
        self.python = python
        self._known: dict[str, Vllm] = {}

    def serve(self, name: str, *options: object, dtype: str = "auto") -> Vllm:
        """The server of `half`, `strong`, `random` or `unsure` weights, up; another one is stopped first."""
        if name not in self._known:
            folder = TINY / name
            if name in MADE:
                folder = self.installation.folder / name
                MADE[name](TINY / "half", folder)
            self._known[name] = Vllm(self.installation, name, folder, self.python, *options, dtype=dtype)
        server = self._known[name]
        if not server.is_up:
            self.stop()
            server.start()
        return server

    def stop(self) -> None:
        for server in self._known.values():
            if server.is_up:
                assert server.stop() == 0

    def manage(self, *words: object, seconds: float = 240) -> str:
        """What a command of GymWeb prints."""
        program = self.installation.start(str(words[0]), "manage.py", *words)
        try:
            code = program.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{words[0]} did not end: {program.said[-3000:]}") from None
        assert code == 0, program.said[-4000:]
        return program.said

    def upload(self, slug: str, rows: list[dict[str, Any]]) -> None:
        path = self.installation.folder / f"{slug}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        self.manage("upload_tasks", path, "--dataset", slug, "--environment", "calculator")

    def collect(self, dataset: str, model: str, *options: object) -> dict[str, Any]:
        """The command's report."""
        said = self.manage("collect", "--dataset", dataset, "--model", model, "--json", *options)
        report: dict[str, Any] = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
        return report


def scramble(trained: Path, folder: Path) -> None:
    """The same model with random weights: what it says is noise, and only the server's grammar can make it a call."""
    dice = random.Random(3)
    change_weights(
        trained,
        folder,
        lambda name, shape, given: given if len(shape) < 2 else array("f", (dice.gauss(0, 0.05) for _ in given)),
    )


FACTOR = 2.5
"""The tiny policy is too sure of its tokens to show differences between data types."""


def divide_logits(trained: Path, folder: Path) -> None:
    """The same model with its logits divided by FACTOR: the last norm scales them all."""
    change_weights(
        trained,
        folder,
        lambda name, shape, given: (
            array("f", (one / FACTOR for one in given)) if name == "model.norm.weight" else given
        ),
    )


def change_weights(trained: Path, folder: Path, change: Callable[[str, list[int], Floats], Floats]) -> None:
    shutil.copytree(trained, folder)
    path = folder / "model.safetensors"
    content = path.read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    head, weights = content[: 8 + size], bytearray(content[8 + size :])
    for name, facts in json.loads(content[8 : 8 + size]).items():
        if name != "__metadata__":
            start, end = facts["data_offsets"]
            weights[start:end] = change(name, facts["shape"], array("f", bytes(weights[start:end]))).tobytes()
    path.write_bytes(head + weights)


MADE = {"random": scramble, "unsure": divide_logits}
"""Folders that are made from the trained one."""
