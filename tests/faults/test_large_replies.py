"""Many large replies at once: a worker stays within its memory budget, and gives the memory back afterwards."""

import contextlib
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from apps.rollouts.trace_payloads import unpack
from tests.faults.installation import Installation, Program, size, wait_until

pytestmark = pytest.mark.slow

MIB = 1024 * 1024
BUDGET = size(64, 512) * MIB
REPLY = size(8, 32) * MIB
REPLIES = size(16, 64)


def plan(embedded: Installation, *model_options: object, rollouts: int, **fields: object) -> int:
    """The id of a collection of one-turn rollouts whose whole reply goes to a verifier over HTTP."""
    _, tools = embedded.tools()
    model = embedded.model("--tool-calls", 0, *model_options)
    return embedded.plan(
        models={"mock": {"base_url": model, **fields}},
        environments={"weather": {"base_url": tools}},
        collections={"all": {"faults": [""] * rollouts, "model": "mock", "environment": "weather"}},
    )["all"]


def start_worker(embedded: Installation, seats: int, **env: object) -> Program:
    embedded.plan(migrate=True)
    worker = embedded.worker(seats, **env)
    registered = f"SELECT count(*) FROM rollouts_worker WHERE pid = {worker.pid}"
    wait_until(lambda: embedded.number(registered) > 0, 60, embedded.tell)
    return worker


def memory_of(program: Program) -> int:
    """Bytes of the process that are in memory now."""
    status = Path(f"/proc/{program.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024  # type: ignore[index]


@contextlib.contextmanager
def highest_memory(program: Program) -> Iterator[list[int]]:
    """The most memory that the process had meanwhile, read many times a second, as the only number of the list."""
    highest, over = [0], threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            highest[0] = max(highest[0], memory_of(program))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield highest
    finally:
        over.set()
        watching.join()


@pytest.mark.parametrize("framing", [(), ("--chunked",)], ids=["with_length", "chunked"])
def test_large_replies_at_once_stay_within_the_budget_and_their_memory_is_returned(
    embedded: Installation, show, framing: tuple[str, ...]
) -> None:
    worker = start_worker(embedded, REPLIES, GYMWEB_WORKER_MEMORY_MB=BUDGET // MIB)
    started = memory_of(worker)
    with highest_memory(worker) as highest:
        # A timeout of the model is shorter than the replies take together: waiting for memory must not count.
        collection = plan(embedded, "--reply-bytes", REPLY, *framing, rollouts=REPLIES, call_timeout=10.0)
        embedded.wait_finished(collection, seconds=size(300, 900))
    assert highest[0] <= BUDGET + 300 * MIB, f"{highest[0] // MIB} MB; {embedded.tell()}"
    returned = wait_until(lambda: memory_of(worker) <= started + 100 * MIB, 60, embedded.tell)
    ended = embedded.rows("SELECT status, error_kind, error_message, count(*) FROM rollouts_rollout GROUP BY 1, 2, 3")
    assert ended == [("completed", "", "", REPLIES)]
    replies = embedded.rows("SELECT payload FROM rollouts_traceevent WHERE kind = 'model_call'")
    assert min(len(unpack(payload)) for (payload,) in replies) > REPLY / 2
    assert embedded.leave(worker) == [0]
    show(
        replies=REPLIES,
        reply_mb=REPLY // MIB,
        budget_mb=BUDGET // MIB,
        started_mb=started // MIB,
        highest_mb=highest[0] // MIB,
        seconds_until_returned=round(returned, 1),
    )


def test_replies_that_never_fit_fail_their_rollouts_by_name_once_and_do_not_open_the_breaker(
    embedded: Installation,
) -> None:
    worker = start_worker(embedded, 4, GYMWEB_WORKER_MEMORY_MB=64, GYMWEB_BREAKER_FAILURES=3)
    collection = plan(embedded, "--reply-bytes", 20 * MIB, rollouts=12)
    embedded.wait_finished(collection, seconds=120)
    ended = (
        "SELECT status, attempt, error_kind, error_message LIKE '%11,184,810 bytes%', count(*) FROM rollouts_rollout"
    )
    assert embedded.rows(f"{ended} GROUP BY 1, 2, 3, 4") == [("failed", 1, "policy_error", 1, 12)]
    assert embedded.rows("SELECT state FROM rollouts_breaker") == []
    assert embedded.leave(worker) == [0]
