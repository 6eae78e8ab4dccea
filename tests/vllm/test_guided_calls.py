"""Tool calls of a model with random weights: the server's grammar makes them, GymWeb reads and checks them."""

import asyncio
import json

import pytest

from apps.gym.errors import PolicyError
from apps.gym.traces.items import function_calls, message
from apps.gym.wires.protocol import Ask
from tests.vllm.serving import Vllm

pytestmark = pytest.mark.slow
by_wire = pytest.mark.parametrize("wire", ["chat", "responses"])
ASKS = 20
DIRECTIONS = ["north", "east", "south", "west"]


def tool(**direction):
    return {
        "type": "function",
        "name": "walk",
        "description": "Walk one step.",
        "parameters": {
            "type": "object",
            "properties": {"direction": {"type": "string", **direction}},
            "required": ["direction"],
            "additionalProperties": False,
        },
    }


def asks(own, **sampling):
    items = [message("user", "Walk around.")]
    return [
        Ask(items=items, tools=[own], sampling={"temperature": 1.0, "max_output_tokens": 800, "seed": seed, **sampling})
        for seed in range(ASKS)
    ]


@by_wire
def test_strict_tools_with_an_enum_are_called_rightly_by_noise(random_model: Vllm, wire, show) -> None:
    strict = {**tool(enum=DIRECTIONS), "strict": True}
    replies = asyncio.run(random_model.ask(*asks(strict, tool_choice="required"), wire=wire))
    called = [function_calls(reply.items) for reply in replies]
    assert [reply.finish_reason for reply in replies] == ["tool_calls"] * ASKS
    walked = [json.loads(call["arguments"])["direction"] for calls in called for call in calls]
    assert {call["name"] for calls in called for call in calls} == {"walk"}
    assert len(walked) >= ASKS and set(walked) <= set(DIRECTIONS)
    show(wire=wire, calls=len(walked), directions={name: walked.count(name) for name in DIRECTIONS})


def test_what_noise_makes_of_free_text_is_a_reply_or_a_named_error(random_model: Vllm, show) -> None:
    async def outcome(ask: Ask) -> str:
        try:
            [reply] = await random_model.ask(ask, wire="chat")
        except PolicyError as error:
            return str(error)
        assert {item["type"] for item in reply.items} <= {"message", "function_call"}
        return reply.finish_reason

    async def all_outcomes() -> list[str]:
        return [await outcome(ask) for ask in asks(tool(), tool_choice="required", max_output_tokens=200)]

    outcomes = asyncio.run(all_outcomes())
    counted = {name: outcomes.count(name) for name in sorted(set(outcomes))}
    show(outcomes=counted)
    garbled = [name for name in counted if name not in {"tool_calls", "stop", "max_output_tokens"}]
    assert all("tool_calls" in name for name in garbled)


def test_without_a_choice_noise_is_text(random_model: Vllm) -> None:
    replies = asyncio.run(random_model.ask(*asks(tool(), max_output_tokens=16)[:5], wire="chat"))
    assert {item["type"] for reply in replies for item in reply.items} == {"message"}
    assert {reply.finish_reason for reply in replies} <= {"max_output_tokens", "stop"}
