"""Every verifier that stays on the event loop stays there for milliseconds, whatever a policy model wrote."""

import json
import time

import pytest

from apps.gym.errors import VerifierError
from apps.gym.verifiers.registry import read_verifier
from tests.gym.verifiers.replies import attempt, calls, returns, says

SIZE = 100_000
SEEDS = {
    "text box": (r"\boxed{\text{", " ", "} x}"),
    "open boxes": ("", r"\boxed{", ""),
    "text in box": (r"\boxed{", r"\text{", "}"),
    "spaces": ("Answer:", " ", "x"),
    "answers": ("", "answer: ", "x"),
    "final answers": ("", "final answer is ", ""),
    "fence": ("```", "\n", "x"),
    "fences": ("", "```\n", "x"),
    "brackets": ("", "[", ""),
    "brackets and numbers": ("[" * 900, "1,", ""),
    "braces": ("", '{"a":', ""),
    "no JSON": ("", "[NaN", "]"),
    "digits": (r"\boxed{", "9", "}"),
    "thousands": (r"\boxed{", "1 000 ", "}"),
    "units": (r"\boxed{5", " km", "}"),
    "fractions": (r"\boxed{", r"\frac1", "}"),
    "letters": (r"\boxed{", "A-", "}"),
    "stars": ("", "*", "x"),
    "lines": ("", "\n", "x"),
    "states": (r"\boxed{", "west virginia ", "}"),
}
VERIFIERS = [
    ({"type": "string_match"}, {"expected_answer": "x"}),
    ({"type": "exact_match"}, {"expected_answer": "x"}),
    ({"type": "numeric"}, {"expected_answer": "1/3"}),
    ({"type": "numeric", "extract": "full_response"}, {"expected_answer": "1/3"}),
    ({"type": "contains", "wanted": ["x", "y"]}, {}),
    ({"type": "final_state"}, {"expected_state": {"a": [1]}}),
    ({"type": "final_state", "any_order": True}, {"expected_state": {"a": [1]}}),
    *(
        ({"type": "multiple_choice", "mode": mode}, {"options": ["red", "blue"], "expected_answer": "A"})
        for mode in (
            "strict_single_letter_boxed",
            "lenient_boxed",
            "lenient_answer_colon",
            "lenient_answer_colon_md",
        )
    ),
    ({"type": "efficiency", "steps": 3}, {}),
    ({"type": "call_argument", "tool": "note", "argument": "a"}, {"expected_answer": 1}),
    ({"type": "tool_calls"}, {"expected_answers": []}),
    (
        {"type": "instructions", "score": "fraction"},
        {
            "instruction_id_list": [
                "length_constraints:number_sentences",
                "length_constraints:number_paragraphs",
                "detectable_format:title",
                "detectable_format:json_format",
                "detectable_content:number_placeholders",
            ],
            "kwargs": [{"num_sentences": 3}, {"num_paragraphs": 3}, {}, {}, {"num_placeholders": 3}],
        },
    ),
]
CALLED = [
    ({"type": "call_argument", "tool": "note", "argument": "a"}, {"expected_answer": [1]}),
    ({"type": "tool_calls"}, {"expected_answers": [{"name": "note", "arguments": {"a": 1}}]}),
    ({"type": "tool_call_form"}, {"expected_call": {"name": "note", "arguments": {"a": 1}}}),
    ({"type": "final_state", "tool": "note", "any_order": True}, {"expected_state": {"a": [1]}}),
]


HANGS = 5.0
"""Seconds of CPU. A text takes 0.05 s. A pattern that backtracks, or a quadratic comparison, takes longer."""


def _text(seed):
    before, again, after = SEEDS[seed]
    return before + again * ((SIZE - len(before) - len(after)) // len(again)) + after


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("given", "row"), VERIFIERS, ids=lambda value: json.dumps(value)[:60])
def test_a_verifier_on_the_loop_is_quick(given, row, seed):
    _verify_quickly(given, row, attempt(says(_text(seed))))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("given", "row"), CALLED, ids=lambda value: json.dumps(value)[:60])
def test_a_verifier_of_calls_is_quick(given, row, seed):
    _verify_quickly(given, row, attempt(calls("note", _text(seed)), returns(_text(seed))))


def _verify_quickly(given, row, reply):
    verifier = read_verifier(given)
    assert verifier.runs_on_loop(row)
    assert _seconds(verifier, row, reply) < HANGS


def _seconds(verifier, row, reply):
    started = time.thread_time()
    try:
        verifier.verify(row, reply)
    except VerifierError as error:
        pytest.fail(f"no reply makes a verifier fail: {error}")
    return time.thread_time() - started
