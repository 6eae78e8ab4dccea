"""Rechecks: derive stored rollouts again with the current rules, list the changes and apply them."""

from http import HTTPStatus
from typing import Any

import django_filters
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import Permission
from apps.api.export_viewsets import ExportSerializer
from apps.api.framework.base_viewsets import RowViewSet, operation, row_action
from apps.api.framework.declared_fields import DeclaredFields
from apps.api.framework.query_filters import IdFilter, filter_set
from apps.api.pairs.pair_serializers import PairSerializer
from apps.api.reviews.opinion_viewsets import RewardOverrideSerializer
from apps.api.reviews.review_serializers import ReviewSerializer
from apps.exports.models import Export
from apps.exports.rechecks.recheck_jobs import apply_recheck, cancel_recheck, queue_recheck, resume_recheck
from apps.exports.rechecks.stale_outputs import find_overrides, find_pairs, find_reviews
from apps.rollouts.models import Collection, Recheck, RolloutChange


class RecheckSerializer(serializers.ModelSerializer[Recheck]):
    changed = serializers.IntegerField(read_only=True, help_text="Rollouts that differ from the current rules.")
    reverifications: Any = serializers.PrimaryKeyRelatedField(
        many=True, read_only=True, help_text="Queued for the rollouts whose verifier saw another conversation."
    )
    exports = serializers.ListField(
        child=serializers.IntegerField(), read_only=True, help_text="Exports that used rollouts with another outcome."
    )

    class Meta:
        model = Recheck
        fields = [
            "id",
            "collection",
            "rules",
            "state",
            "applies",
            "total",
            "checked",
            "changed",
            "outcomes",
            "untrainable",
            "counts",
            "to_verify",
            "applied",
            "skipped",
            "exports",
            "reverifications",
            "message",
            "created_at",
            "finished_at",
        ]


class RecheckOrderSerializer(DeclaredFields, serializers.Serializer[Any]):
    collection = serializers.PrimaryKeyRelatedField(queryset=Collection.objects.present())


class RolloutChangeSerializer(serializers.ModelSerializer[RolloutChange]):
    old = serializers.DictField(read_only=True, help_text="Stored values of the fields that differ.")
    new = serializers.DictField(
        read_only=True, help_text="Values by the current rules. `links` has the parents of changed calls, by call."
    )

    class Meta:
        model = RolloutChange
        fields = ["id", "rollout", "kind", "old", "new", "needs_verification", "fate"]


class RecheckViewSet(RowViewSet):
    noun = "recheck"
    queryset = Recheck.objects.select_related("collection").prefetch_related("reverifications")
    serializer_class = RecheckSerializer
    filterset_class = filter_set(
        collection=IdFilter("collection"), state=django_filters.ChoiceFilter(choices=Recheck.State.choices)
    )
    page_actions = frozenset({"list", "changes", "pairs", "exports", "reviews", "overrides"})
    permissions = {
        **dict.fromkeys(["list", "retrieve", "changes", "pairs", "exports", "reviews", "overrides"], Permission.READ),
        **dict.fromkeys(["create", "apply", "cancel", "resume"], Permission.COLLECT),
    }

    @extend_schema(request=RecheckOrderSerializer, responses={201: RecheckSerializer})
    def create(self, request: Request) -> Response:
        """Recheck the rollouts of a collection in the background, or return the unfinished recheck.

        No rollout changes until the recheck is applied. If nothing differs, its state becomes `applied`.
        """
        queued = queue_recheck(**self.read_body(RecheckOrderSerializer), user=self.user)
        return Response(RecheckSerializer(queued).data, status=HTTPStatus.CREATED)

    @operation("get", filterset_class=None, responses=RolloutChangeSerializer(many=True))
    def changes(self, request: Request, pk: str) -> Response:
        """List the rollouts that differ from the current rules, with old and new values."""
        return self.answer_page(RolloutChangeSerializer, self.get_object().changes.all())

    @operation("get", filterset_class=None, responses=PairSerializer(many=True))
    def pairs(self, request: Request, pk: str) -> Response:
        """List the pairs with a side whose outcome changes."""
        return self.answer_page(PairSerializer, find_pairs(self.get_object()).order_by("pk"))

    @operation("get", filterset_class=None, responses=ExportSerializer(many=True))
    def exports(self, request: Request, pk: str) -> Response:
        """List the exports that used a rollout whose outcome changes."""
        used = Export.objects.filter(pk__in=self.get_object().exports)
        return self.answer_page(ExportSerializer, used.order_by("pk"))

    @operation("get", filterset_class=None, responses=ReviewSerializer(many=True))
    def reviews(self, request: Request, pk: str) -> Response:
        """List the reviews of rollouts whose outcome changes. They stay as they are."""
        reviews = find_reviews(self.get_object()).select_related("reviewer", "rubric", "queue", "item__task")
        return self.answer_page(ReviewSerializer, reviews.order_by("pk"))

    @operation("get", filterset_class=None, responses=RewardOverrideSerializer(many=True))
    def overrides(self, request: Request, pk: str) -> Response:
        """List the active reward overrides of rollouts whose outcome changes. They stay as they are."""
        overrides = find_overrides(self.get_object()).select_related("author", "ended_by")
        return self.answer_page(RewardOverrideSerializer, overrides.order_by("pk"))

    @operation(responses=RecheckSerializer)
    def apply(self, request: Request, pk: str) -> Response:
        """Write the changes to the rollouts, in the background, and mark pairs and exports that used them as stale.

        Rollouts that changed since the check are skipped. Verdicts and overrides of people are never changed.
        """
        return Response(RecheckSerializer(apply_recheck(recheck=self.get_object(), user=self.user)).data)

    cancel = row_action("cancel", cancel_recheck, "Cancel a recheck. Changes that are already written stay.")
    resume = row_action("resume", resume_recheck, "Continue a cancelled or failed recheck where it stopped.")
