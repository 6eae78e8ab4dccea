"""The trace as a page shows it: one card an event, each tool call with its result directly below it.

Pure: rows of events in, frozen view models out. Nothing is dropped: an event or item of an unknown kind becomes JSON.
"""

import json
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from apps.gym.events import (
    EnvironmentTurn,
    ErrorRaised,
    JudgeCall,
    ModelCall,
    Prompt,
    SessionOpened,
    ToolResult,
    TraceUnion,
    Verification,
    decode_event,
    encode_event,
    event_kind,
    event_tokens,
)
from apps.gym.items import Item, item_type, text_of
from apps.gym.policy.usage import lacks_usage
from apps.gym.segments import Break, TokenFigures, check_prefixes
from apps.gym.tokens import TokensUnreadable, count_tokens

FOLD_BYTES = 4_000
FOLD_LINES = 60
_TEXT_PARTS = {"input_text", "output_text", "text", "refusal"}

_Shown = SessionOpened | Prompt | ModelCall | EnvironmentTurn | JudgeCall | Verification | ErrorRaised

Fact = tuple[str, str]
Position = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Body:
    """A whole text. A long one is folded behind its size, never cut."""

    text: str
    is_json: bool = False

    @property
    def size(self) -> int:
        return len(self.text.encode(errors="replace"))

    @property
    def is_folded(self) -> bool:
        return len(self.text) > FOLD_BYTES or self.text.count("\n") >= FOLD_LINES


@dataclass(frozen=True, slots=True)
class Output:
    """What a tool gave back. `seq` is its own event; None when it came inside another event's items."""

    body: Body
    seq: int | None = None
    title: str = ""
    error: str = ""
    duration: float = 0.0


@dataclass(frozen=True, slots=True)
class Block:
    """One item, or one part of it: `text`, `reasoning`, `call`, `output`, `json` or `fold` (JSON behind its title)."""

    kind: str
    title: str
    body: Body
    mark: str = ""
    result: Output | None = None


@dataclass(frozen=True, slots=True)
class Card:
    """One event. `kind` is the event's tag, as stored."""

    seq: int
    kind: str
    title: str
    blocks: tuple[Block, ...] = ()
    facts: tuple[Fact, ...] = ()
    at: float = 0.0
    duration: float = 0.0
    reward: float | None = None
    components: tuple[tuple[str, float], ...] = ()

    @property
    def last_seq(self) -> int:
        """The last event that it shows: its own, or that of a result that stands within it."""
        return max([self.seq, *(block.result.seq or 0 for block in self.blocks if block.result)])


@dataclass(frozen=True, slots=True)
class Capture:
    """What the prefix check found in the captured tokens; `seqs` are the events of the model calls."""

    figures: TokenFigures
    seqs: tuple[int, ...]

    @property
    def first_break(self) -> Break | None:
        return self.figures.breaks[0] if self.figures.breaks else None

    @property
    def first_break_seq(self) -> int | None:
        return self.seqs[self.first_break.call - 1] if self.first_break else None

    @property
    def more_breaks(self) -> int:
        return max(0, len(self.figures.breaks) - 1)


@dataclass(frozen=True, slots=True)
class Trace:
    """`last_seq` is that of the last event, -1 without any; `capture` is None without tokens that can be read."""

    cards: tuple[Card, ...]
    event_count: int
    seconds: tuple[tuple[str, float], ...]
    last_seq: int = -1
    capture: Capture | None = None

    @property
    def opening(self) -> tuple[Card, ...]:
        """What the attempt started from."""
        return tuple(card for card in self.cards if card.kind == "prompt")

    @property
    def attempt(self) -> tuple[Card, ...]:
        """What the attempt itself did, and how it was judged."""
        return tuple(card for card in self.cards if card.kind not in {"session", "prompt"})

    def place_of_error(self, message: str) -> int | None:
        """The event that says this message; None when no event does, as when a worker is lost."""
        for card in reversed(self.cards):
            if card.kind == "error" and card.blocks and card.blocks[0].body.text == message:
                return card.seq
        return None


@dataclass(frozen=True, slots=True)
class _Read:
    seq: int
    kind: str
    payload: str
    event: TraceUnion | None
    tokens: bytes | None = None


def build_trace(rows: Iterable[tuple[int, str, str, bytes | None]]) -> Trace:
    """The cards of one attempt from its `(seq, kind, payload, head of the packed tokens)` rows, in order."""
    reads = [_Read(seq, kind, payload, _decode(payload), tokens) for seq, kind, payload, tokens in rows]
    pairing = _Pairing(reads)
    cards = tuple(card for index, read in enumerate(reads) if (card := _card(index, read, pairing)) is not None)
    last = reads[-1].seq if reads else -1
    return Trace(cards=cards, event_count=len(reads), seconds=_seconds(reads), last_seq=last, capture=_capture(reads))


def show_events(events: Iterable[TraceUnion]) -> Trace:
    """The cards of events that are not stored."""
    return build_trace(
        (seq, event_kind(event), encode_event(event), event_tokens(event)) for seq, event in enumerate(events)
    )


def pretty(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def read_json(text: str) -> Body:
    """Indented when it is a JSON object or array, as it stands otherwise."""
    parsed = _parsed(text)
    return Body(pretty(parsed), is_json=True) if isinstance(parsed, dict | list) else Body(text)


class _Pairing:
    """Which output answers which call: the next one, in order, that names the same call id."""

    def __init__(self, reads: list[_Read]) -> None:
        self._waiting: dict[str, deque[tuple[Position, Output]]] = defaultdict(deque)
        self._taken: set[Position] = set()
        for index, read in enumerate(reads):
            for position, call_id, output in _outputs(index, read):
                self._waiting[call_id].append((position, output))

    def result_of(self, call_id: str, position: Position) -> Output | None:
        waiting = self._waiting[call_id]
        while waiting and waiting[0][0] < position:
            waiting.popleft()
        if not waiting:
            return None
        taken, output = waiting.popleft()
        self._taken.add(taken)
        return output

    def is_shown(self, position: Position) -> bool:
        return position in self._taken


def _decode(payload: str) -> TraceUnion | None:
    try:
        return decode_event(payload)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _parsed(text: str) -> object:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _outputs(index: int, read: _Read) -> Iterator[tuple[Position, str, Output]]:
    event = read.event
    if isinstance(event, ToolResult):
        yield (index, 0), event.call_id, _tool_output(read.seq, event)
    elif event is not None:
        for place, item in enumerate(event.new_items()):
            if item_type(item) == "function_call_output":
                yield (index, place), str(item.get("call_id", "")), Output(body=_output_body(item))


def _tool_output(seq: int, event: ToolResult) -> Output:
    return Output(body=read_json(event.output), seq=seq, title=event.name, error=event.error, duration=event.duration)


def _output_body(item: Item) -> Body:
    output = item.get("output", "")
    return read_json(output) if isinstance(output, str) else Body(pretty(output), is_json=True)


def _card(index: int, read: _Read, pairing: _Pairing) -> Card | None:
    event = read.event
    if event is None:
        return Card(seq=read.seq, kind=read.kind, title=read.kind, blocks=(_json("event", read_json(read.payload)),))
    if isinstance(event, ToolResult):
        return None if pairing.is_shown((index, 0)) else _lone_result(read, event)
    title, facts, blocks = _content(index, event, pairing)
    if isinstance(event, ModelCall):
        facts = (*facts, *_token_facts(event, read.tokens))
    return Card(
        seq=read.seq,
        kind=read.kind,
        title=title,
        facts=facts,
        blocks=blocks,
        at=event.at,
        duration=event.duration,
        reward=event.reward if isinstance(event, Verification) else None,
        components=tuple(event.components.items()) if isinstance(event, Verification) else (),
    )


def _lone_result(read: _Read, event: ToolResult) -> Card:
    output = _tool_output(read.seq, event)
    block = Block("output", f"{event.name} → result", output.body, mark=event.error or "no call asked for it")
    return Card(read.seq, read.kind, "Tool result", (block,), at=event.at, duration=event.duration)


def _content(index: int, event: _Shown, pairing: _Pairing) -> tuple[str, tuple[Fact, ...], tuple[Block, ...]]:
    match event:
        case SessionOpened():
            facts = [("environment", event.environment), ("seed", str(event.seed)), ("tools", str(len(event.tools)))]
            return "Session opened", tuple(facts), tuple(_tool(tool) for tool in event.tools)
        case Prompt() | EnvironmentTurn():
            title = "Prompt" if isinstance(event, Prompt) else "Environment turn"
            return title, (), _blocks(index, event.items, pairing)
        case ModelCall():
            blocks = _blocks(index, event.items, pairing)
            if event.sampling:
                blocks = (*blocks, _json("sampling", Body(pretty(event.sampling), is_json=True), folded=True))
            return "Model call", tuple(_call_facts(event)), blocks
        case JudgeCall():
            return "Judge call", tuple(_judge_facts(event)), tuple(_judge_blocks(event))
        case Verification():
            blocks = (Block("text", "explanation", Body(event.explanation)),) if event.explanation else ()
            if event.details:
                blocks = (*blocks, _json("details", Body(pretty(event.details), is_json=True)))
            title = f"Verified again (#{event.reverification})" if event.reverification else "Verification"
            return title, (("stopped by", event.stop_reason),) if event.stop_reason else (), blocks
        case ErrorRaised():
            return "Error", (("kind", event.kind),), (Block("text", "message", Body(event.message)),)


def _call_facts(event: ModelCall) -> Iterator[Fact]:
    yield from _reply_facts(event)
    yield "items seen", str(event.seen)
    if event.retries:
        yield "retries", str(event.retries)


def _judge_facts(event: JudgeCall) -> Iterator[Fact]:
    yield "judge", event.judge
    yield "asked to", event.question
    if event.tries > 1:
        yield "asked again, try", str(event.tries)
    yield from _reply_facts(event)
    if event.retries:
        yield "retries", str(event.retries)


def _judge_blocks(event: JudgeCall) -> Iterator[Block]:
    """The verdict first; what the judge was asked and what it wrote are behind their titles."""
    if event.verdict:
        yield _json("verdict", Body(pretty(event.verdict), is_json=True))
    if event.problem:
        yield Block("text", "disregarded" if event.verdict else "no verdict", Body(event.problem))
    yield Block("fold", "what it was asked", Body("\n\n".join(text_of(item) for item in event.prompt)))
    if event.items:
        yield _json("its reply", Body(pretty(event.items), is_json=True), folded=True)
    if event.sampling:
        yield _json("sampling", Body(pretty(event.sampling), is_json=True), folded=True)


def _reply_facts(event: ModelCall | JudgeCall) -> Iterator[Fact]:
    if event.model:
        yield "model", event.model
    if event.version:
        yield "version", event.version
    if event.finish_reason:
        yield "finish", event.finish_reason
    if isinstance(event, ModelCall) and event.server_finish_reason:
        yield "the server's word", event.server_finish_reason
    for label, count in (
        ("tokens in", event.usage.get("input_tokens")),
        ("tokens out", event.usage.get("output_tokens")),
        ("of them reasoning", event.usage.get("reasoning_tokens")),
        ("cached", event.usage.get("cached_tokens")),
    ):
        if count:
            yield label, f"{count:,}"
    if lacks_usage(event):
        yield "usage", "not told"


def _token_facts(event: ModelCall, tokens: bytes | None) -> Iterator[Fact]:
    if event.tokens_note:
        yield "tokens not captured", event.tokens_note
    if tokens is None:
        return
    try:
        prompt, generated = count_tokens(tokens)
    except TokensUnreadable as why:
        yield "captured tokens", str(why)
    else:
        yield "captured tokens", f"{prompt:,} in, {generated:,} out"


def _capture(reads: list[_Read]) -> Capture | None:
    calls = [read for read in reads if isinstance(read.event, ModelCall)]
    try:
        figures = check_prefixes([read.tokens for read in calls])
    except TokensUnreadable:
        return None  # the card of the call says why
    return Capture(figures, tuple(read.seq for read in calls)) if figures.captured else None


def _tool(tool: dict[str, Any]) -> Block:
    return Block("fold", str(tool.get("name", "tool without a name")), Body(pretty(tool), is_json=True))


def _json(title: str, body: Body, *, folded: bool = False) -> Block:
    return Block("fold" if folded else "json", title, body)


def _blocks(index: int, items: list[Item], pairing: _Pairing) -> tuple[Block, ...]:
    return tuple(block for place, item in enumerate(items) for block in _item_blocks((index, place), item, pairing))


def _item_blocks(position: Position, item: Item, pairing: _Pairing) -> Iterator[Block]:
    match item_type(item):
        case "message":
            yield from _message_blocks(item)
        case "reasoning":
            yield _reasoning_block(item)
        case "function_call":
            yield _call_block(position, item, pairing)
        case "function_call_output":
            if not pairing.is_shown(position):
                yield Block("output", "result", _output_body(item), mark="no call asked for it")
        case kind:
            yield _json(kind, Body(pretty(item), is_json=True))


def _message_blocks(item: Item) -> Iterator[Block]:
    role, content = str(item.get("role", "message")), item.get("content")
    if isinstance(content, str) or not content:
        yield Block("text", role, Body(content or ""))
        return
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, dict) and part.get("type", "text") in _TEXT_PARTS:
            text = part.get("refusal") if part.get("type") == "refusal" else part.get("text")
            yield Block("text", role, Body(str(text or "")), mark="refusal" if part.get("type") == "refusal" else "")
        else:
            yield _json(f"{role}: part", Body(pretty(part), is_json=True))


def _reasoning_block(item: Item) -> Block:
    text = text_of(item)
    return Block("reasoning", "reasoning", Body(text) if text else Body(pretty(item), is_json=True))


def _call_block(position: Position, item: Item, pairing: _Pairing) -> Block:
    body, mark = _arguments(item.get("arguments"))
    result = pairing.result_of(str(item.get("call_id", "")), position)
    return Block("call", str(item.get("name", "")), body, mark=mark, result=result)


def _arguments(arguments: object) -> tuple[Body, str]:
    if not isinstance(arguments, str):
        return Body(pretty(arguments), is_json=True), "" if isinstance(arguments, dict) else "not a JSON object"
    parsed = _parsed(arguments)
    if isinstance(parsed, dict):
        return Body(pretty(parsed), is_json=True), ""
    return Body(arguments), "malformed arguments: not a JSON object"


def _seconds(reads: list[_Read]) -> tuple[tuple[str, float], ...]:
    """Where the time went. Tools of one turn may run at once, and a judge is asked within the verifier's time, so the
    parts may sum to more than the whole."""
    names = {
        "model_call": "model",
        "tool_result": "tools",
        "judge_call": "judge",
        "verification": "verifier",
        "session": "seeding",
    }
    total: dict[str, float] = {}
    for read in reads:
        if read.event is not None and read.event.duration and read.kind in names:
            total[names[read.kind]] = total.get(names[read.kind], 0.0) + read.event.duration
    return tuple(total.items())
