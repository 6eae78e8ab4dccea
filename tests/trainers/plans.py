"""What attempts hold, as plain facts, and the traces made of them: what a trainer reads is held against the facts,
never against what an exporter made of them."""

import json
import random
from typing import Any

from apps.gym.traces.events import (
    EnvironmentTurn,
    ModelCall,
    Prompt,
    SessionOpened,
    ToolResult,
    TraceUnion,
    Verification,
)
from apps.gym.traces.items import message
from tests.gym.exporters.attempts import TOOLS
from tests.gym.traces import call, said, thought, with_tokens

Plan = dict[str, Any]
"""`prompt` and `turns` are messages `{role, text}`; one of the assistant has also `reasoning` and `calls`, whose
`arguments` are the text that the model wrote; one of a tool has `call`. `tokens` are `(prompt, generation)` a turn."""

WORDS = (
    "warm", "Grüße", "22 °C", "東京", "🌦️ sky", "naïve", "مرحبا", 'a "quoted" word', "back\\slash", "tab\there",
    "line\u2028separator", "</think>", "<b>&amp;</b>", "{{ braces }}", "new\nline", "'single'", "\u200bzero", "e\u0301",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    1, -7, 0.5, 1.0, 19.99, -48.8566, 2**53 + 1, -(2**63), 2**64 - 1, True, False, None, "", "Paris", "東京 🌦️",
    [], {}, [[]], [1, "one", None, 0.5],
    {"deep": {"er": [{"x": None}]}}, {"1": 1}, [{}], "null", "1",
)  # fmt: skip
INEXACT = (
    '{"share": 0.3}',
    '{"rate": 1e-12}',
    '{"deep": [{"er": 0.1234567890123}]}',
    '{"zero": -0.0}',
    '{"far": 1e300}',
)
"""Numbers that `datasets` loads as others."""
MALFORMED = ('{"city": "Par', "[1, 2]", "7", '{"a": NaN}', "not JSON at all", "null")
ODD_NAMES = ("city", "unit", "query", "top_k", "Stadt", "a b", "", "städte", "null")
VOCABULARY = 280


def draw_plans(dice: random.Random, *, tasks: int, attempts: int) -> list[list[Plan]]:
    """For every task its attempts. They share a prompt and tools, some their first turns as well."""
    return [_group(dice, attempts) for _ in range(tasks)]


def _group(dice: random.Random, attempts: int) -> list[Plan]:
    opening = [{"role": "system", "text": _text(dice)}] if dice.random() < 0.7 else []
    prompt = [*opening, {"role": "user", "text": _text(dice)}]
    tools = TOOLS[: dice.choice([0, 1, 2, 2])]
    shared = _exchange(dice, "shared") if dice.random() < 0.6 else []
    return [
        {
            "prompt": prompt,
            "tools": tools,
            "turns": [*_renamed(shared, number), *_turns(dice, number)],
            "reward": 1.0 if number == 0 else [0.0, 0.25, 0.5][number % 3],
        }
        for number in range(attempts)
    ]


def _turns(dice: random.Random, attempt: int) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = []
    for number in range(dice.randrange(3)):
        turns += _exchange(dice, f"{attempt}_{number}")
    return [*turns, {"role": "assistant", "reasoning": _maybe(dice), "text": _text(dice), "calls": []}]


def _exchange(dice: random.Random, name: str) -> list[dict[str, Any]]:
    """A turn with calls, several at once too, and their answers; or one with words, and what the user says to it."""
    if dice.random() < 0.2:
        spoken = {"role": "assistant", "reasoning": _maybe(dice), "text": _text(dice), "calls": []}
        return [spoken, {"role": "user", "text": _text(dice)}]
    calls = [
        {"id": f"call_{name}_{place}", "name": dice.choice(["get_weather", "search"]), "arguments": _arguments(dice)}
        for place in range(dice.choice([1, 1, 2, 3]))
    ]
    answers = [{"role": "tool", "call": one["id"], "name": one["name"], "text": _answer(dice)} for one in calls]
    return [
        {
            "role": "assistant",
            "reasoning": _maybe(dice),
            "text": _text(dice) if dice.random() < 0.4 else "",
            "calls": calls,
        },
        *answers,
    ]


def _renamed(turns: list[dict[str, Any]], attempt: int) -> list[dict[str, Any]]:
    """The same turns of another attempt: call ids are drawn anew in each."""
    text = json.dumps(turns).replace("call_shared_", f"call_shared{attempt}_")
    renamed: list[dict[str, Any]] = json.loads(text)
    return renamed


def _text(dice: random.Random) -> str:
    return " ".join(dice.choice(WORDS) for _ in range(dice.randint(1, 6)))


def _maybe(dice: random.Random) -> str:
    return _text(dice) if dice.random() < 0.6 else ""


def _answer(dice: random.Random) -> str:
    return dice.choice(["", _text(dice), json.dumps({"temp": 22, "sky": _text(dice)}, ensure_ascii=False)])


def _arguments(dice: random.Random) -> str:
    """As a model writes them: spaces or none, escapes or none, empty ones too."""
    given = {dice.choice(ODD_NAMES): dice.choice(VALUES) for _ in range(dice.randrange(4))}
    if not given and dice.random() < 0.3:
        return ""
    separators = dice.choice([(",", ":"), (", ", ": "), (" ,\n", " : ")])
    return json.dumps(given, ensure_ascii=dice.random() < 0.5, separators=separators)


def plan_with(arguments: str) -> Plan:
    """An attempt with one call whose arguments are that text."""
    called = {"id": "call_1", "name": "search", "arguments": arguments}
    return {
        "prompt": [{"role": "user", "text": "How warm is it?"}],
        "tools": TOOLS,
        "turns": [
            {"role": "assistant", "reasoning": "", "text": "", "calls": [called]},
            {"role": "tool", "call": "call_1", "name": "search", "text": "refused"},
            {"role": "assistant", "reasoning": "", "text": f"I could not ask: {arguments}", "calls": []},
        ],
        "reward": 1.0,
    }


def capture(dice: random.Random, plan: Plan) -> None:
    """Give the plan tokens. In most attempts each prompt goes on from what was seen; in some a template broke that."""
    seen: list[int] = []
    found = []
    for turn in plan["turns"]:
        if turn["role"] == "assistant":
            more = [dice.randrange(VOCABULARY) for _ in range(dice.randint(1, 12))]
            prompt = more if seen and dice.random() < 0.15 else [*seen, *more]
            generation = [dice.randrange(VOCABULARY) for _ in range(dice.randint(1, 12))]
            found.append((prompt, generation))
            seen = [*prompt, *generation]
    plan["tokens"] = found


def trace_of(plan: Plan) -> list[TraceUnion]:
    events: list[TraceUnion] = [
        SessionOpened(environment="weather", tools=plan["tools"]),
        Prompt(items=[message(one["role"], one["text"]) for one in plan["prompt"]]),
    ]
    for turn in plan["turns"]:
        if turn["role"] == "assistant":
            thoughts = [thought(turn["reasoning"])] if turn["reasoning"] else []
            words = [said(turn["text"])] if turn["text"] else []
            calls = [call(one["arguments"], one["id"], one["name"]) for one in turn["calls"]]
            sampling = {"temperature": 0.7}
            events.append(ModelCall(seen=0, items=[*thoughts, *words, *calls], model="policy-1", sampling=sampling))
        elif turn["role"] == "tool":
            events.append(ToolResult(call_id=turn["call"], name=turn["name"], output=turn["text"]))
        else:
            events.append(EnvironmentTurn(items=[message("user", turn["text"])]))
    events.append(Verification(reward=plan["reward"], stop_reason="answered"))
    return with_tokens(events, *plan["tokens"]) if "tokens" in plan else events
