"""An attempt that somebody plays by hand: the task, what was done so far, and the next move."""

from typing import Any

from django import forms

from apps.dashboard.forms.fields import JSONTextField
from apps.environments.manual_attempts import PLAY_SECONDS
from apps.gym.traces.items import Tool

CALL, VERIFY, BEGIN = "call", "verify", "begin"


class PlayForm(forms.Form):
    row = JSONTextField(
        kind=dict, label="The task's row", rows=8, help_text="As in a dataset: the prompt and what the verifier reads."
    )
    seed = forms.IntegerField(min_value=0, max_value=2**31 - 1, initial=0, required=False)
    moves = JSONTextField(
        kind=list,
        label="Moves so far",
        rows=3,
        help_text="Each button adds one. All are played again each time, in a session that is seeded anew.",
    )
    tool = forms.ChoiceField(required=False)
    arguments = JSONTextField(
        kind=dict, rows=3, help_text="A JSON object, as the tool's schema on the environment's page says."
    )
    answer = forms.CharField(
        label="Reply without a call",
        required=False,
        strip=False,
        max_length=200_000,
        widget=forms.Textarea(attrs={"rows": 4}),
        help_text="What the model would write: the answer, or its turn in a game.",
    )

    def __init__(self, *args: Any, tools: list[Tool], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.seconds = PLAY_SECONDS
        names = [str(tool.get("name", "")) for tool in tools]
        field = self.fields["tool"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [(name, name) for name in names]
        self.has_tools = bool(names)

    def moves_with(self, act: str) -> list[Any]:
        """With the one that a button stands for."""
        given = self.cleaned_data
        moves: list[Any] = [] if act == BEGIN else list(given["moves"])
        if act == CALL and given["tool"]:
            moves.append({"calls": [{"name": given["tool"], "arguments": given["arguments"]}]})
        elif act not in (BEGIN, CALL) and (given["answer"] or act == VERIFY):
            moves.append({"text": given["answer"]})
        return moves
