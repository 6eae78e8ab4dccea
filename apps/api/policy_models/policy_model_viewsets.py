"""Policy models. Their secret goes in and never comes out."""

from typing import Any

import django_filters
import orjson
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.mixins import CreateModelMixin, ListModelMixin, RetrieveModelMixin, UpdateModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import Permission
from apps.api.framework.base_viewsets import SLUG, TableViewSet, assign
from apps.api.framework.declared_fields import DeclaredFields
from apps.api.framework.problems import QueryProblem
from apps.api.policy_models.breaker_serializers import BreakerField, ThrottleField
from apps.api.rollouts.rollout_viewsets import TraceEventSerializer
from apps.gym.traces.events import encode_event, event_kind
from apps.policies.endpoint_health import probe_policy_model
from apps.policies.model_trial import MAX_CHARACTERS, try_model
from apps.policies.models import Health, PolicyModel, Provider
from apps.policies.policy_model_changes import save_policy_model
from apps.policies.shown_requests import show_extras
from apps.rollouts.metrics.model_versions import track_versions
from apps.rollouts.models import Collection


class CheckSerializer(serializers.Serializer[Any]):
    name = serializers.ChoiceField(choices=["reachable", "model", "tool_call", "usage", "tokens", "latency"])
    status = serializers.ChoiceField(choices=["ok", "failed", "not_applicable"])
    message = serializers.CharField(help_text="What was seen, or the exact error; never the key.")
    target = serializers.CharField(required=False, help_text="The server that was asked.")
    seconds = serializers.FloatField(required=False)


class PolicyModelSerializer(DeclaredFields, serializers.ModelSerializer[PolicyModel]):
    sampling = serializers.DictField(required=False)
    base_url = serializers.CharField(
        required=False,
        allow_blank=True,
        max_length=500,
        help_text="Up to and including /v1; of Azure the resource's endpoint. Left out: OpenAI's own, for `openai`.",
    )
    more_base_urls = serializers.ListField(
        child=serializers.CharField(max_length=500),
        required=False,
        help_text="Further servers of the same model (`vllm` and `compatible`). A rollout stays with one of them.",
    )
    extra_headers = serializers.DictField(
        child=serializers.CharField(allow_blank=True), required=False, help_text="Sent with every request."
    )
    extra_body = serializers.DictField(required=False, help_text="Merged into every request.")
    renamed_fields = serializers.DictField(
        child=serializers.CharField(), required=False, help_text="Other names of request fields."
    )
    breaker = BreakerField()
    throttle = ThrottleField()
    health_checks = CheckSerializer(many=True, read_only=True)
    capabilities = serializers.DictField(
        read_only=True, help_text="What the endpoint tells of itself: `max_model_len`, `server_version`, …"
    )
    api_key = serializers.CharField(
        write_only=True,
        required=False,
        allow_blank=True,
        trim_whitespace=True,
        help_text="Stored encrypted, never shown. Left out: the stored key stays.",
    )

    class Meta:
        model = PolicyModel
        fields = [
            "id",
            "slug",
            "name",
            "provider",
            "wire",
            "base_url",
            "more_base_urls",
            "api_version",
            "model_name",
            "version",
            "api_key",
            "api_key_hint",
            "key_is_token",
            "sampling",
            "reasoning",
            "extra_headers",
            "extra_body",
            "renamed_fields",
            "call_timeout",
            "connect_timeout",
            "max_tries",
            "capture_tokens",
            "concurrency",
            "worker_group",
            "input_price",
            "cached_input_price",
            "output_price",
            "mistake_rate",
            "health",
            "health_message",
            "health_checks",
            "capabilities",
            "health_checked_at",
            "breaker",
            "throttle",
            "created_at",
            "updated_at",
        ]
        read_only_fields = ["api_key_hint", "health", "health_message", "health_checked_at"]

    def to_representation(self, instance: PolicyModel) -> dict[str, Any]:
        shown = super().to_representation(instance)
        return shown | {name: show_extras(shown[name]) for name in ("extra_headers", "extra_body") if name in shown}


class TrySerializer(DeclaredFields, serializers.Serializer[Any]):
    prompt = serializers.CharField(max_length=MAX_CHARACTERS, trim_whitespace=False)
    system = serializers.CharField(
        max_length=MAX_CHARACTERS, trim_whitespace=False, required=False, allow_blank=True, default=""
    )
    tools = serializers.ListField(
        child=serializers.DictField(),
        required=False,
        default=list,
        help_text="Function tools, flat or as Chat Completions nests them. None of them is run.",
    )
    sampling = serializers.DictField(required=False, default=dict, help_text="Over the model's own defaults.")


class CapturedTokensSerializer(serializers.Serializer[Any]):
    prompt = serializers.IntegerField()
    generated = serializers.IntegerField()


class TrialSerializer(serializers.Serializer[Any]):
    events = TraceEventSerializer(many=True, help_text="A prompt, then a model call or an error.")
    captured_tokens = CapturedTokensSerializer(allow_null=True)
    cost = serializers.FloatField(help_text="USD by the model's prices.")


class VersionRewardSerializer(serializers.Serializer[Any]):
    version = serializers.CharField(allow_blank=True, help_text="Empty: none was said when these rollouts began.")
    rollouts = serializers.IntegerField(help_text="Completed with a reward.")
    tasks = serializers.IntegerField()
    solved = serializers.IntegerField(help_text="Of the rollouts, those with full marks.")
    mean_reward = serializers.FloatField()
    confidence = serializers.ListField(
        child=serializers.FloatField(),
        min_length=2,
        max_length=2,
        allow_null=True,
        help_text="95 % interval of the mean, clustered by task; null for fewer than two tasks.",
    )
    first_at = serializers.DateTimeField(allow_null=True)
    last_at = serializers.DateTimeField(allow_null=True)


class PolicyModelFilter(django_filters.FilterSet):
    provider = django_filters.ChoiceFilter(choices=Provider.choices)
    health = django_filters.ChoiceFilter(choices=Health.choices)

    class Meta:
        model = PolicyModel
        fields: list[str] = []


class PolicyModelViewSet(CreateModelMixin, UpdateModelMixin, ListModelMixin, RetrieveModelMixin, TableViewSet):
    queryset = PolicyModel.objects.select_related("breaker", "throttle")
    serializer_class = PolicyModelSerializer
    filterset_class = PolicyModelFilter
    lookup_field = "slug"
    lookup_value_regex = SLUG
    permissions = {
        "list": Permission.READ,
        "retrieve": Permission.READ,
        "create": Permission.MODELS,
        "update": Permission.MODELS,
        "partial_update": Permission.MODELS,
        "check": Permission.MODELS,
        "versions": Permission.READ,
        "try_it": Permission.MODELS,
    }
    query_parameters = {"versions": frozenset({"collection"})}

    def perform_create(self, serializer: serializers.BaseSerializer[PolicyModel]) -> None:
        self._save(serializer, PolicyModel())

    def perform_update(self, serializer: serializers.BaseSerializer[PolicyModel]) -> None:
        self._save(serializer, self.get_object())

    def _save(self, serializer: serializers.BaseSerializer[PolicyModel], policy_model: PolicyModel) -> None:
        fields = dict(serializer.validated_data)
        api_key = fields.pop("api_key", None)
        assign(policy_model, fields)
        serializer.instance = save_policy_model(policy_model=policy_model, api_key=api_key, user=self.person)

    @extend_schema(
        responses=VersionRewardSerializer(many=True),
        parameters=[
            OpenApiParameter("collection", OpenApiTypes.INT, description="Only the rollouts of this collection.")
        ],
    )
    @action(detail=True, pagination_class=None, filter_backends=[])
    def versions(self, request: Request, slug: str) -> Response:
        """Reward by version, in the order in which the versions were first seen."""
        policy_model = self.get_object()
        rewards = track_versions(policy_model=policy_model, collection=_read_collection(request, policy_model))
        return Response(VersionRewardSerializer(rewards, many=True).data)

    @extend_schema(request=TrySerializer, responses=TrialSerializer)
    @action(detail=True, methods=["post"], url_path="try")
    def try_it(self, request: Request, slug: str) -> Response:
        """Send one prompt now and read the reply as a trace; it is not stored. Waits a minute at most."""
        policy_model = self.get_object()
        asked = TrySerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        trial = try_model(policy_model=policy_model, user=self.person, **asked.validated_data)
        events = [
            {"seq": seq, "kind": event_kind(event), "event": orjson.loads(encode_event(event))}
            for seq, event in enumerate(trial.events)
        ]
        return Response({"events": events, "captured_tokens": trial.captured, "cost": trial.cost})

    @extend_schema(request=None, responses=PolicyModelSerializer)
    @action(detail=True, methods=["post"])
    def check(self, request: Request, slug: str) -> Response:
        """Ask the endpoint now, and have it call a tool; `health` and `health_checks` say what came of it."""
        return Response(self.get_serializer(probe_policy_model(policy_model=self.get_object())).data)


def _read_collection(request: Request, policy_model: PolicyModel) -> Collection | None:
    given = request.query_params.get("collection")
    if given is None:
        return None
    is_key = given.isascii() and given.isdigit() and len(given) <= 18
    found = Collection.objects.filter(policy_model=policy_model, pk=given).first() if is_key else None
    if found is None:
        message = f"The model {policy_model.slug} has no such collection."
        raise QueryProblem([{"pointer": "?collection", "code": "invalid", "message": message}])
    return found
