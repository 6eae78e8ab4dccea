"""The comment form, and the names that forms offer."""

from typing import get_args

from django import forms
from django.http import QueryDict

from apps.gym.loop.agent_loop import StopReason

STOP_REASONS: tuple[str, ...] = get_args(StopReason)


class CommentForm(forms.Form):
    text = forms.CharField(
        max_length=10_000, label="Comment", widget=forms.Textarea(attrs={"rows": 3, "placeholder": "What did you see?"})
    )
    seq = forms.IntegerField(
        min_value=0,
        max_value=2**31 - 1,
        required=False,
        label="About event",
        help_text="Filled by the “comment” beside an event. Empty: the whole rollout",
    )

    @classmethod
    def opened_with(cls, given: QueryDict) -> "CommentForm":
        """Unsent, about the event that the address names (`?comment=3`), if it names one."""
        seq = given.get("comment", "")
        return cls(initial={"seq": int(seq)} if seq.isascii() and seq.isdigit() and len(seq) < 10 else {})
