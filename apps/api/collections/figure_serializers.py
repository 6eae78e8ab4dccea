"""Serializers of the figures of a collection."""

from typing import Any

from rest_framework import serializers

from apps.api.framework.record_serializers import make_serializer, record_serializer, serializer_of
from apps.api.framework.trainability_serializers import TrainabilitySerializer
from apps.gym.metrics.first_k import FirstAttempts
from apps.gym.setup_notices import SetupNotice
from apps.reviews.agreement.reward_agreement import RewardAgreement
from apps.rollouts.metrics.collection_figures import JudgeFigures, LengthBar, ToolFigures
from apps.rollouts.metrics.components import ComponentFigures
from apps.rollouts.metrics.figure_names import FIRST_K, HELP
from apps.rollouts.metrics.label_figures import Figures
from apps.rollouts.models import ServerMetrics


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
    confidence="95 % interval of the mean, clustered by task; null for fewer than five tasks.",
)


ToolSerializer = make_serializer(
    "Tool",
    ToolFigures,
    rollouts="Completed rollouts that called the tool.",
    mean_duration="Mean seconds per call; null if the agents ran the tool themselves.",
)


LengthBarSerializer = make_serializer(
    "LengthBar",
    LengthBar,
    low="Lower bound of output tokens.",
)


@record_serializer(
    Figures,
    rewarded="Completed rollouts with a reward.",
    masked="Completed rollouts whose verifier reported that the reward is no valid measurement.",
    tasks="Tasks with a reward.",
    missing="Rollouts of the plan without a reward.",
    standard_error="Standard error of the mean reward, clustered by task.",
    confidence="95 % interval of the mean reward, clustered by task; null for fewer than five tasks.",
    pass_at_k=f"{HELP['pass_at_k']} By k.",
    average_of_k=f"{HELP['average_of_k']} By k.",
    majority_at_k=f"{HELP['majority_at_k']} By k.",
    no_answer="Share of rewarded rollouts without a final answer.",
    groups="Tasks never, sometimes and always solved.",
    errors="Failed rollouts by kind.",
    components="Mean of each reward component.",
    cost="USD of the latest attempts; null if the models have no prices.",
    mean_duration="Seconds.",
    latency="Mean seconds per completed rollout in model, tools and verification.",
)
class FiguresSerializer(serializers.Serializer[Any]):
    """Figures of a collection, or of one share."""

    cancelled = None
    component_figures = ComponentSerializer(many=True)


AS_OF = "The figures include everything stored before this time."


FirstAttemptsSerializer = make_serializer(
    "FirstAttempts", FirstAttempts, **{each.name: f"{each.help}." for each in FIRST_K}
)


RewardAgreementSerializer = make_serializer(
    "RewardAgreement",
    RewardAgreement,
    rollouts="Rollouts with a reward and an answer of most reviewers.",
    ties="Rollouts left out because reviewers disagree equally.",
    same="Rollouts with yes that are solved, and with no that are not.",
    auc="Probability that a rollout with yes has a higher reward than one with no; null without both.",
)


class MetricsSerializer(FiguresSerializer):
    as_of = serializers.DateTimeField(help_text=AS_OF)
    best_of_k = serializers.DictField(child=serializers.FloatField(), help_text=f"{HELP['best_of_k']} By k.")
    first_k = FirstAttemptsSerializer(many=True, help_text="Metrics of the first k rollouts of each task.")
    histogram = HistogramBinSerializer(many=True)
    tools = ToolSerializer(many=True, help_text="Calls by tool in completed rollouts.")
    judge = JudgeFiguresSerializer(allow_null=True, help_text="Null without a judge model.")
    blind_reviews = RewardAgreementSerializer(many=True, help_text="Rewards against yes/no answers in blind queues.")
    by_length = LengthBarSerializer(many=True, help_text="Reward by output tokens.")
    trainability = TrainabilitySerializer(help_text="What may be trained on, and why the rest may not.")
    notices = serializer_of(SetupNotice)(many=True, help_text="Signs that the server, not the model, decided outcomes.")


class ServerMetricsSerializer(serializers.ModelSerializer[ServerMetrics]):
    """Metrics by the names that the server gives them. Its replies are kept if a later request fails."""

    key_metrics = serializers.DictField(read_only=True, help_text="The server's headlines.")
    agent_metrics = serializers.DictField(read_only=True, help_text="All metrics of the server.")
    is_outdated = serializers.BooleanField(read_only=True, help_text="Rewards have changed since.")

    class Meta:
        model = ServerMetrics
        fields = ["state", "message", "key_metrics", "agent_metrics", "rewarded", "measured_at", "is_outdated"]
