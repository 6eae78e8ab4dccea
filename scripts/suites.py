#!/usr/bin/env python3
"""Run the suites that need other software, each only after a change to the paths that it tests.

`suites.py due` prints the suites whose paths have changed since they last passed, `due --all` prints every suite.
`build NAME` builds the environments of a suite; both need only Python and Git. `run NAME` also runs its tests. If all
pass and none is skipped, it records the hash of the paths in .ci/passed_suites.json. Commit this file with the change.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
RECORD = Path(".ci/passed_suites.json")
WITHOUT_MIGRATIONS = ":(exclude)apps/*/migrations/*"
"""Models tell what a suite of exports or trackers depends on. The containers test migrations."""


@dataclass(frozen=True)
class Suite:
    """Tests with the software of requirements-NAME.txt for each environment, and the paths that they depend on."""

    tests: str
    environments: tuple[str, ...]
    paths: tuple[str, ...]
    """Files, folders and globs in Git's syntax."""
    installer: str = ""
    """A module that installs further software, and names what it cannot install."""

    @property
    def triggers(self) -> list[str]:
        """Return all paths whose change makes the suite due."""
        locks = [f"requirements-{name}.txt" for name in self.environments]
        return [self.tests, *locks, *self.paths]


SUITES = {
    "agents": Suite(
        tests="tests/agent_sdks",
        environments=("agents",),
        paths=(
            "apps/gym/boxes",
            "apps/gym/capture",
            "apps/gym/exporters/branches.py",
            "apps/gym/exporters/trl.py",
            "apps/gym/traces",
            "apps/rollouts/serving",
            "clients/python/gymweb_client",
            "examples/agents",
            "scripts/agent_recipes.py",
            "scripts/build_environment.py",
            "tests/capture",
        ),
        installer="scripts.agent_recipes",
    ),
    "containers": Suite(
        tests="tests/containers",
        environments=(),
        paths=(
            ".dockerignore",
            "Dockerfile",
            "apps/*/migrations/*.py",
            "compose.yaml",
            "deploy",
            "gymweb",
            "requirements.txt",
        ),
    ),
    "nemo": Suite(
        tests="tests/nemo_gym/real",
        environments=("nemo",),
        paths=(
            "apps/gym/gymconfig",
            "apps/gym/loop",
            "apps/gym/resources",
            "apps/gym/serving",
            "apps/gym/verifiers/text/multiple_choice.py",
            "apps/rollouts/engine/agents",
            "gymweb/supervision",
            "scripts/build_environment.py",
            "tests/nemo_gym",
        ),
    ),
    "tracking": Suite(
        tests="tests/tracking",
        environments=("tracking",),
        paths=(
            "apps/dashboard/*/tracking_*.py",
            "apps/tracking",
            WITHOUT_MIGRATIONS,
            "scripts/build_environment.py",
            "templates/tracking",
        ),
    ),
    "trainers": Suite(
        tests="tests/trainers",
        # Its closed loop also serves a model.
        environments=("trainers", "verl", "vllm"),
        paths=(
            "apps/exports",
            "apps/gym/exporters",
            "apps/gym/pairs",
            "apps/gym/traces",
            "apps/pairs",
            WITHOUT_MIGRATIONS,
            "examples/closed_loop",
            "examples/tiny_policy",
            "examples/verl",
            "scripts/build_environment.py",
            "scripts/tiny_policy",
        ),
    ),
    "vllm": Suite(
        tests="tests/vllm",
        environments=("vllm",),
        paths=(
            "apps/gym/calls",
            "apps/gym/capture",
            "apps/gym/loop",
            "apps/gym/traces",
            "apps/gym/wires",
            "apps/policies/management",
            "apps/policies/vllm_process.py",
            "examples/tiny_policy",
            "gymweb/management/commands/vllm_demo.py",
            "scripts/build_environment.py",
            "scripts/tiny_policy",
        ),
    ),
}


def list_files(root: Path, paths: Sequence[str]) -> list[str]:
    """Return the files of the working tree at these paths in Git's order, without ignored and deleted files."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *paths]
    listed = subprocess.run(command, cwd=root, capture_output=True, check=True, text=True).stdout
    return sorted(name for name in set(listed.split("\0")) if name and (root / name).is_file())


def hash_files(root: Path, paths: Sequence[str]) -> str:
    """Return a hash of names and contents of the files at these paths."""
    total = hashlib.sha256()
    for name in list_files(root, paths):
        content = hashlib.sha256((root / name).read_bytes()).hexdigest()
        total.update(f"{name} {content}\n".encode())
    return total.hexdigest()


def read_record(root: Path) -> dict[str, str]:
    """Return the hash with which each suite passed last, by its name."""
    path = root / RECORD
    return json.loads(path.read_text()) if path.exists() else {}


def write_record(root: Path, name: str, passed: str) -> None:
    path = root / RECORD
    path.write_text(json.dumps({**read_record(root), name: passed}, indent=2, sort_keys=True) + "\n")


def find_due(root: Path) -> list[str]:
    """Return the names of the suites whose paths have another content than when they last passed."""
    record = read_record(root)
    return [name for name, suite in SUITES.items() if record.get(name) != hash_files(root, suite.triggers)]


def count_tests(report: Path) -> tuple[int, int]:
    """Return how many tests a JUnit report contains, and how many of these were skipped."""
    suites = list(ElementTree.parse(report).iter("testsuite"))  # noqa: S314 - written by our own pytest
    return sum(int(one.get("tests", 0)) for one in suites), sum(int(one.get("skipped", 0)) for one in suites)


def build_environments(suite: Suite) -> int:
    """Build what is missing. Return the exit status of build_environment.py or of the installer."""
    for name in suite.environments:
        build = [sys.executable, str(ROOT / "scripts" / "build_environment.py"), name]
        if failed := subprocess.run(build, stdout=subprocess.DEVNULL, check=False).returncode:
            return failed
    if suite.installer:
        return subprocess.run([sys.executable, "-m", suite.installer], cwd=ROOT, check=False).returncode
    return 0


def run_suite(root: Path, name: str) -> int:
    """Run the tests of a suite and record that they passed. Return pytest's exit status."""
    suite = SUITES[name]
    tested = hash_files(root, suite.triggers)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-rP", f"--junit-xml={report}", suite.tests]
        if failed := subprocess.run(command, cwd=root, check=False).returncode:
            return failed
        tests, skipped = count_tests(report)
    if skipped:
        print(f"make test-{name} is not recorded as passed: {skipped} of {tests} tests were skipped.")
    else:
        write_record(root, name, tested)
        print(f"make test-{name} is recorded as passed in {RECORD}: commit this file with the change.")
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    due = commands.add_parser("due", help="print the names of the suites to run")
    due.add_argument("--all", action="store_true", help="print all names, whatever has changed")
    for command, text in (("build", "build the environments of a suite"), ("run", "build them, then run its tests")):
        commands.add_parser(command, help=text).add_argument("name", choices=SUITES)
    options = parser.parse_args()
    if options.command == "due":
        print(*(SUITES if options.all else find_due(ROOT)))
    else:
        failed = build_environments(SUITES[options.name])
        sys.exit(failed or (run_suite(ROOT, options.name) if options.command == "run" else 0))


if __name__ == "__main__":
    main()
