"""Checks of captured log probabilities: the figures, and scores that another model computed."""

from typing import Any

from rest_framework import serializers

from apps.api.framework.declared_fields import DeclaredFields
from apps.api.framework.record_serializers import make_serializer
from apps.rollouts.logprob_checks import MAX_ROLLOUTS, LogprobCheck
from apps.rollouts.models import Collection

LogprobCheckSerializer = make_serializer(
    "LogprobCheck",
    LogprobCheck,
    compared_with="`server`, or what computed the scores.",
    version="The model's version.",
    figures="Absolute differences in nats, of all compared tokens and of those with a probability below 0.9, and the "
    "importance ratios exp(recomputed − captured) of whole sequences.",
    left_out="Tokens and sequences that cannot be compared, by reason.",
    problem="First error of the server; empty if it scored all sequences.",
)


class CheckedSequenceSerializer(DeclaredFields, serializers.Serializer[Any]):
    rollout = serializers.IntegerField()
    segment = serializers.IntegerField(min_value=0, help_text="Its place in `segments` of the tokens of the rollout.")
    logprobs = serializers.ListField(
        child=serializers.FloatField(), help_text="One for each of the `input_ids`; 0 for the first."
    )


class CheckLogprobsSerializer(DeclaredFields, serializers.Serializer[Any]):
    collection = serializers.PrimaryKeyRelatedField(
        queryset=Collection.objects.all(),
        required=False,
        allow_null=True,
        default=None,
        help_text="Only rollouts of this collection.",
    )
    rollouts = serializers.IntegerField(
        required=False, default=32, min_value=1, max_value=MAX_ROLLOUTS, help_text="Maximum number of rollouts."
    )
    scores = CheckedSequenceSerializer(
        many=True, required=False, default=list, help_text="Scores by another model. Left out: the server scores."
    )
    compared_with = serializers.CharField(
        required=False,
        default="",
        allow_blank=True,
        max_length=200,
        help_text="What computed the scores, for example a folder and a data type.",
    )
