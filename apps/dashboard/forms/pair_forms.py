"""How to build pairs, and what to decide of them."""

from typing import Any

from django import forms

from apps.dashboard.forms.export_forms import CollectionChoice
from apps.gym.pairs.pair_rule import CAP_OF_ALL, MAX_PER_TASK, MAX_RATIO, Rule
from apps.pairs.models import PreferencePair
from apps.pairs.pair_queues import MOST, USUAL
from apps.pairs.pair_sets import MAX_NAME
from apps.reviews.models.queues import MAX_OVERLAP
from apps.rollouts.models import Collection

_MODES = [
    ("best_worst", "The best against the worst"),
    ("best_vs_all", "The best against every other"),
    ("all", "All against all"),
    ("best_mu_2sigma", "The best against μ − 2σ"),
    ("nearest_length", "Those nearest in length"),
]
_LEVELS = [("trajectory", "Whole attempts"), ("step", "The first action that differs")]
_SAME = [("actions", "Did the same"), ("completions", "Did and thought the same")]
_REWARDS = [("verifier", "The verifier's"), ("override", "Where people set one, theirs")]


class FurtherCollections(forms.ModelMultipleChoiceField):  # type: ignore[type-arg]
    def label_from_instance(self, obj: Any) -> str:
        label: str = obj.label
        return label


class PairSetForm(forms.Form):
    """The fields of a rule (apps.gym.pairs.pair_rule.Rule) under their names, and what it is applied to."""

    collection = CollectionChoice(Collection.objects.none(), empty_label="Choose a collection")
    further = FurtherCollections(
        Collection.objects.none(),
        required=False,
        label="Further collections",
        help_text="Attempts at the same tasks are paired over all of them where prompt and tools are the same",
    )
    name = forms.CharField(
        required=False,
        max_length=MAX_NAME,
        help_text="Made again under the same name, it is a new version; empty takes that of the collection",
    )
    keeps_decisions = forms.BooleanField(
        required=False,
        initial=True,
        label="Keep decisions",
        help_text="What was decided of pairs in earlier versions holds for the same pairs",
    )
    mode = forms.ChoiceField(required=False, choices=_MODES, label="Which are paired")
    level = forms.ChoiceField(
        required=False,
        choices=_LEVELS,
        label="What is compared",
        help_text="The action comes after the same state: all that was done and answered before is the same",
    )
    margin = forms.FloatField(
        initial=0.1,
        widget=forms.NumberInput(attrs={"step": "any"}),
        help_text="Chosen reward − rejected reward is at least this; equal rewards never pair",
    )
    min_chosen_reward = forms.FloatField(
        required=False,
        label="Least chosen reward",
        widget=forms.NumberInput(attrs={"step": "any"}),
        help_text="Pair only where the better one is this good; empty takes any",
    )
    per_task = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=MAX_PER_TASK,
        label="Pairs of a task",
        help_text=f"At most; empty takes {CAP_OF_ALL} of all against all, and else every one",
    )
    max_length_ratio = forms.FloatField(
        required=False,
        min_value=1,
        max_value=MAX_RATIO,
        label="Length ratio",
        widget=forms.NumberInput(attrs={"step": "any"}),
        help_text="The longer side has at most so many times the characters of the shorter one; empty takes any",
    )
    same = forms.ChoiceField(
        required=False, choices=_SAME, label="Two are the same that", help_text="Those are never paired"
    )
    reward_from = forms.ChoiceField(required=False, choices=_REWARDS, label="Which reward counts")
    include_truncated = forms.BooleanField(
        required=False, label="Include truncated attempts", help_text="Those that a limit cut; they teach no ending"
    )
    include_redacted = forms.BooleanField(
        required=False, label="Include redacted attempts", help_text="Those that had credentials in their traces"
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("collection", "further"):
            field = self.fields[name]
            assert isinstance(field, forms.ModelChoiceField)
            field.queryset = Collection.objects.present()
        for name in ("mode", "level", "same", "reward_from"):
            # Each has a value always: "optional" would say that it may be empty.
            self.fields[name].conditional = True  # type: ignore[attr-defined]

    @property
    def rule(self) -> Rule:
        """What is left empty has its default."""
        given = {name: self.cleaned_data[name] for name in Rule.__struct_fields__}
        return Rule(**{name: value for name, value in given.items() if value not in (None, "")})

    @property
    def order(self) -> dict[str, Any]:
        """What order_pairs takes."""
        given = self.cleaned_data
        return {
            "collection": given["collection"],
            "further": list(given["further"]),
            "rule": self.rule,
            "name": given["name"],
            "keeps_decisions": given["keeps_decisions"],
        }


class DecisionForm(forms.Form):
    """Field names are the arguments of decide_pairs."""

    status = forms.ChoiceField(choices=PreferencePair.Status.choices)
    reason = forms.CharField(required=False, max_length=500)


class MarkedForm(DecisionForm):
    """The same of several pairs, among those that the view allows."""

    pair = forms.ModelMultipleChoiceField(queryset=PreferencePair.objects.none())


class AskForm(forms.Form):
    """Field names are the arguments of ask_people; what is left empty has its default."""

    name = forms.CharField(required=False, max_length=150)
    limit = forms.IntegerField(required=False, min_value=1, max_value=MOST)
    overlap = forms.IntegerField(required=False, min_value=1, max_value=MAX_OVERLAP)

    @property
    def asked(self) -> dict[str, Any]:
        return {name: value for name, value in self.cleaned_data.items() if value not in (None, "")}


ASK = {"usual": USUAL, "most": MOST, "overlap": MAX_OVERLAP}
"""The numbers that the page of a set says of it."""
