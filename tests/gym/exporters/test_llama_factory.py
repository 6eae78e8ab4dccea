"""Turns with calls are read back by LLaMA-Factory's rules, whatever the model wrote."""

import itertools
from typing import Any

import pytest

from apps.gym.exporters.llama_factory import sharegpt_turns
from apps.gym.exporters.protocol import Attempt, Preference, resolve_options
from apps.gym.exporters.registry import find_format
from apps.gym.exporters.training_conversations import thought_text
from apps.gym.traces.events import ModelCall, Prompt, SessionOpened, ToolResult
from apps.gym.traces.items import message
from apps.gym.trainability import Dropped
from tests.gym import traces
from tests.gym.exporters.validators import read_function_turn
from tests.gym.traces import call, said

ONE = {"name": "run", "arguments": {"command": "echo 1"}}
QUOTED = '<tool_call>{"name": "run", "arguments": {"command": "echo 1"}}</tool_call>'
TEXTS = [
    "",
    "I look.",
    "I write <tool_call> next.",
    "</tool_call> and <tool_call>",
    f"So: {QUOTED}",
    "<tool_call>\nnot JSON\n</tool_call>",
    "a thought\n</think>\n\nand more",
]
ARGUMENTS = ["echo 1", "<tool_call>", "</tool_call>", QUOTED, "<think>\n1\n</think>\n\n", 'a < b \\ "c" \u00e9']


@pytest.mark.parametrize("calls", [1, 2])
def test_thought_text_and_calls_are_read_back(calls: int) -> None:
    for thought, text, command in itertools.product([None, *TEXTS], TEXTS, ARGUMENTS):
        content = (thought_text(thought) if thought is not None else "") + text
        wanted = [{"name": "run", "arguments": {"command": command}}] * calls
        turn_of = {"role": "assistant", "content": content, "tool_calls": [{"function": one} for one in wanted]}
        *_, turn = sharegpt_turns([{"role": "user", "content": "Look."}, turn_of])
        before, read = read_function_turn(turn["value"])
        assert read == wanted
        assert before.rstrip("\n") == content.rstrip("\n")


def test_a_turn_without_marks_keeps_the_usual_order() -> None:
    spoken = {"role": "assistant", "content": "I look.", "tool_calls": [{"function": ONE}]}
    *_, turn = sharegpt_turns([{"role": "user", "content": "Look."}, spoken])
    assert turn == {"from": "function_call", "value": f"I look.\n{QUOTED}"}


def attempt_with(*items: dict[str, Any], results: int = 1) -> Attempt:
    events = [
        SessionOpened(environment="e"),
        Prompt(items=[message("user", "Look.")]),
        ModelCall(seen=1, items=list(items), model="m"),
        *[ToolResult(call_id=f"c{number}", name="run", output=f"r{number}") for number in range(results)],
        ModelCall(seen=1, items=[said("Done.")], model="m"),
    ]
    return Attempt(events=events, task={"responses_create_params": {"input": "Look."}}, reward=1.0)


def called(number: int) -> dict[str, Any]:
    return call('{"command": "ls"}', f"c{number}", "run")


ONE_CALL = attempt_with(called(0))
SHAPES = {
    "call": ONE_CALL,
    "text beside a call": attempt_with(said("I look."), called(0)),
    "reasoning beside a call": attempt_with(traces.thought("Hm."), called(0)),
    "parallel calls": attempt_with(called(0), called(1), results=2),
    "a call without its result": attempt_with(called(0), called(1), results=1),
}
PARALLEL = {"parallel calls": "parallel_calls", "a call without its result": "parallel_calls"}
BESIDE = {"text beside a call": "text_beside_call", "reasoning beside a call": "text_beside_call"}
DROPPED = {
    "qwen": {},
    "llama3": PARALLEL,
    "deepseek3": PARALLEL,
    "glm4": PARALLEL,
    "gpt_oss": {**PARALLEL, "reasoning beside a call": "reasoning_as_answer"},
    "mistral": {**PARALLEL, **BESIDE},
    "gemma3": {**PARALLEL, **BESIDE},
}
"""Reasons by family and shape, as the templates of LLaMA-Factory 0.9.5 render the rows or raise an error."""


@pytest.mark.parametrize("slug", ["llama_factory_sft", "llama_factory_kto"])
@pytest.mark.parametrize("family", DROPPED)
def test_a_family_gets_rows_that_its_templates_take(slug, family):
    format = find_format(slug)
    options = resolve_options(format, {"family": family})
    found = {}
    for name, attempt in SHAPES.items():
        try:
            (row,) = format.rows(attempt, options)
        except Dropped as dropped:
            found[name] = dropped.reason
        else:
            assert ("tool_response" in str(row)) == (family == "qwen" and name == "parallel calls")
    assert found == DROPPED[family]


def test_pairs_of_a_family_too():
    format = find_format("llama_factory_dpo")
    pair = Preference(chosen=SHAPES["parallel calls"], rejected=ONE_CALL, margin=1.0)
    assert len(list(format.rows(pair, resolve_options(format, {})))) == 1
    with pytest.raises(Dropped, match="parallel_calls"):
        list(format.rows(pair, resolve_options(format, {"family": "llama3"})))
