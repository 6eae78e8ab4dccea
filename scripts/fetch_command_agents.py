"""Install the command line agents of the presets and examples, for their tests: python -m scripts.fetch_command_agents

They take 1.9 GB, outside of this folder: in GYMWEB_AGENTS_CACHE, or in agents-cache in the folder for temporary files.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from apps.gym.boxes.command_presets import PRESETS
from apps.gym.sandbox.choosing import Choice, find_python

LOCK = Path(__file__).resolve().parent.parent / "requirements-agents.txt"
NPM_PACKAGES = {"opencode-ai": "1.18.33", **{preset.package: preset.version for preset in PRESETS.values()}}
"""Versions by package."""
PYTHON_PACKAGE = "mini-swe-agent"


def cache_folder() -> Path:
    """Return the folder of the installed agents."""
    return Path(os.environ.get("GYMWEB_AGENTS_CACHE") or Path(tempfile.gettempdir(), "agents-cache"))


def find_missing(package: str) -> str:
    """Return why a package cannot be tested here; empty if it is installed with its version."""
    if package == PYTHON_PACKAGE:
        is_there = (cache_folder() / "bin" / "mini").exists()
    else:
        described = cache_folder() / "node_modules" / package / "package.json"
        is_there = described.exists() and json.loads(described.read_text())["version"] == NPM_PACKAGES[package]
    version = f"@{NPM_PACKAGES[package]}" if package in NPM_PACKAGES else ""
    return "" if is_there else f"{package}{version} is not installed: python -m scripts.fetch_command_agents"


def fetch() -> int:
    """Install all packages and return 0, or the exit code of an installer that failed."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    return fetch_npm_packages(cache_folder()) or fetch_python_package(cache_folder())


def fetch_npm_packages(folder: Path) -> int:
    npm = shutil.which("npm")
    if npm is None:
        print("SKIPPED by name: command line agents, which need npm", file=sys.stderr)
        return 1
    (folder / "package.json").write_text('{"private": true}')
    packages = [f"{package}@{version}" for package, version in NPM_PACKAGES.items()]
    command = [npm, "install", "--no-audit", "--no-fund", "--loglevel=error", *packages]
    return subprocess.run(command, cwd=folder, check=False).returncode


def fetch_python_package(folder: Path) -> int:
    # With the Python of the sandbox, because agents cannot see any other one.
    made = subprocess.run([find_python(Choice()), "-m", "venv", str(folder)], check=False)
    install = [str(folder / "bin" / "pip"), "install", "--quiet", "--constraint", str(LOCK), PYTHON_PACKAGE]
    return made.returncode or subprocess.run(install, check=False).returncode


if __name__ == "__main__":
    sys.exit(fetch())
