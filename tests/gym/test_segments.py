"""Captured calls become sequences to train on: exactly what was seen and said, and never a token that was not."""

from array import array

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from apps.gym.traces.segments import Break, TokenFigures, check_prefixes, join_calls
from apps.gym.traces.tokens import HEADER_BYTES, TokensUnreadable, capture_tokens, pack_tokens

ids = st.lists(st.integers(0, 3), max_size=8)
logprobs = st.floats(-30, 0, width=32)


def packed(turns):
    """`(prompt, generation, logprobs)` a turn, None where nothing was captured → what the database holds."""
    stored, before = [], b""
    for turn in turns:
        if turn is None:
            stored.append(None)
            continue
        capture = capture_tokens(*turn)
        stored.append(pack_tokens(capture, before=before))
        before = capture.ids
    return stored


def said(prompt, generation):
    return prompt, generation, [-0.25] * len(generation)


@st.composite
def attempts(draw):
    """Turns that mostly go on exactly; some break off anywhere, some were not captured. Few ids, so that near misses
    and breaks that heal by chance come up."""
    turns, before = [], []
    for _ in range(draw(st.integers(0, 6))):
        kept = draw(st.just(len(before)) | st.integers(0, len(before)))
        prompt, generation = before[:kept] + draw(ids), draw(ids)
        if draw(st.integers(0, 4)) == 0:
            turns.append(None)
        else:
            turns.append(
                (prompt, generation, draw(st.lists(logprobs, min_size=len(generation), max_size=len(generation))))
            )
        before = prompt + generation
    return turns


def merged_as_trainers_do(turns):
    """NeMo RL's own rule, written out plainly: rows of (call numbers, ids, mask, logprobs)."""
    rows, seen = [], None
    for number, turn in enumerate(turns, start=1):
        if turn is None:
            continue
        prompt, generation, values = turn
        if seen is None or prompt[: len(seen)] != seen:
            rows.append(([], [], [], []))
            seen = []
        calls, tokens, mask, known = rows[-1]
        fresh = prompt[len(seen) :]
        calls.append(number)
        tokens += fresh + generation
        mask += [0] * len(fresh) + [1] * len(generation)
        known += [0.0] * len(fresh) + values
        seen = prompt + generation
    return rows


@given(attempts())
@example([said([1], []), said([1], [2])])
def test_segments_equal_a_plain_merge(turns):
    segments = [tuple(list(part) for part in segment) for segment in join_calls(packed(turns))]
    assert segments == merged_as_trainers_do(turns)


def test_an_empty_reply_that_was_asked_for_again_is_no_retokenisation():
    stored = packed([said([1, 2], [9]), said([1, 2], [3, 9]), said([1, 2, 3, 9, 4], [9])])
    assert check_prefixes(stored).breaks == [Break(call=2, after=1, agreed=2, seen=3, within="again")]
    assert [list(segment.input_ids) for segment in join_calls(stored)] == [[1, 2, 9], [1, 2, 3, 9, 4, 9]]


@given(attempts())
def test_the_figures_come_from_the_heads_alone_and_agree_with_the_segments(turns):
    stored = packed(turns)
    heads = [each and each[:HEADER_BYTES] for each in stored]
    figures, segments = check_prefixes(heads), join_calls(stored)
    captured = [number for number, turn in enumerate(turns, start=1) if turn is not None]
    assert (figures.calls, figures.captured, figures.segments) == (len(turns), len(captured), len(segments))
    assert figures.exact + figures.segments == figures.captured
    assert figures.generated == sum(sum(segment.mask) for segment in segments)
    assert [each.call for each in figures.breaks] == [segment.calls[0] for segment in segments[1:]]
    assert [each.after for each in figures.breaks] == [segment.calls[-1] for segment in segments[:-1]]
    assert figures.is_whole == (len(captured) == len(turns) and len(segments) == 1)


@given(attempts())
def test_every_reply_is_in_one_segment_and_only_replies_are_trained(turns):
    segments = join_calls(packed(turns))
    trained = [
        [(token, value) for token, mask, value in zip(*segment[1:], strict=True) if mask] for segment in segments
    ]
    expected = [
        [pair for call in segment.calls for pair in zip(turns[call - 1][1], turns[call - 1][2], strict=True)]
        for segment in segments
    ]
    assert trained == expected
    assert all(value == 0.0 for segment in segments for _, mask, value in zip(*segment[1:], strict=True) if not mask)


@given(attempts())
def test_the_end_of_each_segment_is_exactly_what_its_last_call_saw_and_said(turns):
    for segment in join_calls(packed(turns)):
        prompt, generation, _ = turns[segment.calls[-1] - 1]
        assert segment.input_ids == array("I", prompt + generation)


def test_a_reply_that_came_back_in_other_ids_is_named_with_its_place():
    turns = [said([1, 2], [3, 4]), said([1, 2, 3, 9, 5], [6]), said([1, 2, 3, 9, 5, 6, 7], [8])]
    figures = check_prefixes(packed(turns))
    assert figures.breaks == [Break(call=2, after=1, agreed=3, seen=4, within="reply")]
    assert (figures.captured, figures.exact, figures.segments, figures.is_whole) == (3, 1, 2, False)
    assert [segment.calls for segment in join_calls(packed(turns))] == [[1], [2, 3]]


def test_a_template_that_rewrites_history_is_told_from_one_that_rewrites_the_reply():
    turns = [said([1, 2], [3]), said([1, 7, 3, 4], [5])]
    assert check_prefixes(packed(turns)).breaks == [Break(call=2, after=1, agreed=1, seen=3, within="prompt")]


def test_a_prompt_shorter_than_the_conversation_is_a_break():
    turns = [said([1, 2], [3, 4]), said([1, 2, 3], [5])]
    assert check_prefixes(packed(turns)).breaks == [Break(call=2, after=1, agreed=3, seen=4, within="reply")]


def test_an_end_of_turn_token_that_the_template_leaves_out_is_not_glossed_over():
    end = 99
    turns = [said([1, 2], [3, end]), said([1, 2, 3, 10, 4], [5, end])]
    assert [list(segment.input_ids) for segment in join_calls(packed(turns))] == [
        [1, 2, 3, end],
        [1, 2, 3, 10, 4, 5, end],
    ]


def test_a_call_that_was_not_captured_is_passed_over_and_not_trained_on():
    turns = [said([1], [2]), None, said([1, 2, 3, 8, 8, 4], [5])]
    (segment,) = join_calls(packed(turns))
    assert (segment.calls, list(segment.input_ids), list(segment.mask)) == (
        [1, 3],
        [1, 2, 3, 8, 8, 4, 5],
        [0, 1, 0, 0, 0, 0, 1],
    )
    figures = check_prefixes(packed(turns))
    assert (figures.calls, figures.captured, figures.segments, figures.breaks) == (3, 2, 1, [])


def test_an_attempt_without_tokens_has_no_segment():
    assert join_calls([None, None]) == []
    nothing = TokenFigures(calls=2, captured=0, exact=0, segments=0, generated=0, breaks=[])
    assert check_prefixes([None, None]) == nothing


@pytest.mark.parametrize("damage", [lambda stored: stored[:-1], lambda stored: b"\7" + stored[1:]])
def test_tokens_that_cannot_be_read_are_refused_and_not_guessed(damage):
    first, second = packed([said([1], [2]), said([1, 2, 3], [4])])
    with pytest.raises(TokensUnreadable):
        join_calls([damage(first), second])
