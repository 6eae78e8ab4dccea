"""Trace events of a rollout in order, as one tagged union.

Items are stored once. In a trace of the built-in loop, the conversation is the concatenation of `items` over the
events; a model call stores only its number of input items (`seen`). In a captured trace, the calls form a graph: each
call names its parent and stores the items that its request adds. apps.gym.traces.graph reads both.
"""

from collections.abc import Iterable
from typing import Any, Literal, get_args

import msgspec

from apps.gym.outcomes import read_mask
from apps.gym.traces.items import Item, TokenUsage, Tool, output_text

RootReason = Literal["", "first", "subagent", "compaction", "rewritten", "auxiliary"]
"""Why a captured call has no parent; empty if it has one. See apps.gym.traces.parents."""


class Event(msgspec.Struct, omit_defaults=True, kw_only=True):
    """`at` and `duration` are in seconds; `at` counts from the start of the attempt."""

    at: float = 0.0
    duration: float = 0.0

    def new_items(self) -> list[Item]:
        """Return the items that this event adds to the conversation."""
        return []


class SessionOpened(Event, tag="session"):
    """A session was opened (`seed_session`).

    `tools` are offered to the model: the tools of the task or, if it has none, of the environment.
    `original` has the fields of an imported row that no event represents, see apps.gym.rollout_files.originals.
    """

    environment: str
    tools: list[Tool] = []
    seed: int = 0
    original: dict[str, Any] = {}


class Prompt(Event, tag="prompt"):
    """The start of the attempt: system prompt, few-shot examples, task input, and the environment's first messages.

    In a line of a captured trace (apps.gym.traces.graph), it has the request of the first call. Only there, `authors`
    has the author of each item (apps.gym.traces.authorship), if a turn of the model is among them.
    """

    items: list[Item]
    authors: list[str] = []

    def new_items(self) -> list[Item]:
        return self.items


class ModelCall(Event, tag="model_call"):
    """One turn: the reply to the first `seen` items of the conversation.

    `tokens` holds token IDs and logprobs, packed by apps.gym.traces.tokens and stored next to the payload.
    `tokens_note` is the reason for missing tokens. `server_finish_reason` keeps a finish reason that the wire format
    does not define. `grammar` is True if the server may have constrained the reply by a grammar
    (apps.gym.wires.grammars). `tools_in` are the offered tools, if they differ from the tools of the parent. In a
    linear trace, the parent is the previous call. For a first call it is the session.

    Only captured calls set `call` and the fields below it; in traces of the built-in loop, `call` is 0.

    - `call`: the calls of an attempt are numbered from 1, in order of arrival.
    - `parent`: the call that this one continues, 0 for a root. `ambiguous` is True if there were other candidates.
    - `kept`, `items_in`: the request is the first `kept` items of the parent's request and reply, then `items_in`.
    - `lineage`: number of the conversation that the call continues.
    - `root_reason`: why a root has no parent. `spawned_by`: the call whose tool call started a subagent, 0 if unknown.
    - `retry_of`: the first call with the same request.
    - `declared`: the role that the client declares for the conversation; `conversation` if it only names it, empty if
      it declares nothing. What is declared takes precedence over what GymWeb infers.
    - `edited`: what the request changed in the conversation that it continues, one note for each change.
    - `previous`: the call that the client names as the previous one, 0 if it names none. It is the parent unless the
      system prompt changed.
    - `thread`: the client's thread, numbered from 1 within the attempt; 0 if the client names none. It is None in
      imported traces and in those of GymWeb 0.2.
    - `served`: False if the client did not receive the whole reply. Only imported traces set it; GymWeb lists such
      calls in `AgentEnd.unserved`.
    - `wire`, `notes`: the API that the client called, and the request fields that its translation dropped.
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
    grammar: bool = False
    tools_in: list[Tool] | None = None
    call: int = 0
    parent: int = 0
    kept: int = 0
    items_in: list[Item] = []
    lineage: int = 0
    root_reason: RootReason = ""
    spawned_by: int = 0
    retry_of: int = 0
    served: bool = True
    ambiguous: bool = False
    thread: int | None = None
    edited: list[str] = []
    declared: str = ""
    previous: int = 0
    wire: str = ""
    notes: list[str] = []

    def new_items(self) -> list[Item]:
        return self.items


class ToolResult(Event, tag="tool_result"):
    """The output of a tool as the model sees it. `error` is the code of a failed call; the rollout continues.

    An output with images is a list of `input_text` and `input_image` parts.
    """

    call_id: str
    name: str
    output: str | list[dict[str, Any]]
    error: str = ""

    @property
    def text(self) -> str:
        """Return the text of the output. Images are skipped."""
        return output_text(self.output)

    def new_items(self) -> list[Item]:
        return [{"type": "function_call_output", "call_id": self.call_id, "output": self.output}]


class EnvironmentTurn(Event, tag="environment_turn"):
    """The environment answered a reply with observations. `by_user` is True if a simulated user wrote them.

    `authors` as in a prompt.
    """

    items: list[Item]
    authors: list[str] = []
    by_user: bool = False

    def new_items(self) -> list[Item]:
        return self.items


class Verification(Event, tag="verification"):
    """The verdict of the verifier.

    `reward` is any finite float. It is None only if the environment does not verify (verification `none`).
    `reverification` numbers the reverifications of an attempt from 1; 0 is the first verification.
    """

    reward: float | None
    components: dict[str, float] = {}
    explanation: str = ""
    details: dict[str, Any] = {}
    stop_reason: str = ""
    reverification: int = 0

    @property
    def masked(self) -> str:
        """Return why the verifier masked the attempt, or an empty string. Its `reward` then does not count."""
        return read_mask(self.details)

    @property
    def counted_reward(self) -> float | None:
        """Return the reward, or None if it does not count."""
        return None if self.reward is None or self.masked else float(self.reward)


class JudgeCall(Event, tag="judge_call"):
    """One question to a judge model and its answer; not part of the conversation.

    With the role `user`, a model simulates the user. `prompt` has the simulator's instructions, the agent's message or
    the results of the simulator's tools. `items` is its reply. If the reply is a message, the next environment turn
    contains it too.

    `question` names the kind of question, for example `score` or `next message`. If the answer is invalid, the judge is
    asked again in the same conversation: `tries` numbers these calls from 1, and `prompt` has only the items that a
    call adds to the conversation. `verdict` is parsed from `items`. If that fails, `problem` is the reason.
    """

    judge: str
    question: str
    prompt: list[Item]
    items: list[Item] = []
    role: Literal["judge", "user"] = "judge"
    tries: int = 1
    model: str = ""
    version: str = ""
    finish_reason: str = ""
    usage: TokenUsage = {}
    sampling: dict[str, Any] = {}
    retries: int = 0
    verdict: dict[str, Any] = {}
    problem: str = ""


class FailedCall(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A captured call without a reply, because the model failed or did not answer in time.

    `latest` is the number of the last call that had begun when this one failed. `received` is the part of the reply
    that the client got before the stream broke.
    """

    call: int
    latest: int
    kind: str = ""
    message: str = ""
    received: str = ""


class AgentEnd(Event, tag="agent_end"):
    """An external agent ended its attempt with the command `finish` or `fail`.

    `call` is the captured call whose reply is the answer, 0 if the agent names none. `fail` sets `kind` and `message`.
    `sha256` is the digest of the command's body, which identifies a repeated command. `unserved` lists the calls whose
    reply did not reach the client completely. `failed_calls` has the last calls that the model failed to answer; None
    in traces of earlier versions.
    """

    command: Literal["finish", "fail"]
    answer: str = ""
    artifacts: dict[str, Any] = {}
    call: int = 0
    kind: str = ""
    message: str = ""
    sha256: str = ""
    unserved: list[int] = []
    failed_calls: list[FailedCall] | None = None


class ErrorRaised(Event, tag="error"):
    """The error that ended the attempt without a reward."""

    kind: str
    message: str


TraceUnion = (
    SessionOpened
    | Prompt
    | ModelCall
    | ToolResult
    | EnvironmentTurn
    | JudgeCall
    | Verification
    | AgentEnd
    | ErrorRaised
)

# Cached: a dict lookup is ten times as fast as reading `__struct_config__`.
_KINDS: dict[type, str] = {event_type: str(event_type.__struct_config__.tag) for event_type in get_args(TraceUnion)}
_decoder = msgspec.json.Decoder(TraceUnion)
_encoder = msgspec.json.Encoder()


def split_event(event: TraceUnion) -> tuple[str, str, bytes | None]:
    """Return the parts that are stored: the kind, the event as JSON without its packed tokens, and these tokens."""
    kind, tokens = _KINDS[type(event)], None
    if isinstance(event, ModelCall) and event.tokens is not None:
        tokens = event.tokens
        event = msgspec.structs.replace(event, tokens=None)
    return kind, _encoder.encode(event).decode(), tokens


def encode_event(event: TraceUnion) -> str:
    """Return the event as JSON, without the packed tokens."""
    return split_event(event)[1]


def decode_event(payload: str | bytes, tokens: bytes | memoryview | None = None) -> TraceUnion:
    """Return the event of a payload from `encode_event`, with its packed tokens. Raises msgspec.DecodeError."""
    event: TraceUnion = _decoder.decode(payload)
    if tokens is not None and isinstance(event, ModelCall):
        event.tokens = bytes(tokens)
    return event


def event_tokens(event: TraceUnion) -> bytes | None:
    """Return the packed tokens of a model call; None for other events."""
    return event.tokens if isinstance(event, ModelCall) else None


def event_kind(event: TraceUnion) -> str:
    """Return the tag of the event, for example `model_call`."""
    return _KINDS[type(event)]


def tool_offers(events: Iterable[TraceUnion]) -> list[list[Tool]]:
    """Return the offered tools of a linear trace: the session's list, then each list that replaced the one before.

    The last list has the tools of the last call.
    """
    given = (
        event.tools if isinstance(event, SessionOpened) else event.tools_in if isinstance(event, ModelCall) else None
        for event in events
    )
    return [tools for tools in given if tools is not None]


def conversation(events: list[TraceUnion]) -> list[Item]:
    """Return the conversation of a linear trace: the items of all events, in order."""
    return [item for event in events for item in event.new_items()]
