"""The answer of an agent is found in the forms that verifiers know, also on the fast path."""

import random

import pytest

from apps.gym.answer_texts import EXTRACTION_MODES, _marked, extract_answer, is_answer_of, normalize_answer
from apps.gym.traces.events import AgentEnd
from apps.gym.traces.graph import TraceGraph
from apps.gym.traces.items import message
from tests.gym.captured_calls import SYSTEM, Recorder, asked, said

PARTS = [
    *("4", "42", "４", "Four", "A", "a", "é", "E\u0301", "\u0301", " ", "  ", "\n", "\t", ".", "..", "*", "**4**"),
    *("Answer: ", "the answer: ", "final answer is ", "：", "$", "$4$", "\\boxed{4}", "\\boxed{", "\\text{4}", "}"),
    *('{"a": 4}', "[1, 2]", "```", "```json\n"),
]


def is_extracted(answer: str, text: str) -> bool:
    read = {normalize_answer(one) for mode in (None, *EXTRACTION_MODES) if (one := extract_answer(text, mode))}
    meant = _marked(answer)
    return normalize_answer(answer) in read or normalize_answer(text) in meant or not meant.isdisjoint(_marked(text))


@pytest.mark.parametrize("seed", range(8))
def test_the_fast_path_never_hides_an_answer(seed: int) -> None:
    dice = random.Random(seed)
    found = 0
    for _ in range(2_000):
        answer, text = ("".join(dice.choices(PARTS, k=dice.randint(1, most))) for most in (2, 6))
        found += is_extracted(answer, text)
        assert is_answer_of(answer, text) == is_extracted(answer, text), (answer, text)
    assert found > 20


@pytest.mark.parametrize(
    ("reply", "reason"),
    [("The answer is: **4**", "answer"), ("\\boxed{\\text{4}}", "answer"), ("It is 4, I think", "contains")],
)
def test_the_answer_is_found_in_its_forms(reply: str, reason: str) -> None:
    recorder = Recorder()
    first = recorder.call([SYSTEM, message("user", "What is 2 + 2?")], [said(reply)])
    recorder.call([message("system", "Check it."), message("user", "Is it right?")], [asked("c1")])
    path = TraceGraph([*recorder.events, AgentEnd(command="finish", answer="4")]).main_path
    assert (path.leaf, path.reason) == (first.call, reason)
