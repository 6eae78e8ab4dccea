"""Build title, facts and blocks of an event. Unknown kinds are shown as JSON."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Protocol

import msgspec

from apps.dashboard.traces.bodies import Body, json_body, parse_json
from apps.dashboard.traces.call_outputs import Position, output_content
from apps.dashboard.traces.cards import Block, Fact, Image, Output
from apps.dashboard.traces.images import find_image
from apps.dashboard.traces.lanes import REQUEST, CallPlace
from apps.gym.traces.events import (
    AgentEnd,
    EnvironmentTurn,
    ErrorRaised,
    JudgeCall,
    ModelCall,
    Prompt,
    SessionOpened,
    Verification,
)
from apps.gym.traces.items import Item, item_type, text_of
from apps.gym.traces.tokens import TokensUnreadable, count_tokens
from apps.gym.wires.protocol import lacks_usage

Shown = SessionOpened | Prompt | ModelCall | EnvironmentTurn | JudgeCall | Verification | AgentEnd | ErrorRaised
Content = tuple[str, tuple[Fact, ...], tuple[Block, ...]]


class Results(Protocol):
    """The results of tool calls."""

    def result_of(self, position: Position) -> Output | None: ...

    def is_shown(self, position: Position) -> bool: ...
    def is_edited(self, position: Position) -> bool: ...


def read_content(
    seq: int,
    index: int,
    event: Shown,
    pairing: Results,
    *,
    tokens: bytes | None = None,
    place: CallPlace | None = None,
) -> Content:
    """Return the content of an event. `index` is its position in the list, `place` that of a captured call."""
    match event:
        case SessionOpened():
            facts = [("environment", event.environment), ("seed", str(event.seed)), ("tools", str(len(event.tools)))]
            return "Session started", tuple(facts), tuple(_tool(seq, *each) for each in enumerate(event.tools))
        case Prompt() | EnvironmentTurn():
            turn = "Simulated user" if isinstance(event, EnvironmentTurn) and event.by_user else "Environment turn"
            return "Prompt" if isinstance(event, Prompt) else turn, (), _blocks(seq, index, event.items, pairing)
        case ModelCall():
            blocks = _blocks(seq, index, event.items, place.reply if place else pairing)
            if place and not place.repeats_request:
                blocks = (*_request_blocks(seq, index, event.items_in, place), *blocks)
            if event.tools_in is not None:
                blocks = (*blocks, _fold("changed tools", event.tools_in, seq))
            if event.sampling:
                blocks = (*blocks, _fold("sampling", event.sampling, seq))
            return "Model call", tuple(_call_facts(event, tokens)), blocks
        case JudgeCall():
            return (
                "User model call" if event.role == "user" else "Judge call",
                tuple(_judge_facts(event)),
                tuple(_judge_blocks(seq, event)),
            )
        case Verification():
            return _verification(seq, event)
        case AgentEnd() | ErrorRaised():
            return _ending(seq, event)


def _ending(seq: int, event: AgentEnd | ErrorRaised) -> Content:
    if isinstance(event, ErrorRaised):
        body = Body(event.message, "text", seq, "message")
        return "Error", (("kind", event.kind),), (Block("text", "message", body),)
    named = [("kind", event.kind), ("call", str(event.call or ""))]
    texts = (("answer", event.answer, "markdown"), ("message", event.message, "text"))
    blocks = tuple(Block("text", name, Body(text, form, seq, name)) for name, text, form in texts if text)
    if event.failed_calls:
        blocks = (*blocks, _fold("failed model calls", msgspec.to_builtins(event.failed_calls), seq))
    if event.artifacts:
        blocks = (*blocks, _fold("artifacts", event.artifacts, seq))
    title = "Agent finished" if event.command == "finish" else "Agent failed"
    return title, tuple(fact for fact in named if fact[1]), blocks


def _verification(seq: int, event: Verification) -> Content:
    blocks: tuple[Block, ...] = ()
    if event.explanation:
        blocks = (Block("text", "explanation", Body(event.explanation, "markdown", seq, "explanation")),)
    if event.details:
        blocks = (*blocks, Block("json", "details", json_body(event.details).at(seq, "details")))
    title = f"Re-verified (#{event.reverification})" if event.reverification else "Verification"
    facts = (("stop reason", event.stop_reason), ("masked", event.masked))
    return title, tuple(fact for fact in facts if fact[1]), blocks


def _judge_blocks(seq: int, event: JudgeCall) -> Iterator[Block]:
    """Yield the verdict, then the prompt and reply of the judge or user model, collapsed."""
    if event.verdict:
        yield Block("json", "verdict", json_body(event.verdict).at(seq, "verdict"))
    if event.problem:
        body = Body(event.problem, "text", seq, "problem")
        yield Block("text", "verdict not used" if event.verdict else "no verdict", body)
    asked = "\n\n".join(text_of(item) or str(item.get("output", "")) for item in event.prompt)
    yield Block("fold", "question", Body(asked, "text", seq, "asked"))
    if event.items:
        yield _fold("reply", event.items, seq)
    if event.sampling:
        yield _fold("sampling", event.sampling, seq)


def _tool(seq: int, place: int, tool: dict[str, Any]) -> Block:
    return Block("fold", str(tool.get("name", "unnamed tool")), json_body(tool).at(seq, f"tools.{place}"))


def _fold(title: str, value: object, seq: int) -> Block:
    return Block("fold", title, json_body(value).at(seq, title.replace(" ", "-")))


def _blocks(seq: int, index: int, items: list[Item], pairing: Results, prefix: str = "") -> tuple[Block, ...]:
    return tuple(
        block for place, item in enumerate(items) for block in _item_blocks(seq, (index, place), item, pairing, prefix)
    )


AUTHORS: dict[str, str] = {
    "sampled": "resent by the client",
    "rerendered": "reworded by the client",
    "injected": "not written by the model",
}
"""Labels of turns in requests by their author."""


def _request_blocks(seq: int, index: int, items: list[Item], place: CallPlace) -> Iterator[Block]:
    """Yield the items that a captured request adds. System prompts are collapsed."""
    for number, (item, author) in enumerate(zip(items, place.authors, strict=True)):
        for block in _item_blocks(seq, (index, number), item, place.request, REQUEST):
            is_system = block.kind == "text" and block.role in ("system", "developer")
            kind = "fold" if is_system else block.kind
            yield replace(block, kind=kind, is_input=True, author=AUTHORS.get(author, ""))


_TEXT_PARTS = {"input_text", "output_text", "text", "refusal"}
NOT_AN_OBJECT = "malformed arguments: not a JSON object"
NOT_ASKED = "no matching call"
EDITED = "changed by the client"


def _item_blocks(seq: int, position: Position, item: Item, pairing: Results, prefix: str) -> Iterator[Block]:
    place = f"{prefix}{position[1]}"
    match item_type(item):
        case "message":
            yield from _message_blocks(seq, place, item)
        case "reasoning":
            yield _reasoning_block(item, seq, place)
        case "function_call":
            yield _call_block(seq, position, place, item, pairing)
        case "function_call_output":
            if not pairing.is_shown(position):
                body, images = output_content(item.get("output", ""), seq, place)
                yield Block("output", "result", body, mark=EDITED if pairing.is_edited(position) else NOT_ASKED)
                yield from image_blocks(images)
        case kind:
            yield Block("json", kind, json_body(item).at(seq, place))


def image_blocks(images: Iterable[Image]) -> tuple[Block, ...]:
    """Return the images of a result without a call."""
    return tuple(Block("image", "result", Body(""), image=image) for image in images)


def _message_blocks(seq: int, place: str, item: Item) -> Iterator[Block]:
    role, content = str(item.get("role", "message")), item.get("content")
    if isinstance(content, str) or not content:
        yield Block("text", role, Body(str(content or ""), "markdown", seq, place))
        return
    for sub, part in enumerate(content if isinstance(content, list) else [content]):
        address = f"{place}.{sub}"
        if isinstance(part, dict) and part.get("type", "text") in _TEXT_PARTS:
            is_refusal = part.get("type") == "refusal"
            text = part.get("refusal") if is_refusal else part.get("text")
            body = Body(str(text or ""), "markdown", seq, address)
            yield Block("text", role, body, mark="refusal" if is_refusal else "")
        else:
            body, image = json_body(part).at(seq, address), find_image(part, seq, address)
            yield Block("image" if image else "json", f"{role}: part", body, image=image)


def _reasoning_block(item: Item, seq: int, place: str) -> Block:
    text = text_of(item)
    body = Body(text, "markdown") if text else json_body(item)
    return Block("reasoning", "reasoning", body.at(seq, place))


def _call_block(seq: int, position: Position, place: str, item: Item, pairing: Results) -> Block:
    body, mark = _arguments(item.get("arguments"))
    return Block("call", str(item.get("name", "")), body.at(seq, place), mark=mark, result=pairing.result_of(position))


def _arguments(arguments: object) -> tuple[Body, str]:
    if not isinstance(arguments, str):
        return json_body(arguments), "" if isinstance(arguments, dict) else "not a JSON object"
    parsed = parse_json(arguments)
    if isinstance(parsed, dict):
        return Body(arguments, "json"), ""
    return Body(arguments), NOT_AN_OBJECT


def _call_facts(event: ModelCall, tokens: bytes | None) -> Iterator[Fact]:
    yield from _reply_facts(event)
    yield from _place_facts(event)
    for note in event.notes:
        yield "note", note
    yield "input items", str(event.seen)
    if event.retries:
        yield "HTTP retries", str(event.retries)
    yield from _token_facts(event, tokens)


def _place_facts(event: ModelCall) -> Iterator[Fact]:
    """Yield the number of a captured call, and what its client and GymWeb did with it."""
    if not event.call:
        return
    yield "call", str(event.call)
    if not event.served:
        yield "reply delivered", "no"
    for edit in event.edited:
        yield "history", edit


def _judge_facts(event: JudgeCall) -> Iterator[Fact]:
    yield "user model" if event.role == "user" else "judge", event.judge
    if event.role == "judge":
        yield "question", event.question
    if event.tries > 1:
        yield "try", str(event.tries)
    yield from _reply_facts(event)
    if event.retries:
        yield "HTTP retries", str(event.retries)


def _reply_facts(event: ModelCall | JudgeCall) -> Iterator[Fact]:
    if event.model:
        yield "model", event.model
    if event.version:
        yield "version", event.version
    if event.finish_reason:
        yield "finish reason", event.finish_reason
    if isinstance(event, ModelCall) and event.server_finish_reason:
        yield "server finish reason", event.server_finish_reason
    for label, count in (
        ("tokens in", event.usage.get("input_tokens")),
        ("tokens out", event.usage.get("output_tokens")),
        ("reasoning tokens", event.usage.get("reasoning_tokens")),
        ("cached", event.usage.get("cached_tokens")),
        ("cache writes", event.usage.get("cache_write_tokens")),
    ):
        if count:
            yield label, f"{count:,}"
    if lacks_usage(event):
        yield "usage", "incomplete" if event.usage else "unknown"


def _token_facts(event: ModelCall, tokens: bytes | None) -> Iterator[Fact]:
    if event.tokens_note:
        yield "tokens not captured", event.tokens_note
    if event.grammar:
        yield "grammar", "some tokens may be forced"
    if tokens is None:
        return
    try:
        prompt, generated = count_tokens(tokens)
    except TokensUnreadable as why:
        yield "captured tokens", str(why)
    else:
        yield "captured tokens", f"{prompt:,} in, {generated:,} out"
