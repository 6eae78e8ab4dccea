"""What to write into an export, and how to build pairs."""

from typing import Any

from django import forms
from django.utils.functional import cached_property

from apps.exports.models import ExportFormat, PairSet
from apps.rollouts.models import Collection


class CollectionChoice(forms.ModelChoiceField):  # type: ignore[type-arg]
    def label_from_instance(self, obj: Any) -> str:
        label: str = obj.label
        return label


class PairSetChoice(forms.ModelChoiceField):  # type: ignore[type-arg]
    def label_from_instance(self, obj: Any) -> str:
        return f"{obj}: {obj.pair_count:,} pair{'' if obj.pair_count == 1 else 's'}"


class PairSetForm(forms.Form):
    """Field names are the arguments of build_pairs."""

    collection = CollectionChoice(Collection.objects.none(), empty_label="Choose a collection")
    margin = forms.FloatField(
        initial=0.1,
        widget=forms.NumberInput(attrs={"step": "any"}),
        help_text="Chosen reward − rejected reward is at least this",
    )
    min_chosen_reward = forms.FloatField(
        required=False,
        widget=forms.NumberInput(attrs={"step": "any"}),
        help_text="Pair only where the better one is this good; empty takes any",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        collection = self.fields["collection"]
        assert isinstance(collection, forms.ModelChoiceField)
        collection.queryset = Collection.objects.present()

    def clean_margin(self) -> float:
        margin: float = self.cleaned_data["margin"]
        if margin <= 0:
            raise forms.ValidationError("The margin is greater than 0: equal rewards prefer nothing.")
        return margin


class ExportForm(forms.Form):
    format = forms.ChoiceField(choices=ExportFormat.choices)
    collection = CollectionChoice(Collection.objects.none(), empty_label="Choose a collection")
    pair_set = PairSetChoice(
        PairSet.objects.none(),
        required=False,
        help_text="Which pairs; a DPO export needs them, the others take none",
        error_messages={"invalid_choice": "This pair set does not belong to the collection."},
    )
    min_reward = forms.FloatField(
        required=False,
        widget=forms.NumberInput(attrs={"step": "any"}),
        help_text="Only rollouts this good (of a pair, the chosen one). Empty: 0.7 for demonstrations, else any",
    )

    include_flagged = forms.BooleanField(
        required=False,
        label="Include flagged rollouts",
        help_text="Those that had credentials in their traces; what was redacted stays so",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        collection, pair_set = self.fields["collection"], self.fields["pair_set"]
        assert isinstance(collection, forms.ModelChoiceField)
        assert isinstance(pair_set, forms.ModelChoiceField)
        collection.queryset = Collection.objects.present()
        pair_set.queryset = PairSet.objects.select_related("collection")
        pair_set.conditional = True  # type: ignore[attr-defined]
        if self.chosen is not None:
            # Pairs of other collections could only be refused.
            pair_set.queryset = pair_set.queryset.filter(collection=self.chosen)

    @cached_property
    def chosen(self) -> Collection | None:
        """The collection as the form stands, sent or not."""
        try:
            chosen: Collection | None = self.fields["collection"].clean(self["collection"].value())
        except forms.ValidationError:
            return None
        return chosen

    @property
    def has_pair_sets(self) -> bool:
        pair_set = self.fields["pair_set"]
        assert isinstance(pair_set, forms.ModelChoiceField)
        return pair_set.queryset is not None and pair_set.queryset.exists()

    @property
    def filters(self) -> dict[str, Any]:
        """The filters as an export keeps them: only those that were given."""
        least = self.cleaned_data["min_reward"]
        given = {} if least is None else {"min_reward": least}
        return {**given, "include_flagged": True} if self.cleaned_data["include_flagged"] else given
