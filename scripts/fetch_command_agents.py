"""Install the command line agents of the presets from npm, for their tests: python -m scripts.fetch_command_agents

They take 800 MB, outside of this folder: in GYMWEB_AGENTS_CACHE, or in agents-cache in the folder for temporary files.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from apps.gym.boxes.command_presets import PRESETS


def cache_folder() -> Path:
    """Return the folder of the installed agents."""
    return Path(os.environ.get("GYMWEB_AGENTS_CACHE") or Path(tempfile.gettempdir(), "agents-cache"))


def fetch() -> int:
    """Install the packages and return the exit code of npm."""
    npm = shutil.which("npm")
    if npm is None:
        print("SKIPPED by name: command line agents, which need npm", file=sys.stderr)
        return 1
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text('{"private": true}')
    packages = [f"{preset.package}@{preset.version}" for preset in PRESETS.values()]
    command = [npm, "install", "--no-audit", "--no-fund", "--loglevel=error", *packages]
    return subprocess.run(command, cwd=folder, check=False).returncode


if __name__ == "__main__":
    sys.exit(fetch())
