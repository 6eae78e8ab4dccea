import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from apps.gym.errors import VerifierError
from apps.gym.verifiers.processes.process_pool import ProcessPool
from apps.gym.verifiers.registry import read_verifier
from tests.deadlines import DEADLINE, wait_until
from tests.gym.verifiers.replies import response

ROOT = Path(__file__).resolve().parents[3]
HANGS = {"type": "regex", "wanted": ["^(a+)+$"], "time_limit": 0.5}
"""On "aaa…b" this tries each of 2^n ways."""
LONG = "a" * 60 + "b"
ROW = {"responses_create_params": {"input": "?"}}


@pytest.fixture
def pool():
    pool = ProcessPool(1)
    yield pool
    pool.close()


def verify(pool, given, text, row=ROW, seconds=DEADLINE):
    return asyncio.run(pool.verify(read_verifier(given), row, response(text), seconds=seconds))


def test_a_verifier_in_a_process_gives_the_same_reward_as_here(pool):
    given = {"type": "exact_match", "extract": "pattern", "pattern": r"is (\w+)\."}
    row = {**ROW, "expected_answer": "Paris"}
    assert verify(pool, given, "It is Rome. No, it is Paris.", row) == read_verifier(given).verify(
        row, response("It is Rome. No, it is Paris.")
    )


def test_a_pattern_that_hangs_is_killed_at_its_time_limit_and_gives_no_reward(pool):
    verify(pool, HANGS, "aaa")
    [child] = pool._children
    with pytest.raises(VerifierError, match=r"Regular expressions: stopped after 0\.5 s without a result") as refused:
        verify(pool, HANGS, LONG, seconds=0.5)
    assert refused.value.kind == "verifier_timeout"
    assert not refused.value.transient
    assert child.process.returncode == -signal.SIGKILL
    assert verify(pool, HANGS, "aaaa").value == 1.0


def test_the_loop_turns_while_a_verifier_hangs(pool):
    async def turns_of_the_loop():
        hanging = asyncio.ensure_future(pool.verify(read_verifier(HANGS), ROW, response(LONG), seconds=2.0))
        turns = 0
        while not hanging.done():
            await asyncio.sleep(0.001)
            turns += 1
        assert isinstance(hanging.exception(), VerifierError)
        return turns

    # A loop that the verifier blocks turns once or twice; a free one about a thousand times on a quiet machine.
    assert asyncio.run(turns_of_the_loop()) > 5


def test_many_wait_for_a_few_processes_and_each_gets_its_own_reward():
    pool = ProcessPool(2)

    async def all_of_them():
        number = {"type": "numeric", "extract": "pattern", "pattern": r"\d+"}
        verifier = read_verifier(number)
        return await asyncio.gather(
            *(pool.verify(verifier, {"expected_answer": i % 3}, response(f"{i}"), seconds=DEADLINE) for i in range(60))
        )

    rewards = asyncio.run(all_of_them())
    assert [reward.value for reward in rewards] == [float(i < 3) for i in range(60)]
    assert len(pool._children) == 2
    pool.close()


def test_an_environment_whose_verifier_hangs_holds_up_no_other():
    pool = ProcessPool(1, spare=1)

    async def both():
        bad = [
            asyncio.ensure_future(
                pool.verify(read_verifier(HANGS), ROW, response(LONG), seconds=10 * DEADLINE, whose="bad")
            )
            for _ in range(3)
        ]
        await asyncio.sleep(0.1)
        good = [
            pool.verify(read_verifier(HANGS), ROW, response("aa"), seconds=DEADLINE, whose="good") for _ in range(20)
        ]
        values = [reward.value for reward in await asyncio.wait_for(asyncio.gather(*good), DEADLINE)]
        hanging = sum(not one.done() for one in bad)
        await asyncio.to_thread(pool.close)
        failures = await asyncio.gather(*bad, return_exceptions=True)
        return values, hanging, [type(one) for one in failures]

    assert asyncio.run(both()) == ([1.0] * 20, 3, [VerifierError] * 3)


def test_who_was_stopped_gets_one_process_until_it_ends_in_time_again():
    pool = ProcessPool(3)

    async def hang(count):
        hanging = (
            pool.verify(read_verifier(HANGS), ROW, response(LONG), seconds=0.5, whose="bad") for _ in range(count)
        )
        await asyncio.gather(*hanging, return_exceptions=True)

    asyncio.run(hang(1))
    assert pool._room("bad") == 1
    assert (
        asyncio.run(pool.verify(read_verifier(HANGS), ROW, response("aa"), seconds=DEADLINE, whose="bad")).value == 1.0
    )
    assert (pool._room("bad"), pool._room("another"), dict(pool._running)) == (3, 3, {})
    pool.close()


def test_environments_take_turns():
    pool = ProcessPool(1)
    order = []

    async def one(whose):
        await pool.verify(read_verifier(HANGS), ROW, response("aa"), seconds=DEADLINE, whose=whose)
        order.append(whose)

    async def main():
        await asyncio.gather(*(one("many") for _ in range(30)), *(one("few") for _ in range(3)))

    asyncio.run(main())
    pool.close()
    assert len(order) == 33
    assert [place for place, whose in enumerate(order) if whose == "few"][-1] < 10


@pytest.mark.parametrize("delay", [0.05, 1.5])
def test_what_waits_for_a_pool_that_closes_fails(pool, delay):
    async def main(delay):
        waiting = [
            asyncio.ensure_future(pool.verify(read_verifier(HANGS), ROW, response(LONG), seconds=120.0))
            for _ in range(3)
        ]
        # Soon after, processes are still being started; later one verifies.
        await asyncio.sleep(delay)
        await asyncio.to_thread(pool.close)
        return await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), timeout=DEADLINE)

    assert [type(one) for one in asyncio.run(main(delay))] == [VerifierError] * 3


def test_a_process_that_was_killed_while_idle_is_replaced(pool):
    verify(pool, HANGS, "a")
    [child] = pool._children
    os.kill(child.process.pid, signal.SIGKILL)
    child.process.wait()
    assert verify(pool, HANGS, "a").value == 1.0


def test_a_process_that_is_killed_at_work_fails_that_verification_alone(pool):
    verify(pool, HANGS, "a")

    async def kill_at_work():
        hanging = asyncio.ensure_future(pool.verify(read_verifier(HANGS), ROW, response(LONG), seconds=DEADLINE))
        await asyncio.to_thread(wait_until, lambda: pool._running, DEADLINE, "the verifier runs")
        [child] = pool._children
        os.kill(child.process.pid, signal.SIGKILL)
        await hanging

    with pytest.raises(VerifierError, match="its process failed") as refused:
        asyncio.run(kill_at_work())
    assert refused.value.transient
    assert verify(pool, HANGS, "a").value == 1.0


def test_a_row_that_cannot_be_verified_is_refused_in_the_words_of_the_verifier(pool):
    with pytest.raises(VerifierError, match="Exact match: the task row has no `expected_answer`"):
        verify(pool, {"type": "exact_match"}, "42")


def test_texts_that_json_can_hardly_hold_reach_the_process(pool):
    huge = {**ROW, "expected_answer": "\ud800", "big": 2**80}
    given = {"type": "exact_match", "extract": "pattern", "pattern": "(?s).+"}
    assert verify(pool, given, "\ud800 ", huge).value == 1.0


def test_a_cancelled_caller_blocks_no_other(pool):
    async def give_up():
        # What runs already goes on to its limit; what waits is dropped.
        limits = [0.5] + [10 * DEADLINE] * 9
        waiting = [
            asyncio.ensure_future(pool.verify(read_verifier(HANGS), ROW, response(LONG), seconds=limit))
            for limit in limits
        ]
        await asyncio.sleep(0.1)
        for task in waiting:
            task.cancel()
        good = pool.verify(read_verifier(HANGS), ROW, response("aa"), seconds=DEADLINE)
        return await asyncio.wait_for(good, DEADLINE)

    assert asyncio.run(give_up()).value == 1.0


def test_a_closed_pool_leaves_no_process_behind(pool):
    verify(pool, HANGS, "a")
    [child] = pool._children
    pool.close()
    assert child.process.returncode == -signal.SIGKILL


OWNER = """
import asyncio, sys, time
from apps.gym.verifiers.processes.process_pool import shared_pool
from apps.gym.verifiers.registry import read_verifier
async def main():
    verifier = read_verifier({"type": "regex", "wanted": [sys.argv[1]]})
    hanging = asyncio.ensure_future(shared_pool().verify(verifier, {}, {"output": [
        {"role": "assistant", "content": "a" * 60 + "b"}]}, seconds=float(sys.argv[2])))
    while not shared_pool()._children:
        await asyncio.sleep(0.01)
    print(*(child.process.pid for child in shared_pool()._children), flush=True)
    await asyncio.wait([hanging])
    time.sleep(60)
asyncio.run(main())
"""


def is_alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize(("pattern", "seconds"), [("a", "1"), ("^(a|a)+$", "1")])
def test_when_its_owner_is_killed_a_process_ends_by_itself(pattern, seconds):
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, pattern, seconds], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    with owner:
        pid = int(owner.stdout.readline())
        assert is_alive(pid)
        owner.kill()
    wait_until(lambda: not is_alive(pid), what="the process ended")


def test_a_process_sees_no_setting_and_no_secret(pool, monkeypatch):
    monkeypatch.setenv("GYMWEB_SECRET_KEY", "a secret")
    verify(pool, HANGS, "a")
    [child] = pool._children
    variables = Path(f"/proc/{child.process.pid}/environ").read_bytes().split(b"\0")
    assert [one for one in variables if b"GYMWEB" in one or b"secret" in one] == []
