"""Join the captured calls of a linear trace into training sequences. For graphs, see graph_segments.

Every token that the model read or wrote occurs once.

The prefix check is exact: a call continues the previous captured call if its prompt ids begin with all prompt and
generation ids of that call. Then the rest of its prompt (tool outputs and template text) and its generated tokens are
appended to the same segment. Otherwise there is a break, and a new segment starts with the whole prompt. Tokens are
never dropped, moved or replaced to make sequences fit.

Two cases are not breaks. A call without captured tokens is skipped: its text is in the next prompt, which is not
trained on. A call without generated tokens adds nothing.

`Break.within` says where the prompt first differs: in the reply of the previous call, in its prompt, or nowhere
(`again`). Within the reply, the template rendered it to different ids (re-tokenisation), or an end-of-turn token is
missing. Within the prompt, the template rewrote history, for example dropped earlier reasoning. `again` means that the
prompt equals that of the previous call, for example after an empty reply: nothing was re-tokenised. The two replies
become separate segments.
"""

from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from apps.gym.sent_sampling import read_sent
from apps.gym.traces.events import ModelCall, TraceUnion
from apps.gym.traces.tokens import TokenShape, read_shape, unpack_linear


class Break(msgspec.Struct, frozen=True, kw_only=True):
    """The prompt of call `call` does not continue captured call `after`.

    Both count model calls from 1. `seen` is the number of ids of call `after`, prompt and reply. The prompt of `call`
    begins with the first `agreed` of them.
    """

    call: int
    after: int
    agreed: int
    seen: int
    within: Literal["reply", "prompt", "again"]


class TokenFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the prefix check.

    `exact` counts calls that continue the previous captured call. `generated` is the total number of generated tokens.
    """

    calls: int
    captured: int
    exact: int
    segments: int
    generated: int
    breaks: list[Break]

    @property
    def is_whole(self) -> bool:
        """Return True if one sequence holds every call."""
        return self.captured == self.calls and self.segments == 1


class Segment(NamedTuple):
    """One sequence.

    `mask` is 1 for tokens that the model sampled; `logprobs` are theirs, and 0.0 elsewhere. All have equal length.
    """

    calls: list[int]
    input_ids: "array[int]"
    mask: "array[int]"
    logprobs: "array[float]"


class Sampled(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The position of a call's sampled tokens in its segment: from `start` to before `end`.

    `version` is that of the weights, which may change during an attempt; empty if unknown. `temperature` is None if the
    request had none, so that the server's default applied. `sampling` has the other fields of the request that can
    change the distribution (apps.gym.sent_sampling). `grammar` is True if a grammar may have forced tokens.
    """

    call: int
    version: str
    start: int
    end: int
    temperature: float | None = None
    sampling: dict[str, Any] = {}
    grammar: bool = False


def stored_tokens(events: Iterable[TraceUnion]) -> list[bytes | None]:
    """Return the packed tokens of each model call, or None where none were captured."""
    return [event.tokens for event in events if isinstance(event, ModelCall)]


def check_prefixes(stored: Sequence[bytes | None]) -> TokenFigures:
    """Return the figures of an attempt. Reads only the first HEADER_BYTES of each call. Raises TokensUnreadable."""
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
            breaks.append(find_break(call, shape, *before))
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
    """Return the segments of an attempt, in order. Raises TokensUnreadable."""
    segments: list[Segment] = []
    before = b""
    for call, packed in enumerate(stored, start=1):
        if packed is None:
            continue
        capture = unpack_linear(packed, before=before)
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
    """Return the sampled tokens of each call of the segment, in order. All earlier tokens are the call's prompt."""
    calls = [event for event in events if isinstance(event, ModelCall)]
    found: list[Sampled] = []
    for call in segment.calls:
        event = calls[call - 1]
        assert event.tokens is not None
        shape = read_shape(event.tokens)
        found.append(
            Sampled(
                call=call,
                version=event.version,
                start=shape.prompt,
                end=shape.total,
                temperature=read_temperature(event),
                sampling={name: value for name, value in read_sent(event.sampling).items() if name != "temperature"},
                grammar=event.grammar,
            )
        )
    return found


def read_temperature(call: ModelCall) -> float | None:
    """Return the temperature that the request set, or None."""
    given = call.sampling.get("temperature")
    return float(given) if isinstance(given, int | float) and not isinstance(given, bool) else None


def mask_grammar(segment: Segment, sampled: Iterable[Sampled]) -> None:
    """Leave the tokens of calls with a grammar out of the loss."""
    for one in sampled:
        if one.grammar:
            _mask(segment, one)


def _mask(segment: Segment, sampled: Sampled) -> None:
    length = sampled.end - sampled.start
    segment.mask[sampled.start : sampled.end] = array("B", bytes(length))
    segment.logprobs[sampled.start : sampled.end] = array("d", [0.0] * length)


def join_line(events: list[TraceUnion], masked: Collection[int] = ()) -> list[tuple[Segment, list[Sampled]]]:
    """Return the segments of a linear trace with their sampled tokens. Raises TokensUnreadable.

    The tokens of `masked` calls, by position from 1, are context. A segment with only such calls is left out.
    """
    found: list[tuple[Segment, list[Sampled]]] = []
    for segment in join_calls(stored_tokens(events)):
        sampled = find_sampled(segment, events)
        for one in sampled:
            if one.call in masked:
                _mask(segment, one)
        trained = [one for one in sampled if one.call not in masked]
        if trained:
            found.append((segment, trained))
    return found


def count_captured_replies(events: Iterable[TraceUnion]) -> tuple[int, int]:
    """Return the number of calls with output, and how many of them have captured tokens."""
    captured = [event.tokens is not None for event in events if isinstance(event, ModelCall) and event.items]
    return len(captured), sum(captured)


def find_missing(events: Iterable[TraceUnion], *, has_some: bool) -> str:
    """Return the reason of the trainability ledger for replies without tokens."""
    turns = count_unusable(events)
    if turns:
        return "impossible_logprobs" if turns["logprobs_of_turn"] else "token_counts_differ"
    return "tokens_partly_captured" if has_some else "tokens_not_captured"


def count_unusable(events: Iterable[TraceUnion]) -> Counter[str]:
    """Return the number of calls whose tokens were left out, by the reason of the trainability ledger."""
    signs = {"logprob_": "logprobs_of_turn", "_differ": "counts_of_turn"}
    notes = [event.tokens_note for event in events if isinstance(event, ModelCall) and event.tokens is None]
    return Counter(reason for note in notes for sign, reason in signs.items() if sign in note)


def find_break(call: int, shape: TokenShape, after: int, before: TokenShape) -> Break:
    within: Literal["reply", "prompt", "again"] = "reply" if shape.shared >= before.prompt else "prompt"
    if shape.prompt == shape.shared == before.prompt:
        within = "again"
    return Break(call=call, after=after, agreed=shape.shared, seen=before.total, within=within)
