"""Who wrote the model's turns in the requests of captured calls.

A client resends the conversation, and may change it. Each text or tool call of a request that stands for the model was

- `sampled`: a captured call wrote it, the same by value;
- `rerendered`: a captured call wrote it, but the client changed its form: quotes, white space, or a call as text;
- `injected`: no captured call wrote it. It is an example, or the client or its framework made it up.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import groupby
from typing import Literal

from apps.gym.traces.canonical_items import item_digest
from apps.gym.traces.events import EnvironmentTurn, ModelCall, Prompt, TraceUnion
from apps.gym.traces.items import Item, argument_texts, is_by_model, item_type, text_of

Author = Literal["", "sampled", "rerendered", "injected"]
FOREIGN: frozenset[str] = frozenset({"rerendered", "injected"})
"""The authors whose turns are not trained: the model did not write these tokens."""

_SHORTEST = 4
"""Shorter texts without punctuation are no evidence that a turn was written by a call."""
_NOT_WORDS = re.compile(r"\W+")


class Authors:
    """The authors of turns in the requests of one attempt. `calls` are its captured calls."""

    def __init__(self, calls: Iterable[ModelCall]) -> None:
        self._calls = list(calls)

    def of(self, items: Sequence[Item]) -> list[Author]:
        """Return the author of each item; empty for items that do not stand for the model.

        Reasoning has the author of the next turn, because clients rarely resend it.
        """
        found: list[Author] = [self._of(item) if is_by_model(item) else "" for item in items]
        for place in range(len(items) - 2, -1, -1):
            if item_type(items[place]) == "reasoning" and found[place + 1]:
                found[place] = found[place + 1]
        return found

    def _of(self, item: Item) -> Author:
        digest = item_digest(item)
        if digest is None or digest in self._written:
            return "sampled"
        words = _words(item)
        is_known = any(one in words for one in self._texts) or (len(words) >= _SHORTEST and words in self._joined)
        return "rerendered" if is_known else "injected"

    @cached_property
    def _written(self) -> frozenset[bytes]:
        return frozenset(digest for call in self._calls for item in call.items if (digest := item_digest(item)))

    @cached_property
    def _texts(self) -> frozenset[str]:
        texts = (_words(item) for call in self._calls for item in call.items if item_type(item) != "reasoning")
        return frozenset(text for text in texts if len(text) >= _SHORTEST)

    @cached_property
    def _joined(self) -> str:
        return "\n".join(self._texts)


def _words(item: Item) -> str:
    """Return the letters and digits of a text, or of the arguments of a call."""
    if item_type(item) == "function_call":
        return _bare("".join([*argument_texts(item)]) or str(item.get("arguments") or ""))
    return _bare(text_of(item))


def _bare(text: str) -> str:
    return _NOT_WORDS.sub("", text).casefold()


def count_foreign(line: Iterable[TraceUnion]) -> int:
    """Return the number of turns in a line that the model did not write."""
    turns = 0
    for event in line:
        if isinstance(event, Prompt | EnvironmentTurn):
            turns += sum(author in FOREIGN for author, _ in groupby(event.authors))
    return turns
