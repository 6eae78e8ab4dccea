"""Forms of trackers, tracked runs, and pushes to the Hugging Face Hub. Credentials are write-only."""

from typing import Any

from django import forms

from apps.dashboard.forms.fields import hide_optional_label
from apps.dashboard.forms.spec_fields import spec_form
from apps.exports.models import Export
from apps.rollouts.models import Collection
from apps.tracking.hub_pushes import PushSpec
from apps.tracking.models import Tracker
from apps.tracking.tracker_changes import MAX_SECRET
from apps.tracking.tracking_spec import TrackingSpec

_PRIVATE = {"autocomplete": "new-password", "spellcheck": "false", "class": "code"}


class TrackerForm(forms.ModelForm):  # type: ignore[type-arg]
    secret = hide_optional_label(
        forms.CharField(
            label="Credential",
            required=False,
            max_length=MAX_SECRET,
            widget=forms.PasswordInput(attrs=_PRIVATE),
            help_text="MLflow: token, or user:password. Weights & Biases: API key; empty for offline files",
        )
    )
    delete_secret = forms.BooleanField(label="Delete the stored credential", required=False)

    class Meta:
        model = Tracker
        fields = ["name", "kind", "address", "project"]
        labels = {"address": "URL"}
        help_texts = {
            "address": "MLflow: URL of the server. Weights & Biases: leave empty, or a server in GYMWEB_WANDB_SERVERS"
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        hide_optional_label(self.fields["address"])
        if self.instance.has_secret:
            self.fields["secret"].help_text = "Leave empty to keep the stored credential"
        else:
            del self.fields["delete_secret"]

    def clean_address(self) -> str:
        # For kinds without a server, the page hides the fields of the server but still sends their values.
        return self.cleaned_data["address"] if self._has_server else ""

    @property
    def _has_server(self) -> bool:
        return self.cleaned_data.get("kind") in (Tracker.Kind.MLFLOW, Tracker.Kind.WANDB)

    @property
    def given_secret(self) -> str | None:
        """Return the argument of save_tracker. None keeps the stored credential."""
        if not self._has_server:
            return ""
        return self.cleaned_data["secret"] or ("" if self.cleaned_data.get("delete_secret") else None)


@spec_form(TrackingSpec, leave=["collection"])
class TrackingForm(forms.Form):
    # A menu of names: trackers are few and have no slugs.
    tracker = forms.ModelChoiceField(Tracker.objects.all(), label="Tracker", empty_label="Choose a tracker")

    def spec(self, collection: Collection) -> TrackingSpec:
        return TrackingSpec(collection=collection, **self.cleaned_data)


@spec_form(PushSpec, leave=["export"])
class PushForm(forms.Form):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["token"].widget = forms.PasswordInput(attrs=_PRIVATE)

    def spec(self, export: Export) -> PushSpec:
        return PushSpec(export=export, **self.cleaned_data)
