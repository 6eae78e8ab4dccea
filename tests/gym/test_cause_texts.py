"""Equal causes have equal texts, whatever numbers, ids and quoted strings they contain."""

import pytest

from apps.gym.traces.cause_texts import MAX_LENGTH, normalise_cause

CASES = [
    ("expected 42, got 41", "expected N, got N"),
    ("expected -1.5e3, got 1,024.25", "expected N, got N"),
    ("answer 'Rome' is not 'Paris'", "answer “…” is not “…”"),
    ('no key "id" in `row`', "no key “…” in “…”"),
    ("it's the tool's fault", "it's the tool's fault"),
    ("file /tmp/run7/out.txt is missing", "file /tmp/run7/out.txt is missing"),
    ("call_8Kd2vTq0x failed after 3 tries", "ID failed after N tries"),
    ("order 3f2504e0-4f89-41d3-9a0c-0305e82c3301 is unknown", "order ID is unknown"),
    ("commit 1f3a9bc04d not found at 0x7fffdead", "commit ID not found at ID"),
    ("HTTP 503\n  from the server", "HTTP N from the server"),
    ("utf8 and v1 keep their digits", "utf8 and v1 keep their digits"),
    ("invalid_request_error", "invalid_request_error"),
    ("", ""),
]


@pytest.mark.parametrize(("text", "normalised"), CASES)
def test_variable_parts_are_replaced(text, normalised):
    assert normalise_cause(text) == normalised


def test_known_values_are_replaced():
    assert normalise_cause("answer red wine is not red", ["red", "red wine", 3, None]) == "answer “…” is not “…”"


def test_a_value_is_not_replaced_within_a_word():
    assert normalise_cause("an answer is not n", ["n", "answer"]) == "an “…” is not “…”"


def test_a_long_text_is_cut():
    assert len(normalise_cause("word " * 10_000)) <= MAX_LENGTH
