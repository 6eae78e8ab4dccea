import os
import subprocess
import threading
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from apps.gym.sandbox import bubblewrap, choosing
from apps.gym.sandbox.boot import boot_arguments, watch_start
from apps.gym.sandbox.bounded_output import run_bounded
from apps.gym.sandbox.choosing import Choice, ChosenSandbox, choose_sandbox, the_sandbox
from apps.gym.sandbox.protocol import Limits, SandboxMissing
from apps.gym.sandbox.syscalls import REFUSED, build_filter
from tests.gym.sandbox.needing import MISSING, needs_sandbox

ENV = {"PATH": "/usr/bin:/bin"}


@pytest.fixture(params=["bubblewrap", "unprivileged_process"])
def chosen(request):
    if request.param == "bubblewrap" and MISSING:
        pytest.skip(f"SKIPPED by name: the sandbox: {MISSING}")
    return ChosenSandbox(Choice(kind=request.param))


def test_a_program_gets_its_input_and_its_two_outputs_come_back(chosen):
    outcome = chosen.run("import sys\nprint(input() * 2)\nprint('ö', file=sys.stderr)\nsys.exit(3)", stdin=b"ab\n")
    assert (outcome.ending, outcome.status, outcome.cut) == ("exited", 3, False)
    assert (outcome.stdout.decode(), outcome.stderr.decode()) == ("abab\n", "ö\n")


def test_the_same_program_gives_the_same_output(chosen):
    program = "print(list({'a', 'b', 'c', 'd', 'e', 'f'}), hash('x'))"
    assert len({chosen.run(program).stdout for _ in range(4)}) == 1


def test_nothing_stays_from_one_execution_to_the_next(chosen):
    chosen.run("import os\nopen(os.environ['HOME'] + '/a', 'w').write('x')\nimport builtins\nbuiltins.kept = 1")
    assert chosen.run(
        "import os, builtins\nprint(os.listdir(os.environ['HOME']), hasattr(builtins, 'kept'))"
    ).stdout == (b"[] False\n")


def test_the_traceback_names_the_programs_own_lines(chosen):
    error = chosen.run("a = 1\nb = 0\na / b").stderr.decode()
    assert 'File "program.py", line 3' in error
    assert error.splitlines()[-1] == "ZeroDivisionError: division by zero"


def test_a_large_input_and_a_large_output_do_not_wait_for_each_other(chosen):
    limits = Limits(output=3 * 1024**2, most_output=4 * 1024**2)
    given = bytes(range(97, 107)) * 200_000
    outcome = chosen.run(
        "import sys\nfor line in sys.stdin.buffer:\n    sys.stdout.buffer.write(line)", stdin=given, limits=limits
    )
    assert (outcome.stdout == given, outcome.cut) == (True, False)


def test_output_is_cut_where_it_is_too_long_and_the_program_goes_on(chosen):
    outcome = chosen.run("print('x' * 500_000)\nimport sys\nsys.exit(4)", limits=Limits(output=10))
    assert (outcome.stdout, outcome.cut, outcome.ending, outcome.status) == (b"x" * 10, True, "exited", 4)


def test_half_a_surrogate_pair_and_no_text_at_all_are_programs_too(chosen):
    assert chosen.run("").status == 0
    assert chosen.run("print('\ud800')").stdout == b"?\n"


class Broken:
    """The memory of an execution whose first attempts end before the program begins."""

    folder = None

    def __init__(self, times):
        self.times, self.started = times, 0

    def joined(self, command):
        self.started += 1
        return ["sh", "-c", "echo no memory >&2; exit 1"] if self.started <= self.times else [*command]

    def was_full(self):
        return False


def run_broken(chosen, monkeypatch, times):
    assert chosen.find_problem() == ""
    broken = Broken(times)
    monkeypatch.setattr(choosing, "_REST_SECONDS", 0.0)
    monkeypatch.setattr(chosen._memory, "share", lambda most: nullcontext(broken))
    return chosen.run("print(1)").stdout, broken.started


def test_a_sandbox_that_does_not_start_is_started_again_and_not_held_against_the_program(chosen, monkeypatch):
    assert run_broken(chosen, monkeypatch, 3) == (b"1\n", 4)


def test_a_sandbox_that_never_starts_is_missing(chosen, monkeypatch):
    with pytest.raises(SandboxMissing, match="did not start in 10 tries: no memory"):
        run_broken(chosen, monkeypatch, 100)


@needs_sandbox
def test_as_an_ordinary_user_it_is_the_same(monkeypatch):
    if os.geteuid() != 0:
        pytest.skip("every other test here is as an ordinary user already")
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    bubblewrap._wrapping.cache_clear()
    try:
        command = bubblewrap._wrapping("/usr/bin/python3")
    finally:
        bubblewrap._wrapping.cache_clear()
    assert command[0].endswith("bwrap")
    program = b"import os; print(os.getuid(), os.listdir('/'))"
    python = str(Path("/usr/bin/python3").resolve())
    with watch_start() as start:
        inside = [*command, "--tmpfs", "/tmp", "--", *boot_arguments(python, program, Limits(), start)]
        person = ["setpriv", "--reuid", "1234", "--regid", "1234", "--clear-groups", "--", *inside]
        passed = {"pass_fds": [start.descriptor], "env": ENV}
        told = subprocess.run(person, input=program, capture_output=True, check=True, **passed).stdout.decode()
    assert told.startswith("65534 [")
    assert "etc" not in told


def test_a_killed_sandbox_leaves_no_process_and_no_descriptor():
    before = len(list(Path("/proc/self/fd").iterdir()))
    outcome = run_bounded(["sleep", "1000"], stdin=b"", limits=Limits(seconds=0.1), env=ENV)
    assert (outcome.ending, outcome.status) == ("too_long", -9)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_command_that_is_not_there_is_said():
    with pytest.raises(FileNotFoundError):
        run_bounded(["no-such-command"], stdin=b"", limits=Limits(), env=ENV)


@needs_sandbox
def test_so_many_run_at_once_and_the_others_wait():
    chosen = ChosenSandbox(Choice(at_once=2))
    # Each holds its place for a while: three of them take two rounds.
    chosen.find_problem()
    seconds = []

    def run():
        seconds.append(chosen.run("import time; time.sleep(0.5)").seconds)

    began = time.monotonic()
    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seconds) == 3
    assert time.monotonic() - began >= 1.0


@pytest.mark.parametrize(
    ("choice", "problem"),
    [
        (Choice(kind="none"), "code cannot be run here: GYMWEB_SANDBOX is none"),
        (Choice(python="/no/python"), "/no/python is not a working Python"),
        (Choice(python="/bin/true"), "/bin/true is not a working Python"),
    ],
)
def test_missing_programs_are_reported_before_running(choice, problem):
    chosen = ChosenSandbox(choice)
    assert problem in chosen.find_problem()
    with pytest.raises(SandboxMissing, match="code cannot be run here"):
        chosen.run("print(1)")


def test_without_bubblewrap_nothing_takes_its_place(monkeypatch):
    monkeypatch.setattr(bubblewrap.shutil, "which", lambda name, path: None if name == "bwrap" else f"/usr/bin/{name}")
    bubblewrap._wrapping.cache_clear()
    chosen = ChosenSandbox(Choice())
    assert chosen.find_problem() == (
        "code cannot be run here: bwrap is not installed: apt-get install bubblewrap on Debian and Ubuntu"
    )
    bubblewrap._wrapping.cache_clear()


def test_the_process_without_walls_says_what_it_lacks(caplog):
    chosen = ChosenSandbox(Choice(kind="unprivileged_process"))
    assert chosen.find_problem() == ""
    assert "which does not isolate: code reaches the network, reads every file" in chosen.describe()
    assert "GYMWEB_SANDBOX is unprivileged_process, which does not isolate" in caplog.text
    outcome = chosen.run("import os; print(os.getuid())")
    assert int(outcome.stdout) == (65534 if os.geteuid() == 0 else os.geteuid())


def test_the_choice_holds_for_the_process():
    before = the_sandbox()
    try:
        choose_sandbox(Choice(kind="none"))
        assert the_sandbox().describe() == "GYMWEB_SANDBOX is none"
    finally:
        choose_sandbox(before.choice)


def test_packages_that_are_installed_beside_python_are_covered(tmp_path, monkeypatch):
    for folder in ("lib/python3.11/site-packages", "share/python3/dist-packages", "share/other"):
        (tmp_path / folder).mkdir(parents=True)
    found = bubblewrap._find_packages([str(tmp_path / "lib" / "python3.11"), str(tmp_path / "share")])
    assert found == [f"{tmp_path}/lib/python3.11/site-packages", f"{tmp_path}/share/python3/dist-packages"]
    # As an image of Python has it: all below /usr/local, and linked with a library of its own there.
    for place in ("bin/python3.11", "lib/libpython3.11.so.1.0"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).touch()
    library = str(tmp_path / "lib" / "python3.11")
    monkeypatch.setattr(bubblewrap, "_ask", lambda python: ([3, 11], library, library, str(tmp_path / "lib")))
    folders = bubblewrap.python_folders(str(tmp_path / "bin" / "python3.11"))
    assert folders[-3:] == [f"{tmp_path}/bin/python3.11", library, f"{tmp_path}/lib/libpython3.11.so.1.0"]
    assert f"{tmp_path}/lib" not in folders


HEADERS = {"x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "aarch64": "/usr/include/asm-generic/unistd.h"}


@pytest.mark.parametrize("machine", HEADERS)
def test_system_call_numbers_equal_the_kernel_headers(machine):
    header = Path(HEADERS[machine])
    if not header.exists():
        pytest.skip(f"{header} is not here")
    defined = [line.split()[1:3] for line in header.read_text().splitlines() if line.startswith("#define __NR")]
    known = {name.replace("__NR3264_", "__NR_").removeprefix("__NR_"): number for name, number in defined}
    column = list(HEADERS).index(machine)
    assert {name: both[column] for name, both in REFUSED.items() if str(both[column]) != known.get(name)} == {}


def test_the_filter_is_as_long_as_its_steps():
    assert len(build_filter("x86_64")) == 8 * (6 + len(REFUSED) + 3)
    assert build_filter("x86_64") != build_filter("aarch64")
    assert build_filter("m68k") == b""
