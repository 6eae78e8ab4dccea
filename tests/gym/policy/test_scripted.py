"""The scripted policy model plays whole attempts in a real environment, well or with one mistake."""

import asyncio

import orjson
import pytest

from apps.gym.environments.calculator.environment import CALCULATOR_TOOL
from apps.gym.loop.agent_loop import Attempt, Harness
from apps.gym.resources.inprocess import InProcessServer
from apps.gym.traces.items import assistant_text, function_calls
from apps.gym.verifiers.math.numeric import Numeric
from apps.gym.verifiers.text.exact_match import ExactMatch
from apps.gym.wires.protocol import Ask
from apps.gym.wires.scripted import (
    MISTAKES_WITH_TOOL,
    MISTAKES_WITHOUT_TOOL,
    MODEL_NAME,
    ScriptedPolicy,
    _Attempt,
    _Conversation,
)
from apps.gym.wires.scripted_answers import compute

ARITHMETIC = "What is (17 + 5) * 3?"
CAPITAL = "What is the capital of France?"
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def play(prompt, *, seed=0, rate=0.0, tools=(CALCULATOR_TOOL,), call=None, **sampling):
    """The whole attempt: (items after the prompt, finish reasons). `call(name, arguments text)` answers tool calls."""
    call = call or calculate
    policy = ScriptedPolicy(mistake_rate=rate)
    opening = [{"role": "system", "content": "Use the tools."}, {"role": "user", "content": prompt}]
    items, finishes = list(opening), []
    for _ in range(6):
        reply = asyncio.run(policy.ask(Ask(items=items, tools=list(tools), sampling={"seed": seed, **sampling})))
        items = items + reply.items
        finishes.append(reply.finish_reason)
        assert reply.model == MODEL_NAME
        if reply.finish_reason == "stop":
            break
        items += [
            {
                "type": "function_call_output",
                "call_id": one["call_id"],
                "output": call(one["name"], one["arguments"]),
            }
            for one in function_calls(reply.items)
        ]
    return items[len(opening) :], finishes


def calculate(name, arguments):
    try:
        value = compute(orjson.loads(arguments)["expression"])
    except orjson.JSONDecodeError as error:
        return orjson.dumps({"error": f"Invalid tool call arguments: {error}"}).decode()
    return f'{{"result": {value}}}'


def seed_with(mistake, prompt=ARITHMETIC, tools=(CALCULATOR_TOOL,), stops_after_error=None):
    """The first seed whose attempt makes this mistake."""
    for seed in range(500):
        view = _Conversation.of(
            Ask(items=[{"role": "user", "content": prompt}], tools=list(tools), sampling={"seed": seed})
        )
        attempt = _Attempt(view, mistake_rate=1.0)
        if attempt.mistake == mistake and stops_after_error in (None, attempt.stops_after_error):
            return seed
    raise AssertionError(mistake)


def score(items, expected):
    row = {"responses_create_params": {"input": []}, "expected_answer": expected}
    verify = Numeric().verify if expected.lstrip("-").isdigit() else ExactMatch().verify
    return verify(row, {"output": items}).value


def test_without_mistakes_the_tool_is_asked_and_its_result_boxed():
    items, finishes = play(ARITHMETIC)
    assert [item["type"] for item in items] == [
        "reasoning",
        "function_call",
        "function_call_output",
        "reasoning",
        "message",
    ]
    assert orjson.loads(items[1]["arguments"]) == {"expression": "(17 + 5) * 3"}
    assert finishes == ["tool_calls", "stop"]
    assert assistant_text(items).endswith("\\boxed{66}")
    assert score(items, "66") == 1.0


def test_the_tools_result_is_believed():
    items, _ = play(ARITHMETIC, call=lambda name, arguments: '{"result": 5}')
    assert assistant_text(items).endswith("\\boxed{5}")


@pytest.mark.parametrize("tools", [(), (WEATHER,)])
def test_without_a_calculator_it_computes_itself(tools):
    items, finishes = play(ARITHMETIC, tools=tools)
    assert (finishes, score(items, "66")) == (["stop"], 1.0)


def test_a_tool_choice_of_none_is_respected():
    assert play(ARITHMETIC, tool_choice="none")[1] == ["stop"]


def test_several_parts_are_several_calls_in_one_turn():
    items, finishes = play("What is the sum of (3 + 4) * 2 and 10 - 6?")
    assert (len(function_calls(items)), finishes, score(items, "18")) == (2, ["tool_calls", "stop"], 1.0)


def test_without_parallel_calls_the_parts_come_one_by_one():
    _, finishes = play("What is the sum of 3 + 4 and 10 - 6?", parallel_tool_calls=False)
    assert finishes == ["tool_calls", "tool_calls", "stop"]


def test_the_same_seed_and_prompt_give_the_same_attempt_and_another_seed_another():
    assert play(ARITHMETIC, seed=5, rate=0.5) == play(ARITHMETIC, seed=5, rate=0.5)
    assert len({str(play(ARITHMETIC, seed=seed, rate=0.5)) for seed in range(8)}) > 1


def test_a_wrong_operand_is_in_the_call_and_the_answer_is_wrong():
    items, _ = play(ARITHMETIC, seed=seed_with("wrong_operand"), rate=1.0)
    expression = orjson.loads(function_calls(items)[0]["arguments"])["expression"]
    assert expression != "(17 + 5) * 3"
    assert assistant_text(items).endswith(f"\\boxed{{{compute(expression)}}}")
    assert score(items, "66") == 0.0


def test_answering_without_the_tool_is_wrong():
    items, finishes = play(ARITHMETIC, seed=seed_with("no_tool"), rate=1.0)
    assert (finishes, function_calls(items), score(items, "66")) == (["stop"], [], 0.0)


def test_malformed_arguments_are_no_json_and_the_second_call_is_right():
    items, finishes = play(ARITHMETIC, seed=seed_with("malformed_arguments", stops_after_error=False), rate=1.0)
    first, second = function_calls(items)
    with pytest.raises(orjson.JSONDecodeError):
        orjson.loads(first["arguments"])
    assert orjson.loads(second["arguments"]) == {"expression": "(17 + 5) * 3"}
    assert first["call_id"] != second["call_id"]
    assert (finishes, score(items, "66")) == (["tool_calls", "tool_calls", "stop"], 1.0)


def test_malformed_arguments_may_end_in_giving_up():
    items, finishes = play(ARITHMETIC, seed=seed_with("malformed_arguments", stops_after_error=True), rate=1.0)
    assert (finishes, score(items, "66")) == (["tool_calls", "stop"], 0.0)


def test_a_forgotten_box_fails():
    items, _ = play(ARITHMETIC, seed=seed_with("no_box"), rate=1.0)
    assert "66" in assistant_text(items)
    assert "boxed" not in assistant_text(items)
    assert score(items, "66") == 0.0


def test_a_broken_calculator_ends_in_an_answer_all_the_same():
    for seed in range(4):
        _, finishes = play(ARITHMETIC, seed=seed, call=lambda name, arguments: '{"error": "down"}')
        assert finishes[-1] == "stop"


def test_a_known_question_is_answered_in_a_box():
    items, _ = play(CAPITAL, tools=())
    assert assistant_text(items).endswith("\\boxed{Paris}")
    assert score(items, "Paris") == 1.0


@pytest.mark.parametrize("mistake", MISTAKES_WITHOUT_TOOL)
def test_mistakes_without_a_tool_fail(mistake):
    items, _ = play(CAPITAL, seed=seed_with(mistake, CAPITAL, ()), rate=1.0, tools=())
    assert score(items, "Paris") == 0.0


def test_every_mistake_is_made_and_at_the_given_rate():
    made = []
    for seed in range(2000):
        view = _Conversation.of(
            Ask(items=[{"role": "user", "content": ARITHMETIC}], tools=[CALCULATOR_TOOL], sampling={"seed": seed})
        )
        made.append(_Attempt(view, mistake_rate=0.4).mistake)
    mistakes = [mistake for mistake in made if mistake]
    assert set(mistakes) == set(MISTAKES_WITH_TOOL)
    assert 0.36 < len(mistakes) / len(made) < 0.44


def test_another_tool_is_called_with_what_the_prompt_is_about():
    items, finishes = play(
        "What's it like in San Francisco?", tools=(WEATHER,), call=lambda name, arguments: "It is cold."
    )
    assert orjson.loads(function_calls(items)[0]["arguments"]) == {"city": "San Francisco"}
    assert finishes == ["tool_calls", "stop"]
    assert "It is cold." in assistant_text(items)


def test_whole_attempts_in_the_calculator_environment_succeed_and_fail():
    row = {"responses_create_params": {"input": [{"role": "user", "content": ARITHMETIC}]}, "expected_answer": "66"}
    server = InProcessServer("calculator", name="calculator")

    async def attempt(seed):
        one = Attempt(
            row=row,
            server=server,
            policy=ScriptedPolicy(mistake_rate=0.4),
            harness=Harness(),
            seed=seed,
            elapsed=lambda: 0.0,
        )
        return [event async for event in one.events()][-1]

    async def attempts():
        return [await attempt(seed) for seed in range(200)]

    endings = asyncio.run(attempts())
    assert {event.stop_reason for event in endings} == {"answered"}
    assert {event.reward for event in endings} == {0.0, 1.0}
    assert 0.5 < sum(event.reward for event in endings) / len(endings) < 0.8


def test_a_question_without_a_rule_is_admitted():
    items, _ = play("Who are you?", tools=())
    assert "not one that I have a rule for" in assistant_text(items)


def test_usage_grows_with_the_conversation():
    policy = ScriptedPolicy()
    short = asyncio.run(policy.ask(Ask(items=[{"role": "user", "content": CAPITAL}]))).usage
    long = asyncio.run(policy.ask(Ask(items=[{"role": "user", "content": CAPITAL + "x" * 4000}]))).usage
    assert long["input_tokens"] - short["input_tokens"] == 1000
    assert 0 < short["reasoning_tokens"] < short["output_tokens"]
