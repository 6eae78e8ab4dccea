"""The bill of materials as `make sbom` writes it."""

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def write_bill(folder: Path) -> dict[str, Any]:
    """Return the bill that the command of `make sbom` writes, into this folder instead of `dist/`."""
    printed = subprocess.run(["make", "--dry-run", "sbom"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    [command] = [line for line in printed.splitlines() if "cyclonedx-py " in line]
    file = folder / "bill.json"
    words = [str(file) if word.startswith("dist/") else word for word in shlex.split(command)]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
    return json.loads(file.read_text())


def read_packages(bill: dict[str, Any]) -> dict[str, str]:
    """Return the versions of the packages by name."""
    return {component["name"]: component["version"] for component in bill["components"]}
