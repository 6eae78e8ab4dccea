"""Which rollouts to verify again, and how."""

from typing import Any

from django import forms

from apps.dashboard.forms.export_forms import CollectionChoice
from apps.dashboard.forms.rollout_forms import STOP_REASONS
from apps.rollouts.models import Collection
from apps.rollouts.reverification.rescoring import FAILED_BY_VERIFIER


class ReverificationForm(forms.Form):
    """Field names are those of the filters, and the arguments of queue_reverification."""

    collection = CollectionChoice(Collection.objects.none(), empty_label="Choose a collection")
    error_kind = forms.ChoiceField(
        required=False,
        label="Only failures of the verifier",
        choices=[("", "no: whatever was verified"), *((kind, kind.replace("_", " ")) for kind in FAILED_BY_VERIFIER)],
        help_text="Rollouts whose judge or verifier failed have no reward yet",
    )
    stop_reason = forms.ChoiceField(
        required=False, choices=[("", "any"), *((name, name.replace("_", " ")) for name in STOP_REASONS)]
    )
    min_reward = forms.FloatField(required=False, label="Reward from", widget=forms.NumberInput(attrs={"step": "any"}))
    max_reward = forms.FloatField(required=False, label="to", widget=forms.NumberInput(attrs={"step": "any"}))
    replay = forms.BooleanField(
        required=False,
        label="Make the recorded tool calls again first",
        help_text="For verifiers that look at the state which the calls left behind",
    )
    force = forms.BooleanField(
        required=False,
        label="Even where the verifier may need the state of the attempt",
        help_text="Without this such an environment is refused",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        collection = self.fields["collection"]
        assert isinstance(collection, forms.ModelChoiceField)
        collection.queryset = Collection.objects.present().select_related("environment")

    @property
    def filters(self) -> dict[str, Any]:
        names = ("error_kind", "stop_reason", "min_reward", "max_reward")
        return {name: self.cleaned_data[name] for name in names if self.cleaned_data[name] not in (None, "")}
