"""Serializers of the figures of a collection."""

from typing import Any

from rest_framework import serializers

from apps.api.framework.record_serializers import make_serializer, record_serializer
from apps.rollouts.metrics.collection_figures import JudgeFigures, LengthBar, ToolFigures
from apps.rollouts.metrics.components import ComponentFigures
from apps.rollouts.metrics.label_figures import Figures


class HistogramBinSerializer(serializers.Serializer[Any]):
    low = serializers.FloatField()
    high = serializers.FloatField()
    count = serializers.IntegerField()


JudgeFiguresSerializer = make_serializer(
    "JudgeFigures",
    JudgeFigures,
    tokens="Input and output tokens of the judge.",
    failed="Rollouts without a reward because the judge failed.",
    contradicted="Of these, rollouts with contradictory verdicts after swapping.",
    agreement="Share of comparisons with the same verdict in both orders; null without comparisons.",
)


ComponentSerializer = make_serializer(
    "Component",
    ComponentFigures,
    count="Completed rollouts with this component.",
    confidence="95 % interval of the mean, clustered by task.",
)


ToolSerializer = make_serializer(
    "Tool",
    ToolFigures,
    rollouts="Completed rollouts that called the tool.",
    mean_duration="Mean seconds per call.",
)


LengthBarSerializer = make_serializer(
    "LengthBar",
    LengthBar,
    low="Lower bound of output tokens.",
)


@record_serializer(
    Figures,
    rewarded="Completed rollouts with a reward.",
    tasks="Tasks with a reward.",
    confidence="95 % interval of the mean, clustered by task.",
    pass_at_k="By k: 1, 2, 4, …",  # noqa: S106
    average_of_k="Mean best reward of k attempts, over tasks with at least k attempts.",
    majority_at_k="Accuracy of the majority answer of k attempts.",
    groups="Tasks never, sometimes and always solved.",
    errors="Failed rollouts by kind.",
    components="Mean of each reward component.",
    cost="USD of the latest attempts.",
    mean_duration="Seconds.",
    latency="Mean seconds per completed rollout in model, tools and verification.",
)
class FiguresSerializer(serializers.Serializer[Any]):
    """Figures of a collection, or of one share."""

    cancelled = None
    component_figures = ComponentSerializer(many=True)


AS_OF = "The figures include everything stored before this time."


class MetricsSerializer(FiguresSerializer):
    as_of = serializers.DateTimeField(help_text=AS_OF)
    histogram = HistogramBinSerializer(many=True)
    tools = ToolSerializer(many=True, help_text="Calls by tool in completed rollouts.")
    judge = JudgeFiguresSerializer(allow_null=True, help_text="Null without a judge model.")
    by_length = LengthBarSerializer(many=True, help_text="Reward by output tokens.")
