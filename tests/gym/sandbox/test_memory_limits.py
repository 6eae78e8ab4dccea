"""Control groups limit the memory of each execution, and of all executions together."""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from apps.gym.environments.code_exec.environment import CodeExec
from apps.gym.sandbox import memory_groups
from apps.gym.sandbox.choosing import Choice, ChosenSandbox, choose_sandbox, the_sandbox
from apps.gym.sandbox.control_groups import NotDelegated, Place, find_place
from apps.gym.sandbox.memory_groups import MemoryGroup, TotalMemory
from apps.gym.sandbox.protocol import Limits
from tests.deadlines import DEADLINE
from tests.gym.sandbox.needing import most_used, needs_group, needs_sandbox
from tests.gym.verifiers.replies import response

ROOT = Path(__file__).resolve().parents[3]
HOLD = "held = bytearray({megabytes} * 10**6)\nheld[::4096] = b'1' * len(held[::4096])\n"
SLEEP = "import time\nprint('ready', flush=True)\ntime.sleep({seconds})\n"


@pytest.fixture(params=["bubblewrap", "unprivileged_process"])
def small(request):
    chosen = ChosenSandbox(Choice(kind=request.param, at_once=4, memory_mb=64))
    yield chosen
    chosen.close()


def groups_of(number):
    return sorted(find_place().folder.glob(f"gymweb-sandbox-{number}-*"))


def the_group(chosen):
    return chosen._memory.open().folder


def inside(chosen):
    """The numbers of the processes that run in it now."""
    lists = the_group(chosen).glob("*/cgroup.procs")
    found = []
    for file in lists:
        with contextlib.suppress(OSError):
            found += file.read_text().split()
    return found


@needs_group
def test_a_program_is_in_the_group_with_all_that_it_starts_and_we_are_not(small):
    # The sandbox is tried first: what is looked at is one execution alone.
    assert small.find_problem() == ""
    program = f"import os\nos.fork()\n{SLEEP.format(seconds=5)}"
    running = threading.Thread(target=small.run, args=(program,))
    running.start()
    seen = set()
    while running.is_alive() and len(seen) < 2:
        numbers = inside(small)
        seen = {number for number in numbers if "python" in name_of(number)}
        assert str(os.getpid()) not in numbers
        time.sleep(0.01)
    running.join()
    assert len(seen) == 2


def name_of(number):
    try:
        return Path("/proc", number, "comm").read_text()
    except OSError:
        return ""


@needs_group
def test_who_holds_more_than_there_is_for_all_is_ended_and_told_so(small):
    outcome = small.run(HOLD.format(megabytes=120) + "print('held')")
    assert (outcome.ending, outcome.stdout) == ("too_much_memory", b"")
    assert small.run(HOLD.format(megabytes=10) + "print('held')").stdout == b"held\n"
    assert most_used(small) <= 64 * 1024**2


@needs_group
def test_a_limit_of_its_own_is_still_a_memory_error(small):
    outcome = small.run("held = bytearray(10**9)")
    assert (outcome.ending, outcome.status) == ("exited", 1)
    assert outcome.stderr.decode().splitlines()[-1] == "MemoryError"


TWO = f"""
import os
parent_holds, tell = os.pipe()
number = os.fork()
number or os.close(tell)
{HOLD.format(megabytes=180)}
if number:
    os.write(tell, b"x")
    print(os.waitpid(number, 0)[1] & 127)
else:
    os.read(parent_holds, 1)
    print("child")
"""


@needs_group
def test_processes_of_one_program_are_counted_together():
    # 360 MB, within what each process may have, and what there is for all.
    chosen = ChosenSandbox(Choice(at_once=4))
    outcome = chosen.run(TWO)
    assert outcome.ending == "too_much_memory"
    assert outcome.stdout in (b"", b"9\n", b"child\n")
    chosen.close()


@needs_group
def test_who_takes_all_that_one_process_may_is_not_ended_for_it():
    chosen = ChosenSandbox(Choice(at_once=1))
    program = """
held = []
try:
    with open("/tmp/a", "wb") as file:
        while True:
            file.write(b"1" * 10**5)
except OSError:
    print("full")
try:
    while True:
        held.append(b"1" * 10**6)
except MemoryError:
    size = len(held)
    held.clear()
    print(size > 150)
"""
    outcome = chosen.run(program)
    assert (outcome.ending, outcome.stdout) == ("exited", b"full\nTrue\n")
    assert 170e6 < most_used(chosen) < 288 * 2**20
    chosen.close()


@needs_group
def test_files_in_tmp_count():
    chosen = ChosenSandbox(Choice(at_once=1, memory_mb=64))
    program = """
with open("/tmp/a", "wb") as file:
    for _ in range({}):
        file.write(bytes(10**6))
print("done")
"""
    limits = Limits(files=400 * 1024**2)
    assert chosen.run(program.format(20), limits=limits).stdout == b"done\n"
    outcome = chosen.run(program.format(200), limits=limits)
    assert (outcome.ending, outcome.stdout) == ("too_much_memory", b"")
    # It went with its sandbox.
    assert chosen.run(program.format(20), limits=limits).stdout == b"done\n"
    chosen.close()


@needs_group
def test_who_holds_too_much_is_no_matter_to_the_others_at_once():
    chosen = ChosenSandbox(Choice(at_once=4))
    fair = HOLD.format(megabytes=180) + "import time\ntime.sleep(0.5)\nprint('held')"
    with ThreadPoolExecutor(4) as threads:
        outcomes = list(threads.map(chosen.run, [TWO, fair] * 4))
    assert [outcome.ending for outcome in outcomes[::2]] == ["too_much_memory"] * 4
    assert [outcome.stdout for outcome in outcomes[1::2]] == [b"held\n"] * 4
    chosen.close()


@needs_group
def test_no_group_of_an_execution_stays():
    chosen = ChosenSandbox(Choice(at_once=4))
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(chosen.run, ["print(1)"] * 20))
    folder = the_group(chosen)
    for _ in range(100):
        chosen.run("print(1)")
        left = [share for share in folder.iterdir() if share.is_dir()]
        if len(left) <= 1:
            break
    assert len(left) <= 1
    chosen.close()
    assert folder.exists() is False


@needs_group
def test_small_programs_go_on_beside_large_ones():
    chosen = ChosenSandbox(Choice(at_once=6, memory_mb=128))
    large = HOLD.format(megabytes=200) + "print('held')"
    small = "print(sum(range(100_000)))"
    with ThreadPoolExecutor(6) as threads:
        outcomes = list(threads.map(chosen.run, [large, small] * 8))
    assert [outcome.ending for outcome in outcomes[::2]] == ["too_much_memory"] * 8
    assert [outcome.stdout for outcome in outcomes[1::2]] == [b"4999950000\n"] * 8
    assert most_used(chosen) <= 128 * 1024**2
    chosen.close()


@needs_group
def test_the_model_reads_it_and_a_verdict_says_it():
    before = the_sandbox().choice
    choose_sandbox(Choice(at_once=2, memory_mb=64))
    try:
        environment = CodeExec({"hidden_tests": [{"args": [1], "expected": 1}] * 2})
        told = json.loads(environment.call_tool("run_python", {"code": HOLD.format(megabytes=120)}))
        code = "def solve(n):\n    held = [b'1' * 10**6 for _ in range(120)]\n    return len(held[n])"
        reward = environment.verify(response(f"```python\n{code}\n```"))
    finally:
        the_sandbox().close()
        choose_sandbox(before)
    assert (told["exit_code"], told["note"]) == (137, "stopped: memory limit exceeded")
    assert (reward.value, "test 1: memory limit" in reward.explanation) == (0.0, True)


@needs_group
def test_a_closed_group_is_removed_and_a_missing_one_recreated():
    chosen = ChosenSandbox(Choice(at_once=1, memory_mb=400))
    assert chosen.run("print(1)").stdout == b"1\n"
    first = chosen._memory.open()
    first.remove()
    assert first.folder.exists() is False
    assert chosen.run("print(2)").stdout == b"2\n"
    second = the_group(chosen)
    assert (second.exists(), first.folder == second) == (True, False)
    chosen.close()
    assert second.exists() is False


@needs_group
def test_where_none_can_be_made_any_more_code_runs_without(monkeypatch, caplog):
    chosen = ChosenSandbox(Choice(at_once=1, memory_mb=400))
    assert chosen.run("print(1)").stdout == b"1\n"
    folder = the_group(chosen)

    def share(self, most):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(MemoryGroup, "share", share)
    assert chosen.run("print(2)").stdout == b"2\n"
    assert "limited only by the number of executions: [Errno 28] No space left on device" in chosen.describe()
    assert "limited only by their number: [Errno 28] No space left on device" in caplog.text
    assert folder.exists() is False


PROGRAM = f"""
import os, signal, sys
sys.path.insert(0, {str(ROOT)!r})
from apps.gym.sandbox.choosing import Choice, ChosenSandbox
chosen = ChosenSandbox(Choice(at_once=1, memory_mb=100))
print(chosen.run("print(1)").stdout == b"1\\n", flush=True)
if sys.argv[1] == "fork":
    if not os.fork():
        print(chosen.run("print(2)").stdout == b"2\\n", flush=True)
        print(str(os.getpid()) in str(chosen._memory.open().folder), flush=True)
        sys.exit()
    os.wait()
    print(chosen.run("print(3)").stdout == b"3\\n", flush=True)
if sys.argv[1] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
"""


def run_process(how):
    child = subprocess.Popen([sys.executable, "-c", PROGRAM, how], stdout=subprocess.PIPE, text=True)
    told, _ = child.communicate(timeout=DEADLINE)
    return child.pid, told.split()


@needs_group
def test_a_process_that_ends_takes_its_group_along():
    number, told = run_process("ends")
    assert (told, groups_of(number)) == (["True"], [])


@needs_group
def test_a_process_that_was_forked_has_a_group_of_its_own():
    number, told = run_process("fork")
    assert (told, groups_of(number)) == (["True"] * 4, [])


@needs_group
def test_leftovers_of_a_killed_process_are_removed_by_the_next():
    number, _ = run_process("killed")
    assert len(groups_of(number)) == 1
    memory = TotalMemory(2**27)
    for _ in range(100):
        # Whom its last execution left is killed with it, a moment later.
        assert memory.open() is not None
        if not groups_of(number):
            break
        memory.close()
        time.sleep(0.05)
    assert groups_of(number) == []
    memory.close()


@needs_group
def test_too_little_for_a_single_program_is_said_before_anything_is_run():
    chosen = ChosenSandbox(Choice(at_once=1, memory_mb=1))
    assert chosen.find_problem() == ("code cannot be run here: GYMWEB_SANDBOX_MEMORY_MB is too small for one program")
    chosen.close()


@needs_sandbox
@pytest.mark.parametrize("problem", [NotDelegated("/sys/fs/cgroup cannot be written to"), OSError(30, "Read-only")])
def test_where_no_group_can_be_made_code_runs_as_before_and_it_is_said(problem, monkeypatch):
    def find():
        raise problem

    monkeypatch.setattr(memory_groups, "find_place", find)
    chosen = ChosenSandbox(Choice(at_once=1))
    assert chosen.run("print(1)").stdout == b"1\n"
    assert chosen.describe() == f"bubblewrap; total memory is limited only by the number of executions: {problem}"


@needs_sandbox
def test_a_group_that_cannot_be_joined_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr(memory_groups, "find_place", lambda: Place(folder=tmp_path, version=2))
    monkeypatch.setattr(memory_groups, "_JOIN", 'echo "no room" >&2; exit 96')
    monkeypatch.setattr(memory_groups, "_TRIES", 1)
    chosen = ChosenSandbox(Choice(at_once=1))
    assert chosen.run("print(1)").stdout == b"1\n"
    assert chosen.describe().endswith(
        "limited only by the number of executions: no process can join a group there: no room"
    )


@needs_sandbox
def test_it_can_be_turned_off():
    chosen = ChosenSandbox(Choice(at_once=1, memory_mb=0))
    assert chosen.run("print(1)").stdout == b"1\n"
    assert chosen.describe().endswith("limited only by the number of executions: GYMWEB_SANDBOX_MEMORY_MB is 0")


def test_there_is_room_for_all_that_may_run_at_once(settings):
    assert Limits().together == 288 * 1024**2
    assert Choice(at_once=5).memory == 5 * Limits().together
    assert Choice(at_once=settings.SANDBOX_AT_ONCE).memory == settings.SANDBOX_MEMORY_MB * 1024**2
    assert the_sandbox().choice.memory_mb == settings.SANDBOX_MEMORY_MB
