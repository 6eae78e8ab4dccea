"""Comments on rollouts."""

from typing import Any

import django_filters
from rest_framework import serializers
from rest_framework.mixins import CreateModelMixin, ListModelMixin, RetrieveModelMixin

from apps.accounts.permissions import Permission
from apps.api.declared import DeclaredFields
from apps.api.filters import IdFilter
from apps.api.viewsets import TableViewSet
from apps.reviews.commenting import add_comment
from apps.reviews.models import Comment


class CommentSerializer(DeclaredFields, serializers.ModelSerializer[Comment]):
    author = serializers.SlugRelatedField[Any](slug_field="username", read_only=True)

    class Meta:
        model = Comment
        fields = ["id", "rollout", "seq", "author", "text", "created_at"]


class CommentFilter(django_filters.FilterSet):
    rollout = IdFilter("rollout")

    class Meta:
        model = Comment
        fields: list[str] = []


class CommentViewSet(CreateModelMixin, ListModelMixin, RetrieveModelMixin, TableViewSet):
    queryset = Comment.objects.select_related("author")
    serializer_class = CommentSerializer
    filterset_class = CommentFilter
    lookup_value_regex = "[0-9]+"
    permissions = {"list": Permission.READ, "retrieve": Permission.READ, "create": Permission.COMMENT}

    def perform_create(self, serializer: serializers.BaseSerializer[Comment]) -> None:
        serializer.instance = add_comment(**serializer.validated_data, author=self.person)
