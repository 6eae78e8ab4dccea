"""Attempts of external agents: take one, then finish, fail or extend it."""

from http import HTTPStatus
from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import Permission
from apps.api.framework.base_viewsets import TableViewSet
from apps.api.framework.declared_fields import DeclaredFields
from apps.api.framework.idempotency import HEADER, KEY_SCHEMA, read_key
from apps.api.framework.problems import Problem
from apps.gym.capture.captured_commands import Command
from apps.rollouts.models import Collection, Rollout
from apps.rollouts.serving.attempt_commands import (
    MAX_WAIT,
    MAX_WAITING,
    end_attempt,
    extend_attempt,
    open_attempt,
    repeat_offer,
)

_KEY = OpenApiParameter(
    HEADER,
    KEY_SCHEMA,
    OpenApiParameter.HEADER,
    required=True,
    description="A second request with the same key returns the attempt of the first.",
)
_ATTEMPT = "Number of the attempt, as returned when it was taken."
MAX_ANSWER = 1_000_000


class TakeAttemptSerializer(DeclaredFields, serializers.Serializer[Any]):
    collection = serializers.PrimaryKeyRelatedField(
        queryset=Collection.objects.select_related("agent", "policy_model", "environment"),
        help_text="Collection whose agent is external.",
    )
    wait_seconds = serializers.FloatField(
        default=0.0,
        min_value=0,
        max_value=MAX_WAIT,
        help_text="How long to wait if no rollout is queued or no worker has a free seat. "
        f"While {MAX_WAITING} requests wait, further ones are answered at once.",
    )


class LimitsOfAttemptSerializer(serializers.Serializer[Any]):
    model_calls = serializers.IntegerField(help_text="Calls of the model.")
    tokens = serializers.IntegerField(help_text="Input and output tokens of all calls.")
    seconds = serializers.FloatField(help_text="Duration of the attempt.")


class AttemptOfferSerializer(serializers.Serializer[Any]):
    rollout = serializers.IntegerField()
    attempt = serializers.IntegerField(help_text="Number of the attempt at the rollout, from 1.")
    collection = serializers.IntegerField()
    task = serializers.IntegerField()
    input = serializers.ListField(child=serializers.DictField(), help_text="The prompt: Responses items.")
    tools = serializers.ListField(child=serializers.DictField(), help_text="Tools of the environment.")
    openai_base_url = serializers.CharField(help_text="Base URL for OpenAI clients.")
    anthropic_base_url = serializers.CharField(help_text="Base URL for Anthropic clients.")
    mcp_url = serializers.CharField(help_text="The tools of the environment, over MCP (streamable HTTP).")
    api_key = serializers.CharField(help_text="Key for the base URLs. It ends with the attempt.")
    expires_in = serializers.FloatField(
        help_text="Seconds until the agent counts as lost. Each call of the model and `extend` start them again."
    )
    limits = LimitsOfAttemptSerializer()


class AttemptNumberSerializer(DeclaredFields, serializers.Serializer[Any]):
    attempt = serializers.IntegerField(min_value=1, max_value=32_767, help_text=_ATTEMPT)


class FinishSerializer(AttemptNumberSerializer):
    answer = serializers.CharField(
        required=False,
        allow_blank=True,
        trim_whitespace=False,
        max_length=MAX_ANSWER,
        help_text="Final answer, if it differs from the text of the last reply.",
    )
    artifacts = serializers.DictField(required=False, help_text="Any JSON object. It is stored in the trace.")
    call = serializers.IntegerField(
        required=False, min_value=1, max_value=2**31 - 1, help_text="Call with the final answer. Default: the last one."
    )


class FailSerializer(AttemptNumberSerializer):
    message = serializers.CharField(max_length=10_000, help_text="What went wrong.")


class EndedAttemptSerializer(serializers.Serializer[Any]):
    rollout = serializers.IntegerField()
    attempt = serializers.IntegerField()
    command = serializers.ChoiceField(choices=["finish", "fail"])


class AttemptViewSet(TableViewSet):
    """Attempts of external agents. See the chapter "External agents" of the docs."""

    queryset = Rollout.objects.all()
    serializer_class = AttemptOfferSerializer
    permissions = dict.fromkeys(["create", "finish", "fail", "extend"], Permission.COLLECT)
    replayed = frozenset({"create"})

    @extend_schema(
        request=TakeAttemptSerializer,
        responses={201: AttemptOfferSerializer, 204: None},
        parameters=[_KEY],
    )
    def create(self, request: Request) -> Response:
        """Take an attempt at a queued rollout: its prompt, and a base URL and key for calls of the model.

        The answer is 204 if no rollout is queued.
        """
        wish = self.read_body(TakeAttemptSerializer)
        if not read_key(request):
            message = f"Give an {HEADER}, so that a repeated request does not take a second attempt."
            errors = [{"pointer": f"{HEADER}:", "code": "required", "message": message}]
            raise Problem(HTTPStatus.BAD_REQUEST, "invalid", message, errors=errors)
        offer = open_attempt(wish["collection"], self.user, wait_seconds=wish["wait_seconds"])
        if offer is None:
            return Response(status=HTTPStatus.NO_CONTENT)
        answer = self._answer_offer(request, offer, HTTPStatus.CREATED)
        # Without the key, which must not be in the database.
        answer.kept = {"rollout": offer["rollout"], "attempt": offer["attempt"]}  # type: ignore[attr-defined]
        return answer

    def replay(self, request: Request, kept: Any) -> Response:
        return self._answer_offer(request, repeat_offer(kept, self.user), HTTPStatus.CREATED)

    @extend_schema(request=FinishSerializer, responses={202: EndedAttemptSerializer})
    def finish(self, request: Request, pk: int) -> Response:
        """Finish the attempt. No further calls are accepted, and the verifier scores the attempt.

        The rollout has its reward shortly after the answer.
        """
        return self._end(pk, "finish", self.read_body(FinishSerializer))

    @extend_schema(request=FailSerializer, responses={202: EndedAttemptSerializer})
    def fail(self, request: Request, pk: int) -> Response:
        """Report that the agent failed. The rollout gets another attempt if its collection allows one."""
        return self._end(pk, "fail", self.read_body(FailSerializer))

    @extend_schema(request=AttemptNumberSerializer, responses=AttemptOfferSerializer)
    def extend(self, request: Request, pk: int) -> Response:
        """Keep the attempt open without a call of the model, for example while a tool runs."""
        given = self.read_body(AttemptNumberSerializer)
        return self._answer_offer(request, extend_attempt(pk, given["attempt"], self.user), HTTPStatus.OK)

    def _end(self, pk: int, command: Any, given: dict[str, Any]) -> Response:
        attempt = given.pop("attempt")
        ended = end_attempt(pk, attempt, Command(command=command, **given), self.user)
        return Response(EndedAttemptSerializer(ended).data, status=HTTPStatus.ACCEPTED)

    def _answer_offer(self, request: Request, offer: dict[str, Any], status: HTTPStatus) -> Response:
        secret, address = offer.pop("secret"), offer.pop("address")
        path = f"/capture/{secret}"
        base = f"http://{address}{path}" if address else request.build_absolute_uri(path)
        shown = {
            **offer,
            "openai_base_url": f"{base}/v1",
            "anthropic_base_url": base,
            "mcp_url": f"{base}/mcp",
            "api_key": secret,
        }
        return Response(AttemptOfferSerializer(shown).data, status=status)
