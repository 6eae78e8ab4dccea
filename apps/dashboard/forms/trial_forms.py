"""Forms to try a policy model or an environment."""

from typing import Any

from django import forms

from apps.dashboard.forms.fields import JSONTextField
from apps.environments.manual_attempts import PLAY_SECONDS
from apps.gym.traces.items import Tool
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
        help_text='Overrides the model\'s defaults, e.g. {"temperature": 0.2, "tool_choice": "required"}.',
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"initial": {"tools": EXAMPLE_TOOL}, **kwargs})
        self.seconds = TRY_SECONDS


CALL, VERIFY, BEGIN = "call", "verify", "begin"


class PlayForm(forms.Form):
    row = JSONTextField(kind=dict, label="Task row", rows=8, help_text="Prompt and verifier fields, as in a dataset")
    task = forms.IntegerField(min_value=0, max_value=2**63 - 1, required=False, widget=forms.HiddenInput)
    seed = forms.IntegerField(min_value=0, max_value=2**31 - 1, initial=0, required=False)
    moves = JSONTextField(
        kind=list,
        label="Actions",
        rows=3,
        help_text="Each button adds an action. GymWeb replays all actions in a new session.",
    )
    tool = forms.ChoiceField(required=False)
    arguments = JSONTextField(kind=dict, rows=3, help_text="A JSON object that matches the schema of the tool")
    answer = forms.CharField(
        label="Reply without tool call",
        required=False,
        strip=False,
        max_length=200_000,
        widget=forms.Textarea(attrs={"rows": 4}),
        help_text="The model's reply, without a tool call",
    )

    def __init__(self, *args: Any, tools: list[Tool], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.seconds = PLAY_SECONDS
        names = [str(tool.get("name", "")) for tool in tools]
        self.fields["tool"].choices = [(name, name) for name in names]  # type: ignore[attr-defined]
        self.has_tools = bool(names)

    def moves_with(self, act: str) -> list[Any]:
        """Return the moves plus the move of the pressed button."""
        given = self.cleaned_data
        moves: list[Any] = [] if act == BEGIN else list(given["moves"])
        if act == CALL and given["tool"]:
            moves.append({"calls": [{"name": given["tool"], "arguments": given["arguments"]}]})
        elif act not in (BEGIN, CALL) and (given["answer"] or act == VERIFY):
            moves.append({"text": given["answer"]})
        return moves
