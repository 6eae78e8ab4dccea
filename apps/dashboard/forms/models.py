"""The form of a policy model. Its API key is write-only: the page knows only the hint."""

from typing import Any

from django import forms

from apps.dashboard.forms.fields import JSONTextField, count_from_one, slug_field
from apps.policies.models import PolicyModel


class PolicyModelForm(forms.ModelForm):  # type: ignore[type-arg]  # Django forms take none at run time
    slug = slug_field("model")
    api_key = forms.CharField(
        label="API key",
        required=False,
        max_length=4000,
        widget=forms.PasswordInput(attrs={"autocomplete": "off", "class": "code"}),
    )
    forget_key = forms.BooleanField(label="Remove the stored key", required=False)
    sampling = JSONTextField(
        kind=dict, help_text='Defaults such as {"temperature": 1.0, "max_output_tokens": 1024}; an agent may override.'
    )

    class Meta:
        model = PolicyModel
        fields = [
            "name",
            "slug",
            "provider",
            "wire",
            "base_url",
            "model_name",
            "sampling",
            "call_timeout",
            "connect_timeout",
            "max_tries",
            "capture_tokens",
            "concurrency",
            "worker_group",
            "input_price",
            "output_price",
            "mistake_rate",
        ]
        labels = {
            "base_url": "Base URL",
            "model_name": "Model name",
            "call_timeout": "Call timeout",
            "connect_timeout": "Connect timeout",
            "input_price": "Price of input tokens",
            "output_price": "Price of output tokens",
            "max_tries": "Tries",
        }
        widgets = {
            "base_url": forms.TextInput(attrs={"inputmode": "url", "class": "code"}),
            "model_name": forms.TextInput(attrs={"class": "code"}),
            "worker_group": forms.TextInput(attrs={"class": "code"}),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        count_from_one(self, "max_tries", "concurrency")
        for name in ("base_url", "model_name"):
            # Optional for the database, required by one provider: the page must not call them optional.
            self.fields[name].conditional = True  # type: ignore[attr-defined]
        hint = self.instance.api_key_hint
        if self.instance.pk:
            del self.fields["slug"]
        if hint:
            self.fields[
                "api_key"
            ].help_text = (
                f"A key is stored (…{hint.lstrip('.…')}). Leave this empty to keep it; a new base URL needs it again."
            )
        else:
            del self.fields["forget_key"]
            self.fields["api_key"].help_text = "Kept encrypted and never shown again; most vLLM servers need none."

    def given_key(self) -> str | None:
        """The key as typed; "" to remove the stored one; None to keep it."""
        typed: str = self.cleaned_data["api_key"]
        if typed:
            return typed
        return "" if self.cleaned_data.get("forget_key") else None
