"""Captured tokens of an attempt: tokens per call, and segments to train on."""

from typing import Any

import msgspec
from rest_framework import serializers

from apps.api.framework.record_serializers import record_serializer
from apps.gym.traces.events import ModelCall, decode_event
from apps.gym.traces.graph import TraceGraph
from apps.gym.traces.graph_segments import check_graph, join_graph
from apps.gym.traces.segments import Break, TokenFigures
from apps.gym.traces.tokens import count_tokens
from apps.rollouts.models import Rollout


class CapturedCallSerializer(serializers.Serializer[Any]):
    call = serializers.IntegerField(help_text="Number of the model call, from 1.")
    seq = serializers.IntegerField(help_text="Its event in the trace.")
    model = serializers.CharField(allow_blank=True)
    version = serializers.CharField(allow_blank=True, help_text="Checkpoint, weights or adapter of the reply.")
    captured = serializers.BooleanField()
    grammar = serializers.BooleanField(help_text="Whether a grammar may have forced tokens. RL exports mask them.")
    note = serializers.CharField(allow_blank=True, help_text="Why tokens were not captured.")
    prompt_tokens = serializers.IntegerField(allow_null=True)
    generated_tokens = serializers.IntegerField(allow_null=True)


@record_serializer(
    Break,
    after="Previous captured call; for captured agents, the nearest ancestor with tokens.",
    agreed="Length of the common prefix with that call, in ids.",
    seen="Number of ids of that call, prompt and reply.",
    within="`reply`: the reply was tokenised differently. `prompt`: the prompt was rewritten. `again`: the "
    "prompt was sent again, for example after an empty reply.",
)
class BreakSerializer(serializers.Serializer[Any]):
    """A call whose prompt does not begin with all ids of the previous captured call."""


@record_serializer(
    TokenFigures,
    exact="Captured calls that continue the previous captured call.",
    generated="Tokens that the model sampled.",
)
class FiguresSerializer(serializers.Serializer[Any]):
    breaks = BreakSerializer(many=True)


class SegmentSerializer(serializers.Serializer[Any]):
    """A segment. `input_ids`, `mask` and `logprobs` have the same length."""

    calls = serializers.ListField(child=serializers.IntegerField())
    input_ids = serializers.ListField(child=serializers.IntegerField())
    mask = serializers.ListField(child=serializers.IntegerField(), help_text="1 for sampled tokens.")
    logprobs = serializers.ListField(
        child=serializers.FloatField(), help_text="Logprobs of sampled tokens; 0.0 elsewhere."
    )


class RolloutTokensSerializer(serializers.Serializer[Any]):
    rollout = serializers.IntegerField()
    attempt = serializers.IntegerField()
    figures = FiguresSerializer()
    calls = CapturedCallSerializer(many=True)
    segments = SegmentSerializer(many=True)


def read_tokens(rollout: Rollout, attempt: int) -> dict[str, Any]:
    """Return the fields of RolloutTokensSerializer. Raise TokensUnreadable."""
    rows = rollout.events.filter(attempt=attempt, kind="model_call").order_by("seq")
    read = list(rows.values_list("seq", "payload", "tokens"))
    graph = TraceGraph([decode_event(payload, tokens) for _, payload, tokens in read], [seq for seq, *_ in read])
    return {
        "rollout": rollout.pk,
        "attempt": attempt,
        "figures": msgspec.to_builtins(check_graph(graph)),
        "calls": [_call(call, graph.seq_of[call], event) for call, event in graph.calls.items()],
        "segments": [
            {name: part if name == "calls" else part.tolist() for name, part in one.segment._asdict().items()}
            for one in join_graph(graph)
        ],
    }


def _call(call: int, seq: int, event: ModelCall) -> dict[str, Any]:
    prompt, generated = count_tokens(event.tokens) if event.tokens is not None else (None, None)
    return {
        "call": call,
        "seq": seq,
        "model": event.model,
        "version": event.version,
        "captured": event.tokens is not None,
        "grammar": event.grammar,
        "note": event.tokens_note,
        "prompt_tokens": prompt,
        "generated_tokens": generated,
    }
