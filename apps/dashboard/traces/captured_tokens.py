"""Captured tokens of an attempt: which calls have them, where the sequence breaks, and the token IDs of one call."""

import math
from collections.abc import Container
from dataclasses import dataclass
from itertools import accumulate

from apps.dashboard.traces.trace_reading import events_of, read_graph
from apps.gym.traces.graph import TraceGraph
from apps.gym.traces.graph_segments import check_graph, join_graph
from apps.gym.traces.graph_tokens import GraphTokens
from apps.gym.traces.segments import Break, TokenFigures
from apps.gym.traces.tokens import TokenCapture, TokenShape, TokensUnreadable, read_shape
from apps.rollouts.models import Rollout

PAGE = 1_000
_STEPS = (-0.05, -0.3, -1.0, -2.5, -5.0)
"""Lower bounds of the logprobs of each colour. Less likely tokens have the last colour."""


@dataclass(frozen=True, slots=True)
class Call:
    """A model call. `shape` is None if no tokens were captured. `segment` counts from 1."""

    number: int
    seq: int
    shape: TokenShape | None = None
    segment: int = 0
    broken: Break | None = None


@dataclass(frozen=True, slots=True)
class Token:
    """A token. `logprob` is None for prompt tokens, which are not trained on."""

    place: int
    id: int
    logprob: float | None = None

    @property
    def probability(self) -> float | None:
        return None if self.logprob is None else math.exp(min(0.0, self.logprob))

    @property
    def level(self) -> int:
        """Return the colour level, from 0 (most likely) to 5."""
        return 0 if self.logprob is None else sum(self.logprob < step for step in _STEPS)


@dataclass(frozen=True, slots=True)
class Strip:
    """A page of one call's tokens: the prompt, then the generation."""

    call: Call
    tokens: list[Token]
    first: int
    total: int
    prompt: int

    @property
    def last(self) -> int:
        return self.first + len(self.tokens)

    @property
    def before(self) -> int | None:
        return max(0, self.first - PAGE) if self.first else None

    @property
    def after(self) -> int | None:
        return self.last if self.last < self.total else None

    @property
    def mean_logprob(self) -> float | None:
        """Return the mean logprob of the generated tokens on this page."""
        sampled = [token.logprob for token in self.tokens if token.logprob is not None]
        return sum(sampled) / len(sampled) if sampled else None


@dataclass(frozen=True, slots=True)
class Captured:
    calls: list[Call]
    figures: TokenFigures | None = None
    strip: Strip | None = None
    problem: str = ""


def read_captured(rollout: Rollout, attempt: int, *, call: int | None = None, first: int | None = None) -> Captured:
    """Return the calls of the attempt, and a page of the tokens of `call`, by default the first call with tokens.

    Without `first`, the page starts after the prefix shared with the previous call.
    """
    graph = read_graph(events_of(rollout, attempt).filter(kind="model_call"), "tokens")
    try:
        figures = check_graph(graph)
        breaks = {each.call: each for each in figures.breaks}
        shapes = {number: read_shape(event.tokens) for number, event in graph.calls.items() if event.tokens is not None}
        segments = _number_segments(graph, list(shapes), breaks)
        calls = [
            Call(number, seq, shapes.get(number), segments.get(number, 0), breaks.get(number))
            for number, seq in graph.seq_of.items()
        ]
        chosen = next((each for each in calls if each.shape and (call is None or each.number == call)), None)
        strip = _strip(chosen, GraphTokens(graph.calls, graph.parent).capture(chosen.number), first) if chosen else None
    except TokensUnreadable as why:
        return Captured([Call(number, seq) for number, seq in graph.seq_of.items()], problem=str(why))
    return Captured(calls, figures, strip)


def _number_segments(graph: TraceGraph, captured: list[int], breaks: Container[int]) -> dict[int, int]:
    """Return the number of each call's segment. A superseded retry in a graph is in no segment."""
    if graph.is_line:
        numbers = accumulate(int(call == captured[0] or call in breaks) for call in captured)
        return dict(zip(captured, numbers, strict=True))
    return {one.call: number for number, found in enumerate(join_graph(graph), start=1) for one in found.sampled}


def _strip(call: Call, capture: TokenCapture, first: int | None) -> Strip:
    assert call.shape is not None
    fields = capture.fields()
    prompt, sampled, logprobs = (
        fields[name] for name in ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
    )
    total = len(prompt) + len(sampled)
    start = call.shape.shared if first is None else first
    start = min(max(0, start), max(0, total - 1))
    tokens = [Token(place, prompt[place]) for place in range(start, min(len(prompt), start + PAGE))]
    for place in range(max(start, len(prompt)), min(total, start + PAGE)):
        at = place - len(prompt)
        tokens.append(Token(place, sampled[at], logprobs[at]))
    return Strip(call, tokens, start, total, len(prompt))
