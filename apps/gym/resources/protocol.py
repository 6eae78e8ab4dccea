"""The environment protocol, which every adapter implements, in process or over HTTP."""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal, Protocol

import msgspec
import orjson

from apps.gym.image_data import ImageRefused, read_data_url
from apps.gym.redaction.shortening import cut
from apps.gym.rewards import Reward
from apps.gym.traces.events import JudgeCall
from apps.gym.traces.items import Item, TaskRow, Tool, dump_json, output_text, read_json


class ToolOutput(msgspec.Struct, frozen=True, kw_only=True):
    """The text returned to the model. `error` is a short code ("http_422"), or empty.

    `parts` are the texts and images of an output with images, as parts of the Responses API.
    """

    text: str
    parts: list[dict[str, Any]] = []
    error: str = ""

    @property
    def output(self) -> str | list[dict[str, Any]]:
        """Return the output of a `function_call_output` item."""
        return self.parts or self.text


def shown_output(parts: list[dict[str, Any]], error: str = "") -> ToolOutput:
    """Return an output with images, or a failure if one of them is not an accepted image."""
    for part in parts:
        if part["type"] == "input_image":
            try:
                read_data_url(part["image_url"])
            except ImageRefused as refused:
                return failed_call(f"the tool returned an image that {refused}", "bad_image")
    return ToolOutput(text=output_text(parts), parts=parts, error=error)


def read_parts(text: str) -> list[dict[str, Any]]:
    """Return the parts in a tool's JSON text if it is a list of texts and images, else an empty list."""
    given = read_json(text) if text[:1] == "[" and '"input_image"' in text else None
    if not isinstance(given, list) or not all(isinstance(part, dict) for part in given):
        return []
    fields = {"input_text": "text", "input_image": "image_url"}
    is_known = all(isinstance(part.get(fields.get(str(part.get("type")), "")), str) for part in given)
    return given if is_known else []


def failed_call(message: str, error: str) -> ToolOutput:
    """Return a tool's failure as the JSON object that the model reads."""
    return ToolOutput(text=dump_json({"error": message}), error=error)


def load_arguments(given: str) -> Any:
    """Return the JSON value. Raises ValueError."""
    try:
        return json.loads(given)
    except (json.JSONDecodeError, RecursionError) as problem:
        raise ValueError(repr(problem)) from None


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one reply: the outputs of its calls by call id, observations, and whether the attempt ended."""

    outputs: dict[str, ToolOutput] = {}
    items: list[Item] = []
    done: bool = False


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a health check. `latency` is in seconds. `found` is cached facts about the server."""

    healthy: bool
    message: str
    latency: float = 0.0
    tools: list[Tool] = []
    found: dict[str, Any] = {}


class Session:
    """One attempt's state. Every method may raise EnvironmentFault or TimedOut; `verify` also VerifierError.

    By default a session has no tools, ends with the first reply without calls, and has no verdict.
    """

    opening: Sequence[Item] = ()
    """The environment's first messages, placed after the prompt of the task."""

    async def list_tools(self) -> list[Tool]:
        """Return the tools of this session, or none if only the task row declares them."""
        return []

    def read_arguments(self, given: object) -> Any:
        """Return the arguments of a call as `call_tool` takes them.

        An empty string means none, as some servers send it. Raises ValueError, for malformed JSON with the text that
        NeMo Gym's agents show.
        """
        if isinstance(given, dict):
            return given
        try:
            parsed = orjson.loads(given) if isinstance(given, str) and given.strip() else {}
        except orjson.JSONDecodeError:
            load_arguments(str(given))
            raise  # NaN and lone surrogates, which only Python's parser accepts
        if not isinstance(parsed, dict):
            raise ValueError(f"a JSON object is needed, not {type(parsed).__name__}")
        return parsed

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> ToolOutput:
        """Call a tool.

        Its own failure (4xx, 5xx, time-out, unknown name) is an output with `error`, not an exception.
        """
        return failed_call(f"there is no tool named {cut(name, 100)!r}", "unknown_tool")

    async def respond(self, items: list[Item]) -> list[Item] | None:
        """Return the environment's observations after a reply without tool calls, or None when it is done."""
        return None

    async def verify(self, response: dict[str, Any]) -> Reward:
        """Score the attempt. `response` is a Responses object whose `output` has every item after the prompt."""
        return Reward(value=None, explanation="this environment has no verifier")

    @property
    def judge_calls(self) -> list[JudgeCall]:
        """Return the calls of a simulated user, and of a verifier that asks a judge model, in order.

        Available at any time, so that tokens are counted even if the verification fails.
        """
        return []

    @property
    def cookies(self) -> dict[str, str]:
        """Return the cookies of the session at its server, which an agent server sends with its own calls."""
        return {}

    def take_cookies(self, cookies: dict[str, str]) -> None:
        """Replace the session's cookies with newer ones from an agent server."""

    async def close(self) -> None:
        return None


class SteppedSession(Session, ABC):
    """A session in which every reply, including its tool calls, is one step of the environment, as in Gymnasium."""

    @abstractmethod
    async def step(self, response: dict[str, Any]) -> Step:
        """Take one step. `response` is a Responses object of the newest reply alone."""


ReverifyMode = Literal["stateless", "unsupported", "unknown"]
"""Whether a response can be verified without its session, as NeMo Gym's servers report it."""


class ResourceServer(Protocol):
    """Opens sessions. One object serves any number of concurrent rollouts."""

    name: str

    async def seed_session(self, row: TaskRow, *, seed: int) -> Session: ...

    async def probe(self) -> Probe: ...

    async def reverify_mode(self) -> ReverifyMode:
        return "unknown"
