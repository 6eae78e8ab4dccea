"""Agents that run elsewhere, and the processes that serve them, killed or stopped at bad moments.

Every rollout has one outcome, a completed one has all its calls, no session of an environment stays open, and calls
after the end get 409.
"""

import contextlib
import http.client
import json
import signal
import socket
import threading
import urllib.request
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from apps.rollouts.trace_payloads import unpack
from scripts.servers import free_port
from tests.faults.conftest import RESERVE
from tests.faults.external_agent import Agent
from tests.faults.installation import HERE, ROOT, Installation, Program, wait_until

pytestmark = pytest.mark.slow
LEASE = 4.0
"""Seconds of silence after which an agent is lost."""
LOGGED = {"GYMWEB_LOG_LEVEL": "DEBUG"}
SETTINGS = {**RESERVE, **LOGGED, "GYMWEB_CAPTURE_LEASE_SECONDS": str(LEASE), "GYMWEB_WORKER_GRACE_SECONDS": "1"}


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


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def farm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    folder = tmp_path_factory.mktemp("farm")
    is_separate = request.param == "postgres"
    url, redis_url = f"sqlite:///{folder}/gymweb.sqlite3", ""
    if is_separate:
        template = request.getfixturevalue("migrated_url")
        redis_url = request.getfixturevalue("redis_server").url
        with psycopg.connect(template.replace("/gymweb", "/postgres"), autocommit=True) as connection:
            connection.execute("CREATE DATABASE captured TEMPLATE gymweb")
        url = template.replace("/gymweb", "/captured")
    with contextlib.closing(Installation(folder, database_url=url, redis_url=redis_url, **SETTINGS)) as installation:
        yield Farm(installation, is_separate=is_separate, migrate=not is_separate)


def test_a_client_that_is_killed_after_its_claim_is_lost(farm: Farm) -> None:
    collection = farm.plan(max_attempts=1)
    client = farm.client(collection)
    offer = farm.said(client, "offer")
    client.kill()
    assert farm.outcome(offer["rollout"]) == ("failed", "agent_lost", 1)
    farm.judge(collection, offer)


def test_a_client_that_is_killed_amid_a_call_leaves_the_call_in_the_trace(farm: Farm) -> None:
    collection = farm.plan(max_attempts=2)
    before = farm.calls_of_model()
    with farm.held():
        client = farm.client(collection, "start-call")
        offer = farm.said(client, "offer")
        farm.wait_for_call(before)
        client.kill()
    again = farm.agent.take(collection)
    assert (again["rollout"], again["attempt"]) == (offer["rollout"], 2)
    # The model was paid for this call, although no client received its reply.
    assert farm.kinds(offer["rollout"], 1) == {"session": 1, "prompt": 1, "model_call": 1, "error": 1}
    assert farm.agent.call(again, "once more")[0] == 200
    assert farm.agent.finish(again)[0] == 202
    assert farm.outcome(offer["rollout"]) == ("completed", "", 2)
    assert farm.kinds(offer["rollout"], 2)["model_call"] == 1
    farm.judge(collection, offer)


def test_a_finish_whose_client_is_killed_counts_and_a_repeat_gets_its_answer(farm: Farm) -> None:
    collection = farm.plan()
    before = farm.calls_of_model()
    with farm.held():
        client = farm.client(collection, "start-call", "wait", "finish")
        offer = farm.said(client, "offer")
        farm.wait_for_call(before)
        farm.go.touch()
        # Once the attempt accepts nothing more, the finish waits for the call in flight.
        wait_until(lambda: farm.agent.extend(offer)[0] == 409, 30, farm.installation.tell)
        client.kill()
    status, answer = farm.agent.finish(offer)
    assert (status, answer["command"]) == (202, "finish")
    assert farm.outcome(offer["rollout"]) == ("completed", "", 1)
    assert farm.agent.finish(offer) == (202, answer)
    assert farm.agent.finish(offer, answer="another")[0] == 409
    assert farm.kinds(offer["rollout"])["model_call"] == 1
    farm.judge(collection, offer)


def test_two_ends_at_once_have_one_effect(farm: Farm) -> None:
    collection = farm.plan()
    offer = farm.agent.take(collection)
    assert farm.agent.call(offer, "first")[0] == 200
    answers: list[tuple[str, int]] = []

    def end(answer: str) -> None:
        answers.append((answer, farm.agent.finish(offer, answer=answer)[0]))

    threads = [threading.Thread(target=end, args=(answer,)) for answer in ("a", "b", "a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counted = [answer for answer, status in answers if status == 202]
    assert len(set(counted)) == 1 and len(counted) == 2
    assert Counter(status for _, status in answers) == {202: 2, 409: 2}
    assert farm.outcome(offer["rollout"]) == ("completed", "", 1)
    farm.judge(collection, offer)


def test_a_cancelled_collection_ends_its_attempts_and_their_calls(farm: Farm) -> None:
    collection = farm.plan(tasks=2)
    offer = farm.agent.take(collection)
    before, answers = farm.calls_of_model(), []
    with farm.held():
        call = threading.Thread(target=lambda: answers.append(farm.agent.call(offer, "held")[0]))
        call.start()
        farm.wait_for_call(before)
        assert farm.agent.post(f"/api/v1/collections/{collection}/cancel/", {})[0] in (200, 202)
        call.join()
    assert answers == [409]
    assert farm.outcome(offer["rollout"]) == ("cancelled", "", 1)
    assert farm.agent.finish(offer)[0] == 409
    farm.judge(collection, offer)


def test_a_killed_worker_costs_the_attempt_but_not_the_rollout(farm: Farm) -> None:
    collection = farm.plan()
    offer = farm.agent.take(collection)
    assert farm.agent.call(offer, "first")[0] == 200
    before, answers = farm.calls_of_model(), []

    def call() -> None:
        try:
            answers.append(farm.agent.call(offer, "second")[0])
        except OSError:
            answers.append(0)  # The web process was killed, too.

    with farm.held():
        calling = threading.Thread(target=call)
        calling.start()
        farm.wait_for_call(before)
        farm.worker.kill()
        calling.join()
    assert answers == [503 if farm.is_separate else 0]
    # A call that was answered was stored before.
    assert farm.kinds(offer["rollout"])["model_call"] == 1
    farm.replace_worker()
    again = farm.agent.take(collection)
    assert (again["rollout"], again["attempt"]) == (offer["rollout"], 2)
    assert farm.agent.finish(offer)[0] == 409
    assert farm.agent.call(again, "first")[0] == 200
    assert farm.agent.finish(again)[0] == 202
    assert farm.outcome(offer["rollout"]) == ("completed", "", 2)
    assert farm.kinds(offer["rollout"], 2)["model_call"] == 1
    # The killed worker could not close its session: only that one is open.
    wait_until(lambda: farm.open_sessions() == 1, 20, lambda: f"{farm.open_sessions()} sessions are open")
    urllib.request.urlopen(urllib.request.Request(f"{farm.tools}/forget", data=b"{}", method="POST"), timeout=60)
    farm.judge(collection, offer)


def test_a_worker_that_leaves_releases_its_attempts(farm: Farm) -> None:
    collection = farm.plan()
    offer = farm.agent.take(collection)
    before, answers = farm.calls_of_model(), []

    def call() -> None:
        try:
            answers.append(farm.agent.call(offer, "first")[0])
        except OSError:
            answers.append(0)  # The web process left, too.

    with farm.held():
        calling = threading.Thread(target=call)
        calling.start()
        farm.wait_for_call(before)
        assert farm.installation.leave(farm.worker) == [0]
        calling.join()
    assert answers[0] in ((409,) if farm.is_separate else (409, 0))
    assert farm.open_sessions() == 0
    assert farm.status(offer["rollout"]) == "queued"
    farm.replace_worker()
    again = farm.agent.take(collection)
    assert (again["rollout"], again["attempt"]) == (offer["rollout"], 2)
    assert farm.agent.finish(offer)[0] == 409
    assert farm.agent.call(again, "first")[0] == 200
    assert farm.agent.finish(again)[0] == 202
    assert farm.outcome(offer["rollout"]) == ("completed", "", 2)
    farm.judge(collection, offer)


def test_a_web_process_that_is_killed_amid_a_stream_breaks_only_the_stream(farm: Farm) -> None:
    if not farm.is_separate:
        pytest.skip("The worker runs inside the web process.")
    collection = farm.plan()
    offer = farm.agent.take(collection)
    with farm.held(), farm.agent.stream(offer, "streamed") as reply:
        received = b""
        while b"streamed" not in received:
            received += reply.read1()
        farm.web.kill()
        with pytest.raises((OSError, http.client.HTTPException)):
            reply.read()
        # The call in flight keeps the lease of the agent until the new process serves.
        farm.web, farm.port = farm.installation.serve("--no-worker")
        farm.connect()
    # The secret names the worker, so any web process can pass the next call on.
    assert farm.agent.call(offer, "streamed")[0] == 200
    assert farm.agent.finish(offer)[0] == 202
    assert farm.outcome(offer["rollout"]) == ("completed", "", 1)
    assert farm.kinds(offer["rollout"])["model_call"] == 2
    farm.judge(collection, offer)


def test_the_capture_server_outlives_a_client_that_sends_nonsense(farm: Farm) -> None:
    collection = farm.plan()
    offer = farm.agent.take(collection)
    with socket.create_connection(("127.0.0.1", farm.port), timeout=60) as connection:
        connection.sendall(
            b"POST /capture/cs_1_x/v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"
        )
    key = {"Authorization": f"Bearer {offer['api_key']}"}
    for body in ([], {}, {"messages": "x"}, {"messages": [{"role": "user", "content": 7}], "n": 2}):
        assert farm.agent.post("/capture/v1/chat/completions", body, key)[0] == 400
    assert farm.agent.call(offer, "fine")[0] == 200
    assert farm.agent.finish(offer)[0] == 202
    assert farm.outcome(offer["rollout"])[0] == "completed"
    farm.judge(collection, offer)


def test_no_key_of_an_attempt_is_in_a_log_or_in_the_database(farm: Farm) -> None:
    """The keys of all tests before this one, with their killed processes, broken streams and refused calls."""
    collection = farm.plan()
    offer = farm.agent.take(collection)
    path = {"Authorization": "Bearer sk-of-the-client"}
    assert farm.agent.post(f"/capture/{offer['api_key']}/v1/chat/completions", {"messages": []}, path)[0] == 400
    assert farm.agent.post(f"/capture/{offer['api_key']}/unknown", {}, path)[0] == 404
    assert farm.agent.call(offer, "first")[0] == 200
    assert farm.agent.finish(offer)[0] == 202
    assert farm.outcome(offer["rollout"])[0] == "completed"
    stored = farm.stored_texts()
    # The search finds what is stored, also in traces.
    assert any('"first"' in text for text in stored)
    for secret in farm.agent.taken:
        for text in (secret, secret.rpartition("_")[2]):
            assert not [one[:200] for one in stored if text in one]
            logs = [program.log.name for program in farm.installation.programs if text in program.said]
            assert logs == []


@pytest.fixture(autouse=True)
def _never_by_signal(farm: Farm) -> Iterator[None]:
    """No process ends by itself, and none logs an unexpected error."""
    yield
    for program in farm.installation.programs:
        assert program.killed or program.exit_code in (None, 0, -signal.SIGTERM), program.said[-3000:]
        assert "failed unexpectedly" not in program.said, program.said[-3000:]
