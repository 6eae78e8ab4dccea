"""A built-in, rule-based policy model that needs neither network nor LLM.

It solves arithmetic (with the calculator tool, if available) and a few kinds of small questions. A configurable share
of attempts contains a realistic mistake, so that a new installation has groups with successes and failures. The same
seed and prompt always give the same attempt.
"""

import hashlib
import json
import random
import re
from collections.abc import Sequence
from typing import Any

import msgspec
import orjson

from apps.gym.image_data import DATA_URL, image_addresses
from apps.gym.traces.chat_turns import call_item, message_item
from apps.gym.traces.items import Item, Tool, item_type, output_text, text_of
from apps.gym.wires.protocol import Ask, Reply, Weights
from apps.gym.wires.scripted_answers import (
    answer_about_images,
    answer_question,
    combine,
    compute,
    find_expressions,
    number_text,
)
from apps.gym.wires.scripted_judge import is_asked_to_judge, judge_by_rule
from apps.gym.wires.scripted_user import is_asked_to_play_user, play_user_by_rule

MODEL_NAME = "scripted, no LLM"

_CHARACTERS_PER_TOKEN = 4
_MAX_TRIES_PER_CALL = 2

MISTAKES_WITH_TOOL = ("wrong_operand", "no_tool", "malformed_arguments", "no_box")
MISTAKES_WITHOUT_TOOL = ("wrong_answer", "no_box")


class ScriptedPolicy:
    """A rule-based policy client.

    `mistake_rate` is the share of attempts, from 0.0 to 1.0, that contain one mistake.
    """

    def __init__(self, *, mistake_rate: float = 0.0, weights: Weights | None = None) -> None:
        self.mistake_rate = mistake_rate
        self.weights = weights or Weights()

    async def ask(self, ask: Ask) -> Reply:
        view = _Conversation.of(ask)
        if is_asked_to_judge(ask):
            turn = _Turn("I compare what I was given, by rule.", [_message(view, judge_by_rule(ask))])
        elif is_asked_to_play_user(ask):
            call, text = play_user_by_rule(ask)
            turn = _Turn("I follow my scenario, by rule.", [call or _message(view, text)])
        else:
            turn = _Attempt(view, mistake_rate=self.mistake_rate).turn()
        thought = f"{turn.thought} (scripted, no LLM)"
        reasoning = {
            "type": "reasoning",
            "id": f"rs_{view.digest}_{view.turn}",
            "summary": [{"type": "summary_text", "text": thought}],
        }
        items = [reasoning, *turn.items]
        return Reply(
            items=items,
            finish_reason="tool_calls" if turn.items[-1]["type"] == "function_call" else "stop",
            usage={
                "input_tokens": _tokens(ask.items) + (_tokens(ask.tools) if ask.tools else 0),
                "output_tokens": _tokens(items),
                "reasoning_tokens": _tokens(thought),
                "cached_tokens": 0,
            },
            model=MODEL_NAME,
            response_id=f"resp_{view.digest}_{view.turn}",
            version=self.weights.version,
        )


class _Turn(msgspec.Struct):
    thought: str
    items: list[Item]


class _Conversation(msgspec.Struct):
    """A parsed request: the last user message as prompt, the items after it, and the available function tools.

    `digest` is derived from seed and prompt and makes ids and random choices reproducible. `turn` counts the model's
    earlier replies to the prompt.
    """

    prompt: str
    images: list[str]
    later_items: list[Item]
    tools: list[Tool]
    parallel: bool
    digest: str
    turn: int

    @classmethod
    def of(cls, ask: Ask) -> "_Conversation":
        users = [at for at, item in enumerate(ask.items) if item_type(item) == "message" and item.get("role") == "user"]
        start = users[-1] if users else len(ask.items)
        prompt = text_of(ask.items[start]) if users else ""
        later_items = ask.items[start + 1 :]
        seed = ask.sampling.get("seed", 0)
        choice = ask.sampling.get("tool_choice")
        return cls(
            prompt=prompt,
            images=[address for item in ask.items for address in image_addresses(item)],
            later_items=later_items,
            tools=[] if choice == "none" else [tool for tool in ask.tools if tool.get("type") == "function"],
            parallel=ask.sampling.get("parallel_tool_calls") is not False,
            digest=hashlib.sha256(f"{seed}\n{prompt}".encode()).hexdigest()[:16],
            turn=sum(item_type(item) == "reasoning" for item in later_items),
        )

    def calls_of(self, part: int) -> list[str]:
        """Return the ids of the calls made so far for one part of the prompt. Ids contain the part."""
        start = f"call_{self.digest}_{part}_"
        ids = (str(item.get("call_id", "")) for item in self.later_items if item.get("type") == "function_call")
        return [call_id for call_id in ids if call_id.startswith(start)]

    def output_of(self, call_id: str) -> str:
        found = (item for item in self.later_items if item.get("type") == "function_call_output")
        return next((output_text(item.get("output", "")) for item in found if item.get("call_id") == call_id), "")


class _Attempt:
    """One attempt, recomputed at each turn from the seed, the prompt and earlier steps."""

    def __init__(self, view: _Conversation, *, mistake_rate: float) -> None:
        self.view = view
        self.rng = random.Random(view.digest)
        self.answer = answer_question(view.prompt) or answer_about_images(view.prompt, view.images)
        self.expressions = find_expressions(view.prompt) if self.answer is None else []
        self.calculator = _find_calculator(view.tools) if self.expressions else None
        has_mistake = self.rng.random() < mistake_rate
        kinds = MISTAKES_WITH_TOOL if self.calculator else MISTAKES_WITHOUT_TOOL
        kind = self.rng.choice(kinds)
        self.mistake = kind if has_mistake else ""
        self.stops_after_error = self.rng.random() < 0.5

    def turn(self) -> _Turn:
        if self.calculator and self.mistake != "no_tool":
            return self._calculate(self.calculator)
        if self.expressions:
            values = [compute(expression) or "0" for expression in self.expressions]
            return self._answer_with(combine(values, self.view.prompt), "I can work this out in my head.")
        if self.answer is not None:
            return self._answer_with(self.answer, "I know this one.")
        if self.view.tools:
            return self._call_any_tool()
        text = "I am a script without a language model, and this question is not one that I have a rule for."
        return _Turn("No rule of mine fits this question.", [self._message(text)])

    # ── arithmetic with a calculator ──

    def _calculate(self, calculator: Tool) -> _Turn:
        values: list[str] = []
        new_calls: list[Item] = []
        failed = False
        for part, expression in enumerate(self.expressions):
            calls = self.view.calls_of(part)
            value = _read_number(self.view.output_of(calls[-1])) if calls else None
            if value is None and len(calls) < _MAX_TRIES_PER_CALL:
                failed = failed or bool(calls)
                new_calls.append(self._call(calculator, part, len(calls), expression))
            values.append(value or compute(expression) or "0")
        if failed and self.stops_after_error:
            return _Turn(
                "The calculator refused my call.",
                [self._message("The calculator did not accept my request, so I cannot give you a result. I am sorry.")],
            )
        if new_calls:
            thought = "That call failed; I will write it again." if failed else self._intention()
            return _Turn(thought, new_calls if self.view.parallel else new_calls[:1])
        return self._answer_with(combine(values, self.view.prompt), "The calculator has answered.")

    def _intention(self) -> str:
        if len(self.expressions) == 1:
            return f"I need the value of {self.expressions[0]}; the calculator gives it."
        return f"There are {len(self.expressions)} values to compute; the calculator gives them."

    def _call(self, calculator: Tool, part: int, tries: int, expression: str) -> Item:
        if self.mistake == "wrong_operand" and part == 0:
            expression = self._misread(expression)
        arguments = orjson.dumps({"expression": expression}).decode()
        if self.mistake == "malformed_arguments" and part == 0 and tries == 0:
            arguments = arguments[:-2]
        name = f"{self.view.digest}_{part}"
        return call_item(name, tries, call_id=None, tool=calculator["name"], arguments=arguments)

    def _misread(self, expression: str) -> str:
        """Return the expression with one number slightly changed, as if miscopied, so that its value differs."""
        numbers = list(re.finditer(r"\d+", expression))
        right = compute(expression)
        self.rng.shuffle(numbers)
        for number in numbers:
            for step in (1, 10, 2):
                other = f"{expression[: number.start()]}{int(number[0]) + step}{expression[number.end() :]}"
                if compute(other) not in (None, right):
                    return other
        return f"{expression} + 1"

    # ── answers ──

    def _answer_with(self, answer: str, thought: str) -> _Turn:
        # With a calculator, the mistake was made in the call; its result is used unchanged.
        if self.mistake in ("wrong_answer", "no_tool"):
            answer = self._falsify(answer)
        if self.mistake == "no_box":
            # Some verifiers read the last line, so it must not contain the answer.
            text = f"The answer is {answer}.\n\nThis can also be shown step by step."
        else:
            opening = self.rng.choice(["The answer is", "This comes to", "So the result is"])
            text = f"{opening} {answer}.\n\n\\boxed{{{answer}}}"
        return _Turn(thought, [self._message(text)])

    def _falsify(self, answer: str) -> str:
        if re.fullmatch(r"-?\d+(?:\.\d+)?", answer):
            return number_text(float(answer) + self.rng.choice([-10, -2, -1, 1, 2, 10]))
        if len(answer) < 2 or self.rng.random() < 0.5:
            return "unknown"
        at = self.rng.randrange(len(answer) - 1)
        swapped = answer[:at] + answer[at + 1] + answer[at] + answer[at + 2 :]
        return swapped if swapped != answer else answer[:-1]

    def _message(self, text: str) -> Item:
        return _message(self.view, text)

    # ── any other tool ──

    def _call_any_tool(self) -> _Turn:
        """Call the tool most relevant to the prompt once, then answer with its output."""
        calls = self.view.calls_of(0)
        if calls:
            return self._answer_with(self.view.output_of(calls[-1]) or "nothing", "The tool has answered.")
        tool = _most_relevant(self.view.tools, self.view.prompt)
        arguments = orjson.dumps(_guess_arguments(tool, self.view.prompt)).decode()
        call = call_item(f"{self.view.digest}_0", 0, call_id=None, tool=tool["name"], arguments=arguments)
        return _Turn(f"The tool {tool['name']} may know.", [call])


def _message(view: _Conversation, text: str) -> Item:
    part = {"type": "output_text", "text": text, "annotations": []}
    return message_item(f"{view.digest}_{view.turn}", [part])


def _find_calculator(tools: Sequence[Tool]) -> Tool | None:
    for tool in tools:
        properties = (tool.get("parameters") or {}).get("properties") or {}
        if "expression" in properties and (tool["name"] == "calculator" or list(properties) == ["expression"]):
            return tool
    return None


def _read_number(output: str) -> str | None:
    """Return the number in a calculator's output (plain text or JSON), or None for an error."""
    try:
        given: Any = json.loads(output)
    except ValueError:
        given = output
    if isinstance(given, dict):
        if "error" in given or "detail" in given:
            return None
        named = [given[key] for key in ("result", "value", "answer", "output") if key in given]
        given = (named or list(given.values()) or [None])[0]
    if isinstance(given, bool):
        return None
    if isinstance(given, int | float):
        return number_text(given)
    return given.strip() if isinstance(given, str) and re.fullmatch(r"\s*-?\d+(?:\.\d+)?\s*", given) else None


def _most_relevant(tools: Sequence[Tool], prompt: str) -> Tool:
    words = set(re.findall(r"[a-z]{3,}", prompt.lower()))

    def shared(tool: Tool) -> int:
        own = re.findall(r"[a-z]{3,}", f"{tool['name']} {tool.get('description') or ''}".lower().replace("_", " "))
        return len(words & set(own))

    return max(tools, key=shared)


def _guess_arguments(tool: Tool, prompt: str) -> dict[str, Any]:
    parameters = tool.get("parameters") or {}
    properties: dict[str, Any] = parameters.get("properties") or {}
    required = parameters.get("required") or list(properties)
    numbers = iter(re.findall(r"-?\d+(?:\.\d+)?", prompt))
    return {name: _guess_value(properties.get(name) or {}, prompt, next(numbers, "1")) for name in required}


def _guess_value(schema: dict[str, Any], prompt: str, number: str) -> Any:
    if schema.get("enum"):
        return next((option for option in schema["enum"] if str(option).lower() in prompt.lower()), schema["enum"][0])
    kind = schema.get("type")
    if kind == "array":
        return [_guess_value(schema.get("items") or {}, prompt, number)]
    plain = {"integer": int(float(number)), "number": float(number), "boolean": True, "object": {}}
    return plain.get(kind, _subject(prompt)) if isinstance(kind, str) else _subject(prompt)


def _subject(prompt: str) -> str:
    """Return the likely subject of a prompt.

    This is quoted text, else the words after the last preposition, else the last word.
    """
    quoted = re.search(r"[\"“']([^\"”']{1,80})[\"”'](?!\w)", prompt)
    if quoted:
        return quoted[1]
    words = re.sub(r"[?.!\s]+$", "", prompt)
    tail = re.search(r"\b(?:in|of|for|at|about)\s+(?:the\s+)?((?:[\w'-]+\s?){1,4})$", words)
    if tail:
        return tail[1].strip()
    return words.split()[-1] if words.split() else ""


def _tokens(value: object) -> int:
    """Return an estimate of the number of tokens in the serialized value. Images do not count."""
    return len(DATA_URL.sub("", orjson.dumps(value).decode())) // _CHARACTERS_PER_TOKEN + 1
