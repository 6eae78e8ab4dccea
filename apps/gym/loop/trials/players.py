"""Attempts without a model: a player replaces the policy model. Includes players that know nothing."""

import string
from random import Random
from typing import Any

from apps.gym.environments.task_generation import MAX_STEPS, Call, Move, Player, Seen
from apps.gym.loop.agent_loop import Attempt, Harness
from apps.gym.resources.protocol import ResourceServer
from apps.gym.traces.events import TraceUnion, Verification
from apps.gym.traces.items import Item, TaskRow, Tool, dump_json, message
from apps.gym.wires.protocol import Ask, Reply

_WORDS = 8
_TURNS = 4
"""Maximum replies with calls that the random player makes before it answers."""


class PlayedPolicy:
    """A player as the policy model of one attempt."""

    def __init__(self, row: TaskRow, player: Player, *, seed: int = 0) -> None:
        self._row = row
        self._player = player
        self._dice = Random(f"player/{seed}")
        self._turn = 0

    async def ask(self, ask: Ask) -> Reply:
        seen = Seen(row=self._row, items=ask.items, tools=ask.tools, turn=self._turn, dice=self._dice)
        move = self._player(seen)
        items: list[Item] = [played_call(call, f"call_{self._turn}_{at}") for at, call in enumerate(move.calls)]
        if move.text or not items:
            items = [message("assistant", move.text), *items]
        self._turn += 1
        return Reply(items=items, finish_reason="tool_calls" if move.calls else "stop", model="played")


def played_call(call: Call, call_id: str) -> Item:
    """Return the item of a player's call."""
    arguments = call.arguments if isinstance(call.arguments, str) else dump_json(call.arguments)
    return {"type": "function_call", "call_id": call_id, "name": call.name, "arguments": arguments}


async def play_attempt(
    server: ResourceServer, row: TaskRow, player: Player, *, seed: int = 0, max_steps: int = MAX_STEPS
) -> list[TraceUnion]:
    """Return all events of one attempt, run with a stopped clock. Raises a GymError like an attempt."""
    attempt = Attempt(
        row=row,
        server=server,
        policy=PlayedPolicy(row, player, seed=seed),
        harness=Harness(max_steps=max_steps),
        seed=seed,
        elapsed=lambda: 0.0,
    )
    return [event async for event in attempt.events()]


def reward_of(events: list[TraceUnion]) -> float | None:
    return next((event.counted_reward for event in events if isinstance(event, Verification)), None)


# ── players that know nothing: an environment that rewards them can be exploited without solving a task ──


def stay_silent(seen: Seen) -> Move:
    return Move()


def echo_prompt(seen: Seen) -> Move:
    return Move(text=seen.observation)


def play_at_random(seen: Seen) -> Move:
    """Make some calls with valid arguments, then answer with a number, a letter, or words of the prompt."""
    dice = seen.dice
    if seen.tools and seen.turn < _TURNS and dice.random() < 0.7:
        tool = dice.choice(seen.tools)
        return Move(calls=[Call(str(tool["name"]), _arguments(tool, dice, seen.prompt))])
    answers = [str(dice.randint(-10, 200)), dice.choice(string.ascii_uppercase), _some_words(dice, seen.prompt)]
    answer = dice.choice(answers)
    return Move(text=dice.choice([answer, f"The answer is \\boxed{{{answer}}}"]))


KNOW_NOTHING: dict[str, Player] = {"null": stay_silent, "random": play_at_random, "prompt-echo": echo_prompt}


def _arguments(tool: Tool, dice: Random, prompt: str) -> dict[str, Any]:
    schema = tool.get("parameters") or {}
    required = schema.get("required") or []
    properties: dict[str, Any] = schema.get("properties") or {}
    chosen = [name for name in properties if name in required or dice.random() < 0.3]
    return {name: _value(properties[name], dice, prompt) for name in chosen}


def _value(schema: dict[str, Any], dice: Random, prompt: str) -> Any:
    if schema.get("enum"):
        return dice.choice(schema["enum"])
    kinds = schema.get("anyOf") or [schema]
    kind = dice.choice(kinds).get("type", "string")
    if kind == "array":
        return [_value(schema.get("items") or {}, dice, prompt) for _ in range(dice.randint(0, 3))]
    plain: dict[str, Any] = {
        "integer": dice.randint(schema.get("minimum", 0), schema.get("maximum", 100)),
        "number": round(dice.uniform(0, 100), 2),
        "boolean": dice.random() < 0.5,
        "object": {},
        "null": None,
    }
    return plain[kind] if kind in plain else _some_words(dice, prompt)


def _some_words(dice: Random, prompt: str) -> str:
    words = prompt.split() or ["nothing"]
    return " ".join(dice.choice(words) for _ in range(dice.randint(1, _WORDS)))
