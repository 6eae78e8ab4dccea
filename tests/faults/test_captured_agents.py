"""Agents that run elsewhere, and the processes that serve them, killed or stopped at bad moments.

Every rollout has one outcome, a completed one has all its calls, no session of an environment stays open, and calls
after the end get 409.
"""

import contextlib
import http.client
import signal
import socket
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator

import psycopg
import pytest

from tests.faults.agent_farm import Farm
from tests.faults.conftest import RESERVE
from tests.faults.installation import Installation, wait_until

pytestmark = pytest.mark.slow
LEASE = 4.0
"""Seconds of silence after which an agent is lost."""
LOGGED = {"GYMWEB_LOG_LEVEL": "DEBUG"}
SETTINGS = {**RESERVE, **LOGGED, "GYMWEB_CAPTURE_LEASE_SECONDS": str(LEASE), "GYMWEB_WORKER_GRACE_SECONDS": "1"}


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
        for text in (secret, secret.split("_", 2)[2]):
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
