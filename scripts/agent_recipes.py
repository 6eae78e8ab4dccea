#!/usr/bin/env python3
"""Install the agent packages of examples/agents/recipes/, once: python -m scripts.agent_recipes [NAME …]

Frameworks need different versions of the same packages, so each has an environment of its own: a virtual environment or
a folder of npm. It is ${GYMWEB_ENVS:-~/.cache/gymweb}/recipes-NAME-HASH, with the hash of the pinned packages.
A package that cannot be installed is named with the reason; the others are installed. Needs only Python, and npm for
packages of Node.js.
"""

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from scripts.build_environment import COMPLETE, CannotBuild, explain_failure

PROGRAMS = Path(__file__).resolve().parent.parent / "examples" / "agents" / "recipes"


@dataclass(frozen=True)
class Recipe:
    """A program in examples/agents/recipes/ that runs a package, and the packages to install for it."""

    program: str
    packages: tuple[str, ...]
    """Requirements of pip, or of npm for programs that run in Node.js. The first is the package that is tested."""
    wire: str
    npm: bool = False
    python: str = ""
    """The version of Python that the package needs; by default, any that runs GymWeb."""

    @property
    def name(self) -> str:
        return Path(self.program).stem

    @property
    def folder(self) -> Path:
        """Return the folder of the environment, existing or not. Recipes with the same packages share it."""
        root = Path(os.environ.get("GYMWEB_ENVS") or "~/.cache/gymweb").expanduser()
        digest = hashlib.sha256("\n".join(self.packages).encode()).hexdigest()[:12]
        label = self.packages[0].removeprefix("@").replace("/", "-").split("[")[0].split("@")[0].split("==")[0]
        return root / f"recipes-{label}-{digest}"

    @property
    def is_installed(self) -> bool:
        return (self.folder / COMPLETE).is_file()

    @property
    def problem(self) -> str:
        """Return why the last installation failed; empty if there was none."""
        path = _problem_file(self.folder)
        return path.read_text() if path.is_file() else ""


_LANGCHAIN = ("langchain==1.5.2", "langgraph==1.2.24", "langchain-openai==1.7.4")
_SMOLAGENTS = ("smolagents[openai]==1.26.0",)
_GOOGLE_ADK = ("google-adk==2.13.0", "litellm==1.110.2")
RECIPES = (
    Recipe("pydantic_ai_agent.py", ("pydantic-ai-slim[openai]==2.62.0",), "chat"),
    Recipe("langchain_context_editing.py", _LANGCHAIN, "chat"),
    Recipe("langchain_summarization.py", _LANGCHAIN, "chat"),
    Recipe("smolagents_agent.py", _SMOLAGENTS, "chat"),
    Recipe("smolagents_team.py", _SMOLAGENTS, "chat"),
    Recipe("agent_framework_agent.py", ("agent-framework-openai==1.17.0",), "responses"),
    Recipe("ai_sdk_agent.mjs", ("ai@6.0.326", "@ai-sdk/openai@3.0.141", "zod@4.6.7"), "responses", npm=True),
    Recipe("google_adk_agent.py", _GOOGLE_ADK, "chat"),
    Recipe("google_adk_transfer.py", _GOOGLE_ADK, "chat"),
    Recipe("strands_agent.py", ("strands-agents[openai]==1.62.0",), "chat"),
    Recipe("crewai_agent.py", ("crewai==1.15.30",), "chat"),
    Recipe("pi.sh", ("@mariozechner/pi-coding-agent@0.73.1",), "chat", npm=True),
    Recipe("qwen_code.sh", ("@qwen-code/qwen-code@0.15.10",), "chat", npm=True),
    Recipe("aider.sh", ("aider-chat==0.86.2",), "chat"),
    Recipe("openhands.sh", ("openhands==1.16.0",), "chat", python="3.12"),
    Recipe("dspy_react.py", ("dspy==3.4.1",), "chat"),
)
"""The agents that are tested, in the order of the documentation."""


def install(recipe: Recipe, *, seconds: float) -> Path:
    """Return the folder of a recipe's environment, building it if needed. Raise CannotBuild."""
    folder = recipe.folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as gate:
        # If two processes build at once, the second waits and finds the result.
        fcntl.flock(gate, fcntl.LOCK_EX)
        if not recipe.is_installed:
            began = time.monotonic()
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            try:
                (_npm if recipe.npm else _pip)(recipe, seconds)
            except CannotBuild as problem:
                shutil.rmtree(folder, ignore_errors=True)
                _problem_file(folder).write_text(f"{problem}\n")
                raise
            _problem_file(folder).unlink(missing_ok=True)
            (folder / COMPLETE).touch()
            print(f"{recipe.packages[0]}: installed in {time.monotonic() - began:.0f} s", file=sys.stderr)
    return folder


def _problem_file(folder: Path) -> Path:
    return folder.parent / f".{folder.name}.problem"


def _pip(recipe: Recipe, seconds: float) -> None:
    python = _find_python(recipe.python) if recipe.python else sys.executable
    _run([python, "-m", "venv", str(recipe.folder)], recipe.folder, seconds, str)
    pip = [str(recipe.folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
    options = ["--quiet", "--retries", "5", "--timeout", "60", "--prefer-binary", "--progress-bar", "off"]
    _run([*pip, *options, *recipe.packages], recipe.folder, seconds, explain_failure)


def _find_python(version: str) -> str:
    command = [f"python{version}", "-c", "import sys; print(sys.executable)"]
    try:
        # pyenv chooses a version by this variable; without pyenv, it has no effect.
        chosen = {**os.environ, "PYENV_VERSION": version}
        found = subprocess.run(command, capture_output=True, text=True, check=False, env=chosen)
    except FileNotFoundError:
        raise CannotBuild(f"Python {version} is not installed.") from None
    if found.returncode:
        raise CannotBuild(f"Python {version} is not installed.")
    return found.stdout.strip()


def _npm(recipe: Recipe, seconds: float) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise CannotBuild("npm is not installed.")
    (recipe.folder / "package.json").write_text(json.dumps({"private": True, "type": "module"}))
    options = ["--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=5", "--loglevel=error"]
    _run([npm, "install", *options, *recipe.packages], recipe.folder, seconds, lambda output: output[-1_000:])


def _run(command: list[str], folder: Path, seconds: float, explain: Callable[[str], str]) -> None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise CannotBuild(f"{command[0]} did not end within {seconds:g} s.") from None
    if done.returncode:
        raise CannotBuild(explain(done.stdout + done.stderr))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="program without its extension (default: all)")
    parser.add_argument("--seconds", type=float, default=600.0, help="for each package (default: %(default)s)")
    options = parser.parse_args()
    if unknown := set(options.names) - {recipe.name for recipe in RECIPES}:
        known = ", ".join(recipe.name for recipe in RECIPES)
        parser.error(f"Unknown recipe {', '.join(sorted(unknown))}. Choose from: {known}.")
    for recipe in RECIPES:
        if not options.names or recipe.name in options.names:
            try:
                print(install(recipe, seconds=options.seconds))
            except CannotBuild as problem:
                print(f"SKIPPED by name: {recipe.packages[0]}: {problem}", file=sys.stderr)


if __name__ == "__main__":
    main()
