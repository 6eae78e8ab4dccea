"""Verifiers without code: what there is, the JSON schema of each one's parameters, and what one would give."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import Permission
from apps.api.framework.base_viewsets import TableViewSet
from apps.environments.verifier_trial import VerifierTrial, try_verifier
from apps.gym.verifiers.examples import EXAMPLES
from apps.gym.verifiers.parameters_reader import parameters_schema
from apps.gym.verifiers.registry import VERIFIERS


class VerifierTrySerializer(serializers.Serializer[Any]):
    verifier = serializers.DictField(help_text='Such as `{"type": "numeric", "absolute_tolerance": 0.01}`.')
    row = serializers.DictField(required=False, help_text="The fields of a task's row that it reads.")
    reply = serializers.CharField(
        required=False, allow_blank=True, trim_whitespace=False, help_text="The attempt's only message."
    )
    output = serializers.ListField(
        child=serializers.DictField(), required=False, help_text="All items of the attempt, in place of `reply`."
    )


class VerifierSerializer(serializers.Serializer[Any]):
    type = serializers.CharField(help_text="What an environment's or a row's `verifier` names it by.")
    title = serializers.CharField()
    description = serializers.CharField(help_text="Its formula, its range and its components.")
    parameters = serializers.DictField(help_text="A JSON schema (draft 2020-12), `type` included.")
    example = VerifierTrySerializer(help_text="What `try/` takes, with full marks.")


class VerifierTrialSerializer(serializers.Serializer[Any]):
    reward = serializers.FloatField(allow_null=True)
    components = serializers.DictField(child=serializers.FloatField())
    explanation = serializers.CharField()
    details = serializers.DictField()
    error = serializers.CharField(help_text="What a rollout's `verifier_error` would say; empty with a reward.")
    seconds = serializers.FloatField()


class VerifierViewSet(TableViewSet):
    serializer_class = VerifierSerializer
    filter_backends = ()
    pagination_class = None
    permissions = {"show": Permission.READ, "attempt": Permission.CONFIGURE}

    @extend_schema(responses=VerifierSerializer(many=True), operation_id="verifiers_list")
    def show(self, request: Request) -> Response:
        return Response([_show(name) for name in VERIFIERS])

    @extend_schema(request=VerifierTrySerializer, responses=VerifierTrialSerializer, operation_id="verifiers_try")
    def attempt(self, request: Request) -> Response:
        """What a verifier would give for one attempt; nothing is stored."""
        asked = VerifierTrySerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        given = asked.validated_data
        trial = try_verifier(
            verifier=given["verifier"],
            row=given.get("row", {}),
            reply=given.get("reply", ""),
            output=given.get("output"),
        )
        return Response(_show_trial(trial))


def _show(name: str) -> dict[str, Any]:
    schema = parameters_schema(VERIFIERS[name])
    example = EXAMPLES[name]
    return {
        "type": name,
        "title": schema["title"],
        "description": schema["description"],
        "parameters": {key: value for key, value in schema.items() if key != "description"},
        "example": {"verifier": {"type": name, **example.parameters}, "row": example.row}
        | ({"output": example.output} if example.output else {"reply": example.reply}),
    }


def _show_trial(trial: VerifierTrial) -> dict[str, Any]:
    reward = trial.reward
    return {
        "reward": reward.value if reward else None,
        "components": reward.components if reward else {},
        "explanation": reward.explanation if reward else "",
        "details": reward.details if reward else {},
        "error": trial.error,
        "seconds": trial.seconds,
    }
