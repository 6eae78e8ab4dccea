"""The quick check of texts that cannot be the answer never hides an answer."""

import random

import pytest

from apps.gym.answer_texts import answer_forms
from apps.gym.traces.events import AgentEnd
from apps.gym.traces.graph import TraceGraph
from apps.gym.traces.items import message
from apps.gym.traces.main_path import _Texts
from tests.gym.captured_calls import SYSTEM, Recorder, asked, said

PARTS = [
    *("4", "42", "４", "Four", "A", "a", "é", "E\u0301", "\u0301", " ", "  ", "\n", "\t", ".", "..", "*", "**4**"),
    *("Answer: ", "the answer: ", "final answer is ", "：", "$", "$4$", "\\boxed{4}", "\\boxed{", "\\text{4}", "}"),
    *('{"a": 4}', "[1, 2]", "```", "```json\n"),
]


@pytest.mark.parametrize("seed", range(8))
def test_a_text_with_a_form_of_the_answer_is_compared(seed: int) -> None:
    dice = random.Random(seed)
    found = 0
    for _ in range(2_000):
        answer, text = ("".join(dice.choices(PARTS, k=dice.randint(1, most))) for most in (2, 6))
        texts = _Texts(TraceGraph([]), answer.strip() or "4")
        if not texts._forms.isdisjoint(answer_forms(text)):
            found += 1
            assert texts._may_equal(text), (answer, text)
    assert found > 20


@pytest.mark.parametrize(
    ("reply", "reason"),
    [("The answer is: **4**", "answer"), ("\\boxed{\\text{4}}", "answer"), ("It is 4, I think", "contains")],
)
def test_the_answer_is_found_in_its_forms(reply: str, reason: str) -> None:
    recorder = Recorder()
    first = recorder.call([SYSTEM, message("user", "What is 2 + 2?")], [said(reply)])
    recorder.call([message("system", "Check it."), message("user", "Is it right?")], [asked("c1")])
    end = AgentEnd(command="finish", answer="4")
    path = TraceGraph([*recorder.events, end]).main_path
    assert (path.leaf, path.reason, path.ambiguous) == (first.call, reason, False)
