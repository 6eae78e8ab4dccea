"""The tokens of an attempt as the API gives them: by call what was captured, and the segments to train on."""

from typing import Any

import msgspec
from rest_framework import serializers

from apps.gym.traces.events import ModelCall, decode_event
from apps.gym.traces.segments import check_prefixes, join_calls
from apps.gym.traces.tokens import count_tokens
from apps.rollouts.models import Rollout


class CapturedCallSerializer(serializers.Serializer[Any]):
    call = serializers.IntegerField(help_text="Model calls count from 1.")
    seq = serializers.IntegerField(help_text="Its event in the trace.")
    model = serializers.CharField(allow_blank=True)
    version = serializers.CharField(allow_blank=True, help_text="The checkpoint, weights or adapter that answered.")
    captured = serializers.BooleanField()
    note = serializers.CharField(allow_blank=True, help_text="Why there are no tokens where they were asked for.")
    prompt_tokens = serializers.IntegerField(allow_null=True)
    generated_tokens = serializers.IntegerField(allow_null=True)


class BreakSerializer(serializers.Serializer[Any]):
    """A prompt that does not begin with all ids of the captured call before it."""

    call = serializers.IntegerField()
    after = serializers.IntegerField(help_text="The captured call before it.")
    agreed = serializers.IntegerField(help_text="How many ids the prompt has in common with that call, from the start.")
    seen = serializers.IntegerField(help_text="How many ids that call has, prompt and reply.")
    within = serializers.ChoiceField(
        choices=["reply", "prompt", "again"],
        help_text="`reply`: it came back in other ids. `prompt`: history was rewritten. `again`: the same prompt was "
        "asked again, as after an empty reply.",
    )


class FiguresSerializer(serializers.Serializer[Any]):
    calls = serializers.IntegerField()
    captured = serializers.IntegerField()
    exact = serializers.IntegerField(help_text="Captured calls that go on from the captured call before them.")
    segments = serializers.IntegerField()
    generated = serializers.IntegerField(help_text="Tokens that the model sampled.")
    breaks = BreakSerializer(many=True)


class SegmentSerializer(serializers.Serializer[Any]):
    """`input_ids`, `mask` and `logprobs` are of one length."""

    calls = serializers.ListField(child=serializers.IntegerField())
    input_ids = serializers.ListField(child=serializers.IntegerField())
    mask = serializers.ListField(child=serializers.IntegerField(), help_text="1 where the model sampled the token.")
    logprobs = serializers.ListField(child=serializers.FloatField(), help_text="Of sampled tokens; 0.0 elsewhere.")


class RolloutTokensSerializer(serializers.Serializer[Any]):
    rollout = serializers.IntegerField()
    attempt = serializers.IntegerField()
    figures = FiguresSerializer()
    calls = CapturedCallSerializer(many=True)
    segments = SegmentSerializer(many=True)


def read_tokens(rollout: Rollout, attempt: int) -> dict[str, Any]:
    """What RolloutTokensSerializer declares. Raises TokensUnreadable."""
    rows = rollout.events.filter(attempt=attempt, kind="model_call").order_by("seq")
    calls, stored = [], []
    for call, (seq, payload, tokens) in enumerate(rows.values_list("seq", "payload", "tokens"), start=1):
        event = decode_event(payload, tokens)
        assert isinstance(event, ModelCall)
        calls.append(_call(call, seq, event))
        stored.append(event.tokens)
    return {
        "rollout": rollout.pk,
        "attempt": attempt,
        "figures": msgspec.to_builtins(check_prefixes(stored)),
        "calls": calls,
        "segments": [
            {name: part if name == "calls" else part.tolist() for name, part in segment._asdict().items()}
            for segment in join_calls(stored)
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
        "note": event.tokens_note,
        "prompt_tokens": prompt,
        "generated_tokens": generated,
    }
