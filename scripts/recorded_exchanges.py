"""The exchanges that scripts/record_servers.py records with model servers, and the tests replay.

GymWeb's own policy client sends each request, so a recording has what GymWeb sends, and tests read the replies again.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import orjson

from apps.gym.calls.outbound import OutboundReply
from apps.gym.environments.calculator.environment import CALCULATOR_TOOL, Calculator
from apps.gym.errors import GymError
from apps.gym.traces.chat_turns import SentMessages
from apps.gym.traces.items import Item, call_arguments, function_calls, message
from apps.gym.wires.openai_http import PATHS, HttpPolicy, Wire
from apps.gym.wires.protocol import Ask, Reply
from apps.gym.wires.sending import Sender

MODEL = "tiny-policy"
QUESTION = "Compute (68 + 62) * 3."
TEXT_QUESTION = '{"result": 390}'
"""The model knows only sums. It answers this prompt with plain text."""
DRAWN_QUESTION = "Answer."
"""At temperature 1, the model's answers to this prompt differ."""
TOO_LONG = "0 " * 600
"""1,200 tokens, in a context of 1,024."""
WRITTEN_CALL: Item = {
    "type": "function_call",
    "call_id": "call_1",
    "name": "calculator",
    "arguments": '{"expression": "(68 + 62) * 3"}',
}
"""The call of the second turn if a server leaves calls in the text."""
COLD = {"temperature": 0.0, "max_output_tokens": 100, "seed": 7}
KEPT_HEADERS = ("content-type", "retry-after", "llm_provider-retry-after")


class Exchange(msgspec.Struct, kw_only=True, frozen=True):
    """A request to a model server as GymWeb sent it, and the raw reply."""

    name: str
    method: str
    path: str
    request: Any
    status: int
    headers: dict[str, str]
    body: str


class Recording(msgspec.Struct, kw_only=True, frozen=True):
    """The exchanges with one server. `start` is its command, and `settings` the fields of the policy model by wire."""

    server: str
    packages: list[str]
    start: list[str]
    upstream: str
    settings: dict[Wire, dict[str, Any]]
    recorded: str
    command: str
    exchanges: list[Exchange]


@dataclass(frozen=True)
class Question:
    """One question to a server, and the exchange that it makes."""

    name: str
    text: str = TEXT_QUESTION
    wire: Wire = "chat"
    sampling: dict[str, Any] = field(default_factory=dict)
    has_tool: bool = False
    captures: bool = True
    streamed: bool = False
    model_name: str = MODEL


def _questions_of(wire: Wire) -> list[Question]:
    return [
        Question(f"{wire}_text", wire=wire, captures=False),
        Question(f"{wire}_call", QUESTION, wire=wire, has_tool=True, captures=False),
        Question(f"{wire}_cut", wire=wire, captures=False, sampling={"max_output_tokens": 5}),
    ]


CALL = Question("call", QUESTION, has_tool=True)
QUESTIONS = [
    Question("text"),
    CALL,
    Question("cut", sampling={"max_output_tokens": 5}),
    Question("too_long", TOO_LONG),
    Question("unknown_model", model_name="no-such-model"),
    *(Question(f"drawn_{number}", DRAWN_QUESTION, sampling={"temperature": 1.0, "seed": number}) for number in (1, 2)),
    Question("text_streamed", streamed=True),
    Question("call_streamed", QUESTION, has_tool=True, streamed=True),
    *_questions_of("responses"),
    *_questions_of("messages"),
]

Connect = Callable[[Question], HttpPolicy]
"""Returns the policy client for a question."""


async def ask_questions(
    connect: Connect, *, wires: frozenset[Wire], captures: bool
) -> AsyncIterator[tuple[str, Reply | GymError]]:
    """Ask the questions of these wires, and yield the name of each exchange with its outcome.

    If a server refuses requests for tokens, `captures` is False. Then only the exchange `tokens_asked` asks for them.
    """
    if not captures:
        asked = Question("tokens_asked")
        yield asked.name, await _ask(connect(asked), [message("user", asked.text)], asked, SentMessages())
    for planned in QUESTIONS:
        if planned.wire not in wires:
            continue
        question = planned if captures else replace(planned, captures=False)
        policy, sent = connect(question), SentMessages()
        items = [message("user", question.text)]
        reply = await _ask(policy, items, question, sent)
        yield question.name, reply
        if question.name == CALL.name and isinstance(reply, Reply):
            turn = reply.items if function_calls(reply.items) else [WRITTEN_CALL]
            items += [*turn, *_outputs(turn)]
            yield "answer", await _ask(policy, items, question, sent)


async def _ask(policy: HttpPolicy, items: list[Item], question: Question, sent: SentMessages) -> Reply | GymError:
    ask = Ask(
        items=items,
        tools=[{**CALCULATOR_TOOL, "strict": False}] if question.has_tool else [],
        sampling={**COLD, **question.sampling},
        session="recorded",
        strict=False,
        sent=sent,
        on_delta=(lambda _: None) if question.streamed else None,
    )
    try:
        return await policy.ask(ask)
    except GymError as error:
        return error


def _outputs(items: list[Item]) -> list[Item]:
    """Return the outputs of the calls, as the environment computes them."""
    calculator = Calculator({})
    return [
        {
            "type": "function_call_output",
            "call_id": call["call_id"],
            "output": calculator.calculator(call_arguments(call) or {}),
        }
        for call in function_calls(items)
    ]


class RecordingSender:
    """Sends through another sender and keeps the exchanges."""

    def __init__(self, sender: Sender, *, wire: Wire, keep: Callable[..., None]) -> None:
        self._sender = sender
        self._path = PATHS[wire]
        self._keep = keep
        self.servers = sender.servers

    async def send(self, body: dict[str, Any], session: str, tries: int) -> OutboundReply:
        # Copied before it is sent, because the next turn changes the list of messages.
        request = orjson.loads(orjson.dumps(body))
        reply = await self._sender.send(body, session, tries)
        self._keep(method="POST", path=self._path, request=request, reply=reply)
        return reply

    async def get(self, path: str, *, server: int, at_root: bool = False) -> OutboundReply:
        reply = await self._sender.get(path, server=server, at_root=at_root)
        self._keep(method="GET", path=path, request=None, reply=reply)
        return reply
