"""The captured calls of one attempt, joined into sequences to train on: every token that the model saw or said, once.

The prefix check is exact: a call goes on from the captured call before it when its prompt ids begin with all prompt and
generation ids of that call. Then what its prompt adds (tool outputs, what the template writes around them) and what it
generated are appended to the same segment. Anything else is a break, and starts a new segment with the whole prompt: a
token is never dropped, moved or replaced to make sequences fit.

Two things are no break. A call without captured tokens is passed over: what it said stands in the next prompt, where
nothing is trained on. And a call that generated nothing adds nothing.

A break lies `within` the reply of the call before (re-tokenisation: the template wrote the reply back and other ids
came out, or an end-of-turn token is missing) or within its prompt (the template rewrote history, such as dropping
earlier reasoning). Where the prompt is that of the call before and nothing more, the model was asked `again`, as after
an empty reply: nothing was tokenised anew, and what it sampled first is a segment of its own.
"""

from array import array
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec

from apps.gym.traces.events import ModelCall, TraceUnion
from apps.gym.traces.tokens import TokenShape, read_shape, unpack_tokens


class Break(msgspec.Struct, frozen=True, kw_only=True):
    """`call` is the one whose prompt does not go on from captured call `after`; both count model calls from 1.

    `agreed` of the `seen` ids up to the end of `after` come back in the prompt before the first that differs.
    """

    call: int
    after: int
    agreed: int
    seen: int
    within: Literal["reply", "prompt", "again"]


class TokenFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What the prefix check found. `exact` calls go on from the captured call before them; tokens are summed."""

    calls: int
    captured: int
    exact: int
    segments: int
    generated: int
    breaks: list[Break]

    @property
    def is_whole(self) -> bool:
        """One sequence holds every call."""
        return self.captured == self.calls and self.segments == 1


class Segment(NamedTuple):
    """`mask` is 1 where the model sampled the token; `logprobs` are of these, and 0.0 elsewhere. All of one length."""

    calls: list[int]
    input_ids: "array[int]"
    mask: "array[int]"
    logprobs: "array[float]"


class Sampled(msgspec.Struct, frozen=True, kw_only=True):
    """Where the tokens that a call sampled stand in its segment: from `start` up to and without `end`. `version` is
    that of the weights, which may change amid an attempt; empty where the model has none."""

    call: int
    version: str
    start: int
    end: int


def stored_tokens(events: Iterable[TraceUnion]) -> list[bytes | None]:
    """One entry a model call: its packed tokens, None where none were captured."""
    return [event.tokens for event in events if isinstance(event, ModelCall)]


def check_prefixes(stored: Sequence[bytes | None]) -> TokenFigures:
    """The figures of an attempt, from the first HEADER_BYTES of each call's packed tokens. Raises TokensUnreadable."""
    breaks: list[Break] = []
    captured = generated = 0
    before: tuple[int, TokenShape] | None = None
    for call, packed in enumerate(stored, start=1):
        if packed is None:
            continue
        shape = read_shape(packed)
        captured += 1
        generated += shape.generated
        if before is not None and shape.shared < before[1].total:
            breaks.append(_break(call, shape, *before))
        before = call, shape
    segments = len(breaks) + bool(captured)
    return TokenFigures(
        calls=len(stored),
        captured=captured,
        exact=captured - segments,
        segments=segments,
        generated=generated,
        breaks=breaks,
    )


def join_calls(stored: Sequence[bytes | None]) -> list[Segment]:
    """The segments of an attempt, in order. Raises TokensUnreadable."""
    segments: list[Segment] = []
    before = b""
    for call, packed in enumerate(stored, start=1):
        if packed is None:
            continue
        capture = unpack_tokens(packed, before=before)
        fields = capture.fields()
        prompt: list[int] = fields["prompt_token_ids"]
        if segments and capture.prompt.startswith(before):
            segment = segments[-1]
            prompt = prompt[len(segment.input_ids) :]
        else:
            segment = Segment([], array("I"), array("B"), array("d"))
            segments.append(segment)
        segment.calls.append(call)
        segment.input_ids.extend(prompt)
        segment.mask.extend([0] * len(prompt))
        segment.logprobs.extend([0.0] * len(prompt))
        segment.input_ids.extend(fields["generation_token_ids"])
        segment.mask.extend([1] * len(fields["generation_token_ids"]))
        segment.logprobs.extend(fields["generation_log_probs"])
        before = capture.ids
    return segments


def find_sampled(segment: Segment, events: Iterable[TraceUnion]) -> list[Sampled]:
    """By call of the segment, in order: its prompt is all that stands before what it sampled."""
    calls = [event for event in events if isinstance(event, ModelCall)]
    found: list[Sampled] = []
    for call in segment.calls:
        event = calls[call - 1]
        assert event.tokens is not None
        shape = read_shape(event.tokens)
        found.append(Sampled(call=call, version=event.version, start=shape.prompt, end=shape.total))
    return found


def count_spoken(events: Iterable[TraceUnion]) -> tuple[int, int]:
    """How many calls said something, and of how many of these the tokens were captured."""
    spoken = [event.tokens is not None for event in events if isinstance(event, ModelCall) and event.items]
    return len(spoken), sum(spoken)


def _break(call: int, shape: TokenShape, after: int, before: TokenShape) -> Break:
    within: Literal["reply", "prompt", "again"] = "reply" if shape.shared >= before.prompt else "prompt"
    if shape.prompt == shape.shared == before.prompt:
        within = "again"
    return Break(call=call, after=after, agreed=shape.shared, seen=before.total, within=within)
