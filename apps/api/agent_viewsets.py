"""Agents: the harness around the policy model."""

from typing import Any

import django_filters
from rest_framework import serializers

from apps.accounts.permissions import Permission
from apps.agents.agent_changes import save_agent
from apps.agents.models import Agent
from apps.api.framework.base_viewsets import SlugViewSet
from apps.api.framework.declared_fields import DeclaredFields
from apps.api.framework.query_filters import WordsFilter, filter_set
from apps.api.framework.spec_serializers import spec_serializer
from apps.gym.boxes.command_spec import CommandSpec


@spec_serializer(CommandSpec)
class CommandSettingsSerializer(DeclaredFields, serializers.Serializer[Any]):
    """What the worker runs. Placeholders are filled in for each attempt."""


class AgentSerializer(DeclaredFields, serializers.ModelSerializer[Agent]):
    examples = serializers.ListField(
        child=serializers.DictField(), required=False, help_text="Few-shot examples: items of the Responses API."
    )
    sampling = serializers.DictField(required=False)
    command_settings = CommandSettingsSerializer(required=False, help_text="For the kind `command`.")

    class Meta:
        model = Agent
        fields = [
            "id",
            "slug",
            "name",
            "kind",
            "system_prompt",
            "examples",
            "max_steps",
            "time_limit",
            "token_limit",
            "parallel_tool_calls",
            "retry_empty_replies",
            "strict_tools",
            "sampling",
            "command_settings",
            "server_url",
            "server_route",
            "created_at",
            "updated_at",
        ]


class AgentViewSet(SlugViewSet):
    noun = "agent"
    save_row = staticmethod(save_agent)
    queryset = Agent.objects.all()
    serializer_class = AgentSerializer
    filterset_class = filter_set(q=WordsFilter(), kind=django_filters.ChoiceFilter(choices=Agent.Kind.choices))
    permissions = {
        **dict.fromkeys(["list", "retrieve"], Permission.READ),
        **dict.fromkeys(["create", "update", "partial_update"], Permission.CONFIGURE),
    }
