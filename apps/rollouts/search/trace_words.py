"""Read the words of an attempt from its trace, for the full-text index."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec
from django.conf import settings

from apps.gym.traces.event_texts import texts_of
from apps.gym.traces.events import decode_event
from apps.rollouts.search.word_splitting import BREAK, SEPARATOR, split_joined

PIECE = 256 * 1024
"""Characters of texts that are split into words at a time."""


class Words(NamedTuple):
    """The words of one attempt, with BREAK between texts."""

    words: list[str]
    is_cut: bool


def read_words(payloads: Iterable[str]) -> Words:
    """Return the words of an attempt, up to the limit, from its event payloads."""
    left = settings.SEARCH_WORDS
    words: list[str] = []
    is_new = False
    for piece in _pieces(map(_texts, payloads)):
        for place, found in enumerate(split_joined(piece)):
            is_new = is_new or place > 0
            if not found:
                continue
            if words and is_new:
                words.append(BREAK)
            is_new = False
            words += found[:left]
            left -= len(found)
            if left < 0:
                return Words(words, is_cut=True)
    return Words(words, is_cut=False)


def _pieces(events: Iterable[list[str]]) -> Iterator[str]:
    """Yield the texts, each after a SEPARATOR, in pieces, so that only the indexed part of a large text is copied."""
    waiting = [""]
    size = 0
    for texts in events:
        size += sum(map(len, texts))
        if size <= PIECE:
            waiting += texts
            continue
        yield _join(waiting)
        waiting, size = [""], 0
        for text in texts:
            yield SEPARATOR
            yield from _cut_at_spaces(text)
    yield _join(waiting)


def _join(texts: list[str]) -> str:
    joined = SEPARATOR.join(texts)
    if joined.count(SEPARATOR) < len(texts):
        return joined
    return SEPARATOR.join([text.replace(SEPARATOR, " ") for text in texts])


def _cut_at_spaces(text: str) -> Iterator[str]:
    start = end = 0
    while end >= 0:
        end = text.find(" ", start + PIECE)
        yield text[start : end if end >= 0 else None].replace(SEPARATOR, " ")
        start = end


def _texts(payload: str) -> list[str]:
    try:
        event = decode_event(payload)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return [payload]  # unknown kind: index the raw payload
    return texts_of(event)
