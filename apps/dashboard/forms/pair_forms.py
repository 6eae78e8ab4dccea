"""Forms to build pairs and to decide about them."""

from typing import Any

from django import forms

from apps.dashboard.forms.fields import bound_fields, hide_optional_label, is_any_set
from apps.dashboard.forms.spec_fields import OneRow, spec_form
from apps.gym.pairs.pair_rule import Rule
from apps.pairs.models import PreferencePair
from apps.pairs.pair_queues import DEFAULT_PAIRS, MAX_PAIRS
from apps.pairs.pair_sets import PairOrder
from apps.reviews.models.queues import MAX_OVERLAP
from apps.rollouts.models import Collection

_ESSENTIAL = ("mode", "level", "margin", "min_chosen_reward")


@spec_form(Rule)
@spec_form(PairOrder, leave=["rule"])
class PairSetForm(forms.Form):
    """A rule, and the collections to which it is applied."""

    collection = OneRow(Collection.objects.present(), empty_label="Choose a collection")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("mode", "level", "same", "reward_from"):
            hide_optional_label(self.fields[name]).required = False

    essential_fields = bound_fields(_ESSENTIAL)
    further_fields = bound_fields([name for name in Rule.__struct_fields__ if name not in _ESSENTIAL])

    @property
    def is_open(self) -> bool:
        """Return whether a folded field differs from its default, or is wrong."""
        return is_any_set(self, [*(field.name for field in self.further_fields), "further", "name", "keeps_decisions"])

    @property
    def order(self) -> PairOrder:
        """Return the order, with defaults for options that were left out."""
        given = {name: value for name, value in self.cleaned_data.items() if value not in (None, "")}
        rule = Rule(**{name: given.pop(name) for name in Rule.__struct_fields__ if name in given})
        return PairOrder(**{**given, "further": list(given["further"]), "rule": rule})


class DecisionForm(forms.Form):
    """Field names are the arguments of decide_pairs."""

    status = forms.ChoiceField(choices=PreferencePair.Status.choices)
    reason = forms.CharField(required=False, max_length=500)


class SelectedPairsForm(DecisionForm):
    """One decision about the selected pairs of a set."""

    pair = forms.ModelMultipleChoiceField(queryset=PreferencePair.objects.none())


class PairQueueForm(forms.Form):
    """Field names are the arguments of create_pair_queue; empty fields have defaults."""

    name = forms.CharField(required=False, max_length=150)
    limit = forms.IntegerField(label="Maximum pairs", required=False, min_value=1, max_value=MAX_PAIRS)
    overlap = forms.IntegerField(label="Reviews per pair", required=False, min_value=1, max_value=MAX_OVERLAP)

    @property
    def options(self) -> dict[str, Any]:
        """Return the arguments that the user gave."""
        return {name: value for name, value in self.cleaned_data.items() if value not in (None, "")}


QUEUE_LIMITS = {"default_pairs": DEFAULT_PAIRS, "max_pairs": MAX_PAIRS, "max_overlap": MAX_OVERLAP}
"""Default and limits of a review queue, for the page of a pair set."""
