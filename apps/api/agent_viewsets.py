"""Agents: the harness around the policy model."""

from rest_framework import serializers
from rest_framework.mixins import CreateModelMixin, ListModelMixin, RetrieveModelMixin, UpdateModelMixin

from apps.accounts.permissions import Permission
from apps.agents.agent_changes import save_agent
from apps.agents.models import Agent
from apps.api.framework.base_viewsets import SLUG, TableViewSet, assign
from apps.api.framework.declared_fields import DeclaredFields


class AgentSerializer(DeclaredFields, serializers.ModelSerializer[Agent]):
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
            "token_limit",
            "parallel_tool_calls",
            "sampling",
            "created_at",
            "updated_at",
        ]


class AgentViewSet(CreateModelMixin, UpdateModelMixin, ListModelMixin, RetrieveModelMixin, TableViewSet):
    queryset = Agent.objects.all()
    serializer_class = AgentSerializer
    lookup_field = "slug"
    lookup_value_regex = SLUG
    permissions = {
        "list": Permission.READ,
        "retrieve": Permission.READ,
        "create": Permission.CONFIGURE,
        "update": Permission.CONFIGURE,
        "partial_update": Permission.CONFIGURE,
    }

    def perform_create(self, serializer: serializers.BaseSerializer[Agent]) -> None:
        self._save(serializer, Agent())

    def perform_update(self, serializer: serializers.BaseSerializer[Agent]) -> None:
        self._save(serializer, self.get_object())

    def _save(self, serializer: serializers.BaseSerializer[Agent], agent: Agent) -> None:
        assign(agent, serializer.validated_data)
        serializer.instance = save_agent(agent=agent, user=self.person)
