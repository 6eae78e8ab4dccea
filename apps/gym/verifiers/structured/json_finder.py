"""Find JSON in a reply: the whole reply, its last fenced block, or its last object or list."""

import json
import re
from typing import Any

from apps.gym.code_blocks import read_blocks
from apps.gym.traces.items import refuse_constant

_NAMES = frozenset({"json", "jsonc", "json5"})
_MAX_STARTS = 2_000
_MAX_IN_VAIN = 1_000_000
"""Maximum characters to parse without success: each bracket may start a try that reads to the end."""


def find_json(text: str, default: Any = None) -> Any:
    """Return the parsed value, or the default without one. NaN and Infinity are not JSON."""
    stripped = text.strip()
    blocks = read_blocks(stripped)
    # Last ones first, blocks marked as JSON before others.
    blocks.sort(key=lambda block: block.language in _NAMES)
    for candidate in (stripped, *(block.content for block in reversed(blocks))):
        try:
            return json.loads(candidate, parse_constant=refuse_constant)
        except (ValueError, RecursionError):
            continue
    found, at, tries, in_vain = default, 0, 0, 0
    decoder = json.JSONDecoder(parse_constant=refuse_constant)
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
            # The error does not tell how far it read.
            in_vain += len(stripped) - match.start()
    return found
