"""Forms of queues, rubrics and annotations of a rollout. Values are checked when saved."""

import re
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db.models import Q
from django.http import QueryDict

from apps.accounts.models import Role, User
from apps.dashboard.chrome.page_request import read_number
from apps.dashboard.forms.fields import JSONTextField, NamedForm, slug_field
from apps.dashboard.forms.spec_fields import OneRow, spec_form
from apps.gym.pairs.verdicts import CONFIDENCE, REASONS
from apps.gym.redaction.shortening import cut
from apps.gym.rubric_criteria import Criterion
from apps.gym.specs import spec_fields
from apps.reviews.models import Flag, Queue, Rubric
from apps.reviews.queues.queue_items import ItemSource
from apps.reviews.reviews.review_answers import MAX_NOTE, Answer
from apps.rollouts.models import Collection
from apps.rollouts.search.filters.filter_parser import MAX_LENGTH

REVIEWER_ROLES = [Role.ANNOTATOR, Role.ENGINEER, Role.ADMIN]


class ReviewersForm(forms.ModelForm):  # type: ignore[type-arg]  # Django forms take none at run time
    """Form of a queue with its reviewers: active users who may review, and those already named."""

    reviewers = forms.ModelMultipleChoiceField(
        queryset=User.objects.none(), required=False, help_text="Empty: all annotators, engineers and admins"
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        named = list(self.instance.reviewers.values_list("user_id", flat=True)) if self.instance.pk else []
        able = User.objects.filter(Q(role__in=REVIEWER_ROLES, is_active=True) | Q(pk__in=named)).order_by("username")
        self.fields["reviewers"].queryset = able  # type: ignore[attr-defined]
        self.fields["reviewers"].initial = named


@spec_form(ItemSource, leave=["items"])
class QueueForm(ReviewersForm):
    collection = OneRow(
        Collection.objects.present().order_by("-pk"),
        required=False,
        help_text=spec_fields(ItemSource)["collection"].option.help,
    )
    rollouts = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 2, "class": "code", "spellcheck": "false"}),
        help_text="Or rollout numbers. One line: GymWeb groups the rollouts by task. Several lines: each line is one "
        "item.",
    )
    filter = forms.CharField(
        required=False,
        max_length=MAX_LENGTH,
        widget=forms.TextInput(attrs={"class": "code", "spellcheck": "false"}),
        help_text="Or a rollout filter, for example reward:<0.5 tool:bash",
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
            "overlap": "Reviews per item",
            "lease_minutes": "Reservation time (minutes)",
            "repeat_share": "Share of repeated items",
            "shows_expected": "Expected answer",
            "shows_reward": "Reward",
            "shows_model": "Model",
            "reveals": "Show results after submitting",
        }
        # Empty texts would repeat the labels.
        help_texts = {
            "kind": "Rubric: score one rollout. Pairwise: choose the better of two. Ranking: rank several.",
            "overlap": "",
            "instructions": "",
        }
        widgets = {
            "instructions": forms.Textarea(attrs={"rows": 4}),
            "repeat_share": forms.NumberInput(attrs={"step": "0.05", "min": 0, "max": 0.5}),
        }

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if sum(bool(cleaned.get(name)) for name in ("collection", "rollouts", "filter")) != 1 and not self.errors:
            raise ValidationError("Choose one source: a collection, rollout numbers or a filter.")
        return cleaned

    @property
    def source(self) -> ItemSource:
        """Return the items. Each line with several rollouts is one item."""
        given = {name: self.cleaned_data[name] for name in ("collection", "filter", "per_task", "size")}
        lines = self.cleaned_data["rollouts"]
        if self.instance.kind != Queue.Kind.RUBRIC and len(lines) > 1:
            return ItemSource(**given, items=lines)
        return ItemSource(**given, rollouts=[one for line in lines for one in line])

    def clean_rollouts(self) -> list[list[int]]:
        """Return a list of rollout ids per line."""
        lines = [line for line in self.cleaned_data["rollouts"].splitlines() if line.strip()]
        words = [re.split(r"[,\s]+", line.strip()) for line in lines]
        if wrong := [word for line in words for word in line if read_number(word) is None]:
            raise ValidationError(f"“{cut(wrong[0], 40)}” is not a rollout number.")
        return [list(map(int, line)) for line in words]


class QueueChangeForm(ReviewersForm):
    """The settings of a queue that can change after it was created."""

    class Meta:
        model = Queue
        fields = ["name", "instructions", "overlap", "order", "lease_minutes"]
        labels = {"overlap": "Reviews per item", "lease_minutes": "Reservation time (minutes)"}
        help_texts = dict.fromkeys(("overlap", "instructions"), "")  # they would repeat the labels
        widgets = {"instructions": forms.Textarea(attrs={"rows": 6})}


class RubricForm(NamedForm):
    """A rubric. Criteria that reviews use cannot change."""

    slug = slug_field("rubric")
    criteria = JSONTextField(
        kind=list,
        rows=10,
        required=True,
        help_text='A list of criteria, for example [{"key": "right", "label": "Is it right?", "kind": "boolean"}]. '
        "Kinds: boolean, numeric (with minimum and maximum), category (with choices) and text.",
    )

    class Meta:
        model = Rubric
        fields = ["name", "slug", "description", "criteria"]
        widgets = {"description": forms.Textarea(attrs={"rows": 3})}

    def __init__(self, *args: Any, keeps_criteria: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if keeps_criteria:
            del self.fields["criteria"]


class FlagForm(forms.Form):
    kind = forms.ChoiceField(choices=[("", "Choose a problem"), *Flag.Kind.choices], label="Problem")
    seq = forms.IntegerField(required=False, min_value=0, max_value=2**31 - 1, label="Step")
    note = forms.CharField(required=False, max_length=1_000)


class ScoreForm(forms.Form):
    """Scores without a rubric."""

    seq = forms.IntegerField(required=False, min_value=0, max_value=2**31 - 1)
    note = forms.CharField(required=False, max_length=MAX_NOTE)


class OverrideForm(forms.Form):
    reward = forms.FloatField(widget=forms.NumberInput(attrs={"step": "any"}), label="New reward")
    reason = forms.CharField(max_length=2_000)


def read_posted_answer(given: QueryDict, criteria: list[Criterion], ranked: int) -> Answer:
    """Return the valid parts of the answer in the fields of a work page."""
    confidence = read_number(given.get("confidence", ""))
    return Answer(
        choice=given.get("choice", ""),
        ranks=[read_number(given.get(f"rank-{place}", "")) or 0 for place in range(ranked)],
        scores={each["key"]: _read_score(each, given.get(f"score-{each['key']}", "")) for each in criteria},
        reasons=[each for each in given.getlist("reasons") if each in REASONS],
        note=given.get("note", ""),
        confidence=confidence if confidence in CONFIDENCE else None,
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


class CommentForm(forms.Form):
    text = forms.CharField(
        max_length=10_000, label="Comment", widget=forms.Textarea(attrs={"rows": 3, "placeholder": "Comment"})
    )
    seq = forms.IntegerField(
        min_value=0,
        max_value=2**31 - 1,
        required=False,
        label="About step",
        help_text="Step number. Empty: the whole rollout",
    )
    quote = forms.CharField(required=False, max_length=2_000, widget=forms.HiddenInput)

    @classmethod
    def opened_with(cls, given: QueryDict) -> "CommentForm":
        """Return an unbound form for the event in the URL (`?comment=3`), if any."""
        return cls(initial={"seq": read_number(given.get("comment", ""), digits=9)})
