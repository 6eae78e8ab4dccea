"""Finds words in all texts of an attempt, whether its page has loaded them or not."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from apps.dashboard.traces.building import decode
from apps.dashboard.traces.outline import KINDS
from apps.dashboard.traces.parts import bodies_of, names_in
from apps.dashboard.traces.reading import events_of
from apps.gym.events import TraceUnion
from apps.rollouts.models import Rollout

MOST_HITS = 200
AROUND = 60


@dataclass(frozen=True, slots=True)
class Hit:
    """A place where the words stand: in event `seq`, between `before` and `after`."""

    seq: int
    label: str
    before: str
    found: str
    after: str


@dataclass(frozen=True, slots=True)
class Found:
    """`total` places in all; `hits` are the first of them."""

    words: str
    hits: list[Hit]
    total: int
    steps: int

    @property
    def left_out(self) -> int:
        return self.total - len(self.hits)


def find_words(rollout: Rollout, attempt: int, words: str) -> Found:
    """Upper and lower case are the same. Nothing is found for nothing."""
    hits: list[Hit] = []
    total, steps = 0, set[int]()
    wanted = words.lower()
    if not wanted.strip():
        return Found(words, [], 0, 0)
    rows = events_of(rollout, attempt).values_list("seq", "kind", "payload").iterator(chunk_size=200)
    for seq, kind, payload in rows:
        if _cannot_have(payload, wanted):
            continue
        for text in _texts(decode(payload), seq, payload):
            lower = text.lower()
            count = lower.count(wanted)
            if count:
                total += count
                steps.add(seq)
                hits += islice(_places(text, lower, wanted, seq, KINDS.get(kind, kind)), MOST_HITS - len(hits))
    return Found(words, hits, total, len(steps))


def _cannot_have(payload: str, wanted: str) -> bool:
    """Letters and digits stand in JSON as they are, unless something is written as its number: then it is read."""
    is_plain = wanted.isascii() and wanted.replace(" ", "").isalnum()
    return is_plain and "\\u" not in payload and wanted not in payload.lower()


def _texts(event: TraceUnion | None, seq: int, payload: str) -> Iterator[str]:
    if event is None:
        yield payload
        return
    yield from names_in(event)
    for body in bodies_of(event, seq):
        yield body.laid_out


def _places(text: str, lower: str, wanted: str, seq: int, label: str) -> Iterator[Hit]:
    # A few letters change their length with their case: then what is shown is the lower-case text.
    shown = text if len(lower) == len(text) else lower
    at = lower.find(wanted)
    while at >= 0:
        end = at + len(wanted)
        before = " ".join(shown[max(0, at - AROUND) : at].split("\n"))
        yield Hit(seq, label, before, shown[at:end], " ".join(shown[end : end + AROUND].split("\n")))
        at = lower.find(wanted, end)
