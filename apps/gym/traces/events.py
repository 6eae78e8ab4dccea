"""Trace events: what a rollout leaves behind, in order, as one tagged union.

Items are stored once. The conversation of a rollout is the concatenation of `items` over its events; a model call
stores only how many items it saw (`seen`), never the conversation again.
"""

from typing import Any

import msgspec

from apps.gym.traces.items import Item, TokenUsage, Tool


class Event(msgspec.Struct, omit_defaults=True, kw_only=True):
    """`at` and `duration` are seconds; `at` counts from the start of the attempt."""

    at: float = 0.0
    duration: float = 0.0

    def new_items(self) -> list[Item]:
        """The items that this event adds to the conversation."""
        return []


class SessionOpened(Event, tag="session"):
    """The resource server was seeded and named its tools.

    `original` is what the file of an imported attempt says beyond the events, see apps.gym.rollout_files.originals.
    """

    environment: str
    tools: list[Tool] = []
    seed: int = 0
    original: dict[str, Any] = {}


class Prompt(Event, tag="prompt"):
    """What the attempt starts from: system prompt, few-shot examples, the task's input."""

    items: list[Item]

    def new_items(self) -> list[Item]:
        return self.items


class ModelCall(Event, tag="model_call"):
    """One turn: the reply to the first `seen` items of the conversation.

    `tokens` are its token ids and logprobs as apps.gym.traces.tokens packs them. They are stored beside the payload,
    never in it. `tokens_note` says why they are missing where they were asked for. `server_finish_reason` is the
    endpoint's own word for the end of its reply, where that is none of its wire's.
    """

    seen: int
    items: list[Item]
    model: str = ""
    version: str = ""
    response_id: str = ""
    finish_reason: str = ""
    server_finish_reason: str = ""
    usage: TokenUsage = {}
    sampling: dict[str, Any] = {}
    retries: int = 0
    tokens_note: str = ""
    tokens: bytes | None = None

    def new_items(self) -> list[Item]:
        return self.items


class ToolResult(Event, tag="tool_result"):
    """A tool's output as the model sees it; `error` names what went wrong, and the rollout went on."""

    call_id: str
    name: str
    output: str
    error: str = ""

    def new_items(self) -> list[Item]:
        return [{"type": "function_call_output", "call_id": self.call_id, "output": self.output}]


class EnvironmentTurn(Event, tag="environment_turn"):
    """The environment answered a reply with observations."""

    items: list[Item]

    def new_items(self) -> list[Item]:
        return self.items


class Verification(Event, tag="verification"):
    """The verifier's judgement. `reward` is any finite float; None only where verification is `none`.

    `reverification` is the number of the one that verified again what stands before it in the trace; 0 in the first.
    """

    reward: float | None
    components: dict[str, float] = {}
    explanation: str = ""
    details: dict[str, Any] = {}
    stop_reason: str = ""
    reverification: int = 0


class JudgeCall(Event, tag="judge_call"):
    """One question to a judge model and its answer: no part of the conversation, and no turn of the policy.

    `prompt` is what it was asked. `tries` counts from 1: a further one continues the conversation with the judge, and
    its `prompt` holds only what was added. `verdict` is what was read in `items`; `problem` says why nothing was.
    """

    judge: str
    question: str
    prompt: list[Item]
    items: list[Item] = []
    tries: int = 1
    model: str = ""
    version: str = ""
    finish_reason: str = ""
    usage: TokenUsage = {}
    sampling: dict[str, Any] = {}
    retries: int = 0
    verdict: dict[str, Any] = {}
    problem: str = ""


class ErrorRaised(Event, tag="error"):
    """What ended the attempt without a reward."""

    kind: str
    message: str


TraceUnion = SessionOpened | Prompt | ModelCall | ToolResult | EnvironmentTurn | JudgeCall | Verification | ErrorRaised

_decoder = msgspec.json.Decoder(TraceUnion)
_encoder = msgspec.json.Encoder()


def encode_event(event: TraceUnion) -> str:
    """The payload: everything but the packed tokens, which go beside it."""
    if isinstance(event, ModelCall) and event.tokens is not None:
        event = msgspec.structs.replace(event, tokens=None)
    return _encoder.encode(event).decode()


def decode_event(payload: str | bytes, tokens: bytes | memoryview | None = None) -> TraceUnion:
    event: TraceUnion = _decoder.decode(payload)
    if tokens is not None and isinstance(event, ModelCall):
        event.tokens = bytes(tokens)
    return event


def event_tokens(event: TraceUnion) -> bytes | None:
    return event.tokens if isinstance(event, ModelCall) else None


def event_kind(event: TraceUnion) -> str:
    return str(event.__struct_config__.tag)


def conversation(events: list[TraceUnion]) -> list[Item]:
    """The whole conversation in order: prompt first, then every item the attempt added."""
    return [item for event in events for item in event.new_items()]
