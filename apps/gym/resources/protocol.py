"""The environment protocol: every adapter, in-process or over HTTP, speaks this."""

from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from apps.gym.rewards import Reward
from apps.gym.traces.events import JudgeCall
from apps.gym.traces.items import Item, TaskRow, Tool


class ToolOutput(msgspec.Struct, frozen=True, kw_only=True):
    """The text the model gets back; `error` is a short name of what went wrong ("http_422"), or empty."""

    text: str
    error: str = ""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one reply: the outputs of its calls by call id, observations, and whether that was the end."""

    outputs: dict[str, ToolOutput] = {}
    items: list[Item] = []
    done: bool = False


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """What a health check saw; `latency` in seconds. `found` is what later attempts need not ask again."""

    healthy: bool
    message: str
    latency: float = 0.0
    tools: list[Tool] = []
    found: dict[str, Any] = {}


class Session(Protocol):
    """One attempt's state. Every method may raise EnvironmentFault or TimedOut; `verify` also VerifierError."""

    async def list_tools(self) -> list[Tool]:
        """The tools of this session; empty when the task row alone declares them."""
        ...

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> ToolOutput:
        """A tool's own failure (4xx, 5xx, time-out, unknown name) is an output with `error`, not an exception."""
        ...

    async def respond(self, items: list[Item]) -> list[Item] | None:
        """The environment's turn after a reply without tool calls: observations, or None when it is done."""
        ...

    async def verify(self, response: dict[str, Any]) -> Reward:
        """Score the attempt; `response` is a Responses object whose `output` holds every item after the prompt."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class Stepped(Protocol):
    """A session where every reply is one step of the environment, its tool calls included, as in Gymnasium."""

    @property
    def opening(self) -> list[Item]:
        """What the environment shows before the first reply; it stands after the prompt."""
        ...

    async def step(self, response: dict[str, Any]) -> Step:
        """`response` is a Responses object of the newest reply alone."""
        ...


@runtime_checkable
class AsksJudge(Protocol):
    """A session whose verifier asks a judge model. What it asked is read while it verifies too: tokens that were spent
    are told, however the verification ends."""

    @property
    def judge_calls(self) -> list[JudgeCall]: ...


class ResourceServer(Protocol):
    """Opens sessions. One object serves any number of rollouts at once."""

    name: str

    async def seed_session(self, row: TaskRow, *, seed: int) -> Session: ...

    async def probe(self) -> Probe: ...


ReverifyMode = Literal["stateless", "unsupported", "unknown"]
"""Whether a response can be verified without the session that it came from, as NeMo Gym's servers name it."""


@runtime_checkable
class SaysReverifyMode(Protocol):
    """A resource server that knows whether it can verify again. Of others it is `unknown`."""

    async def reverify_mode(self) -> ReverifyMode: ...
