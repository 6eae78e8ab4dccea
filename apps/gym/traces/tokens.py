"""Token ids and logprobs of model calls, packed: what trainers need exactly, without the size and cost of JSON.

Layout of what is stored for one call, little-endian:

    uint8  version (1)
    uint8  bytes of a logprob: 4 where all of them are exact as float32 (as vLLM sends them), else 8
    uint16 0
    uint32 shared: how many ids the prompt has in common with the ids before it
    uint32 rest: prompt ids after those
    uint32 generated: generation ids, and logprobs
    uint32 × rest, uint32 × generated, float × generated

The ids before a prompt are the prompt and generation of the attempt's previous call that has tokens. A conversation
only grows, so each turn stores what is new in it; where a template writes an old turn in other tokens, `shared` ends
there.
"""

import struct
import sys
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from apps.gym.request_refusals import Refusal
from apps.gym.traces.events import ModelCall, TraceUnion

VERSION = 1
_HEADER = struct.Struct("<BBHIII")
HEADER_BYTES = _HEADER.size
_ID_BYTES = 4
_LOGPROB_CODES = {4: "f", 8: "d"}


class TokensMissing(Exception):
    """The reply's tokens cannot be kept; `note` is a short code that says why."""

    def __init__(self, note: str) -> None:
        super().__init__(note)
        self.note = note


class TokensUnreadable(Refusal, status=409, code="tokens-unreadable"):
    """What is stored is not what this module packs, or does not follow from the calls before it."""


class TokenShape(NamedTuple):
    """Numbers of ids: of the prompt those it has in common with the ids before it and the rest, and generated ones."""

    shared: int
    rest: int
    generated: int

    @property
    def prompt(self) -> int:
        return self.shared + self.rest

    @property
    def total(self) -> int:
        return self.prompt + self.generated


class TokenCapture(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of one call: packed ids of the whole prompt and of the generation, and a logprob for each of these."""

    prompt: bytes
    generation: bytes
    logprobs: bytes
    logprob_bytes: int

    @property
    def ids(self) -> bytes:
        """Everything the model has seen and said up to the end of this call."""
        return self.prompt + self.generation

    def fields(self) -> dict[str, Any]:
        """As NeMo Gym keeps them on the last item of a turn."""
        return {
            "prompt_token_ids": _unpacked("I", self.prompt),
            "generation_token_ids": _unpacked("I", self.generation),
            "generation_log_probs": _unpacked(_LOGPROB_CODES[self.logprob_bytes], self.logprobs),
        }


def capture_tokens(prompt: Sequence[int], generation: Sequence[int], logprobs: Sequence[float]) -> TokenCapture:
    """Raises TokensMissing where the three do not fit together or an id is none."""
    if len(generation) != len(logprobs):
        raise TokensMissing("counts_differ")
    try:
        ids = array("I", prompt), array("I", generation)
    except (OverflowError, TypeError):
        raise TokensMissing("not_token_ids") from None
    narrow = array("f", logprobs)
    exact = narrow if narrow.tolist() == list(logprobs) else array("d", logprobs)
    return TokenCapture(
        prompt=_packed(ids[0]),
        generation=_packed(ids[1]),
        logprobs=_packed(exact),
        logprob_bytes=exact.itemsize,
    )


def pack_tokens(capture: TokenCapture, *, before: bytes) -> bytes:
    """What is stored for a call; `before` are the ids of the call before it, empty for the first."""
    shared = _shared_bytes(capture.prompt, before)
    header = _HEADER.pack(
        VERSION,
        capture.logprob_bytes,
        0,
        shared // _ID_BYTES,
        (len(capture.prompt) - shared) // _ID_BYTES,
        len(capture.generation) // _ID_BYTES,
    )
    return b"".join((header, capture.prompt[shared:], capture.generation, capture.logprobs))


def unpack_tokens(stored: bytes, *, before: bytes) -> TokenCapture:
    """What `pack_tokens` packed after the same ids. Raises TokensUnreadable."""
    logprob_bytes, (shared, rest, generated) = _read_header(stored)
    if len(stored) != HEADER_BYTES + _ID_BYTES * (rest + generated) + logprob_bytes * generated:
        raise TokensUnreadable("the packed tokens have another length than they say")
    if _ID_BYTES * shared > len(before):
        raise TokensUnreadable("the packed tokens go on from a call that is not there")
    generation = HEADER_BYTES + _ID_BYTES * rest
    logprobs = generation + _ID_BYTES * generated
    return TokenCapture(
        prompt=before[: _ID_BYTES * shared] + stored[HEADER_BYTES:generation],
        generation=stored[generation:logprobs],
        logprobs=stored[logprobs:],
        logprob_bytes=logprob_bytes,
    )


def read_shape(stored: bytes) -> TokenShape:
    """How many tokens there are, from the first HEADER_BYTES alone. Raises TokensUnreadable."""
    return _read_header(stored)[1]


def count_tokens(stored: bytes) -> tuple[int, int]:
    """Prompt and generated tokens, from the first HEADER_BYTES alone. Raises TokensUnreadable."""
    shape = read_shape(stored)
    return shape.prompt, shape.generated


def restore_tokens(events: list[TraceUnion]) -> list[TraceUnion]:
    """The events, with the token fields on the last item of each turn that has tokens. Raises TokensUnreadable.

    A turn that said nothing has an empty message for them: its tokens were sampled all the same.
    """
    restored: list[TraceUnion] = []
    before = b""
    for event in events:
        if isinstance(event, ModelCall) and event.tokens is not None:
            capture = unpack_tokens(event.tokens, before=before)
            before = capture.ids
            said = event.items or [{"type": "message", "role": "assistant", "content": []}]
            items = [*said[:-1], said[-1] | capture.fields()]
            event = msgspec.structs.replace(event, items=items, tokens=None)  # noqa: PLW2901 - the whole event
        restored.append(event)
    return restored


def _read_header(stored: bytes) -> tuple[int, TokenShape]:
    if len(stored) < HEADER_BYTES:
        raise TokensUnreadable("the packed tokens are cut short")
    version, logprob_bytes, _, shared, rest, generated = _HEADER.unpack_from(stored)
    if version != VERSION or logprob_bytes not in _LOGPROB_CODES:
        raise TokensUnreadable(f"the packed tokens are of version {version}, which this program does not know")
    return logprob_bytes, TokenShape(shared, rest, generated)


def _shared_bytes(prompt: bytes, before: bytes) -> int:
    """Length of the common prefix, in whole ids."""
    if prompt.startswith(before):
        return len(before)
    # Bisection: a comparison of two slices is one memcmp, a loop over ids is not.
    same, other = 0, min(len(prompt), len(before)) // _ID_BYTES + 1
    while other - same > 1:
        middle = (same + other) // 2
        end = middle * _ID_BYTES
        start = same * _ID_BYTES
        if prompt[start:end] == before[start:end]:
            same = middle
        else:
            other = middle
    return same * _ID_BYTES


def _packed(values: "array[Any]") -> bytes:
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


def _unpacked(code: str, packed: bytes) -> list[Any]:
    values: array[Any] = array(code)
    values.frombytes(packed)
    if sys.byteorder == "big":
        values.byteswap()
    return values.tolist()
