"""Say how a request changed the conversation that it continues, and find requests whose only message grew."""

import re
from collections import deque
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from apps.gym.redaction.shortening import cut
from apps.gym.traces.canonical_items import SHORTEST_TEXT, Prefixes, digest_of, message_texts
from apps.gym.traces.items import Item, assistant_text, item_type

MAX_EDITS = 8
MAX_COMPARED = 2_000
"""Longer conversations are not compared item by item."""
PAD_CHARS = 16
"""Shorter texts are no evidence that a longer one continues them."""
MAX_LINE = 200
MAX_PADS, MAX_PAD, MAX_PAD_LINES = 8, 256 * 1024, 16
"""Scratchpads to remember, characters of each, and lines of the reply."""
_QUOTE = 40
_NUMBER = re.compile(r"\b(?=\w*\d)\w+\b")
_VERBS = {"replace": "replaced", "delete": "dropped", "insert": "added"}


def describe_edits(before: Sequence[bytes], now: Sequence[bytes]) -> list[str]:
    """Return notes of what was replaced, dropped or added within the conversation, not what follows it.

    Both are digests of items. Items are counted from 1 after the system prompt.
    """
    if max(len(before), len(now)) > MAX_COMPARED:
        return ["changed a long history"]
    found = SequenceMatcher(None, before, now, autojunk=False).get_opcodes()
    notes = list(_notes(found, len(before)))
    rest = len(notes) - MAX_EDITS
    return notes if rest <= 0 else [*notes[:MAX_EDITS], f"{rest} more changes"]


def _notes(found: Sequence[tuple[str, int, int, int, int]], size: int) -> Iterator[str]:
    for kind, old, old_end, new, new_end in found:
        if kind == "equal" or (kind == "insert" and old == size):
            continue
        count = old_end - old if kind == "delete" else min(new_end - new, (old_end - old) or new_end)
        yield f"{_VERBS[kind]} {count} item{'' if count == 1 else 's'} at item {new + 1}"


class Openings:
    """The system prompts so far. Two are the same prompt if they only differ in numbers, such as a time or a header."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[bytes, list[str]]] = {}
        self._found: dict[bytes, tuple[bytes, list[str]]] = {}

    def find(self, items: Sequence[Item], prefixes: Prefixes) -> tuple[bytes, list[str]]:
        """Return the first opening that is the same prompt, and notes of the lines that differ from it."""
        if prefixes.opening not in self._found:
            self._found[prefixes.opening] = self._compare(items, prefixes)
        return self._found[prefixes.opening]

    def _compare(self, items: Sequence[Item], prefixes: Prefixes) -> tuple[bytes, list[str]]:
        mine = _system_lines(items, prefixes)
        stem = digest_of([_NUMBER.sub("", line) for line in mine])
        first, lines = self._known.setdefault(stem, (prefixes.opening, mine))
        if first == prefixes.opening:
            return first, []
        other = [(number, line) for number, line in enumerate(mine, start=1) if [line] != lines[number - 1 : number]]
        notes = [f"line {number} of the system prompt was: {cut(line, MAX_LINE)}" for number, line in other[:MAX_EDITS]]
        return first, notes


def _system_lines(items: Sequence[Item], prefixes: Prefixes) -> list[str]:
    system = items[: prefixes.ends[0]]
    return [line for item in system for text in message_texts(item) for line in text.splitlines()]


class Pads:
    """Find the call whose last message a request repeats with its reply: a scratchpad that grows.

    The message may end with the same instruction each time. Clients that put labels around the parts of a reply repeat
    only its lines.
    """

    def __init__(self) -> None:
        self._latest: deque[tuple[int, bytes, str, str, list[str]]] = deque(maxlen=MAX_PADS)

    def add(self, call: int, opening: bytes, request: Sequence[Item], reply: Sequence[Item]) -> None:
        text, said = _last_text(request), assistant_text(list(reply)).strip()
        lines = (line.strip() for line in said.splitlines())
        new = [line for line in lines if len(line) >= PAD_CHARS and line not in text][:MAX_PAD_LINES]
        if PAD_CHARS <= len(text) <= MAX_PAD and said:
            self._latest.appendleft((call, opening, text, said[:_QUOTE], new))

    def find(self, request: Sequence[Item], opening: bytes = b"") -> int:
        """Return the number of the call, or 0.

        If `opening` is given, the call must have this system prompt and share half of its message.
        """
        text = _last_text(request)
        for call, known, before, said, lines in self._latest:
            if opening in (known, b"") and len(text) > len(before):
                half = len(before) / 2 if opening else 0
                shared = _shared_length(before, text)
                if shared < PAD_CHARS:
                    continue
                # A short reply, for example a letter, is only evidence where the shared text ends.
                rest = text[shared:].lstrip()
                if shared >= half and (said in rest if len(said) >= SHORTEST_TEXT else rest.startswith(said)):
                    return call
                ending = _shared_length(before[shared:][::-1], text[shared:][::-1])
                if shared + ending >= half and any(line in text for line in lines):
                    return call
        return 0


def _shared_length(one: str, other: str) -> int:
    """Return the length of the common beginning of two texts."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _last_text(items: Sequence[Item]) -> str:
    """Return the text of the last item if it is a user message, without white space at its end."""
    if not items or item_type(items[-1]) != "message" or items[-1].get("role") != "user":
        return ""
    return "\n".join(message_texts(items[-1])).rstrip()
