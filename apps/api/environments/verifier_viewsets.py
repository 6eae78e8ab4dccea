"""Verifiers: the list, the JSON schema of their parameters, and a test on one attempt."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import Permission
from apps.api.framework.base_viewsets import TableViewSet
from apps.environments.verifier_cases import VerifierTrial, try_verifier
from apps.gym.verifiers.examples import EXAMPLES
from apps.gym.verifiers.parameters_reader import parameters_schema
from apps.gym.verifiers.registry import VERIFIERS


class VerifierTrySerializer(serializers.Serializer[Any]):
    verifier = serializers.DictField(help_text='For example `{"type": "numeric", "absolute_tolerance": 0.01}`.')
    row = serializers.DictField(required=False, help_text="Task fields that the verifier reads.")
    reply = serializers.CharField(
        required=False, allow_blank=True, trim_whitespace=False, help_text="The reply, as the only message."
    )
    output = serializers.ListField(
        child=serializers.DictField(), required=False, help_text="All items of the attempt, instead of `reply`."
    )


class VerifierSerializer(serializers.Serializer[Any]):
    type = serializers.CharField(help_text="The `type` value in `verifier` of an environment or row.")
    title = serializers.CharField()
    description = serializers.CharField(help_text="Formula, range and components.")
    parameters = serializers.DictField(help_text="A JSON schema (draft 2020-12), `type` included.")
    example = VerifierTrySerializer(help_text="An example for `try/` with full reward.")


class VerifierTrialSerializer(serializers.Serializer[Any]):
    reward = serializers.FloatField(allow_null=True)
    components = serializers.DictField(child=serializers.FloatField())
    explanation = serializers.CharField()
    details = serializers.DictField()
    error = serializers.CharField(help_text="Error message of the verifier; empty with a reward.")
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
        """Return the reward of a verifier for one attempt. Stores nothing."""
        given = self.read_body(VerifierTrySerializer)
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
