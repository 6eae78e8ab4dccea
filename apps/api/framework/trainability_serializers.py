"""Serializers of the trainability ledger."""

from typing import Any

from rest_framework import serializers

from apps.api.framework.record_serializers import make_serializer, record_serializer
from apps.gym.training_ledger import LeftOut, Trainability

LeftOutSerializer = make_serializer(
    "LeftOut",
    LeftOut,
    reason="ID of the reason.",
    level="What is left out.",
    label="The reason, to follow the count.",
    override="Filter or option that includes it, or the person who can; empty if nothing does.",
    filter="Rollout filter that finds such rollouts of a collection; empty if only a format decides.",
)


@record_serializer(
    Trainability,
    considered="`used` plus the counts of `left_out` whose level is neither turn nor token.",
    used="Rollouts, tasks or pairs that may be trained on.",
    rows="Rows of the export; null for a collection.",
    sampled_tokens="Captured tokens that the model sampled; null without token IDs.",
    trainable_tokens="Of these, tokens in the loss; null without token IDs.",
    grammar="What made the server use a grammar, if no sampled token is trainable; empty otherwise.",
    notice="Warning if no sampled token is trainable, foreign turns are trained or requests altered the sampling of "
    "tokens, with the remedy; empty otherwise.",
    altered_sampling="Used rollouts of an export by the field that altered their sampling, such as top_p.",
)
class TrainabilitySerializer(serializers.Serializer[Any]):
    """What may be trained on, and why the rest may not."""

    left_out = LeftOutSerializer(many=True)
