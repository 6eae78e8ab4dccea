"""Packed tokens come back exactly, and a conversation of many turns stores each of its tokens once."""

import asyncio
import math
import struct
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.gym.loop.agent_loop import Attempt, Harness
from apps.gym.resources.inprocess import InProcessServer
from apps.gym.traces.events import ModelCall, decode_event, encode_event, event_tokens
from apps.gym.traces.items import message
from apps.gym.traces.tokens import (
    HEADER_BYTES,
    TokensMissing,
    TokensUnreadable,
    capture_tokens,
    count_tokens,
    pack_tokens,
    restore_tokens,
    unpack_tokens,
)
from apps.gym.wires.protocol import Reply

ids = st.lists(st.integers(0, 2**32 - 1), max_size=30)
doubles = st.floats(min_value=-9998, max_value=0)
logprobs = doubles | doubles.map(lambda value: max(min(value, 3e38), -3e38)).map(
    lambda value: struct.unpack("f", struct.pack("f", value))[0]
)


def uint32(*values):
    return array("I", values).tobytes()


def captured(prompt, generation):
    return capture_tokens(prompt, generation, [-0.5] * len(generation))


@st.composite
def conversations(draw):
    """Prompts that mostly go on from what was said before; some are cut anywhere first, as by another tokenisation."""
    turns, before = [], []
    for _ in range(draw(st.integers(1, 6))):
        kept = draw(st.just(len(before)) | st.integers(0, len(before)))
        prompt = before[:kept] + draw(ids)
        generation = draw(ids)
        said = draw(st.lists(logprobs, min_size=len(generation), max_size=len(generation)))
        turns.append((prompt, generation, said))
        before = prompt + generation
    return turns


@given(conversations())
def test_every_turn_is_unpacked_unchanged(turns):
    stored, before = [], b""
    for turn in turns:
        capture = capture_tokens(*turn)
        stored.append(pack_tokens(capture, before=before))
        before = capture.ids
    before = b""
    for packed, (prompt, generation, said) in zip(stored, turns, strict=True):
        capture = unpack_tokens(packed, before=before)
        assert capture.fields() == {
            "prompt_token_ids": prompt,
            "generation_token_ids": generation,
            "generation_log_probs": said,
        }
        assert count_tokens(packed[:HEADER_BYTES]) == (len(prompt), len(generation))
        before = capture.ids


@given(ids, ids, st.data())
def test_exactly_what_two_prompts_share_is_stored_once(before, rest, data):
    kept = data.draw(st.integers(0, len(before)))
    prompt = before[:kept] + rest
    shared = next((n for n, (a, b) in enumerate(zip(before, prompt, strict=False)) if a != b), None)
    shared = min(len(before), len(prompt)) if shared is None else shared
    packed = pack_tokens(captured(prompt, [1]), before=uint32(*before))
    assert len(packed) == HEADER_BYTES + 4 * (len(prompt) - shared) + 4 + 4


def test_storage_grows_linearly_with_the_conversation():
    before, prompt, size = b"", [], 0
    for turn in range(100):
        prompt = [*prompt, *range(20)]
        capture = captured(prompt, [turn] * 10)
        size += len(pack_tokens(capture, before=before))
        before, prompt = capture.ids, [*prompt, *[turn] * 10]
    assert size == 100 * (HEADER_BYTES + 4 * 20 + 10 * (4 + 4))


def test_logprobs_of_a_server_that_computes_in_float32_take_four_bytes_and_others_eight():
    assert capture_tokens([1], [2], [-6.343120574951172]).logprob_bytes == 4
    assert capture_tokens([1], [2], [-0.1]).logprob_bytes == 8
    assert capture_tokens([1], [2], [-1e-300]).fields()["generation_log_probs"] == [-1e-300]
    assert math.copysign(1, capture_tokens([1], [2], [-0.0]).fields()["generation_log_probs"][0]) == -1


@pytest.mark.parametrize(
    ("tokens", "note"),
    [
        (([1], [2, 3], [0.0]), "counts_differ"),
        (([-1], [2], [0.0]), "not_token_ids"),
        (([1], [2], [math.inf]), "logprob_not_finite"),
        (([1], [2, 3], [-math.inf, math.inf]), "logprob_not_finite"),
        (([1], [2, 3], [0.0, 1e300]), "logprob_above_0"),
        (([1], [2, 3], [-1e300, 0.0]), "logprob_placeholder"),
        (([1], [2], [10**400]), "logprob_not_finite"),
    ],
)
def test_what_are_no_tokens_is_named(tokens, note):
    with pytest.raises(TokensMissing) as why:
        capture_tokens(*tokens)
    assert why.value.note == note


GOOD = pack_tokens(captured([1, 2, 3], [4]), before=uint32(1, 2))


@pytest.mark.parametrize(
    ("stored", "before"),
    [
        (b"", b""),
        (GOOD[: HEADER_BYTES - 1], uint32(1, 2)),
        (GOOD[:-1], uint32(1, 2)),
        (GOOD + b"\0", uint32(1, 2)),
        (b"\3" + GOOD[1:], uint32(1, 2)),
        (GOOD[:1] + b"\5" + GOOD[2:], uint32(1, 2)),
        (GOOD, uint32(1)),
    ],
)
def test_foreign_bytes_are_refused(stored, before):
    with pytest.raises(TokensUnreadable):
        unpack_tokens(stored, before=before)


def test_tokens_are_beside_the_payload_not_in_it():
    call = ModelCall(seen=1, items=[message("assistant", "4")])
    carrying = ModelCall(seen=1, items=[message("assistant", "4")], tokens=GOOD)
    assert encode_event(carrying) == encode_event(call)
    assert event_tokens(carrying) == GOOD
    assert decode_event(encode_event(carrying), GOOD) == carrying


class Speaker:
    """Answers with the tokens that it was given, one turn after the other."""

    def __init__(self, *captures):
        self.captures = list(captures)

    async def ask(self, ask):
        capture = self.captures.pop(0)
        call = {"type": "function_call", "call_id": "c", "name": "calculator", "arguments": '{"expression": "1"}'}
        said = {"type": "message", "role": "assistant", "content": "done"}
        items = [call] if self.captures else [said]
        return Reply(items=items, finish_reason="stop", tokens=capture, tokens_note="" if capture else "no_logprobs")


def test_tokens_of_each_turn_follow_the_previous_turn():
    turns = [captured([1, 2], [3]), None, captured([1, 2, 3, 4, 5], [6, 7]), captured([9, 2], [8])]
    task = {"responses_create_params": {"input": "1?"}, "expected_answer": "1"}

    async def collect():
        server = InProcessServer("calculator", name="calculator")
        run = Attempt(row=task, server=server, policy=Speaker(*turns), harness=Harness(), seed=0, elapsed=lambda: 0.0)
        return [event async for event in run.events()]

    events = asyncio.run(collect())
    calls = [event for event in events if isinstance(event, ModelCall)]
    assert [call.tokens and count_tokens(call.tokens) for call in calls] == [(2, 1), None, (5, 2), (2, 1)]
    assert [call.tokens_note for call in calls] == ["", "no_logprobs", "", ""]
    assert [call.tokens and len(call.tokens) - HEADER_BYTES for call in calls] == [16, None, 24, 16]
    restored = [event for event in restore_tokens(events) if isinstance(event, ModelCall)]
    fields = [
        {name: value for name, value in call.items[-1].items() if "token" in name or "log" in name} for call in restored
    ]
    assert fields == [capture.fields() if capture else {} for capture in turns]
    assert all("prompt_token_ids" not in item for call in calls for item in call.items)


def test_the_tokens_of_a_reply_that_said_nothing_are_restored_on_an_empty_message():
    packed = pack_tokens(capture_tokens([1, 2], [9], [-0.5]), before=b"")
    (restored,) = restore_tokens([ModelCall(seen=1, items=[], tokens=packed)])
    assert restored.items == [
        {
            "type": "message",
            "role": "assistant",
            "content": [],
            "prompt_token_ids": [1, 2],
            "generation_token_ids": [9],
            "generation_log_probs": [-0.5],
        }
    ]
