"""Serializers of reviews, and of the requests to submit, renew, skip, undo and score."""

from typing import Any

import orjson
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.accounts.permissions import Permission
from apps.api.framework.declared_fields import DeclaredFields
from apps.gym.pairs.verdicts import CHOICES, REASONS
from apps.reviews.models import Review, Rubric
from apps.reviews.queues.blind_items import item_view_as_dict, read_item_view, reveal
from apps.reviews.queues.item_leases import MAX_DRAFT
from apps.reviews.reviews.drafts import find_draft_problem
from apps.rollouts.models import Rollout

MAX_TOKEN = 64


class AnswerSerializer(DeclaredFields, serializers.Serializer[Any]):
    token = serializers.CharField(
        max_length=MAX_TOKEN,
        help_text="An id that you choose for each submission. Repeated submissions with the same id count once.",
    )
    choice = serializers.ChoiceField(
        choices=list(CHOICES), required=False, allow_blank=True, help_text="Verdict on a pair."
    )
    ranks = serializers.ListField(
        child=serializers.IntegerField(min_value=1, max_value=6),
        required=False,
        max_length=6,
        help_text="Ranks in the order shown: 1 is best, equal ranks are ties.",
    )
    scores = serializers.DictField(required=False, help_text="Scores by criterion key.")
    reasons = serializers.ListField(
        child=serializers.ChoiceField(choices=list(REASONS)), required=False, max_length=len(REASONS)
    )
    note = serializers.CharField(required=False, allow_blank=True, max_length=10_000)
    confidence = serializers.IntegerField(
        required=False, allow_null=True, min_value=1, max_value=3, help_text="1 unsure, 2 fairly sure, 3 sure."
    )


class AdjudicationSerializer(AnswerSerializer):
    saw_votes = serializers.BooleanField(
        required=False,
        allow_null=True,
        default=None,
        help_text="True if you saw reviews, rewards and models before this review.",
    )


class SubmissionSerializer(AnswerSerializer):
    claim = serializers.BooleanField(
        default=False, help_text="Also claim the next item: `next` in the response is its review."
    )


class DraftSerializer(DeclaredFields, serializers.Serializer[Any]):
    draft = serializers.DictField(
        required=False, help_text="Draft in the fields of an answer. Omitted fields do not change."
    )

    def validate_draft(self, draft: dict[str, Any]) -> dict[str, Any]:
        if len(orjson.dumps(draft)) > MAX_DRAFT:
            raise serializers.ValidationError(f"A draft has at most {MAX_DRAFT:,} bytes.")
        if problem := find_draft_problem(draft):
            raise serializers.ValidationError(problem)
        return draft


class SkipSerializer(DeclaredFields, serializers.Serializer[Any]):
    reason = serializers.CharField(max_length=500)


class UndoSerializer(DeclaredFields, serializers.Serializer[Any]):
    review = serializers.IntegerField(
        required=False,
        allow_null=True,
        min_value=1,
        max_value=2**63 - 1,
        help_text="Review to undo. It must be your last one. Default: your last review. Give it to "
        "make repeated requests safe.",
    )


class ScoreSerializer(DeclaredFields, serializers.Serializer[Any]):
    rollout = serializers.PrimaryKeyRelatedField(queryset=Rollout.objects.filter(collection__is_being_deleted=False))
    seq = serializers.IntegerField(required=False, allow_null=True, min_value=0, max_value=2**31 - 1)
    rubric = serializers.SlugRelatedField[Any](slug_field="slug", queryset=Rubric.objects.all())
    scores = serializers.DictField()
    note = serializers.CharField(required=False, allow_blank=True, max_length=10_000)
    token = serializers.CharField(required=False, allow_blank=True, max_length=MAX_TOKEN)


class ShownSideSerializer(serializers.Serializer[Any]):
    label = serializers.CharField(help_text="A is the first side.")  # type: ignore[assignment]
    events = serializers.ListField(child=serializers.DictField())
    left_out = serializers.IntegerField(help_text="Number of further events.")
    stop_reason = serializers.CharField()
    reward = serializers.FloatField(allow_null=True, help_text="Null if hidden from you.")
    model = serializers.CharField(allow_null=True)


class ShownSerializer(serializers.Serializer[Any]):
    prompt = serializers.ListField(child=serializers.DictField())
    expected = serializers.DictField(allow_null=True, help_text="Null if hidden from you.")
    sides = ShownSideSerializer(many=True)


class RevealedSerializer(serializers.Serializer[Any]):
    label = serializers.CharField()  # type: ignore[assignment]
    rollout = serializers.IntegerField()
    reward = serializers.FloatField(allow_null=True)
    model = serializers.CharField()


class ReviewSerializer(serializers.ModelSerializer[Review]):
    """A review. For annotators it does not name the rollouts of a queue."""

    reviewer = serializers.SlugRelatedField[Any](slug_field="username", read_only=True)
    rubric = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True, allow_null=True)
    draft = serializers.DictField(read_only=True)
    scores = serializers.DictField(read_only=True)
    ranks = serializers.ListField(child=serializers.IntegerField(), read_only=True)
    reasons = serializers.ListField(child=serializers.CharField(), read_only=True)
    shown = serializers.SerializerMethodField(help_text="Content to review, while open. Null after `renew`.")
    revealed = serializers.SerializerMethodField(help_text="Results, in a training queue, after submitting.")
    rollouts = serializers.SerializerMethodField(help_text="In the order shown; null for annotators.")

    class Meta:
        model = Review
        fields = [
            "id",
            "queue",
            "item",
            "reviewer",
            "status",
            "rubric",
            "seq",
            "leased_until",
            "draft",
            "choice",
            "ranks",
            "scores",
            "reasons",
            "note",
            "confidence",
            "skip_reason",
            "started_at",
            "submitted_at",
            "skipped_at",
            "seconds",
            "is_adjudication",
            "saw_votes",
            "could_see_results",
            "shown",
            "revealed",
            "rollouts",
        ]

    @extend_schema_field(ShownSerializer(allow_null=True))
    def get_shown(self, review: Review) -> dict[str, Any] | None:
        view = self.context.get("view")
        # Not with each saved draft: the client already has the item, which may be a megabyte.
        is_one = getattr(view, "action", "") in {"retrieve", "claim", "undo"}
        if review.status not in {Review.Status.OPEN, Review.Status.LAPSED} or review.queue is None or not is_one:
            return None
        return item_view_as_dict(review, read_item_view(review))

    @extend_schema_field(RevealedSerializer(many=True))
    def get_revealed(self, review: Review) -> list[dict[str, Any]]:
        return reveal(review)

    @extend_schema_field({"type": "array", "items": {"type": "integer"}, "nullable": True})
    def get_rollouts(self, review: Review) -> list[int] | None:
        view = self.context.get("view")
        if review.queue_id is None:
            return [review.rollout_id] if review.rollout_id else []
        return list(review.arrangement) if view is not None and view.may(Permission.READ) else None


class SubmittedSerializer(ReviewSerializer):
    next = serializers.SerializerMethodField(help_text="Review of the next item, if `claim` was set.")

    class Meta(ReviewSerializer.Meta):
        fields = [*ReviewSerializer.Meta.fields, "next"]

    @extend_schema_field({"type": "integer", "nullable": True})
    def get_next(self, review: Review) -> int | None:
        found: int | None = self.context.get("next")
        return found
