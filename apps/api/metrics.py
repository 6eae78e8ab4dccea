"""The figures of a collection, as the API shows them."""

from typing import Any

from rest_framework import serializers


class HistogramBinSerializer(serializers.Serializer[Any]):
    low = serializers.FloatField()
    high = serializers.FloatField()
    count = serializers.IntegerField()


class JudgeFiguresSerializer(serializers.Serializer[Any]):
    calls = serializers.IntegerField()
    tokens = serializers.IntegerField(help_text="Read and written by the judge.")
    failed = serializers.IntegerField(help_text="Rollouts without a reward because the judge failed.")
    contradicted = serializers.IntegerField(help_text="Those among them whose judge contradicted itself when swapped.")
    agreement = serializers.FloatField(
        allow_null=True,
        help_text="How often both orders of a comparison were answered alike; null: nothing is compared.",
    )


class MetricsSerializer(serializers.Serializer[Any]):
    rollouts = serializers.IntegerField()
    completed = serializers.IntegerField()
    failed = serializers.IntegerField()
    rewarded = serializers.IntegerField(help_text="Completed with a reward; a failed rollout has none.")
    mean_reward = serializers.FloatField(allow_null=True)
    std = serializers.FloatField(allow_null=True)
    pass_at_1 = serializers.FloatField(allow_null=True)
    pass_at_k = serializers.DictField(child=serializers.FloatField(), help_text="By k: 1, 2, 4, …")
    groups = serializers.DictField(
        child=serializers.IntegerField(), help_text="Tasks solved never, sometimes, and always."
    )
    histogram = HistogramBinSerializer(many=True)
    stop_reasons = serializers.DictField(child=serializers.IntegerField())
    errors = serializers.DictField(child=serializers.IntegerField(), help_text="Failed rollouts by kind.")  # type: ignore[assignment]
    components = serializers.DictField(child=serializers.FloatField(), help_text="Mean of each reward component.")
    tokens = serializers.DictField(child=serializers.IntegerField())
    judge = JudgeFiguresSerializer(allow_null=True, help_text="Null where no judge model scores.")
    mean_turns = serializers.FloatField(allow_null=True)
    mean_duration = serializers.FloatField(allow_null=True, help_text="Seconds.")
