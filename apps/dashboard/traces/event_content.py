"""Title, facts and blocks of one event."""

from collections.abc import Iterator
from typing import Any

from apps.dashboard.traces.bodies import Body, json_body
from apps.dashboard.traces.call_facts import call_facts, judge_facts
from apps.dashboard.traces.call_outputs import Pairing
from apps.dashboard.traces.cards import Block, Fact
from apps.dashboard.traces.item_blocks import item_blocks
from apps.gym.traces.events import (
    EnvironmentTurn,
    ErrorRaised,
    JudgeCall,
    ModelCall,
    Prompt,
    SessionOpened,
    Verification,
)
from apps.gym.traces.items import Item, text_of

Shown = SessionOpened | Prompt | ModelCall | EnvironmentTurn | JudgeCall | Verification | ErrorRaised
Content = tuple[str, tuple[Fact, ...], tuple[Block, ...]]


def read_content(seq: int, index: int, event: Shown, pairing: Pairing, tokens: bytes | None = None) -> Content:
    """Return the content of an event. `index` is its position among the events read."""
    match event:
        case SessionOpened():
            facts = [("environment", event.environment), ("seed", str(event.seed)), ("tools", str(len(event.tools)))]
            return "Session started", tuple(facts), tuple(_tool(seq, *each) for each in enumerate(event.tools))
        case Prompt() | EnvironmentTurn():
            title = "Prompt" if isinstance(event, Prompt) else "Environment turn"
            return title, (), _blocks(seq, index, event.items, pairing)
        case ModelCall():
            blocks = _blocks(seq, index, event.items, pairing)
            if event.sampling:
                blocks = (*blocks, _fold("sampling", event.sampling, seq))
            return "Model call", tuple(call_facts(event, tokens)), blocks
        case JudgeCall():
            return "Judge call", tuple(judge_facts(event)), tuple(_judge_blocks(seq, event))
        case Verification():
            return _verification(seq, event)
        case ErrorRaised():
            body = Body(event.message, "text", seq, "message")
            return "Error", (("kind", event.kind),), (Block("text", "message", body),)


def _verification(seq: int, event: Verification) -> Content:
    blocks: tuple[Block, ...] = ()
    if event.explanation:
        blocks = (Block("text", "explanation", Body(event.explanation, "markdown", seq, "explanation")),)
    if event.details:
        blocks = (*blocks, Block("json", "details", json_body(event.details).at(seq, "details")))
    title = f"Re-verified (#{event.reverification})" if event.reverification else "Verification"
    return title, (("stop reason", event.stop_reason),) if event.stop_reason else (), blocks


def _judge_blocks(seq: int, event: JudgeCall) -> Iterator[Block]:
    """Yield the verdict, then the judge's prompt and reply as folds."""
    if event.verdict:
        yield Block("json", "verdict", json_body(event.verdict).at(seq, "verdict"))
    if event.problem:
        body = Body(event.problem, "text", seq, "problem")
        yield Block("text", "disregarded" if event.verdict else "no verdict", body)
    asked = "\n\n".join(text_of(item) for item in event.prompt)
    yield Block("fold", "question", Body(asked, "text", seq, "asked"))
    if event.items:
        yield _fold("reply", event.items, seq)
    if event.sampling:
        yield _fold("sampling", event.sampling, seq)


def _tool(seq: int, place: int, tool: dict[str, Any]) -> Block:
    return Block("fold", str(tool.get("name", "unnamed tool")), json_body(tool).at(seq, f"tools.{place}"))


def _fold(title: str, value: object, seq: int) -> Block:
    return Block("fold", title, json_body(value).at(seq, title.replace(" ", "-")))


def _blocks(seq: int, index: int, items: list[Item], pairing: Pairing) -> tuple[Block, ...]:
    return tuple(block for place, item in enumerate(items) for block in item_blocks(seq, (index, place), item, pairing))
