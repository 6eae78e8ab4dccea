"""Forms of the settings pages: set an API key, test a URL, redaction patterns and a text to test them."""

from typing import Any

from django import forms

from apps.policies.installation_redactor import MAX_SAMPLE
from apps.policies.models import RedactionPattern


class SecretForm(forms.Form):
    """`of` is `model:slug` or `environment:slug`. An empty key removes the stored one, after confirmation."""

    of = forms.ChoiceField(label="Model or environment")
    api_key = forms.CharField(
        label="New API key",
        required=False,
        max_length=1000,
        widget=forms.PasswordInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
        help_text="Stored encrypted and write-only. Running collections use it within seconds.",
    )
    remove = forms.BooleanField(label="Remove the stored key", required=False)

    def __init__(self, *args: Any, holders: list[tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["of"].choices = holders  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        if not self.cleaned_data.get("remove") and not (self.cleaned_data.get("api_key") or "").strip():
            self.add_error("api_key", "Enter a new key, or select to remove the stored one.")
        return self.cleaned_data


class AddressForm(forms.Form):
    address = forms.CharField(
        label="Address",
        max_length=500,
        widget=forms.TextInput(
            attrs={"class": "code", "placeholder": "http://10.0.0.5:8000/v1", "autocomplete": "off"}
        ),
        help_text="Resolves the name without connecting.",
    )


class PatternForm(forms.ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = RedactionPattern
        fields = ["kind", "text", "least"]
        labels = {"least": "Minimum length"}


class SampleForm(forms.Form):
    sample = forms.CharField(
        label="Test text",
        max_length=MAX_SAMPLE,
        widget=forms.Textarea(attrs={"rows": 6, "class": "mono"}),
        help_text="Not stored",
    )
