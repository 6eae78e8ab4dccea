"""Form of an agent. Saving checks that its few-shot examples form a conversation."""

from typing import Any

from django import forms

from apps.agents.models import Agent
from apps.dashboard.forms.fields import JSONTextField, NamedForm, count_from_one, slug_field


class AgentForm(NamedForm):
    slug = slug_field("agent")
    examples = JSONTextField(
        kind=list,
        rows=8,
        label="Few-shot examples",
        help_text='Responses items placed before the task input, e.g. [{"role": "user", "content": "…"}, '
        '{"role": "assistant", "content": "…"}].',
    )
    sampling = JSONTextField(
        kind=dict, help_text='Overrides the sampling defaults of the policy model, e.g. {"temperature": 0.7}.'
    )

    class Meta:
        model = Agent
        fields = [
            "name",
            "slug",
            "kind",
            "system_prompt",
            "examples",
            "max_steps",
            "time_limit",
            "token_limit",
            "parallel_tool_calls",
            "sampling",
        ]
        labels = {"max_steps": "Maximum turns"}
        widgets = {"system_prompt": forms.Textarea(attrs={"rows": 5})}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        count_from_one(self, "max_steps", "token_limit")
