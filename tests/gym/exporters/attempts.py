"""Attempts, pairs and tasks for the exporters, in the shape of the samples that real trainers loaded."""

from typing import Any

from apps.gym.exporters.protocol import Attempt, Group, Preference, TaskPrompt
from apps.gym.traces.events import SessionOpened, ToolResult, TraceUnion
from apps.gym.traces.items import message
from tests.gym.traces import call, row, said, thought, trace, turn

SYSTEM = "You are a helpful assistant."
USER = "How warm is it in Paris right now, in celsius?"
WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}
SEARCH: dict[str, Any] = {
    "type": "object",
    "properties": {"query": {"type": "string"}, "top_k": {"type": "integer"}},
    "required": ["query", "top_k"],
    "additionalProperties": False,
}
TOOLS = [
    {
        "type": "function",
        "name": "get_weather",
        "description": "Current weather",
        "strict": True,
        "parameters": WEATHER,
    },
    {"type": "function", "name": "search", "description": "Web search", "strict": True, "parameters": SEARCH},
]
NESTED = [
    {"type": "function", "function": {"name": "get_weather", "description": "Current weather", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "search", "description": "Web search", "parameters": SEARCH}},
]
ARGUMENTS = '{"city": "Paris", "unit": "celsius"}'
SEEN = '{"temp": 22, "sky": "sunny"}'
PROMPT = [message("system", SYSTEM), message("user", USER)]


def paris(
    answer: str = "It is 22 °C and sunny in Paris.",
    thoughts: tuple[str, str] = ("I should look up the weather.", "The tool says 22."),
    *,
    call_id: str = "call_1",
    seen: str = SEEN,
    arguments: str = ARGUMENTS,
) -> list[TraceUnion]:
    """Two turns: a call and an answer."""
    events = trace(
        turn(thought(thoughts[0]), call(arguments, call_id), finish_reason="tool_calls"),
        ToolResult(call_id=call_id, name="get_weather", output=seen),
        turn(thought(thoughts[1]), said(answer)),
        prompt=PROMPT,
    )
    events[0] = SessionOpened(environment="weather", tools=TOOLS)
    return events


def attempt(events: list[TraceUnion] | None = None, *, reward: float = 1.0, **fields: Any) -> Attempt:
    events = paris() if events is None else events
    return Attempt(events=events, task=row(), reward=reward, stop_reason="answered", agent="simple_agent", **fields)


def preference(chosen: list[TraceUnion] | None = None, rejected: list[TraceUnion] | None = None) -> Preference:
    worse = paris("It is 30 °C.", ("I should look up the weather.", "I will guess."), call_id="call_7")
    return Preference(
        chosen=attempt(chosen), rejected=attempt(worse if rejected is None else rejected, reward=0.25), margin=0.75
    )


def task(**fields: Any) -> TaskPrompt:
    asked = {
        "responses_create_params": {
            "input": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": USER}],
            "tools": TOOLS,
            "parallel_tool_calls": False,
        },
        "ground_truth": "22",
    }
    return TaskPrompt(
        task={**asked, **fields},
        prompted_task={**asked, **fields},
        agent="simple_agent",
        dataset="weather_agent",
        environment="weather",
        tools=TOOLS,
        split="train",
        task_id="task-0",
        group=Group(size=4, mean=0.5, std=0.5, lowest=0.0, highest=1.0, solved=2),
    )
