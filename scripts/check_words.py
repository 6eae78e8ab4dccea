"""Fail if a package has more odd words per 1,000 lines than `scripts/word_limits.json` allows; --write lowers limits.

Odd words usually mark a sentence that reads as translated: stand-in nouns, metaphors, roundabout clauses.
"""

import argparse
import json
import math
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMITS_PATH = ROOT / "scripts" / "word_limits.json"
ODD = re.compile(
    r"\b(somebody|nobody|whoever|wherever|stands|gone|such as|of it|what (is|was|has|comes|came)|those (that|of|who)"
    r"|as (it|they) (is|are|was|were)|doorbell|ears|chores?|hearing|tray)\b",
    re.IGNORECASE,
)
NEW_LIMIT = 5.0
"""The limit of a new package."""
SUFFIXES = {".py", ".html", ".md", ".js", ".css", ".txt", ".toml", ".yml", ".yaml"}
LEFT_OUT = re.compile(
    r"^static/vendor/|/migrations/|^scripts/check_words\.py$|^requirements.*\.txt$|^docs/openapi\.yaml$"
)


def package_of(path: str) -> str:
    """Return the package of a file: an app, or another top-level folder; `.` for files at the top level."""
    parts = path.split("/")
    if parts[0] == "apps" and len(parts) > 2:
        return "/".join(parts[:2])
    return parts[0] if len(parts) > 1 else "."


def measure(root: Path) -> dict[str, float]:
    """Return the odd words per 1,000 lines of each package, rounded up to one decimal. Only files in Git count."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, check=True, text=True).stdout
    words: dict[str, int] = defaultdict(int)
    lines: dict[str, int] = defaultdict(int)
    for name in filter(None, listed.split("\0")):
        path = root / name
        if path.suffix in SUFFIXES and not LEFT_OUT.search(name) and path.is_file():
            text = path.read_text(errors="replace")
            words[package_of(name)] += len(ODD.findall(text))
            lines[package_of(name)] += text.count("\n")
    return {name: math.ceil(words[name] * 10_000 / max(1, lines[name])) / 10 for name in sorted(lines)}


def find_excess(measured: dict[str, float], limits: dict[str, float]) -> list[str]:
    """Return a message for each package above its limit."""
    return [
        f"{name}: {rate} odd words per 1,000 lines, limit {limits.get(name, NEW_LIMIT)}"
        for name, rate in measured.items()
        if rate > limits.get(name, NEW_LIMIT)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="lower the limits to the measured rates")
    arguments = parser.parse_args()
    limits: dict[str, float] = json.loads(LIMITS_PATH.read_text()) if LIMITS_PATH.exists() else {}
    measured = measure(ROOT)
    if arguments.write:
        lowered = {name: min(rate, limits.get(name, rate)) for name, rate in measured.items()}
        LIMITS_PATH.write_text(json.dumps(lowered, indent=2) + "\n")
        return
    if excess := find_excess(measured, limits):
        print("\n".join(excess))
        sys.exit(
            "Reword the new sentences: name the thing, say who does what. The pattern is ODD in scripts/check_words.py."
        )


if __name__ == "__main__":
    main()
