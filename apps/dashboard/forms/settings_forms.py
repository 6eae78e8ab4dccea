"""Forms of the settings' pages: a secret to write, and an address to try."""

from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from apps.environments.models import Environment
from apps.policies.models import PolicyModel


class SecretForm(forms.Form):
    """`of` is `model:slug` or `environment:slug`. An empty key removes the stored one, where that is asked for."""

    of = forms.ChoiceField(label="Whose key")
    api_key = forms.CharField(
        label="New API key",
        required=False,
        max_length=1000,
        widget=forms.PasswordInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
        help_text="Kept encrypted and never shown again. Collections that run use it within seconds.",
    )
    remove = forms.BooleanField(label="Remove the stored key instead", required=False)

    def __init__(self, *args: Any, holders: list[tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["of"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = holders

    def clean(self) -> dict[str, Any]:
        if not self.cleaned_data.get("remove") and not (self.cleaned_data.get("api_key") or "").strip():
            self.add_error("api_key", "Enter the new key, or choose to remove the stored one.")
        return self.cleaned_data

    def holder(self) -> PolicyModel | Environment:
        kind, _, slug = self.cleaned_data["of"].partition(":")
        rows = PolicyModel.objects if kind == "model" else Environment.objects
        held: PolicyModel | Environment | None = rows.filter(slug=slug).first()
        if held is None:
            raise ValidationError("It is no longer there.")
        return held


class AddressForm(forms.Form):
    address = forms.CharField(
        label="Address",
        max_length=500,
        widget=forms.TextInput(
            attrs={"class": "code", "placeholder": "http://10.0.0.5:8000/v1", "autocomplete": "off"}
        ),
        help_text="Its name is looked up; nothing is connected to.",
    )
