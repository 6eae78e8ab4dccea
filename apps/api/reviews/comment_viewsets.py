"""Comments on rollouts."""

from functools import partial
from typing import Any

from rest_framework import serializers
from rest_framework.mixins import CreateModelMixin

from apps.accounts.permissions import Permission
from apps.api.framework.base_viewsets import RowViewSet, row_action
from apps.api.framework.declared_fields import DeclaredFields
from apps.api.framework.query_filters import FlagFilter, IdFilter, filter_set
from apps.reviews.comments.commenting import add_comment, resolve_comment
from apps.reviews.models import Comment


class CommentSerializer(DeclaredFields, serializers.ModelSerializer[Comment]):
    author = serializers.SlugRelatedField[Any](slug_field="username", read_only=True, allow_null=True)
    resolved_by = serializers.SlugRelatedField[Any](slug_field="username", read_only=True, allow_null=True)

    class Meta:
        model = Comment
        fields = [
            "id",
            "rollout",
            "seq",
            "quote",
            "start",
            "parent",
            "author",
            "text",
            "created_at",
            "resolved_at",
            "resolved_by",
        ]
        read_only_fields = ["resolved_at"]


class CommentViewSet(CreateModelMixin, RowViewSet):
    noun = "comment"
    queryset = Comment.objects.select_related("author", "resolved_by")
    serializer_class = CommentSerializer
    filterset_class = filter_set(
        rollout=IdFilter("rollout"),
        collection=IdFilter("rollout__collection"),
        resolved=FlagFilter("resolved_at", lookup_expr="isnull", exclude=True),
    )
    permissions = {
        **dict.fromkeys(["list", "retrieve"], Permission.READ),
        **dict.fromkeys(["create", "resolve", "reopen"], Permission.COMMENT),
    }

    def perform_create(self, serializer: serializers.BaseSerializer[Comment]) -> None:
        serializer.instance = add_comment(**serializer.validated_data, author=self.user)

    resolve = row_action(
        "resolve", resolve_comment, "Resolve the thread of this comment. Returns the first comment of the thread."
    )
    reopen = row_action("reopen", partial(resolve_comment, resolved=False), "Reopen a resolved thread.")
