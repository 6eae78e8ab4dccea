"""The interface of environments, which every adapter implements, in process or over HTTP."""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal, Protocol

import msgspec

from apps.gym.image_data import ImageRefused, read_data_url
from apps.gym.redaction.shortening import cut
from apps.gym.rewards import Reward
from apps.gym.traces.events import JudgeCall
from apps.gym.traces.items import Item, TaskRow, Tool, output_text, pair_results, parse_json, read_json


class ToolOutput(msgspec.Struct, frozen=True, kw_only=True):
    """The output of a tool call. `error` is a short code if the call failed, for example "http_422".

    For an output with images, `parts` has all its texts and images, as content parts of the Responses API.
    """

    text: str
    parts: list[dict[str, Any]] = []
    error: str = ""

    @property
    def output(self) -> str | list[dict[str, Any]]:
        """Return the value of `output` in a `function_call_output` item."""
        return self.parts or self.text


def output_with_images(parts: list[dict[str, Any]], error: str = "") -> ToolOutput:
    """Return an output with images, or a failed call if one of them is invalid."""
    for part in parts:
        if part["type"] == "input_image":
            try:
                read_data_url(part["image_url"])
            except ImageRefused as refused:
                return failed_call(f"the tool returned an image that {refused}", "bad_image")
    return ToolOutput(text=output_text(parts), parts=parts, error=error)


def read_parts(text: str) -> list[dict[str, Any]]:
    """Return the content parts if a tool's text is a JSON list of texts and images, else an empty list."""
    given = read_json(text) if text[:1] == "[" and '"input_image"' in text else None
    if not isinstance(given, list) or not all(isinstance(part, dict) for part in given):
        return []
    content_fields = {"input_text": "text", "input_image": "image_url"}
    is_valid = all(isinstance(part.get(content_fields.get(str(part.get("type")), "")), str) for part in given)
    return given if is_valid else []


def failed_call(message: str, error: str) -> ToolOutput:
    """Return the output of a failed tool call: a JSON object with the error message, spaced as in NeMo Gym's agents."""
    return ToolOutput(text=json.dumps({"error": message}, ensure_ascii=False), error=error)


def load_arguments(given: str) -> Any:
    """Return the value of a JSON text. Raises ValueError with the message that NeMo Gym's agents show."""
    try:
        return json.loads(given)
    except (json.JSONDecodeError, RecursionError) as problem:
        raise ValueError(repr(problem)) from None


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one reply: outputs of calls with call ids, messages, and whether the attempt ended."""

    outputs: Sequence[tuple[str, ToolOutput]] = ()
    items: list[Item] = []
    done: bool = False

    def outputs_of(self, calls: list[Item]) -> list[ToolOutput | None]:
        """Return the output of each call. Calls may have one id."""
        ids = [(str(call.get("call_id", "")), "") for call in calls]
        paired = pair_results(ids, [(call_id, "") for call_id, _ in self.outputs])
        found = {call: self.outputs[number][1] for number, call in paired.items()}
        return [found.get(place) for place in range(len(calls))]


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a health check. `latency` is in seconds. `found` has facts about the server to store, as JSON."""

    healthy: bool
    message: str
    latency: float = 0.0
    tools: list[Tool] = []
    found: dict[str, Any] = {}


class Session:
    """One attempt's state. Every method may raise EnvironmentFault or TimedOut; `verify` also VerifierError.

    By default a session has no tools and no verifier, and ends with the first reply without tool calls.
    """

    opening: Sequence[Item] = ()
    """The environment's first messages, placed after the prompt of the task."""

    async def list_tools(self) -> list[Tool]:
        """Return the current tools of this session. The list is empty if only the task row declares tools.

        Called before each model call, because an environment may add, change or remove tools.
        """
        return []

    def read_arguments(self, given: object) -> Any:
        """Return the arguments of a call for `call_tool`, from a JSON text or a dict.

        An empty string, which some servers send, and values of other types mean that there are no arguments. Raises
        ValueError for a text that is not a JSON object.
        """
        if isinstance(given, dict):
            return given
        try:
            parsed = parse_json(given) if isinstance(given, str) and given.strip() else {}
        except json.JSONDecodeError:
            load_arguments(str(given))  # raises the error to show
            raise  # for NaN and lone surrogates, which `load_arguments` accepts
        if not isinstance(parsed, dict):
            raise ValueError(f"a JSON object is needed, not {type(parsed).__name__}")
        return parsed

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> ToolOutput:
        """Call a tool.

        If the tool fails (4xx, 5xx, time-out) or does not exist, return an output with `error`: the rollout continues.
        """
        return failed_call(f"there is no tool named {cut(name, 100)!r}", "unknown_tool")

    async def respond(self, items: list[Item]) -> list[Item] | None:
        """Return the environment's messages after a reply without tool calls, or None to end the attempt."""
        return None

    async def verify(self, response: dict[str, Any]) -> Reward:
        """Score the attempt. `response` is a Responses object whose `output` has every item after the prompt."""
        return Reward(value=None, explanation="this environment has no verifier")

    @property
    def judge_calls(self) -> list[JudgeCall]:
        """Return the calls of judge models and of a simulated user so far, in order.

        Readable at any time, so that their tokens are counted even if the verification fails.
        """
        return []

    @property
    def cookies(self) -> dict[str, str]:
        """Return the session's cookies, which an agent server sends with its own calls to the resource server."""
        return {}

    def take_cookies(self, cookies: dict[str, str]) -> None:
        """Replace the session's cookies with the ones that an agent server returned."""

    async def close(self) -> None:
        return None


class SteppedSession(Session, ABC):
    """A session in which every reply, including its tool calls, is one step of the environment, as in Gymnasium."""

    @abstractmethod
    async def step(self, response: dict[str, Any]) -> Step:
        """Take one step. `response` is a Responses object whose `output` has only the latest reply."""


ReverifyMode = Literal["stateless", "unsupported", "unknown"]
"""Whether responses can be verified in a new session, as NeMo Gym's servers report it: `stateless` if they can."""


class ResourceServer(Protocol):
    """Opens sessions. One object serves any number of concurrent rollouts."""

    name: str

    async def seed_session(self, row: TaskRow, *, seed: int) -> Session:
        """Open the session of one attempt. Raises EnvironmentFault or TimedOut."""
        ...

    async def probe(self) -> Probe:
        """Check the health of the server."""
        ...

    async def reverify_mode(self) -> ReverifyMode:
        return "unknown"
