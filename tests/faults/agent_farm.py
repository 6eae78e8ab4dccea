"""An installation for external agents: a model that can be held, an environment that counts its sessions."""

import contextlib
import json
import urllib.request
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any

from apps.rollouts.trace_payloads import unpack
from scripts.servers import free_port
from tests.faults.external_agent import Agent
from tests.faults.installation import HERE, ROOT, Installation, Program, wait_until


class Farm:
    """An installation with a paced model, an environment that counts its sessions, a web process and a worker.

    On SQLite, the worker runs inside the web process.
    """

    def __init__(self, installation: Installation, *, is_separate: bool, migrate: bool) -> None:
        self.installation = installation
        self.is_separate = is_separate
        self.agent: Agent | None = None
        self.hold, self.go = installation.folder / "hold", installation.folder / "go"
        self.model_port = free_port()
        command = (ROOT / "scripts" / "paced_model.py", "--port", self.model_port, "--hold", self.hold)
        installation.wait_port(installation.start("model", *command), self.model_port)
        _, self.tools = installation.tools("--closes")
        self.key = str(
            installation.plan(
                migrate=migrate,
                models={"paced": {"base_url": f"http://127.0.0.1:{self.model_port}/v1"}},
                environments={"weather": {"base_url": self.tools}},
                agents={"elsewhere": {"kind": "external"}},
                key="agent",
            )["key"]
        )
        self.start()

    def start(self) -> None:
        """Start the web process and the worker, if they do not run."""
        if self.is_separate:
            self.web, self.port = self.installation.serve("--no-worker")
            self.start_worker()
        else:
            self.web, self.port = self.installation.serve("--seats", 16)
            self.worker = self.web
        self.connect()

    def connect(self) -> None:
        """Use the web process that runs now."""
        taken = self.agent.taken if self.agent else []
        self.agent = Agent(self.port, self.key)
        self.agent.taken = taken

    def start_worker(self) -> None:
        self.worker = self.installation.worker(16)

    def replace_worker(self) -> None:
        """Start what was killed or has left."""
        if self.is_separate:
            self.start_worker()
        else:
            self.start()

    def plan(self, tasks: int = 1, **fields: Any) -> int:
        plan = {"faults": [""] * tasks, "model": "paced", "environment": "weather", "agent": "elsewhere", **fields}
        name = f"c{uuid.uuid4().hex[:12]}"
        return self.installation.plan(collections={name: plan})[name]

    def client(self, collection: int, *steps: str) -> Program:
        """Return an agent in a process of its own."""
        arguments = ["--port", self.port, "--key", self.key, "--collection", collection, "--go", self.go]
        return self.installation.start(
            "agent", HERE / "external_agent.py", *arguments, "--steps", *steps, PYTHONPATH=ROOT
        )

    def said(self, client: Program, step: str) -> Any:
        """Return what an agent says about a step, once it does."""

        def find() -> list[Any]:
            lines = [json.loads(line) for line in client.said.splitlines() if line.startswith("{")]
            return [line[step] for line in lines if step in line]

        wait_until(lambda: bool(find()), 60, lambda: f"{step}: {client.said[-2000:]}; {self.installation.tell()}")
        return find()[0]

    def calls_of_model(self) -> int:
        return self._read(f"http://127.0.0.1:{self.model_port}/calls", "calls")

    def open_sessions(self) -> int:
        return self._read(f"{self.tools}/sessions", "open")

    def _read(self, url: str, name: str) -> int:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return int(json.load(answer)[name])

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """No reply of the model ends within the block."""
        self.hold.touch()
        try:
            yield
        finally:
            self.hold.unlink(missing_ok=True)

    def wait_for_call(self, before: int) -> None:
        wait_until(lambda: self.calls_of_model() > before, 60, self.installation.tell)

    def status(self, rollout: int) -> str:
        return str(self.installation.rows(f"SELECT status FROM rollouts_rollout WHERE id = {rollout}")[0][0])

    def outcome(self, rollout: int) -> tuple[str, str, int]:
        """Return status, error kind and attempts of a rollout once it has ended."""
        wait_until(lambda: self.status(rollout) not in ("queued", "running"), 60, self.installation.tell)
        row = f"SELECT status, error_kind, attempt FROM rollouts_rollout WHERE id = {rollout}"
        status, kind, attempt = self.installation.rows(row)[0]
        return status, kind, attempt

    def kinds(self, rollout: int, attempt: int = 1) -> Counter[str]:
        """Return the numbers of stored events by kind. Checks that none is missing or stored twice."""
        which = f"rollout_id = {rollout} AND attempt = {attempt}"
        rows = self.installation.rows(f"SELECT seq, kind FROM rollouts_traceevent WHERE {which} ORDER BY seq")
        assert [seq for seq, _ in rows] == list(range(len(rows)))
        return Counter(kind for _, kind in rows)

    def stored_texts(self) -> list[str]:
        """Return every row of every table as text, with the traces unpacked."""
        names = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
        if not self.is_separate:
            names = "SELECT name FROM sqlite_master WHERE type = 'table'"
        rows = [
            row
            for (table,) in self.installation.rows(names)
            for row in self.installation.rows(f'SELECT * FROM "{table}"')
        ]
        payloads = [unpack(payload) for (payload,) in self.installation.rows("SELECT payload FROM rollouts_traceevent")]
        return [*map(str, rows), *payloads]

    def judge(self, collection: int, offer: dict[str, Any]) -> None:
        """Check what holds of a collection that is over, and of an attempt that has ended."""
        rollouts = self.installation.rows(
            f"SELECT id, status, lease, reward, attempt FROM rollouts_rollout WHERE collection_id = {collection}"
        )
        counts = Counter(status for _, status, *_ in rollouts)
        counted = self.installation.rows(
            f"SELECT total, completed, failed, cancelled FROM rollouts_collection WHERE id = {collection}"
        )
        expected = (len(rollouts), counts["completed"], counts["failed"], counts["cancelled"])
        assert counted == [expected], self.installation.tell()
        for rollout, status, lease, reward, attempt in rollouts:
            assert lease is None
            assert (reward is not None) == (status == "completed")
            kinds = self.kinds(rollout, attempt)
            ends = (1, 1) if status == "completed" else (kinds["agent_end"], 0)
            assert (kinds["agent_end"], kinds["verification"]) == ends
        wait_until(lambda: self.open_sessions() == 0, 20, lambda: f"{self.open_sessions()} sessions are open")
        # Until its lease expires, a killed worker cannot be told from one that is unreachable for a moment.
        wait_until(lambda: self.agent.call(offer, "late")[0] != 503, 30, "the worker counts as stopped")
        assert self.agent.call(offer, "late")[0] == 409
