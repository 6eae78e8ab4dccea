"""The form of a comment."""

from django import forms
from django.http import QueryDict

from apps.dashboard.chrome.page_request import read_number


class CommentForm(forms.Form):
    text = forms.CharField(
        max_length=10_000, label="Comment", widget=forms.Textarea(attrs={"rows": 3, "placeholder": "Comment"})
    )
    seq = forms.IntegerField(
        min_value=0,
        max_value=2**31 - 1,
        required=False,
        label="About event",
        help_text="Step number. Empty: the whole rollout",
    )

    @classmethod
    def opened_with(cls, given: QueryDict) -> "CommentForm":
        """Return an unbound form for the event in the URL (`?comment=3`), if any."""
        return cls(initial={"seq": read_number(given.get("comment", ""), digits=9)})
