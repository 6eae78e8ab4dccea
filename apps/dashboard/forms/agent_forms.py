"""Form of an agent. Saving checks that its few-shot examples form a conversation."""

from typing import Any

import msgspec
from django import forms

from apps.agents.agent_changes import find_command_problems
from apps.agents.models import KINDS, Agent
from apps.dashboard.forms.fields import (
    JSONTextField,
    NamedForm,
    SecondsField,
    hide_optional_label,
    keep_if_empty,
    set_minimum_to_one,
    slug_field,
)
from apps.dashboard.forms.spec_fields import spec_form
from apps.gym.boxes.command_presets import PRESETS
from apps.gym.boxes.command_spec import CommandSpec
from apps.gym.specs import spec_fields

FILL = "fill_preset"
"""Submitted to fill in the fields of a command from a preset. Nothing is saved, and all other input is kept."""
_OPTIONS = spec_fields(CommandSpec)
_COMMAND = _OPTIONS["command"].option


@spec_form(CommandSpec, leave={"command"})
class AgentForm(NamedForm):
    slug = slug_field("agent")
    examples = JSONTextField(
        kind=list,
        rows=8,
        label="Few-shot examples",
        help_text='Items of the Responses API, placed before the task input, e.g. [{"role": "user", "content": "…"}, '
        '{"role": "assistant", "content": "…"}].',
    )
    sampling = JSONTextField(
        kind=dict, help_text='Overrides the sampling defaults of the policy model, e.g. {"temperature": 0.7}.'
    )
    time_limit = SecondsField(
        low=0.1,
        high=86_400,
        initial=600,
        help_text="Checked after each turn. When exceeded, the rollout stops and is verified.",
    )
    preset = forms.ChoiceField(
        label="Preset",
        required=False,
        choices=[("", "None"), *((name, preset.title) for name, preset in PRESETS.items())],
        widget=forms.Select(
            attrs={
                "hx-post": "",
                "hx-trigger": "change",
                "hx-vals": f'{{"{FILL}": "yes"}}',
                "hx-target": "closest form",
                "hx-swap": "outerHTML",
            }
        ),
        help_text="Fills in the fields below",
    )
    command = hide_optional_label(
        JSONTextField(
            kind=list,
            label=_COMMAND.label,
            help_text='The program and its arguments, with placeholders, e.g. ["agent", "{instruction}"]',
        )
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
            "retry_empty_replies",
            "strict_tools",
            "sampling",
            "server_url",
            "server_route",
        ]
        labels = {
            "max_steps": "Maximum turns",
            "strict_tools": "Strict tools",
            "server_url": "Server URL",
            "server_route": "Route",
        }
        help_texts = {"kind": "The kind cannot be changed later."}
        widgets = {"system_prompt": forms.Textarea(attrs={"rows": 5})}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        set_minimum_to_one(self, "max_steps", "token_limit")
        keep_if_empty(self, "kind", "server_route", "strict_tools")
        self.initial.update(self.instance.command_settings)

    @property
    def kinds(self) -> dict[str, str]:
        """Return the description of each kind."""
        return KINDS

    def fill(self, preset: str) -> None:
        """Show the settings of a preset."""
        if preset in PRESETS:
            self.initial.update(msgspec.to_builtins(PRESETS[preset].spec), kind=Agent.Kind.COMMAND.value)

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        is_command = cleaned.get("kind") == Agent.Kind.COMMAND
        given = {name: cleaned[name] for name in _OPTIONS if cleaned.get(name)} if is_command else {}
        if is_command and not self.errors.keys() & _OPTIONS.keys():
            for option, problem in find_command_problems(Agent.Kind.COMMAND, given).items():
                self.add_error(option, problem)
        self.instance.command_settings = given
        return cleaned
