"""Who wrote the model's turns in the requests of captured calls.

A client resends the conversation, and may change it. Each text or tool call of a request that stands for the model was

- `sampled`: the whole turn is the reply of an earlier call, the same by value;
- `rerendered`: an earlier call wrote it, but the client changed it: quotes, a call as text, a part left out;
- `injected`: no captured call wrote it. It is an example, or the client or its framework made it up.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from typing import Literal

from apps.gym.traces.canonical_items import SHORTEST_TEXT, bare_text, item_digest
from apps.gym.traces.events import EnvironmentTurn, ModelCall, Prompt, TraceUnion
from apps.gym.traces.items import Item, is_by_model, item_type

Author = Literal["", "sampled", "rerendered", "injected"]
FOREIGN: frozenset[str] = frozenset({"rerendered", "injected"})
"""The authors whose turns are not trained: the model did not write these tokens."""


class Authors:
    """The authors of turns in the requests of one attempt. `calls` are its captured calls by number."""

    def __init__(self, calls: Mapping[int, ModelCall]) -> None:
        self._replies = {number: _digests(call.items) for number, call in sorted(calls.items())}
        self._calls = calls

    def of(self, items: Sequence[Item], call: int) -> list[Author]:
        """Return the author of each item in the request of a call; empty for items that do not stand for the model.

        Only a turn that repeats a whole reply of an earlier call is `sampled`, each reply once, the last turns first.
        Reasoning has the author of the next item, because clients rarely resend it.
        """
        if not any(map(is_by_model, items)):
            return [""] * len(items)
        found: list[Author] = [""] * len(items)
        left = Counter(reply for number, reply in self._replies.items() if number < call)
        end = len(items)
        while end:
            if not is_by_model(items[end - 1]):
                end -= 1
                continue
            begin = self._find_reply(items, end, left)
            if begin is None:
                begin = end - 1
                found[begin] = self._reworded(items[begin], call)
            else:
                found[begin:end] = ["sampled"] * (end - begin)
            end = begin
        for place in range(len(items) - 2, -1, -1):
            if item_type(items[place]) == "reasoning" and found[place + 1]:
                found[place] = found[place + 1]
        return found

    def _find_reply(self, items: Sequence[Item], end: int, left: Counter[tuple[bytes, ...]]) -> int | None:
        """Return the start of the longest reply that ends here, and take it; None without one."""
        begin = end
        while begin and is_by_model(items[begin - 1]):
            begin -= 1
        for start in range(begin, end):
            turn = _digests(items[start:end])
            if turn and left[turn]:
                left[turn] -= 1
                return start
        return None

    def _reworded(self, item: Item, call: int) -> Author:
        words, digest = bare_text(item), item_digest(item)
        if any(digest in reply for number, reply in self._replies.items() if number < call):
            return "rerendered"
        texts = {text for number, known in self._texts.items() if number < call for text in known}
        is_known = any(one in words for one in texts) or (
            len(words) >= SHORTEST_TEXT and any(words in one for one in texts)
        )
        return "rerendered" if is_known else "injected"

    @cached_property
    def _texts(self) -> dict[int, set[str]]:
        """Return the bare texts of each reply."""
        return {
            number: {
                text
                for item in call.items
                if item_type(item) != "reasoning" and len(text := bare_text(item)) >= SHORTEST_TEXT
            }
            for number, call in self._calls.items()
        }


def _digests(items: Sequence[Item]) -> tuple[bytes, ...]:
    return tuple(digest for item in items if (digest := item_digest(item)) is not None)


def count_foreign(line: Iterable[TraceUnion]) -> int:
    """Return the number of turns in a line that the model did not write."""
    turns = 0
    for event in line:
        if isinstance(event, Prompt | EnvironmentTurn):
            turns += sum(author in FOREIGN for author, _ in groupby(event.authors))
    return turns
