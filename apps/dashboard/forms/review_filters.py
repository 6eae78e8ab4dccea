"""The filters of the tables of items and of reviews; apps.reviews.queues.queue_filters says what they mean."""

from typing import Any
from urllib.parse import urlencode

from django import forms

from apps.accounts.models import User
from apps.dashboard.forms.review_forms import REVIEWER_ROLES
from apps.gym.pairs.verdicts import CHOICES, CONFIDENCE
from apps.reviews.models import Queue, Review
from apps.reviews.queues.item_states import State
from apps.reviews.queues.queue_filters import KINDS

MAX_KEY = 2**63 - 1
MOST_OFFERED = 100


def _choose(label: str, choices: Any, **options: Any) -> forms.ChoiceField:
    return forms.ChoiceField(label=label, choices=[("", "any"), *choices], required=False, **options)


def _number(label: str, most: int = MAX_KEY) -> forms.IntegerField:
    return forms.IntegerField(label=label, required=False, min_value=1, max_value=most)


def _hidden() -> forms.IntegerField:
    return forms.IntegerField(required=False, min_value=1, max_value=MAX_KEY, widget=forms.HiddenInput)


def _yes(label: str, yes: str, no: str) -> forms.TypedChoiceField:
    return forms.TypedChoiceField(
        label=label,
        choices=[("", "any"), ("true", yes), ("false", no)],
        coerce=lambda text: text == "true",
        empty_value=None,
        required=False,
    )


class TableFilterForm(forms.Form):
    """The names of the fields are those of the filters of the API."""

    reviewer = forms.CharField(
        required=False, max_length=150, widget=forms.TextInput(attrs={"list": "reviewers", "autocomplete": "off"})
    )
    text = forms.CharField(label="Task text", required=False, max_length=200)
    task_number = _number("Task no.", 2**31)

    @property
    def wanted(self) -> dict[str, Any] | None:
        """What is asked for; None while something of it is wrong."""
        if not self.is_valid():
            return None
        return {name: value for name, value in self.cleaned_data.items() if value not in (None, "")}

    @property
    def query(self) -> str:
        """The same for the address of the API, which refuses a filter without a value."""
        given = self.wanted or {}
        texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}
        return urlencode(texts)

    @property
    def people(self) -> list[str]:
        """Names to choose from."""
        rows = User.objects.filter(role__in=REVIEWER_ROLES).order_by("username")
        return list(rows.values_list("username", flat=True)[:MOST_OFFERED])


class ItemFilterForm(TableFilterForm):
    state = _choose("State", State.choices)
    verdict = _choose("Verdict", CHOICES.items())
    skipped = _yes("Skipped", "by somebody", "by nobody")
    is_repeated = _yes("Comes twice", "yes", "no")
    field_order = ["state", "reviewer", "verdict", "skipped", "task_number", "text", "is_repeated"]


class ReviewFilterForm(TableFilterForm):
    queue = forms.TypedChoiceField(required=False, coerce=int, empty_value=None)
    collection = _number("Collection no.")
    kind = _choose("Kind", KINDS.items())
    status = _choose("Status", Review.Status.choices)
    verdict = _choose("Verdict", CHOICES.items())
    confidence = forms.TypedChoiceField(
        choices=[("", "any"), *CONFIDENCE.items()], required=False, coerce=int, empty_value=None
    )
    choice = forms.ChoiceField(required=False, choices=[("", ""), *CHOICES.items()], widget=forms.HiddenInput)
    item = _hidden()
    rollout = _hidden()
    task = _hidden()
    could_see_results = _yes("Could see results", "alone", "left out")
    is_repeat = _yes("Repeats", "alone", "left out")
    is_adjudication = _yes("Adjudications", "alone", "left out")
    field_order = [
        "queue", "collection", "reviewer", "kind", "status", "verdict", "confidence", "task_number", "text",
    ]  # fmt: skip

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        asked = self.data.get("queue", "")
        rows = list(Queue.objects.values_list("pk", "name")[:MOST_OFFERED])
        if asked.isascii() and asked.isdigit() and len(asked) < 19 and int(asked) not in dict(rows):
            rows += Queue.objects.filter(pk=int(asked)).values_list("pk", "name")
        self.fields["queue"].choices = [("", "any"), *rows]  # type: ignore[attr-defined]
        self.of_queue = next(((pk, name) for pk, name in rows if str(pk) == asked), None)

    @property
    def narrower(self) -> list[tuple[str, str]]:
        """What the address asks for beside the fields that are seen, and the query without it."""
        given = self.wanted or {}
        seen = [(f"shown as {CHOICES[given['choice']]}", "choice")] if "choice" in given else []
        seen += [(f"{name} {given[name]}", name) for name in ("item", "rollout", "task") if name in given]
        return [(words, self._query_without(name, "after")) for words, name in seen]

    def _query_without(self, *names: str) -> str:
        return urlencode([(name, value) for name, value in self.data.items() if value and name not in names])
