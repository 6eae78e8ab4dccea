"""What is known of a call beyond its words: model, tokens, retries, captured tokens."""

from collections.abc import Iterator

from apps.dashboard.traces.cards import Fact
from apps.gym.traces.events import JudgeCall, ModelCall
from apps.gym.traces.tokens import TokensUnreadable, count_tokens
from apps.gym.wires.usage import lacks_usage


def call_facts(event: ModelCall, tokens: bytes | None) -> Iterator[Fact]:
    yield from _reply_facts(event)
    yield "items seen", str(event.seen)
    if event.retries:
        yield "retries", str(event.retries)
    yield from _token_facts(event, tokens)


def judge_facts(event: JudgeCall) -> Iterator[Fact]:
    yield "judge", event.judge
    yield "asked to", event.question
    if event.tries > 1:
        yield "asked again, try", str(event.tries)
    yield from _reply_facts(event)
    if event.retries:
        yield "retries", str(event.retries)


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
