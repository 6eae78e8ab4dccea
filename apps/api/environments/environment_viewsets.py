"""Environments: tools, state and verifier of the tasks."""

import django_filters
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.mixins import CreateModelMixin, ListModelMixin, RetrieveModelMixin, UpdateModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import Permission
from apps.api.environments.manual_attempt_actions import (
    PlayedSerializer,
    PlaySerializer,
    ProofSerializer,
    show_played,
    show_proof,
)
from apps.api.framework.base_viewsets import SLUG, TableViewSet, assign
from apps.api.framework.declared_fields import DeclaredFields
from apps.api.policy_models.breaker_serializers import BreakerField, ThrottleField
from apps.environments.environment_changes import save_environment
from apps.environments.environment_health import probe_environment
from apps.environments.manual_attempts import play_session
from apps.environments.models import Adapter, Environment
from apps.environments.verifier_cases import prove_environment
from apps.policies.models import Health, PolicyModel


class EnvironmentSerializer(DeclaredFields, serializers.ModelSerializer[Environment]):
    breaker = BreakerField()
    throttle = ThrottleField()
    api_key = serializers.CharField(
        write_only=True,
        required=False,
        allow_blank=True,
        trim_whitespace=True,
        help_text="Sent as a bearer token. Stored encrypted, never shown. Left out: the stored key stays.",
    )
    judge_model = serializers.SlugRelatedField(
        slug_field="slug",
        queryset=PolicyModel.objects.all(),
        required=False,
        allow_null=True,
        help_text="Slug of the policy model that scores, for a built-in whose verifier is a judge",
    )
    verifier = serializers.DictField(
        required=False,
        help_text="`type` and the parameters of a verifier of `/api/v1/verifiers/`; empty: the server's own",
    )
    judge_settings = serializers.DictField(
        required=False, help_text="`scale` (`low`, `high` or `verdicts`), `reads`, `tries`, `structured_output`, …"
    )

    class Meta:
        model = Environment
        fields = [
            "id",
            "slug",
            "name",
            "description",
            "adapter",
            "builtin",
            "base_url",
            "command",
            "api_key",
            "api_key_hint",
            "verifies",
            "verifier",
            "call_timeout",
            "connect_timeout",
            "verify_timeout",
            "max_tries",
            "concurrency",
            "worker_group",
            "judge_model",
            "judge_rubric",
            "judge_settings",
            "health",
            "health_message",
            "health_checked_at",
            "unwell_since",
            "probe_due_at",
            "survey",
            "breaker",
            "throttle",
            "created_at",
            "updated_at",
        ]
        read_only_fields = [
            "api_key_hint",
            "health",
            "health_message",
            "health_checked_at",
            "unwell_since",
            "probe_due_at",
            "survey",
        ]


class EnvironmentFilter(django_filters.FilterSet):
    adapter = django_filters.ChoiceFilter(choices=Adapter.choices)
    health = django_filters.ChoiceFilter(choices=Health.choices)

    class Meta:
        model = Environment
        fields: list[str] = []


class EnvironmentViewSet(CreateModelMixin, UpdateModelMixin, ListModelMixin, RetrieveModelMixin, TableViewSet):
    queryset = Environment.objects.select_related("breaker", "throttle", "judge_model")
    serializer_class = EnvironmentSerializer
    filterset_class = EnvironmentFilter
    lookup_field = "slug"
    lookup_value_regex = SLUG
    permissions = {
        "list": Permission.READ,
        "retrieve": Permission.READ,
        "create": Permission.CONFIGURE,
        "update": Permission.CONFIGURE,
        "partial_update": Permission.CONFIGURE,
        "check": Permission.CONFIGURE,
        "try_it": Permission.CONFIGURE,
        "run_cases": Permission.CONFIGURE,
    }

    def perform_create(self, serializer: serializers.BaseSerializer[Environment]) -> None:
        self._save(serializer, Environment())

    def perform_update(self, serializer: serializers.BaseSerializer[Environment]) -> None:
        self._save(serializer, self.get_object())

    def _save(self, serializer: serializers.BaseSerializer[Environment], environment: Environment) -> None:
        fields = dict(serializer.validated_data)
        api_key = fields.pop("api_key", None)
        assign(environment, fields)
        serializer.instance = save_environment(environment=environment, api_key=api_key, user=self.person)

    @extend_schema(request=None, responses=EnvironmentSerializer)
    @action(detail=True, methods=["post"])
    def check(self, request: Request, slug: str) -> Response:
        """Ask the resource server now; the answer's `health` says what came of it."""
        return Response(self.get_serializer(probe_environment(environment=self.get_object())).data)

    @extend_schema(request=PlaySerializer, responses=PlayedSerializer)
    @action(detail=True, methods=["post"], url_path="try")
    def try_it(self, request: Request, slug: str) -> Response:
        """Play an attempt by hand: seed a session, play moves, verify. Nothing is stored. Waits a minute at most."""
        environment = self.get_object()
        asked = PlaySerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        given = asked.validated_data
        played = play_session(
            environment=environment,
            row=given["row"],
            moves=given.get("moves", []),
            seed=given["seed"],
            verify=given["verify"],
            user=self.person,
        )
        return Response(show_played(played))

    @extend_schema(request=None, responses=ProofSerializer)
    @action(detail=True, methods=["post"])
    def run_cases(self, request: Request, slug: str) -> Response:
        """Run the cases of the environment's own verifier: attempts whose reward is known."""
        environment = self.get_object()
        return Response(show_proof(prove_environment(environment=environment, user=self.person)))
