"""Find the JSON that a reply gives: the whole of it, its last fenced block, or the last object or list in it."""

import json
import re
from typing import Any

from apps.gym.code_blocks import read_blocks

_NAMES = frozenset({"json", "jsonc", "json5"})
_MAX_STARTS = 2_000
_MAX_IN_VAIN = 1_000_000
"""Characters read of what turned out to be no JSON: every bracket may begin another attempt that reads to the end."""


def find_json(text: str, default: Any = None) -> Any:
    """The parsed value, or the default without one. NaN and Infinity are no JSON."""
    stripped = text.strip()
    blocks = read_blocks(stripped)
    # The newest first, those that say that they are JSON before the others.
    blocks.sort(key=lambda block: block.language in _NAMES)
    for candidate in (stripped, *(block.content for block in reversed(blocks))):
        try:
            return json.loads(candidate, parse_constant=_refuse)
        except (ValueError, RecursionError):
            continue
    found, at, tries, in_vain = default, 0, 0, 0
    decoder = json.JSONDecoder(parse_constant=_refuse)
    for match in re.finditer(r"[\[{]", stripped):
        if match.start() < at:
            continue
        tries += 1
        if tries > _MAX_STARTS or in_vain > _MAX_IN_VAIN:
            break
        try:
            found, at = decoder.raw_decode(stripped, match.start())
        except json.JSONDecodeError as error:
            in_vain += error.pos - match.start()
        except (ValueError, RecursionError):
            # How far it came is not told.
            in_vain += len(stripped) - match.start()
    return found


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
