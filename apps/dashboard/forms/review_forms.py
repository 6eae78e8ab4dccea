"""Forms of queues, of rubrics, and of what people say of a rollout. What makes sense is checked where it is saved."""

import re
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db.models import Q
from django.http import QueryDict

from apps.accounts.models import Role, User
from apps.dashboard.forms.fields import JSONTextField, slug_field
from apps.gym.pairs.verdicts import CONFIDENCE, REASONS
from apps.gym.redaction.shortening import cut
from apps.gym.rubric_criteria import Criterion
from apps.reviews.models import Flag, Queue, Rubric
from apps.reviews.reviews.review_answers import MAX_NOTE, Answer
from apps.rollouts.models import Collection
from apps.rollouts.search.filters.filter_parser import MAX_LENGTH

REVIEWER_ROLES = [Role.ANNOTATOR, Role.ENGINEER, Role.ADMIN]


class QueueForm(forms.ModelForm):  # type: ignore[type-arg]  # Django forms take none at run time
    collection = forms.ModelChoiceField(
        queryset=Collection.objects.none(), required=False, help_text="Its completed rollouts make the items"
    )
    rollouts = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 2, "class": "code", "spellcheck": "false"}),
        help_text="Or numbers of rollouts. What is to be judged together as it is stands in a line of its own.",
    )
    filter = forms.CharField(
        required=False,
        max_length=MAX_LENGTH,
        widget=forms.TextInput(attrs={"class": "code", "spellcheck": "false"}),
        help_text="Or a filter as above the table of rollouts, like reward:<0.5 tool:bash",
    )
    per_task = forms.IntegerField(min_value=1, max_value=15, initial=1, label="Pairs of each task")
    size = forms.IntegerField(min_value=2, max_value=6, initial=4, label="Rollouts in a ranking")
    reviewers = forms.ModelMultipleChoiceField(
        queryset=User.objects.none(), required=False, help_text="Nobody chosen: any annotator"
    )

    class Meta:
        model = Queue
        fields = [
            "name",
            "kind",
            "rubric",
            "instructions",
            "overlap",
            "order",
            "lease_minutes",
            "repeat_share",
            "shows_expected",
            "shows_reward",
            "shows_model",
            "reveals",
        ]
        labels = {
            "overlap": "People for each item",
            "lease_minutes": "Minutes that an item is kept",
            "repeat_share": "Hidden repeats",
            "shows_expected": "The expected answer",
            "shows_reward": "The reward",
            "shows_model": "The model",
            "reveals": "Tell them afterwards",
        }
        widgets = {
            "instructions": forms.Textarea(attrs={"rows": 4}),
            "repeat_share": forms.NumberInput(attrs={"step": "0.05", "min": 0, "max": 0.5}),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["collection"].queryset = Collection.objects.present().order_by("-pk")  # type: ignore[attr-defined]
        people = User.objects.filter(role__in=REVIEWER_ROLES, is_active=True).order_by("username")
        self.fields["reviewers"].queryset = people  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if sum(bool(cleaned.get(name)) for name in ("collection", "rollouts", "filter")) != 1 and not self.errors:
            raise ValidationError("Give a collection, numbers of rollouts, or a filter: one of them.")
        return cleaned

    def clean_rollouts(self) -> list[list[int]]:
        """A list for each line."""
        lines = [line for line in self.cleaned_data["rollouts"].splitlines() if line.strip()]
        if wrong := [word for line in lines for word in re.split(r"[,\s]+", line.strip()) if not _is_number(word)]:
            raise ValidationError(f"“{cut(wrong[0], 40)}” is no number of a rollout.")
        return [[int(word) for word in re.split(r"[,\s]+", line.strip())] for line in lines]


class QueueChangeForm(forms.ModelForm):  # type: ignore[type-arg]
    """What may change of a queue once it is made."""

    reviewers = forms.ModelMultipleChoiceField(
        queryset=User.objects.none(), required=False, help_text="Nobody chosen: any annotator"
    )

    class Meta:
        model = Queue
        fields = ["name", "instructions", "overlap", "order", "lease_minutes"]
        labels = {"overlap": "People for each item", "lease_minutes": "Minutes that an item is kept"}
        widgets = {"instructions": forms.Textarea(attrs={"rows": 6})}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        named = list(self.instance.reviewers.values_list("user_id", flat=True))
        able = User.objects.filter(Q(role__in=REVIEWER_ROLES, is_active=True) | Q(pk__in=named)).order_by("username")
        self.fields["reviewers"].queryset = able  # type: ignore[attr-defined]
        self.fields["reviewers"].initial = named


class RubricForm(forms.ModelForm):  # type: ignore[type-arg]
    slug = slug_field("rubric")
    criteria = JSONTextField(
        kind=list,
        rows=10,
        required=True,
        help_text='Each with a key, a label and a kind: {"key": "right", "label": "Is it right?", "kind": "boolean"}, '
        'or "numeric" with minimum and maximum, "category" with choices, "text".',
    )

    class Meta:
        model = Rubric
        fields = ["name", "slug", "description", "criteria"]
        widgets = {"description": forms.Textarea(attrs={"rows": 3})}


class RubricChangeForm(RubricForm):
    """The slug stays, by which it is named elsewhere; of what has been used, the criteria too."""

    def __init__(self, *args: Any, keeps_criteria: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        del self.fields["slug"]
        if keeps_criteria:
            del self.fields["criteria"]


class FlagForm(forms.Form):
    kind = forms.ChoiceField(choices=Flag.Kind.choices, label="What is wrong")
    seq = forms.IntegerField(required=False, min_value=0, max_value=2**31 - 1, label="Event")
    note = forms.CharField(required=False, max_length=1_000)


class ScoreForm(forms.Form):
    """What is scored besides the criteria of the rubric."""

    seq = forms.IntegerField(required=False, min_value=0, max_value=2**31 - 1)
    note = forms.CharField(required=False, max_length=MAX_NOTE)


class OverrideForm(forms.Form):
    reward = forms.FloatField(widget=forms.NumberInput(attrs={"step": "any"}), label="Reward instead")
    reason = forms.CharField(max_length=2_000)


def read_posted_answer(given: QueryDict, criteria: list[Criterion], ranked: int) -> Answer:
    """The answer in the fields of a work page, whatever of it makes sense."""
    confidence = given.get("confidence", "")
    ranks = [given.get(f"rank-{place}", "") for place in range(ranked)]
    return Answer(
        choice=given.get("choice", ""),
        ranks=[int(rank) if _is_number(rank) else 0 for rank in ranks],
        scores={each["key"]: _read_score(each, given.get(f"score-{each['key']}", "")) for each in criteria},
        reasons=[each for each in given.getlist("reasons") if each in REASONS],
        note=given.get("note", ""),
        confidence=int(confidence) if _is_number(confidence) and int(confidence) in CONFIDENCE else None,
    )


def _read_score(criterion: Criterion, text: str) -> Any:
    if criterion["kind"] == "boolean":
        return {"true": True, "false": False}.get(text, text or None)
    if criterion["kind"] == "numeric" and text:
        try:
            number = float(text)
        except ValueError:
            return text
        return int(number) if number.is_integer() else number
    return text or None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19
