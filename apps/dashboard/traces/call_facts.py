"""Facts of a call besides its text: model, tokens, retries, captured tokens."""

from collections.abc import Iterator

from apps.dashboard.traces.cards import Fact
from apps.gym.traces.events import JudgeCall, ModelCall
from apps.gym.traces.tokens import TokensUnreadable, count_tokens
from apps.gym.wires.protocol import lacks_usage


def call_facts(event: ModelCall, tokens: bytes | None) -> Iterator[Fact]:
    yield from _reply_facts(event)
    yield "input items", str(event.seen)
    if event.retries:
        yield "retries", str(event.retries)
    yield from _token_facts(event, tokens)


def judge_facts(event: JudgeCall) -> Iterator[Fact]:
    yield "judge", event.judge
    yield "max output tokens", event.question
    if event.tries > 1:
        yield "retry", str(event.tries)
    yield from _reply_facts(event)
    if event.retries:
        yield "retries", str(event.retries)


def _reply_facts(event: ModelCall | JudgeCall) -> Iterator[Fact]:
    if event.model:
        yield "model", event.model
    if event.version:
        yield "version", event.version
    if event.finish_reason:
        yield "finish reason", event.finish_reason
    if isinstance(event, ModelCall) and event.server_finish_reason:
        yield "server message", event.server_finish_reason
    for label, count in (
        ("tokens in", event.usage.get("input_tokens")),
        ("tokens out", event.usage.get("output_tokens")),
        ("reasoning tokens", event.usage.get("reasoning_tokens")),
        ("cached", event.usage.get("cached_tokens")),
    ):
        if count:
            yield label, f"{count:,}"
    if lacks_usage(event):
        yield "usage", "unknown"


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
