"""Policy models. Their API key is write-only."""

from typing import Any

import django_filters
import orjson
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import Permission
from apps.api.framework.base_viewsets import SlugViewSet, operation
from apps.api.framework.declared_fields import DeclaredFields
from apps.api.framework.problems import bad_query
from apps.api.framework.query_filters import WordsFilter, filter_set, read_integer
from apps.api.framework.record_serializers import record_serializer
from apps.api.policy_models.breaker_serializers import ServerSerializer
from apps.api.policy_models.logprob_serializers import CheckLogprobsSerializer, LogprobCheckSerializer
from apps.api.rollouts.rollout_viewsets import TraceEventSerializer
from apps.gym.traces.events import encode_event, event_kind
from apps.policies.endpoint_health import probe_policy_model
from apps.policies.installation_redactor import show_extras
from apps.policies.model_trial import MAX_CHARACTERS, try_model
from apps.policies.models import PRICE_FIELDS, Health, PolicyModel, Provider
from apps.policies.policy_model_changes import save_policy_model
from apps.policies.setup_checks import MODE_CHECK, SETUP_CHECKS
from apps.rollouts.logprob_checks import CheckedSequence, check_logprobs
from apps.rollouts.metrics.model_versions import VersionReward, track_versions
from apps.rollouts.models import Collection


class CheckSerializer(serializers.Serializer[Any]):
    name = serializers.ChoiceField(
        choices=["reachable", "model", "tool_call", "usage", "tokens", "latency", MODE_CHECK, *SETUP_CHECKS]
    )
    status = serializers.ChoiceField(choices=["ok", "warning", "failed", "not_applicable"])
    message = serializers.CharField(help_text="Result or exact error; never the key.")
    target = serializers.CharField(required=False, help_text="The checked server.")
    seconds = serializers.FloatField(required=False)


class PolicyModelSerializer(ServerSerializer):
    sampling = serializers.DictField(required=False)
    base_url = serializers.CharField(
        required=False,
        allow_blank=True,
        max_length=500,
        help_text="With /v1; for Azure the endpoint of the resource. Optional for `openai` and `anthropic`.",
    )
    more_base_urls = serializers.ListField(
        child=serializers.CharField(max_length=500),
        required=False,
        help_text="Further servers of the same model (`vllm` and `compatible`). A rollout stays with one of them.",
    )
    extra_headers = serializers.DictField(
        child=serializers.CharField(allow_blank=True), required=False, help_text="HTTP headers of every request."
    )
    extra_body = serializers.DictField(required=False, help_text="Fields merged into every request body.")
    renamed_fields = serializers.DictField(
        child=serializers.CharField(), required=False, help_text="Renamed request fields."
    )
    health_checks = CheckSerializer(many=True, read_only=True)
    capabilities = serializers.DictField(
        read_only=True, help_text="Metadata of the endpoint: `max_model_len`, measured `logprob_mode`, …"
    )

    logprob_check = LogprobCheckSerializer(
        read_only=True, allow_null=True, help_text="The last check of captured log probabilities; null without one."
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
            "call_content",
            "extra_headers",
            "extra_body",
            "renamed_fields",
            "call_timeout",
            "connect_timeout",
            "max_tries",
            "capture_tokens",
            "logprob_mode",
            "concurrency",
            "worker_group",
            *PRICE_FIELDS,
            "mistake_rate",
            "health",
            "health_message",
            "health_checks",
            "capabilities",
            "health_checked_at",
            "logprob_check",
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
        help_text="Function tools, flat or in Chat Completions form. Tools are not executed.",
    )
    sampling = serializers.DictField(required=False, default=dict, help_text="Overrides the defaults of the model.")


class CapturedTokensSerializer(serializers.Serializer[Any]):
    prompt = serializers.IntegerField()
    generated = serializers.IntegerField()


class TrialSerializer(serializers.Serializer[Any]):
    events = TraceEventSerializer(many=True, help_text="A prompt, then a model call or an error.")
    captured_tokens = CapturedTokensSerializer(allow_null=True)
    cost = serializers.FloatField(allow_null=True, help_text="USD; null without a reply or prices.")


@record_serializer(
    VersionReward,
    version="Empty if no version was set when these rollouts started.",
    rollouts="Completed with a reward.",
    solved="Rollouts that solved their task.",
)
class VersionRewardSerializer(serializers.Serializer[Any]):
    confidence = serializers.ListField(
        child=serializers.FloatField(),
        min_length=2,
        max_length=2,
        allow_null=True,
        help_text="95 % interval of the mean, clustered by task; null for fewer than two tasks.",
    )


class PolicyModelViewSet(SlugViewSet):
    noun = "policy_model"
    save_row = staticmethod(save_policy_model)
    private_fields = ("api_key",)
    queryset = PolicyModel.objects.select_related("breaker", "throttle")
    serializer_class = PolicyModelSerializer
    filterset_class = filter_set(
        q=WordsFilter(),
        provider=django_filters.ChoiceFilter(choices=Provider.choices),
        health=django_filters.ChoiceFilter(choices=Health.choices),
    )
    permissions = {
        **dict.fromkeys(["list", "retrieve", "versions"], Permission.READ),
        **dict.fromkeys(["create", "update", "partial_update", "check", "check_logprobs", "try_it"], Permission.MODELS),
    }

    @operation(
        "get",
        pagination_class=None,
        filter_backends=[],
        responses=VersionRewardSerializer(many=True),
        parameters=[
            OpenApiParameter("collection", OpenApiTypes.INT, description="Only the rollouts of this collection.")
        ],
    )
    def versions(self, request: Request, slug: str) -> Response:
        """Return the reward by version, in order of first appearance."""
        policy_model = self.get_object()
        rewards = track_versions(policy_model=policy_model, collection=_read_collection(request, policy_model))
        return Response(VersionRewardSerializer(rewards, many=True).data)

    @operation(url_path="try", request=TrySerializer, responses=TrialSerializer)
    def try_it(self, request: Request, slug: str) -> Response:
        """Send one prompt now and return the reply as a trace, which is not stored. Waits a minute at most."""
        policy_model = self.get_object()
        trial = try_model(policy_model=policy_model, user=self.user, **self.read_body(TrySerializer))
        events = [
            {"seq": seq, "kind": event_kind(event), "event": orjson.loads(encode_event(event))}
            for seq, event in enumerate(trial.events)
        ]
        return Response({"events": events, "captured_tokens": trial.captured, "cost": trial.cost})

    @operation(responses=PolicyModelSerializer)
    def check(self, request: Request, slug: str) -> Response:
        """Check the endpoint now with a tool call; see `health` and `health_checks` in the response."""
        return Response(self.get_serializer(probe_policy_model(policy_model=self.get_object())).data)

    @operation(url_path="check-logprobs", request=CheckLogprobsSerializer, responses=LogprobCheckSerializer)
    def check_logprobs(self, request: Request, slug: str) -> Response:
        """Score captured ids again, compare their log probabilities, and store the figures. Waits a minute at most.

        Without `scores`, the server of the model scores the newest rollouts of its current version, which needs vLLM's
        `prompt_logprobs`.
        """
        body = self.read_body(CheckLogprobsSerializer)
        scores = [CheckedSequence(**one) for one in body.pop("scores")]
        check = check_logprobs(policy_model=self.get_object(), user=self.user, scores=scores, **body)
        return Response(LogprobCheckSerializer(check).data)


def _read_collection(request: Request, policy_model: PolicyModel) -> Collection | None:
    message = f"The model {policy_model.slug} has no such collection."
    number = read_integer(request, "collection", message=message)
    if number is None:
        return None
    found = Collection.objects.filter(policy_model=policy_model, pk=number).first()
    if found is None:
        raise bad_query("collection", message)
    return found
