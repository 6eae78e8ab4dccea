"""Token IDs and logprobs of model calls in packed form: exact, as trainers need them, and smaller and faster than JSON.

Layout of the stored bytes of one call, little-endian:

    uint8  version: 1 in a linear trace, 2 in a graph
    uint8  bytes per logprob: 4 if all are exact as float32 (as vLLM sends them), else 8
    uint16 base, in version 2: the number of the call whose ids precede the prompt, or 0; in version 1 always 0
    uint32 shared: number of ids that the prompt has in common with the preceding ids
    uint32 rest: number of further prompt ids
    uint32 generated: number of generated ids and logprobs
    uint32 × rest, uint32 × generated, float × generated

The preceding ids are the prompt and generation of the previous call with tokens or, in a graph, those of the nearest
ancestor with tokens (see graph_tokens). A prompt usually begins with all of them, so each call stores only its new ids.
If the chat template renders an earlier turn differently, `shared` ends there.
"""

import math
import struct
import sys
from array import array
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from apps.gym.request_refusals import Refusal
from apps.gym.traces.events import ModelCall, TraceUnion

VERSION = 1
GRAPH_VERSION = 2
MAX_BASE = 65_535
"""Highest call number that fits into the field `base`."""
_HEADER = struct.Struct("<BBHIII")
HEADER_BYTES = _HEADER.size
ID_BYTES = 4
_LOGPROB_CODES = {4: "f", 8: "d"}
MAX_LOGPROB = 1e-5
"""Positive values up to this are rounding errors of a probability of 1, and are kept."""
PLACEHOLDER = -9999.0  # what vLLM sends for minus infinity
_POSSIBLE = bytes([0, *range(0x80, 0xC6)])


class TokensMissing(Exception):
    """Raised if the reply's tokens cannot be stored. `note` is a short code of the reason."""

    def __init__(self, note: str) -> None:
        super().__init__(note)
        self.note = note


class TokensUnreadable(Refusal, status=409, code="tokens-unreadable"):
    """Raised if stored bytes are invalid or need ids that the preceding calls do not have."""


class TokenShape(NamedTuple):
    """Numbers of ids of a call: the shared start of the prompt, the rest of the prompt, and the generation."""

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
    """The tokens of one call: packed ids of the prompt and the generation, and a logprob for each generated token."""

    prompt: bytes
    generation: bytes
    logprobs: bytes
    logprob_bytes: int

    @property
    def ids(self) -> bytes:
        """Return the ids of the prompt and the generation."""
        return self.prompt + self.generation

    def fields(self) -> dict[str, Any]:
        """Return the token fields that NeMo Gym adds to the last item of a turn, unpacked."""
        return {
            "prompt_token_ids": _unpacked("I", self.prompt),
            "generation_token_ids": _unpacked("I", self.generation),
            "generation_log_probs": _unpacked(_LOGPROB_CODES[self.logprob_bytes], self.logprobs),
        }


def capture_tokens(prompt: list[int], generation: list[int], logprobs: list[float]) -> TokenCapture:
    """Pack the tokens of one call. Raises TokensMissing for an invalid id or logprob, or if their numbers differ."""
    if len(generation) != len(logprobs):
        raise TokensMissing("counts_differ")
    return add_logprobs(pack_ids(prompt), pack_ids(generation), logprobs)


def pack_ids(ids: list[int]) -> bytes:
    """Pack ids. Raises TokensMissing for an invalid one."""
    try:
        return _packed(array("I", ids))
    except (OverflowError, TypeError):
        raise TokensMissing("not_token_ids") from None


def add_logprobs(prompt: bytes, generation: bytes, logprobs: list[float]) -> TokenCapture:
    """Return the capture of packed ids. Raises TokensMissing like `capture_tokens`."""
    if len(generation) != ID_BYTES * len(logprobs):
        raise TokensMissing("counts_differ")
    _check_logprobs(logprobs)
    # Twice as fast as `array("f", logprobs)`.
    single = array("f", struct.pack(f"{len(logprobs)}f", *logprobs))
    exact = single if single.tolist() == logprobs else array("d", logprobs)
    return TokenCapture(
        prompt=prompt,
        generation=generation,
        logprobs=_packed(exact),
        logprob_bytes=exact.itemsize,
    )


def _check_logprobs(logprobs: list[Any]) -> None:
    """Raise TokensMissing for impossible values, text and null included, which servers send for NaN."""
    try:
        is_finite = math.isfinite(sum(logprobs))
    except (TypeError, OverflowError):
        is_finite = False
    if not is_finite:
        raise TokensMissing("logprob_not_finite")
    if logprobs and (max(logprobs) > MAX_LOGPROB or min(logprobs) <= PLACEHOLDER):
        raise TokensMissing("logprob_above_0" if max(logprobs) > MAX_LOGPROB else "logprob_placeholder")


def match_usage(prompt: int, generated: int, usage: Mapping[str, Any]) -> bool:
    """Return False if tokens differ in number from their usage: a gateway dropped some. Counts of 0 are unknown."""
    return usage.get("input_tokens") in (None, 0, prompt) and usage.get("output_tokens") in (None, 0, generated)


def find_unusable(stored: bytes, usage: Mapping[str, Any]) -> str:
    """Return why packed tokens of GymWeb 0.2.0 would not be stored today; empty for others and damaged ones."""
    try:
        size, shape = _read_header(stored)
        if not match_usage(shape.prompt, shape.generated, usage):
            return "usage_differs"
        packed = stored[HEADER_BYTES + ID_BYTES * (shape.rest + shape.generated) :]
        # The first bytes tell quickly that all float32 numbers are 0, or negative and above -8192.
        if len(packed) == size * shape.generated and (size > ID_BYTES or packed[3::4].translate(None, _POSSIBLE)):
            _check_logprobs(_unpacked(_LOGPROB_CODES[size], packed))
    except TokensMissing as missing:
        return missing.note
    except TokensUnreadable:
        pass  # Readers of the tokens raise it again.
    return ""


def pack_tokens(capture: TokenCapture, *, before: bytes, base: int | None = None) -> bytes:
    """Return the bytes to store for a call. `before` holds the preceding ids, empty for the first call.

    In a graph, `base` is the number of the call with these ids, or 0. In a linear trace it is None.
    """
    shared = _shared_bytes(capture.prompt, before)
    header = _HEADER.pack(
        VERSION if base is None else GRAPH_VERSION,
        capture.logprob_bytes,
        base or 0,
        shared // ID_BYTES,
        (len(capture.prompt) - shared) // ID_BYTES,
        len(capture.generation) // ID_BYTES,
    )
    return b"".join((header, capture.prompt[shared:], capture.generation, capture.logprobs))


def unpack_tokens(stored: bytes, *, before: bytes) -> TokenCapture:
    """Return the capture that `pack_tokens` packed with the same `before`. Raises TokensUnreadable."""
    logprob_bytes, (shared, rest, generated) = _read_header(stored)
    if len(stored) != HEADER_BYTES + ID_BYTES * (rest + generated) + logprob_bytes * generated:
        raise TokensUnreadable("the packed tokens have the wrong length")
    if ID_BYTES * shared > len(before):
        raise TokensUnreadable("the packed tokens refer to a call that is missing")
    generation = HEADER_BYTES + ID_BYTES * rest
    logprobs = generation + ID_BYTES * generated
    return TokenCapture(
        prompt=before[: ID_BYTES * shared] + stored[HEADER_BYTES:generation],
        generation=stored[generation:logprobs],
        logprobs=stored[logprobs:],
        logprob_bytes=logprob_bytes,
    )


def unpack_linear(stored: bytes, *, before: bytes) -> TokenCapture:
    """Return the capture of a call in a linear trace. Raises TokensUnreadable, also for tokens of a graph."""
    if read_base(stored) is not None:
        raise TokensUnreadable("the packed tokens belong to a graph of calls, not to a linear trace")
    return unpack_tokens(stored, before=before)


def read_base(stored: bytes) -> int | None:
    """Return `base`: a call number, 0 for none, or None for tokens of a linear trace. Raises TokensUnreadable."""
    _read_header(stored)
    version, _, base, *_ = _HEADER.unpack_from(stored)
    return base if version == GRAPH_VERSION else None


def is_packed_for_graph(stored: bytes | memoryview | None) -> bool:
    """Return True for packed tokens of a graph (version 2). Reads only the first byte."""
    return stored is not None and bytes(stored[:1]) == bytes([GRAPH_VERSION])


def repack_linear(stored: bytes) -> bytes:
    """Convert tokens of a graph to version 1, for a linear trace in which `base` is the previous call with tokens."""
    _, logprob_bytes, _, *counts = _HEADER.unpack_from(stored)
    return _HEADER.pack(VERSION, logprob_bytes, 0, *counts) + stored[HEADER_BYTES:]


def read_shape(stored: bytes) -> TokenShape:
    """Return the numbers of tokens, from the first HEADER_BYTES alone. Raises TokensUnreadable."""
    return _read_header(stored)[1]


def count_tokens(stored: bytes) -> tuple[int, int]:
    """Return the numbers of prompt and generated tokens, from the first HEADER_BYTES alone. Raises TokensUnreadable."""
    shape = read_shape(stored)
    return shape.prompt, shape.generated


def read_new_ids(stored: bytes) -> tuple[list[int], list[int]]:
    """Return the ids of the prompt that no preceding call has, and the generated ids. Raises TokensUnreadable."""
    shape = read_shape(stored)
    middle = HEADER_BYTES + ID_BYTES * shape.rest
    return _unpacked("I", stored[HEADER_BYTES:middle]), _unpacked(
        "I", stored[middle : middle + ID_BYTES * shape.generated]
    )


def restore_tokens(events: list[TraceUnion]) -> list[TraceUnion]:
    """Return the events of a linear trace, with NeMo Gym's token fields on the last item of each turn with tokens.

    A turn without items gets an empty message to hold its tokens. Raises TokensUnreadable.
    """
    restored: list[TraceUnion] = []
    before = b""
    for event in events:
        if isinstance(event, ModelCall) and event.tokens is not None:
            capture = unpack_linear(event.tokens, before=before)
            before = capture.ids
            turn = event.items or [{"type": "message", "role": "assistant", "content": []}]
            items = [*turn[:-1], turn[-1] | capture.fields()]
            event = msgspec.structs.replace(event, items=items, tokens=None)  # noqa: PLW2901 - the event is replaced
        restored.append(event)
    return restored


def drop_tokens(events: list[TraceUnion], is_dropped: Callable[[TraceUnion], bool]) -> list[TraceUnion]:
    """Return the events of a linear trace, without the tokens of the events to drop. Raises TokensUnreadable."""
    if not any(map(is_dropped, events)):
        return events
    found: list[TraceUnion] = []
    before = kept_before = b""
    for event in events:
        if isinstance(event, ModelCall) and event.tokens is not None:
            capture = unpack_linear(event.tokens, before=before)
            before = capture.ids
            packed = None
            if not is_dropped(event):
                packed, kept_before = pack_tokens(capture, before=kept_before), capture.ids
            event = msgspec.structs.replace(event, tokens=packed)  # noqa: PLW2901 - the event is replaced
        found.append(event)
    return found


def _read_header(stored: bytes) -> tuple[int, TokenShape]:
    if len(stored) < HEADER_BYTES:
        raise TokensUnreadable("the packed tokens are incomplete")
    version, logprob_bytes, _, shared, rest, generated = _HEADER.unpack_from(stored)
    if version not in (VERSION, GRAPH_VERSION) or logprob_bytes not in _LOGPROB_CODES:
        found = f"version {version} and {logprob_bytes} bytes per logprob"
        raise TokensUnreadable(f"the packed tokens have {found}, which this GymWeb cannot read")
    return logprob_bytes, TokenShape(shared, rest, generated)


def _shared_bytes(prompt: bytes, before: bytes) -> int:
    """Return the length of the common prefix in bytes, rounded down to whole ids."""
    if prompt.startswith(before):
        return len(before)
    # Bisection, because comparing two slices is one memcmp and much faster than a loop.
    shared, differing = 0, min(len(prompt), len(before)) // ID_BYTES + 1
    while differing - shared > 1:
        middle = (shared + differing) // 2
        end = middle * ID_BYTES
        start = shared * ID_BYTES
        if prompt[start:end] == before[start:end]:
            shared = middle
        else:
            differing = middle
    return shared * ID_BYTES


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
