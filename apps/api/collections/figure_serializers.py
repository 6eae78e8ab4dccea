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


class ComponentSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    count = serializers.IntegerField(help_text="Completed rollouts that have it.")
    mean = serializers.FloatField()
    std = serializers.FloatField(allow_null=True)
    median = serializers.FloatField()
    confidence = serializers.ListField(
        child=serializers.FloatField(), allow_null=True, help_text="95 % interval of the mean, clustered by task."
    )


class ToolSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    rollouts = serializers.IntegerField(help_text="Completed rollouts that called it.")
    calls = serializers.IntegerField()
    errors = serializers.IntegerField()  # type: ignore[assignment]
    mean_duration = serializers.FloatField(help_text="Seconds a call.")


class LengthBarSerializer(serializers.Serializer[Any]):
    low = serializers.IntegerField(help_text="Fewest output tokens in this bar.")
    high = serializers.IntegerField()
    count = serializers.IntegerField()
    mean_reward = serializers.FloatField()


class FiguresSerializer(serializers.Serializer[Any]):
    """What is known of a whole collection and of each share of it."""

    rollouts = serializers.IntegerField()
    completed = serializers.IntegerField()
    failed = serializers.IntegerField()
    rewarded = serializers.IntegerField(help_text="Completed with a reward; a failed rollout has none.")
    tasks = serializers.IntegerField(help_text="Tasks with a reward.")
    mean_reward = serializers.FloatField(allow_null=True)
    std = serializers.FloatField(allow_null=True)
    median = serializers.FloatField(allow_null=True)
    min_reward = serializers.FloatField(allow_null=True)
    max_reward = serializers.FloatField(allow_null=True)
    confidence = serializers.ListField(
        child=serializers.FloatField(), allow_null=True, help_text="95 % interval of the mean, clustered by task."
    )
    pass_at_1 = serializers.FloatField(allow_null=True)
    pass_at_k = serializers.DictField(child=serializers.FloatField(), help_text="By k: 1, 2, 4, …")
    average_of_k = serializers.DictField(
        child=serializers.FloatField(), help_text="Mean reward of k attempts, over the tasks that have as many."
    )
    majority_at_k = serializers.DictField(
        child=serializers.FloatField(), help_text="How often the answer that most of k attempts give is right."
    )
    groups = serializers.DictField(
        child=serializers.IntegerField(), help_text="Tasks solved never, sometimes, and always."
    )
    stop_reasons = serializers.DictField(child=serializers.IntegerField())
    errors = serializers.DictField(child=serializers.IntegerField(), help_text="Failed rollouts by kind.")  # type: ignore[assignment]
    components = serializers.DictField(child=serializers.FloatField(), help_text="Mean of each reward component.")
    component_figures = ComponentSerializer(many=True)
    tokens = serializers.DictField(child=serializers.IntegerField())
    cost = serializers.FloatField(help_text="USD of the attempts that ended last.")
    mean_turns = serializers.FloatField(allow_null=True)
    mean_duration = serializers.FloatField(allow_null=True, help_text="Seconds.")
    mean_tool_calls = serializers.FloatField(allow_null=True)
    latency = serializers.DictField(
        child=serializers.FloatField(), help_text="Mean seconds a completed rollout spent in model, tools and verify."
    )


AS_OF = "The figures count everything that was stored before this time."


class MetricsSerializer(FiguresSerializer):
    as_of = serializers.DateTimeField(help_text=AS_OF)
    histogram = HistogramBinSerializer(many=True)
    tools = ToolSerializer(many=True, help_text="Calls by tool in completed rollouts.")
    judge = JudgeFiguresSerializer(allow_null=True, help_text="Null where no judge model scores.")
    by_length = LengthBarSerializer(many=True, help_text="Reward by output tokens.")
