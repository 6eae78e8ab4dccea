"""Compare a generated file with its copy in the repository; `--write` updates the copy."""

import argparse
import difflib
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def keep_current(path: Path, render: Callable[[], str], *, about: str | None, remedy: str) -> None:
    """Write the file with `--write`; otherwise print the difference and exit with a message if there is any."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--write", action="store_true", help="write the file instead of comparing with it")
    writes, name = parser.parse_args().write, str(path.relative_to(ROOT))
    wanted = render()
    if writes:
        path.write_text(wanted)
        print(f"wrote {name}")
        return
    written = path.read_text() if path.exists() else ""
    if written != wanted:
        print(
            "\n".join(list(difflib.unified_diff(written.splitlines(), wanted.splitlines(), name, "the code", n=2))[:60])
        )
        sys.exit(f"{name} differs from the code. If the change is meant, run: {remedy}")
