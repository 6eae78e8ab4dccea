"""Agents: the harness around the policy model."""

from rest_framework import serializers
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin

from apps.accounts.permissions import Permission
from apps.agents.models import Agent
from apps.api.viewsets import TableViewSet


class AgentSerializer(serializers.ModelSerializer[Agent]):
    examples = serializers.ListField(
        child=serializers.DictField(), required=False, help_text="Few-shot examples: Responses items."
    )
    sampling = serializers.DictField(required=False)

    class Meta:
        model = Agent
        fields = [
            "id",
            "slug",
            "name",
            "system_prompt",
            "examples",
            "max_steps",
            "time_limit",
            "parallel_tool_calls",
            "sampling",
            "created_at",
            "updated_at",
        ]


class AgentViewSet(ListModelMixin, RetrieveModelMixin, TableViewSet):
    queryset = Agent.objects.all()
    serializer_class = AgentSerializer
    lookup_field = "slug"
    permissions = {"list": Permission.READ, "retrieve": Permission.READ}
