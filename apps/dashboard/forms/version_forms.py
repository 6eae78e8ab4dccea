"""Which collections the rewards of a model's versions are taken from."""

from typing import Any

from django import forms

from apps.policies.models import PolicyModel
from apps.rollouts.models import Collection

_LATEST = 100


class _CollectionField(forms.ModelChoiceField):  # type: ignore[type-arg]  # Django forms take none at run time
    def label_from_instance(self, collection: Collection) -> str:
        return collection.label


class VersionFilterForm(forms.Form):
    collection = _CollectionField(queryset=Collection.objects.none(), required=False, empty_label="all collections")

    def __init__(self, *args: Any, policy_model: PolicyModel, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field: Any = self.fields["collection"]
        field.queryset = Collection.objects.filter(policy_model=policy_model, rewarded__gt=0)
        # A model may have thousands; any of them can be asked for by its number in the address.
        latest = list(field.queryset[:_LATEST])
        field.choices = [("", field.empty_label), *((each.pk, each.label) for each in latest)]

    def chosen(self) -> Collection | None:
        """None for all of them, and where the address asks for one that there is not."""
        found: Collection | None = self.cleaned_data.get("collection") if self.is_valid() else None
        return found
