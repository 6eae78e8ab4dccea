"""Flag problems in a step: cut replies, failed tools, malformed arguments, repeated calls."""

from collections.abc import Iterable, Iterator

from apps.dashboard.traces.bodies import Body
from apps.dashboard.traces.cards import Block, Flag
from apps.dashboard.traces.event_content import NOT_AN_OBJECT
from apps.gym.traces.events import ErrorRaised, JudgeCall, ModelCall, ToolResult, TraceUnion
from apps.gym.traces.items import Item, function_calls
from apps.gym.wires.chat_reply import is_repetition

_CUT = {"max_output_tokens": "cut at the token limit", "context_length": "context full", "content_filter": "filtered"}


def calls_of(event: TraceUnion | None) -> list[Item]:
    return function_calls(event.items) if isinstance(event, ModelCall) else []


def find_flags(event: TraceUnion | None, blocks: tuple[Block, ...], before: list[Item]) -> Iterator[Flag]:
    """Return the flags of a step. `before` are the calls of the previous turn."""
    if event is None:
        yield Flag("unknown kind")
    if isinstance(event, ErrorRaised):
        yield Flag("error", "bad")
    if isinstance(event, ToolResult) and event.error:
        yield Flag("tool error", "bad")
    if isinstance(event, JudgeCall) and event.problem:
        yield Flag("no verdict" if not event.verdict else "verdict not used", "bad")
    if isinstance(event, ModelCall):
        yield from _call_flags(event, before)
    own = [block for block in blocks if not block.is_input]
    failed = sum(1 for block in own if block.result is not None and block.result.error)
    if failed:
        yield Flag("tool error" if failed == 1 else f"{failed} tool errors", "bad")
    if any(block.mark == NOT_AN_OBJECT for block in own):
        yield Flag("malformed call", "bad")
    if any("[REDACTED:" in body.text for body in _bodies(blocks)):
        yield Flag("redacted")


def _call_flags(event: ModelCall, before: list[Item]) -> Iterator[Flag]:
    if event.finish_reason in _CUT:
        repeats = is_repetition(event.server_finish_reason)
        yield Flag("cut because it repeats itself" if repeats else _CUT[event.finish_reason], "bad")
    if not event.items:
        yield Flag("empty reply", "bad")
    if event.retries:
        yield Flag("retried" if event.retries == 1 else f"retried {event.retries} times")
    earlier_calls = {(str(each.get("name")), str(each.get("arguments"))) for each in before}
    if any(
        (str(each.get("name")), str(each.get("arguments"))) in earlier_calls for each in function_calls(event.items)
    ):
        yield Flag("repeated call")


def _bodies(blocks: Iterable[Block]) -> Iterator[Body]:
    for block in blocks:
        yield block.body
        if block.result is not None:
            yield block.result.body
