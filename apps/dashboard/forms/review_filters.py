"""Filters of the tables of items and reviews, applied by apps.reviews.queues.queue_filters."""

from typing import Any
from urllib.parse import urlencode

from django import forms

from apps.accounts.models import User
from apps.dashboard.chrome.page_request import read_number
from apps.dashboard.forms.fields import filter_choice
from apps.dashboard.forms.review_forms import REVIEWER_ROLES
from apps.gym.pairs.verdicts import CHOICES, CONFIDENCE
from apps.reviews.models import Queue, Review
from apps.reviews.queues.item_states import State
from apps.reviews.queues.queue_filters import KINDS

MAX_KEY = 2**63 - 1
MOST_OFFERED = 100


def _number(label: str | None = None, most: int = MAX_KEY, **options: Any) -> forms.IntegerField:
    return forms.IntegerField(label=label, required=False, min_value=1, max_value=most, **options)


def _yes(label: str, yes: str, no: str) -> forms.TypedChoiceField:
    return forms.TypedChoiceField(
        label=label,
        choices=[("", "any"), ("true", yes), ("false", no)],
        coerce=lambda text: text == "true",
        empty_value=None,
        required=False,
    )


class TableFilterForm(forms.Form):
    """Field names are the filters of the API."""

    reviewer = forms.CharField(
        required=False, max_length=150, widget=forms.TextInput(attrs={"list": "reviewers", "autocomplete": "off"})
    )
    text = forms.CharField(label="Task text", required=False, max_length=200)
    task_number = _number("Task no.", 2**31)

    @property
    def wanted(self) -> dict[str, Any] | None:
        """Return the filters, or None if one is invalid."""
        if not self.is_valid():
            return None
        return {name: value for name, value in self.cleaned_data.items() if value not in (None, "")}

    @property
    def query(self) -> str:
        """Return the filters as a query string for the API, which rejects empty filters."""
        given = self.wanted or {}
        texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}
        return urlencode(texts)

    @property
    def people(self) -> list[str]:
        """Return the names to choose from."""
        rows = User.objects.filter(role__in=REVIEWER_ROLES).order_by("username")
        return list(rows.values_list("username", flat=True)[:MOST_OFFERED])


class ItemFilterForm(TableFilterForm):
    state = filter_choice("State", State.choices)
    verdict = filter_choice("Verdict", CHOICES.items())
    skipped = _yes("Skipped", "skipped", "not skipped")
    is_repeated = _yes("Repeated", "yes", "no")
    field_order = ["state", "reviewer", "verdict", "skipped", "task_number", "text", "is_repeated"]


class ReviewFilterForm(TableFilterForm):
    queue = forms.TypedChoiceField(required=False, coerce=int, empty_value=None)
    collection = _number("Collection no.")
    kind = filter_choice("Kind", KINDS.items())
    status = filter_choice("Status", Review.Status.choices)
    verdict = filter_choice("Verdict", CHOICES.items())
    confidence = forms.TypedChoiceField(
        choices=[("", "any"), *CONFIDENCE.items()], required=False, coerce=int, empty_value=None
    )
    choice = forms.ChoiceField(required=False, choices=[("", ""), *CHOICES.items()], widget=forms.HiddenInput)
    item = _number(widget=forms.HiddenInput)
    rollout = _number(widget=forms.HiddenInput)
    task = _number(widget=forms.HiddenInput)
    could_see_results = _yes("Could see results", "only", "excluded")
    is_repeat = _yes("Repeats", "only", "excluded")
    is_adjudication = _yes("Adjudications", "only", "excluded")
    field_order = [
        "queue", "collection", "reviewer", "kind", "status", "verdict", "confidence", "task_number", "text",
    ]  # fmt: skip

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        asked = self.data.get("queue", "")
        rows = list(Queue.objects.values_list("pk", "name")[:MOST_OFFERED])
        if (number := read_number(asked)) is not None and number not in dict(rows):
            rows += Queue.objects.filter(pk=number).values_list("pk", "name")
        self.fields["queue"].choices = [("", "any"), *rows]  # type: ignore[attr-defined]
        self.of_queue = next(((pk, name) for pk, name in rows if str(pk) == asked), None)

    @property
    def narrower(self) -> list[tuple[str, str]]:
        """Return the filters of the URL that have no visible field, each with the query string that removes it."""
        given = self.wanted or {}
        seen = [(f"verdict as the reviewer saw it: {CHOICES[given['choice']]}", "choice")] if "choice" in given else []
        seen += [(f"{name} {given[name]}", name) for name in ("item", "rollout", "task") if name in given]
        sent = [(name, value) for name, value in self.data.items() if value and name != "after"]
        return [(words, urlencode([pair for pair in sent if pair[0] != name])) for words, name in seen]
