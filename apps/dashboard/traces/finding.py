"""Search all texts of an attempt, including texts that the page has not loaded."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from unicodedata import normalize

from apps.accounts.keyset_reading import read_by_key
from apps.dashboard.traces.card_building import decode
from apps.dashboard.traces.card_parts import bodies_of, names_in
from apps.dashboard.traces.outline import KINDS
from apps.dashboard.traces.trace_reading import events_of
from apps.gym.traces.events import TraceUnion
from apps.rollouts.models import Rollout
from apps.rollouts.search.word_splitting import fold

MOST_HITS = 200
AROUND = 60


@dataclass(frozen=True, slots=True)
class Hit:
    """A match in event `seq`, with the text `before` and `after` it.

    `part` locates the text in the event. It is empty for texts without a URL, for example tool names.
    """

    seq: int
    part: str
    label: str
    before: str
    found: str
    after: str


@dataclass(frozen=True, slots=True)
class Found:
    """The number of matches (`total`) and the first of them (`hits`)."""

    words: str
    hits: list[Hit]
    total: int
    steps: int

    @property
    def left_out(self) -> int:
        return self.total - len(self.hits)


def find_words(rollout: Rollout, attempt: int, words: str) -> Found:
    """Return the matches. Like the search in tables, it ignores case and accents. An empty query matches nothing."""
    hits: list[Hit] = []
    total, steps = 0, set[int]()
    wanted = _fold(words)
    if not wanted.strip():
        return Found(words, [], 0, 0)
    rows = events_of(rollout, attempt).values_list("seq", "kind", "payload")
    for seq, kind, payload in read_by_key(rows, by="seq", size=200):
        if _cannot_match(payload, wanted):
            continue
        for part, text in _texts(decode(payload), seq, payload):
            folded = _fold(text)
            count = folded.count(wanted)
            if count:
                total += count
                steps.add(seq)
                hits += islice(
                    _places(text, folded, wanted, seq=seq, part=part, label=KINDS.get(kind, kind)),
                    MOST_HITS - len(hits),
                )
    return Found(words, hits, total, len(steps))


def _cannot_match(payload: str, wanted: str) -> bool:
    """Return True if the payload cannot match, to skip decoding it.

    JSON contains letters and digits literally, except for escapes.
    """
    is_plain = wanted.isascii() and wanted.replace(" ", "").isalnum() and payload.isascii()
    return is_plain and "\\u" not in payload and wanted not in payload.lower()


def _texts(event: TraceUnion | None, seq: int, payload: str) -> Iterator[tuple[str, str]]:
    """Yield each text with its part."""
    if event is None:
        yield "", payload
        return
    for name in names_in(event):
        yield "", name
    for body in bodies_of(event, seq):
        yield body.part, body.indented


def _places(text: str, folded: str, wanted: str, *, seq: int, part: str, label: str) -> Iterator[Hit]:
    # Maps each letter of the folded text to its position in the original.
    origin: Sequence[int] = range(len(text))
    if not text.isascii():
        origin = [place for place, letter in enumerate(text) for _ in _fold_letter(letter)]
    at = folded.find(wanted)
    while at >= 0:
        end = at + len(wanted)
        # Combining accents belong to the previous letter.
        start = origin[at]
        stop = max(start + 1, origin[end] if end < len(origin) else len(text))
        before = " ".join(text[max(0, start - AROUND) : start].split("\n"))
        yield Hit(seq, part, label, before, text[start:stop], " ".join(text[stop : stop + AROUND].split("\n")))
        at = folded.find(wanted, end)


def _fold(text: str) -> str:
    """Fold letter by letter, so that positions map back to the original text."""
    return text.lower() if text.isascii() else "".join(map(_fold_letter, text))


@lru_cache(maxsize=4096)
def _fold_letter(letter: str) -> str:
    return normalize("NFKD", fold(letter))
