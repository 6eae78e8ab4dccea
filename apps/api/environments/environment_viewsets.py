"""Environments: tools, state and verifier of the tasks."""

from typing import Any

import django_filters
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import Permission
from apps.api.environments.manual_attempt_actions import (
    PlayedSerializer,
    PlaySerializer,
    ProofSerializer,
    show_played,
)
from apps.api.framework.base_viewsets import SlugViewSet, operation
from apps.api.framework.query_filters import WordsFilter, filter_set
from apps.api.policy_models.breaker_serializers import ServerSerializer
from apps.environments.environment_changes import USED_BY, save_environment
from apps.environments.environment_health import probe_environment
from apps.environments.manual_attempts import play_session
from apps.environments.models import Adapter, Environment
from apps.environments.verifier_cases import prove_environment
from apps.policies.models import Health, PolicyModel


class EnvironmentSerializer(ServerSerializer):
    judge_model = serializers.SlugRelatedField(
        slug_field="slug",
        queryset=PolicyModel.objects.all(),
        required=False,
        allow_null=True,
        help_text="Slug of the judge model, or of the user model of `simulated_user` (null: scripted)",
    )
    verifier = serializers.DictField(
        required=False,
        help_text="`type` and parameters of a verifier from `/api/v1/verifiers/`; empty: the verifier of the server",
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
            "solve_threshold",
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

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse the address of another adapter, which would be dropped."""
        adapter = attrs.get("adapter") or (self.instance or Environment()).adapter
        problem = f"The adapter {adapter} does not use this field. Leave it empty, or choose another adapter."
        unused = [name for name, adapters in USED_BY.items() if attrs.get(name, "").strip() and adapter not in adapters]
        if unused:
            raise serializers.ValidationError(dict.fromkeys(unused, problem))
        return attrs


class EnvironmentViewSet(SlugViewSet):
    noun = "environment"
    save_row = staticmethod(save_environment)
    private_fields = ("api_key",)
    queryset = Environment.objects.select_related("breaker", "throttle", "judge_model")
    serializer_class = EnvironmentSerializer
    filterset_class = filter_set(
        q=WordsFilter(),
        adapter=django_filters.ChoiceFilter(choices=Adapter.choices),
        health=django_filters.ChoiceFilter(choices=Health.choices),
    )
    permissions = {
        **dict.fromkeys(["list", "retrieve"], Permission.READ),
        **dict.fromkeys(["create", "update", "partial_update", "check", "try_it", "run_cases"], Permission.CONFIGURE),
    }

    @operation(responses=EnvironmentSerializer)
    def check(self, request: Request, slug: str) -> Response:
        """Check the resource server now; see `health` in the response."""
        return Response(self.get_serializer(probe_environment(environment=self.get_object())).data)

    @operation(url_path="try", request=PlaySerializer, responses=PlayedSerializer)
    def try_it(self, request: Request, slug: str) -> Response:
        """Play an attempt by hand: seed a session, play moves, verify. Stores nothing. Waits a minute at most."""
        environment = self.get_object()
        given = self.read_body(PlaySerializer)
        played = play_session(
            environment=environment,
            row=given["row"],
            moves=given.get("moves", []),
            seed=given["seed"],
            verify=given["verify"],
            user=self.user,
        )
        return Response(show_played(played))

    @operation(responses=ProofSerializer)
    def run_cases(self, request: Request, slug: str) -> Response:
        """Run the test cases of the environment's verifier: attempts with a known reward."""
        results = prove_environment(environment=self.get_object(), user=self.user)
        proof = {"passed": all(result.passed for result in results), "cases": results}
        return Response(ProofSerializer(proof).data)
