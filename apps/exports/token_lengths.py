"""How many tokens a row has: counted where it holds ids, told by the model that was asked, or guessed from its size."""

from collections.abc import Sequence
from typing import Any, Literal

from apps.gym.exporters.protocol import Attempt, Preference, TaskPrompt
from apps.gym.traces.events import ModelCall
from apps.gym.wires.usage import tells_all

Source = Attempt | Preference | TaskPrompt

TokensFrom = Literal["ids", "usage", "size"]
"""`ids` are the row's own. `usage` is what the policy model counted, tools and template included: of a whole attempt
all that it read and wrote in its last call, of a pair that of its longer side. `size` is a guess for want of a count.
"""

BYTES_A_TOKEN = 4


def count_tokens(rows: Sequence[dict[str, Any]], sizes: Sequence[int], source: Source) -> list[tuple[int, TokensFrom]]:
    """Of each row that was made of the source; `sizes` are those of the rows as JSON, in bytes."""
    told = _told(source, len(rows))
    counts: list[tuple[int, TokensFrom]] = []
    for number, (row, size) in enumerate(zip(rows, sizes, strict=True)):
        own, usage = row.get("input_ids"), told[number]
        if isinstance(own, list) and own:
            counts.append((len(own), "ids"))
        elif usage is not None:
            counts.append((usage, "usage"))
        else:
            counts.append((-(-size // BYTES_A_TOKEN), "size"))
    return counts


def _told(source: Source, rows: int) -> list[int | None]:
    if isinstance(source, TaskPrompt):
        return [None] * rows
    if isinstance(source, Preference):
        sides = [_calls(side)[-1:] for side in (source.chosen, source.rejected)]
        counts = [count for side in sides for count in side if count is not None]
        return [max(counts) if len(counts) == len(sides) else None] * rows
    calls = _calls(source)
    # A row a turn, or rows of the whole.
    return calls if len(calls) == rows else [*calls[-1:], None][:1] * rows


def _calls(attempt: Attempt) -> list[int | None]:
    spoken = (event.usage for event in attempt.events if isinstance(event, ModelCall) and event.items)
    return [usage["input_tokens"] + usage["output_tokens"] if tells_all(usage) else None for usage in spoken]
