"""Input and output of manual attempts and of verifier cases."""

from typing import Any

import orjson
from rest_framework import serializers

from apps.api.framework.declared_fields import DeclaredFields
from apps.api.rollouts.rollout_viewsets import TraceEventSerializer
from apps.environments.manual_attempts import MOST_MOVES, Played
from apps.gym.environments.task_generation import CASE_KINDS
from apps.gym.traces.events import encode_event, event_kind


class MoveCallSerializer(DeclaredFields, serializers.Serializer[Any]):
    name = serializers.CharField(max_length=200)
    arguments = serializers.DictField(required=False)


class MoveSerializer(DeclaredFields, serializers.Serializer[Any]):
    text = serializers.CharField(required=False, allow_blank=True, trim_whitespace=False)
    calls = MoveCallSerializer(many=True, required=False)


class PlaySerializer(DeclaredFields, serializers.Serializer[Any]):
    row = serializers.DictField(help_text="A task row. `responses_create_params` is optional.")
    moves = MoveSerializer(
        many=True, required=False, help_text=f"Replies of the model, in order: at most {MOST_MOVES}."
    )
    seed = serializers.IntegerField(required=False, default=0, min_value=0, max_value=2**31 - 1)
    verify = serializers.BooleanField(required=False, default=False, help_text="Verify after the last move.")


class PlayedSerializer(serializers.Serializer[Any]):
    events = TraceEventSerializer(many=True, help_text="Events, as in a trace.")
    reward = serializers.FloatField(allow_null=True, help_text="Null if not verified.")
    components = serializers.DictField(child=serializers.FloatField())
    explanation = serializers.CharField()
    error_kind = serializers.CharField(help_text="Error kind; empty if the attempt did not fail.")
    error = serializers.CharField()
    seconds = serializers.FloatField()


class CaseSerializer(serializers.Serializer[Any]):
    name = serializers.CharField(source="case.name")
    kind = serializers.ChoiceField(source="case.kind", choices=CASE_KINDS)
    expected = serializers.FloatField(
        source="case.reward", allow_null=True, help_text="Null if only equality between runs is checked."
    )
    rewards = serializers.ListField(child=serializers.FloatField(allow_null=True), help_text="Reward of each run.")
    passed = serializers.BooleanField()
    problem = serializers.CharField()
    seconds = serializers.FloatField()


class ProofSerializer(serializers.Serializer[Any]):
    passed = serializers.BooleanField(help_text="All of them.")
    cases = CaseSerializer(many=True)


def show_played(played: Played) -> dict[str, Any]:
    verdict, failure = played.verdict, played.failure
    return {
        "events": [
            {"seq": seq, "kind": event_kind(event), "event": orjson.loads(encode_event(event))}
            for seq, event in enumerate(played.events)
        ],
        "reward": verdict.reward if verdict else None,
        "components": verdict.components if verdict else {},
        "explanation": verdict.explanation if verdict else "",
        "error_kind": failure.kind if failure else "",
        "error": failure.message if failure else "",
        "seconds": played.seconds,
    }
