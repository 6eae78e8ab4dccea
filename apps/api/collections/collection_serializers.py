"""Serializers of collections, for lists and for one collection."""

from typing import Any

from rest_framework import serializers

from apps.rollouts.models import Collection
from apps.rollouts.plans.plan_spec import LIMITS
from apps.rollouts.steering.holds import explain_pause, find_holds


class CollectionSerializer(serializers.ModelSerializer[Collection]):
    dataset = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True)
    version = serializers.IntegerField(source="version.number", read_only=True)
    environment = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True)
    agent = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True)
    policy_model = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True)
    sampling = serializers.DictField(read_only=True)
    split_repeats = serializers.DictField(child=serializers.IntegerField(), read_only=True)
    splits = serializers.ListField(child=serializers.CharField(), read_only=True)
    tags = serializers.ListField(child=serializers.CharField(), read_only=True)
    prompt_template = serializers.DictField(child=serializers.CharField(), read_only=True)
    resume_from = serializers.PrimaryKeyRelatedField[Any](read_only=True, allow_null=True)
    is_archived = serializers.BooleanField(read_only=True)
    snapshot_digest = serializers.CharField(
        read_only=True,
        help_text="SHA-256 of the resolved configuration. Collections with the same digest ran with the same settings.",
    )
    mean_reward = serializers.FloatField(read_only=True, allow_null=True)
    cost = serializers.FloatField(
        source="known_cost",
        read_only=True,
        allow_null=True,
        help_text="USD of all finished attempts, judge included; null if the models have no prices.",
    )

    class Meta:
        model = Collection
        fields = [
            "id",
            "name",
            "dataset",
            "version",
            "environment",
            "agent",
            "policy_model",
            "repeats",
            "solve_threshold",
            "limit",
            "split_repeats",
            "splits",
            "tags",
            "search",
            "resume_from",
            "only_failed",
            "seed",
            "sampling",
            "prompt_template",
            *LIMITS,
            "state",
            "pause_reason",
            "is_archived",
            "traces_deleted_at",
            "rules_version",
            "snapshot_digest",
            "total",
            "completed",
            "failed",
            "cancelled",
            "retried",
            "rewarded",
            "mean_reward",
            "input_tokens",
            "output_tokens",
            "judge_tokens",
            "calls_without_usage",
            "retried_calls",
            "cost",
            "created_at",
            "started_at",
            "finished_at",
        ]


CHANGING_FIELDS = frozenset(
    {
        "total", "completed", "failed", "cancelled", "retried", "rewarded", "mean_reward", "input_tokens",
        "output_tokens", "judge_tokens", "calls_without_usage", "retried_calls", "cost", "started_at", "finished_at",
        "held_back_by",
    }
)  # fmt: skip
"""Fields that change by themselves while a collection runs."""


class CollectionDetailSerializer(CollectionSerializer):
    held_back_by = serializers.SerializerMethodField(
        help_text="Reasons why rollouts wait: a pause and how to end it, open circuit breakers, an unhealthy "
        "environment server, a full disk, throttled endpoints, or seats and slots that other collections have taken."
    )

    snapshot = serializers.DictField(
        read_only=True, help_text="The resolved configuration: agent, model, environment, sampling and choice of tasks."
    )

    class Meta(CollectionSerializer.Meta):
        fields = [*CollectionSerializer.Meta.fields, "held_back_by", "snapshot"]

    def get_held_back_by(self, collection: Collection) -> list[str]:
        pause = explain_pause(collection)
        return [*([f"Paused, since {pause}"] if pause else []), *map(str, find_holds(collection))]
