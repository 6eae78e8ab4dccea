"""Request to try a policy model."""

from typing import Any

from django import forms

from apps.dashboard.forms.fields import JSONTextField
from apps.policies.model_trial import MAX_CHARACTERS, TRY_SECONDS

EXAMPLE_TOOL = """[
  {
    "type": "function",
    "name": "calculator",
    "description": "Evaluate an arithmetic expression.",
    "parameters": {
      "type": "object",
      "properties": {"expression": {"type": "string"}},
      "required": ["expression"]
    }
  }
]"""


class TryForm(forms.Form):
    prompt = forms.CharField(max_length=MAX_CHARACTERS, widget=forms.Textarea(attrs={"rows": 4}))
    system = forms.CharField(
        label="System prompt", required=False, max_length=MAX_CHARACTERS, widget=forms.Textarea(attrs={"rows": 2})
    )
    tools = JSONTextField(
        kind=list,
        rows=10,
        help_text="A JSON list of function tools, flat or in Chat Completions form. Tools are not executed.",
    )
    sampling = JSONTextField(
        kind=dict,
        rows=2,
        help_text='Over the model\'s own defaults, such as {"temperature": 0.2, "tool_choice": "required"}.',
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"initial": {"tools": EXAMPLE_TOOL}, **kwargs})
        self.seconds = TRY_SECONDS
