#!/usr/bin/env python
"""Put the first task of each built-in environment into its page, docs/use/environments/NAME.md; --write updates it."""

import re
import sys
from pathlib import Path

import orjson

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from apps.gym.environments.kits import KITS  # noqa: E402
from apps.gym.environments.task_generation import generate_tasks  # noqa: E402

PAGES = ROOT / "docs" / "use" / "environments"
_ROW = re.compile(r"(\n## Example row\n\n```json\n)(.*?)(```\n)", re.DOTALL)
_MOST = 6_000


def with_row(text: str, name: str) -> str:
    """Return the page with the first easy task of seed 0. Long values are truncated with a note."""
    row = next(generate_tasks(KITS[name], count=1, difficulty="easy"))
    shown = orjson.dumps(row, option=orjson.OPT_INDENT_2).decode()
    if len(shown) > _MOST:
        shown = orjson.dumps(_shorten(row), option=orjson.OPT_INDENT_2).decode()
    return _ROW.sub(lambda found: f"{found[1]}{shown}\n{found[3]}", text)


def _shorten(value: object) -> object:
    if isinstance(value, dict):
        return {key: _shorten(one) for key, one in value.items()}
    if isinstance(value, list):
        more = [f"… {len(value) - 2} more"] if len(value) > 3 else []
        return [_shorten(one) for one in value[: 2 if more else 3]] + more
    return value


if __name__ == "__main__":
    for path in sorted(PAGES.glob("*.md")):
        page = path.read_text()
        shown = with_row(page, path.stem)
        if shown != page and "--write" in sys.argv:
            path.write_text(shown)
        print(f"{path.relative_to(ROOT)}: {'as generated' if shown == page else 'differs'}")
