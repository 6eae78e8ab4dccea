"""An example of each verifier: parameters, a row and an attempt that together get full marks."""

from typing import Any

import msgspec

from apps.gym.traces.items import Item


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """An example. `output` has the items of an attempt; without them, `reply` is its only message."""

    parameters: dict[str, Any] = {}
    row: dict[str, Any] = {}
    reply: str = ""
    output: list[Item] = []


def _call(name: str, arguments: str, call_id: str = "call_1") -> Item:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def _output(text: str, call_id: str = "call_1") -> Item:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


_WEATHER = {"name": "get_weather", "arguments": {"city": "Bern"}}
_WEATHER_CALL = _call("get_weather", '{"city": "Bern"}')
_PERSON = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}

EXAMPLES: dict[str, Example] = {
    "exact_match": Example(row={"expected_answer": "Paris"}, reply="The capital is \\boxed{Paris}."),
    "numeric": Example(parameters={"absolute_tolerance": 0.5}, row={"expected_answer": "42"}, reply="About 42.3."),
    "math": Example(row={"expected_answer": "x^2+2x+1"}, reply="So it is \\boxed{(x+1)^2}."),
    "multiple_choice": Example(
        row={"options": [{"A": "Mercury"}, {"B": "Venus"}], "expected_answer": "B"}, reply="The hotter one: \\boxed{B}"
    ),
    "string_match": Example(row={"expected_answer": "New York"}, reply="Final answer: NY"),
    "contains": Example(
        parameters={"wanted": ["Bern", "snow"], "forbidden": ["I cannot"]}, reply="In Bern there is snow today."
    ),
    "regex": Example(parameters={"wanted": ["^Answer: .+$"]}, reply="It snows.\nAnswer: snow"),
    "json_schema": Example(parameters={"schema": _PERSON}, reply='```json\n{"name": "Ada"}\n```'),
    "tool_calls": Example(row={"expected_answers": [_WEATHER]}, output=[_WEATHER_CALL, _output('{"weather": "snow"}')]),
    "call_argument": Example(
        parameters={"tool": "submit", "argument": "values"},
        row={"expected_answer": [3, 4]},
        output=[_call("submit", '{"values": [3, 4]}')],
    ),
    "tool_call_form": Example(row={"expected_call": _WEATHER}, output=[_WEATHER_CALL]),
    "final_state": Example(
        parameters={"tool": "get_count"},
        row={"expected_state": {"count": 3}},
        output=[_call("get_count", "{}"), _output('{"count": 3}')],
    ),
    "instructions": Example(
        parameters={
            "instructions": [
                {"id": "length_constraints:number_words", "arguments": {"num_words": 8, "relation": "at most"}},
                {"id": "punctuation:no_comma"},
            ]
        },
        reply="It snows in Bern.",
    ),
    "efficiency": Example(
        parameters={"steps": 2, "tool_calls": 1},
        output=[_WEATHER_CALL, _output("{}"), {"role": "assistant", "content": "Snow."}],
    ),
    "llm_judge": Example(parameters={"rubric": "Is the answer polite?"}, reply="Gladly: it is 42."),
    "reward_model": Example(parameters={"endpoint": "classify", "index": 1}, reply="Gladly: it is 42."),
    "hybrid": Example(
        parameters={
            "components": [
                {"name": "right", "weight": 3, "verifier": {"type": "numeric"}},
                {"name": "boxed", "verifier": {"type": "regex", "wanted": [r"\\boxed\{.+\}"]}},
            ]
        },
        row={"expected_answer": "42"},
        reply="6 × 7 is \\boxed{42}.",
    ),
}
