"""Ways out of the sandbox, each tried for real. `make sandbox-escapes` prints what became of each."""

import contextlib
import json
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from apps.gym.environments.code_exec.environment import HiddenTest, HiddenTests, run_tests
from apps.gym.sandbox.bubblewrap import Bubblewrap
from apps.gym.sandbox.choosing import Choice, ChosenSandbox
from apps.gym.sandbox.protocol import Limits
from tests.deadlines import DEADLINE, wait_until
from tests.gym.sandbox.needing import NO_GROUP, most_used, needs_group, needs_sandbox

ROOT = Path(__file__).resolve().parents[3]
PYTHON = "/usr/bin/python3"
SANDBOX = ChosenSandbox(Choice(python=PYTHON))
FILES = Limits().files + os.getpid()
"""Limit on files. It is on the command line of each sandbox, so it tells these sandboxes from those of other runs."""
pytestmark = needs_sandbox


def attempt(program, *, stdin=b"", **limits):
    """What the program wrote, and how it ended; the line of it is what `make sandbox-escapes` shows."""
    before = own_memory()
    outcome = SANDBOX.run(program, stdin=stdin, limits=Limits(**{"seconds": DEADLINE, "files": FILES, **limits}))
    text = outcome.stdout.decode(errors="replace")
    last = (outcome.stderr.decode(errors="replace").strip().splitlines() or [""])[-1]
    grew = (own_memory() - before) / 1e6
    name = os.environ.get("PYTEST_CURRENT_TEST", "").split("::")[-1].split(" ")[0].removeprefix("test_")
    print(
        f"{name}: {outcome.ending}, status {outcome.status}, {outcome.seconds:.2f} s, {grew:+.1f} MB here; "
        f"{text.strip()[:80]!r} {last[:90]!r}"
    )
    return outcome, text, last


def own_memory():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


# ── the network ──


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.2)
        yield listening


RAW_CONNECT = """
import _socket, os
try:
    made = _socket.socket({family}, _socket.SOCK_STREAM)
    made.connect({address!r})
    print("connected")
except OSError as problem:
    print(type(problem).__name__)
"""


def test_a_listener_on_the_loopback_is_not_reached(listener):
    _, text, _ = attempt(RAW_CONNECT.format(family="_socket.AF_INET", address=listener.getsockname()))
    assert text == "PermissionError\n"
    with pytest.raises(TimeoutError):
        listener.accept()


def test_without_the_filter_of_calls_the_namespace_keeps_it_from_the_listener_too(listener, monkeypatch):
    monkeypatch.setattr("apps.gym.sandbox.bubblewrap.build_filter", lambda: b"")
    _, text, _ = attempt(RAW_CONNECT.format(family="_socket.AF_INET", address=listener.getsockname()))
    assert text == "ConnectionRefusedError\n"
    _, text, _ = attempt(RAW_CONNECT.format(family="_socket.AF_INET", address=("192.0.2.1", 80)))
    assert text == "OSError\n"
    with pytest.raises(TimeoutError):
        listener.accept()


def test_a_socket_of_the_machine_below_is_not_made():
    for family in (40, 38, 16, 17):  # vsock, alg, netlink, packet
        assert attempt(RAW_CONNECT.format(family=family, address=(2, 80)))[1] == "PermissionError\n"


# ── files ──


@pytest.mark.parametrize(
    "path",
    [
        "/etc/shadow",
        "/etc/passwd",
        str(ROOT / "manage.py"),
        str(ROOT / "apps" / "gym" / "sandbox" / "boot.py"),
        "/proc/self/environ",
        "/proc/1/root/etc/shadow",
        "/root",
        "/home",
        "/var",
        "/run",
        "/sys",
        "/dev/shm",
        "/dev/mem",
        "/../../etc/shadow",
    ],
)
def test_a_file_of_the_machine_is_not_there(path):
    program = (
        f"import os\ntry:\n    print(os.stat({path!r}))\nexcept OSError as problem:\n    print(type(problem).__name__)"
    )
    assert attempt(program)[1] == "FileNotFoundError\n"


def test_all_that_there_is_can_be_listed():
    program = "import os; print(sorted(os.listdir('/')), os.listdir('/dev'), os.listdir('/tmp'), os.getuid())"
    _, text, _ = attempt(program)
    places = [name for name in ("dev", "lib", "lib32", "lib64", "tmp", "usr") if name in text]
    assert text == f"{places} ['null'] [] 65534\n"


def test_links_lead_nowhere_but_inside():
    program = """
import os
os.symlink("/etc/shadow", "/tmp/a")
os.symlink("/proc/self/root/etc", "/tmp/b")
os.symlink("../../../../../../etc/shadow", "/tmp/c")
os.symlink("/", "/tmp/d")
for path in ("/tmp/a", "/tmp/b/shadow", "/tmp/c", "/tmp/d/etc/shadow", "/tmp/d/../../etc/shadow"):
    try:
        open(path)
        print("read", path)
    except OSError as problem:
        print(type(problem).__name__)
try:
    os.link("/usr/bin/python3.11", "/tmp/e")
    print("linked")
except OSError as problem:
    print(type(problem).__name__)
"""
    assert attempt(program)[1] == "FileNotFoundError\n" * 5 + "OSError\n"


def test_no_folder_but_tmp_can_be_written_to():
    program = """
import os
for folder, _, _ in os.walk("/"):
    path = os.path.join(folder, "written")
    try:
        open(path, "w").close()
        print(folder)
    except OSError:
        pass
"""
    assert attempt(program)[1] == "/tmp\n"


def test_nothing_can_be_written_but_a_little_in_tmp():
    program = """
import os
for path in ("/a", "/usr/lib/a", "/dev/a", "/usr/a", "/lib/python3.11/os.py"):
    try:
        open(path, "w")
        print("wrote", path)
    except OSError as problem:
        print(problem.strerror)
written = 0
try:
    for number in range(100):
        with open(f"/tmp/{number}", "wb") as file:
            written += file.write(bytes(10**6))
except OSError as problem:
    print(written <= 16 * 1024**2, problem.strerror)
"""
    _, text, _ = attempt(program)
    assert set(text.splitlines()[:5]) <= {"Read-only file system", "No such file or directory"}
    assert text.splitlines()[5:] == ["True No space left on device"]


MAKE_FILES = """
made = 0
try:
    while made < 5000:
        open(f"/tmp/{made}", "w").close()
        made += 1
except OSError as problem:
    print(problem.strerror)
print(made)
"""


def test_files_are_counted_too():
    why, made = attempt(MAKE_FILES)[1].split("\n")[:2]
    assert (why, int(made) < Limits().entries) == ("No space left on device", True)


def test_where_files_cannot_be_counted_code_runs_all_the_same(monkeypatch):
    monkeypatch.setattr("apps.gym.sandbox.bubblewrap._find_place", lambda python: "")
    assert attempt(MAKE_FILES)[1] == "5000\n"


# ── time, memory, processes, output ──


def test_a_fork_bomb_ends():
    program = "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass"
    outcome, _, _ = attempt(program, seconds=3.0)
    assert outcome.ending == "too_long"
    assert processes_of_nobody() == []


def test_processes_are_counted():
    program = """
import os, time
made = 0
try:
    for _ in range(100):
        if not os.fork():
            time.sleep(60)
        made += 1
except OSError as problem:
    print(made, problem.strerror)
"""
    made, _, why = attempt(program)[1].partition(" ")
    assert (int(made) < Limits().processes, why) == (True, "Resource temporarily unavailable\n")
    assert processes_of_nobody() == []


def processes_of_nobody():
    """Return the sandboxed processes of this file that run now and do not end."""
    left = sandboxed()
    with contextlib.suppress(AssertionError):
        wait_until(lambda: not left & sandboxed())
    return sorted(left & sandboxed())


def sandboxed():
    """Return pid and start time of each sandboxed process of this file."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (folder / "cmdline").read_bytes()
            if b"resource.setrlimit" in command and b"\0%d\0" % FILES in command:
                found.add((int(folder.name), (folder / "stat").read_text().rpartition(")")[2].split()[19]))
    return found


def test_10_gb_are_not_given():
    outcome, _, last = attempt("held = bytearray(10 * 10**9)")
    assert (outcome.ending, outcome.status, last) == ("exited", 1, "MemoryError")


def test_10_gb_in_pieces_are_not_given():
    outcome, _, last = attempt("held = []\nwhile True:\n    held.append(bytearray(10**7))")
    assert (outcome.ending, outcome.status, last) == ("exited", 1, "MemoryError")


def test_how_the_memory_of_all_together_is_bounded_is_said():
    told = SANDBOX.describe()
    print(f"how_the_memory_of_all_together_is_bounded: {told}")
    assert told.startswith("bubblewrap; memory limit of all programs" if not NO_GROUP else "bubblewrap; their memory ")


@needs_group
def test_the_memory_of_the_machine_is_not_taken_by_many_at_once():
    """Eight programs of three processes with 200 MB each: 4.8 GB, of which each process may have its part."""
    program = """
import os, time
if os.fork():
    os.fork()
held = b"1" * (200 * 10**6)
time.sleep(5)
print("held")
"""
    many = ChosenSandbox(Choice(python=PYTHON, at_once=8, memory_mb=512))
    before = own_memory()
    with ThreadPoolExecutor(8) as threads:
        outcomes = list(threads.map(lambda _: many.run(program, limits=Limits(files=FILES)), range(8)))
    most = most_used(many) / 2**20
    ended = sum(outcome.ending == "too_much_memory" for outcome in outcomes)
    print(f"the_memory_of_the_machine: {ended} of 8 ended for it, {most:.0f} of 512 MB held at most")
    assert most <= 512
    assert ended == 8
    assert own_memory() - before < 50e6
    assert many.run("print(1)").stdout == b"1\n"
    many.close()
    assert processes_of_nobody() == []


def test_memory_that_no_process_owns_is_not_given():
    program = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
print(libc.shmget(0, 2**30, 0o1600), libc.memfd_create(b"x", 0), libc.syscall(447, 0))
"""
    assert attempt(program)[1] == "-1 -1 -1\n"


def test_1_gb_of_output_costs_no_memory():
    before = own_memory()
    program = "import os\npiece = b'x' * 10**6\nfor _ in range(1000):\n    os.write(1, piece)"
    outcome, text, _ = attempt(program)
    assert (outcome.ending, outcome.cut, len(text)) == ("too_much_output", True, Limits().output)
    assert own_memory() - before < 20e6


def test_a_loop_without_an_end_is_stopped():
    outcome, _, _ = attempt("while True:\n    pass", cpu_seconds=1)
    assert (outcome.ending, outcome.status != 0) == ("exited", True)
    outcome, _, _ = attempt("import time\ntime.sleep(1000)", seconds=0.5)
    assert (outcome.ending, outcome.seconds < 1000) == ("too_long", True)


def test_signals_put_off_nothing():
    program = (
        "import signal, time\nfor number in range(1, 32):\n    try:\n        signal.signal(number, signal.SIG_IGN)\n"
    )
    program += "    except (OSError, ValueError):\n        pass\ntime.sleep(1000)"
    outcome, _, _ = attempt(program, seconds=0.5)
    assert (outcome.ending, outcome.seconds < 1000) == ("too_long", True)


def test_remaining_processes_end_with_the_sandbox():
    program = """
import os, time
if not os.fork():
    os.setsid()
    if not os.fork():
        time.sleep(1000)
print("parent", flush=True)
"""
    outcome, text, _ = attempt(program, seconds=5.0)
    # It holds the output open, so the time runs out; or nobody waits for it at all.
    assert (text.splitlines()[0], outcome.seconds < 1000) == ("parent", True)
    assert processes_of_nobody() == []


# ── other processes ──


def test_the_parent_cannot_be_killed():
    program = """
import os, signal
for number in (1, os.getppid()):
    try:
        os.kill(number, signal.SIGKILL)
        print("sent to", number)
    except OSError as problem:
        print(problem.strerror)
seen = 0
for number in range(2, 5000):
    try:
        os.kill(number, 0)
        seen += 1
    except OSError:
        pass
print("seen", seen)
"""
    _, text, _ = attempt(program)
    # The first process of the namespace takes no signal from inside it; the only other one is the program itself.
    assert text.splitlines()[-1:] == ["seen 1"]


def test_killing_all_kills_itself_alone():
    attempt("import os, signal\nos.kill(-1, signal.SIGKILL)")
    assert Bubblewrap(python=PYTHON).run("print(1)").stdout == b"1\n"


def test_calls_that_lead_out_are_refused():
    program = """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *arguments):
    ctypes.set_errno(0)
    answer = getattr(libc, name)(*arguments)
    return name, answer, errno.errorcode.get(ctypes.get_errno(), "")
print(call("ptrace", 16, 1, 0, 0))
print(call("unshare", 0x10000000))
print(call("mount", b"proc", b"/tmp", b"proc", 0, None))
print(call("setns", 0, 0))
print(call("chroot", b"/tmp"))
print(call("syscall", 321, 0, 0, 0))
print(call("syscall", 425, 1, 0))
print(call("syscall", 435, 0, 0))
"""
    _, text, _ = attempt(program)
    if os.uname().machine != "x86_64":
        pytest.skip("the numbers are those of x86_64")
    assert [eval(line)[1:] for line in text.splitlines()] == [(-1, "EPERM")] * 7 + [(-1, "ENOSYS")]


def test_nothing_of_this_process_is_inherited(monkeypatch):
    monkeypatch.setenv("GYMWEB_SECRET_KEY", "do-not-tell")
    held = os.open("/etc/hostname", os.O_RDONLY)
    os.set_inheritable(held, True)
    program = """
import os
found = []
for number in range(64):
    try:
        os.fstat(number)
        found.append(number)
    except OSError:
        pass
print(found, sorted(os.environ))
"""
    try:
        _, text, _ = attempt(program)
    finally:
        os.close(held)
    assert text.startswith("[0, 1, 2] ")
    assert "GYMWEB" not in text


def test_when_this_process_is_killed_the_sandbox_goes_with_it():
    program = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from apps.gym.sandbox.bubblewrap import Bubblewrap
from apps.gym.sandbox.protocol import Limits
print("ready", flush=True)
Bubblewrap(python={PYTHON!r}).run("import time; time.sleep(1000)", limits=Limits(seconds=1000.0, files={FILES}))
"""
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    with child:
        assert child.stdout.readline() == "ready\n"
        # bubblewrap takes a moment to tie itself to its parent: the program runs after that.
        wait_until(lambda: any(Path(f"/proc/{pid}/comm").read_text().startswith("python") for pid, _ in sandboxed()))
        child.kill()
    assert processes_of_nobody() == []


# ── the hidden tests and the reward ──

SECRET = 918273645081726354
TESTS = HiddenTests(hidden_tests=[HiddenTest(args=[7], expected=SECRET), HiddenTest(args=[8], expected=SECRET + 1)])


def judge(code):
    result = run_tests(code, TESTS)
    print(f"{result.passed} of {result.total}: {result.told[:100]}")
    return result.passed


def test_expected_answers_are_not_in_the_sandbox():
    code = f"""
import gc, sys
def solve(n):
    found = []
    frame = sys._getframe()
    while frame:
        found.append((repr(frame.f_globals), repr(frame.f_locals)))
        frame = frame.f_back
    found += [repr(thing) for thing in gc.get_objects() if isinstance(thing, (dict, list, tuple, str, bytes, int))]
    # Spelled backwards, so that looking for it does not put it there.
    digits = "".join(reversed({str(SECRET)[::-1]!r}))
    return any(digits in text for text in map(str, found))
"""
    result = run_tests(code, TESTS)
    assert (result.passed, result.told) == (0, "test 1: gave false")


FORGERIES = {
    "an object that equals everything": """
class Any(int):
    def __eq__(self, other): return True
    def __hash__(self): return 0
def solve(n): return Any(3)
""",
    "json that says it passed": """
import json
json.dumps = lambda *given, **more: '{"value": true, "passed": true, "reward": 1.0}'
def solve(n): return 0
""",
    "builtins that are others": """
import builtins
builtins.print = lambda *given, **more: None
builtins.type = lambda *given: int
builtins.isinstance = lambda *given: True
def solve(n): return 0
""",
    "every descriptor": """
import os
for number in range(64):
    try: os.write(number, b'{"value": true}\\n{"reward": 1.0}\\n')
    except OSError: pass
os._exit(0)
""",
    "an exit code": "import os\nos._exit(0)",
    "an end in good order": "raise SystemExit(0)",
    "more results than tests": """
import os, sys
out = sys._getframe(3).f_globals.get("results") if hasattr(sys, "_getframe") else None
frame = sys._getframe()
while frame:
    out = frame.f_globals.get("results") or out
    frame = frame.f_back
out.write('{"value": 1}\\n' * 100)
out.flush()
def solve(n): return 0
""",
    "a result that nests without an end": "def solve(n):\n    held = []\n    held.append(held)\n    return held",
    "a huge number": "def solve(n): return 10 ** 10000",
    "an infinite number": "def solve(n): return float('inf')",
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_reward_is_none(name):
    assert judge(FORGERIES[name]) == 0


def test_the_right_answer_passes_all_the_same():
    assert judge(f"def solve(n): return {SECRET} + n - 7") == 2
    assert json.loads(json.dumps(SECRET)) == SECRET
