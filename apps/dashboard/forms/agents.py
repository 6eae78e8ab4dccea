"""The form of an agent. Few-shot examples are checked item by item: a wrong one would break every rollout."""

from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from apps.agents.models import Agent
from apps.dashboard.forms.fields import JSONTextField, slug_field
from apps.gym.items import Item, item_type

_ROLES = {"user", "assistant", "system", "developer"}
_REQUIRED = {
    "function_call": ("call_id", "name", "arguments"),
    "function_call_output": ("call_id", "output"),
}


def check_items(items: list[Any]) -> None:
    """Raises ValidationError that names the first wrong item of a conversation."""
    open_calls: set[str] = set()
    for position, item in enumerate(items, start=1):
        if not isinstance(item, dict):
            raise ValidationError(f"Item {position} must be an object.")
        _check_item(position, item)
        if item_type(item) == "function_call":
            open_calls.add(item["call_id"])
        if item_type(item) == "function_call_output":
            if item["call_id"] not in open_calls:
                raise ValidationError(
                    f"Item {position} answers call “{item['call_id']}”, which no item before it makes."
                )
            open_calls.discard(item["call_id"])
    if open_calls:
        raise ValidationError(f"The call “{sorted(open_calls)[0]}” has no function_call_output after it.")


def _check_item(position: int, item: Item) -> None:
    kind = item_type(item)
    if kind == "unknown":
        raise ValidationError(f"Item {position} needs a “role” (a message) or a “type”.")
    if kind == "message":
        if item.get("role") not in _ROLES:
            raise ValidationError(f"Item {position}: the role must be one of {', '.join(sorted(_ROLES))}.")
        if not isinstance(item.get("content"), str | list):
            raise ValidationError(f"Item {position}: “content” must be text or a list of parts.")
    for name in _REQUIRED.get(kind, ()):
        if not isinstance(item.get(name), str):
            raise ValidationError(f"Item {position}: a {kind} needs “{name}” as text.")


class AgentForm(forms.ModelForm[Agent]):
    slug = slug_field("agent")
    examples = JSONTextField(
        kind=list,
        rows=8,
        label="Few-shot examples",
        help_text='A list of Responses items put before the task\'s input, e.g. [{"role": "user", "content": "…"}, '
        '{"role": "assistant", "content": "…"}].',
    )
    sampling = JSONTextField(
        kind=dict, help_text='Overrides the policy model\'s sampling defaults, e.g. {"temperature": 0.7}.'
    )

    class Meta:
        model = Agent
        fields = [
            "name",
            "slug",
            "system_prompt",
            "examples",
            "max_steps",
            "time_limit",
            "parallel_tool_calls",
            "sampling",
        ]
        widgets = {"system_prompt": forms.Textarea(attrs={"rows": 5})}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk:
            del self.fields["slug"]

    def clean_examples(self) -> list[Item]:
        items: list[Item] = self.cleaned_data["examples"]
        check_items(items)
        return items
