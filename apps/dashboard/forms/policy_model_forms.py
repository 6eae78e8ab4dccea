"""The form of a policy model, grouped by what its provider uses. Its API key is write-only: the page knows the hint."""

import json
from dataclasses import dataclass
from typing import Any

from django import forms

from apps.dashboard.forms.fields import JSONTextField, LinesField, count_from_one, slug_field
from apps.policies.models import DEFAULT_BASE_URLS, PolicyModel, Provider, Wire

_ALL = tuple(Provider.values)
_CALLED = tuple(provider for provider in Provider.values if provider != Provider.SCRIPTED)
_OWN_SERVERS = (Provider.VLLM.value, Provider.COMPATIBLE.value)


@dataclass(frozen=True, slots=True)
class Group:
    """Fields that belong together, a tuple a row; `providers` use them. A folded one is open where something is set."""

    legend: str
    rows: tuple[tuple[str, ...], ...]
    providers: tuple[str, ...] = _CALLED
    hint: str = ""
    folded: bool = False

    @property
    def names(self) -> list[str]:
        return [name for row in self.rows for name in row]


GROUPS = (
    Group("Endpoint", (("base_url",), ("model_name", "wire"), ("api_key",), ("forget_key",))),
    Group("Azure", (("api_version",), ("key_is_token",)), (Provider.AZURE.value,)),
    Group("Several servers", (("more_base_urls",),), _OWN_SERVERS),
    Group("Version", (("version",),), _ALL),
    Group("Script", (("mistake_rate",),), (Provider.SCRIPTED.value,)),
    Group("Sampling and limits", (("sampling",), ("concurrency", "worker_group")), _ALL),
    Group("Reasoning", (("reasoning",),)),
    Group("Token capture", (("capture_tokens",),), _OWN_SERVERS),
    Group(
        "Prices", (("input_price", "cached_input_price", "output_price"),), hint="for what a rollout costs", folded=True
    ),
    Group("Time and tries", (("call_timeout", "connect_timeout", "max_tries"),), hint="of one call", folded=True),
    Group(
        "Requests",
        (("extra_headers",), ("extra_body",), ("renamed_fields",)),
        hint="headers, body and names of fields",
        folded=True,
    ),
)

# What a fresh form proposes for each provider, until somebody chooses otherwise. Capture needs the chat wire.
_PROPOSED = {
    "base_url": dict(DEFAULT_BASE_URLS),
    "wire": {
        provider: Wire.RESPONSES.value if provider in (Provider.OPENAI, Provider.AZURE) else Wire.CHAT.value
        for provider in _CALLED
    },
}


class PolicyModelForm(forms.ModelForm):  # type: ignore[type-arg]  # Django forms take none at run time
    slug = slug_field("model")
    api_key = forms.CharField(
        label="API key",
        required=False,
        max_length=4000,
        widget=forms.PasswordInput(attrs={"autocomplete": "off", "class": "code"}),
    )
    forget_key = forms.BooleanField(label="Remove the stored key", required=False)
    more_base_urls = LinesField(
        label="Further base URLs",
        help_text="One a line: more servers of the same model. A rollout stays with one of them, so that its prefix "
        "cache hits, and turns to the next when a call fails.",
    )
    sampling = JSONTextField(
        kind=dict, help_text='Defaults such as {"temperature": 1.0, "max_output_tokens": 1024}; an agent may override.'
    )
    extra_headers = JSONTextField(
        kind=dict,
        rows=2,
        help_text='Sent with every request, such as {"X-Team": "rl"}. A secret belongs into the '
        'key, which a header may carry: {"X-Auth-Token": "{api_key}"}.',
    )
    extra_body = JSONTextField(
        kind=dict,
        rows=2,
        help_text='Merged into every request, such as {"chat_template_kwargs": {"enable_thinking": false}}. '
        "What the request says itself wins.",
    )
    renamed_fields = JSONTextField(
        kind=dict,
        rows=2,
        label="Other names of fields",
        help_text='For servers that know a field by an older name: {"max_completion_tokens": "max_tokens"}.',
    )

    class Meta:
        model = PolicyModel
        fields = [
            "name",
            "slug",
            "provider",
            "base_url",
            "model_name",
            "wire",
            "api_version",
            "key_is_token",
            "more_base_urls",
            "version",
            "mistake_rate",
            "sampling",
            "concurrency",
            "worker_group",
            "reasoning",
            "capture_tokens",
            "input_price",
            "cached_input_price",
            "output_price",
            "call_timeout",
            "connect_timeout",
            "max_tries",
            "extra_headers",
            "extra_body",
            "renamed_fields",
        ]
        labels = {
            "base_url": "Base URL",
            "model_name": "Model name",
            "api_version": "API version",
            "key_is_token": "The key is a bearer token of Microsoft Entra ID",
            "call_timeout": "Call timeout",
            "connect_timeout": "Connect timeout",
            "input_price": "Input",
            "cached_input_price": "Cached input",
            "output_price": "Output",
            "max_tries": "Tries",
        }
        help_texts = {
            "provider": "What answers: it decides which of the fields below count.",
            "base_url": "Up to and including /v1, such as http://127.0.0.1:8000/v1. OpenAI: leave it empty for "
            "OpenAI's own. Azure: the resource's endpoint, such as https://my-resource.openai.azure.com.",
            "model_name": "The name that the endpoint knows it by; on Azure the name of the deployment.",
            "wire": "Token ids come over Chat Completions only; reasoning models of OpenAI do best over Responses.",
            "api_version": "Such as 2025-04-01-preview.",
            "key_is_token": "Tokens expire: a key of the resource goes on working.",
        }
        widgets = {
            "base_url": forms.TextInput(attrs={"inputmode": "url", "class": "code"}),
            "model_name": forms.TextInput(attrs={"class": "code"}),
            "api_version": forms.TextInput(attrs={"class": "code"}),
            "version": forms.TextInput(attrs={"class": "code", "autocomplete": "off"}),
            "worker_group": forms.TextInput(attrs={"class": "code"}),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        count_from_one(self, "max_tries", "concurrency")
        for name in ("base_url", "model_name", "api_version"):
            # Optional for the database, required by one provider: the page must not call them optional.
            self.fields[name].conditional = True  # type: ignore[attr-defined]
        hint = self.instance.api_key_hint
        if self.instance.pk:
            del self.fields["slug"]
        else:
            for name, proposed in _PROPOSED.items():
                self.fields[name].widget.attrs["data-proposed"] = json.dumps({"provider": proposed})
        if hint:
            self.fields[
                "api_key"
            ].help_text = (
                f"A key is stored (…{hint.lstrip('.…')}). Leave this empty to keep it; a new base URL needs it again."
            )
        else:
            del self.fields["forget_key"]
            self.fields["api_key"].help_text = "Kept encrypted and never shown again; most vLLM servers need none."

    def groups(self) -> list[dict[str, Any]]:
        """GROUPS with their bound fields, for the template."""
        return [
            {
                "legend": group.legend,
                "hint": group.hint,
                "folded": group.folded,
                "providers": " ".join(group.providers),
                "is_open": any(self._is_set(name) for name in group.names),
                "rows": [[self[name] for name in row if name in self.fields] for row in group.rows],
            }
            for group in GROUPS
        ]

    def _is_set(self, name: str) -> bool:
        if name not in self.fields:
            return False
        return name in self.errors or self[name].value() not in (None, "", self._default(name))

    def _default(self, name: str) -> Any:
        model_field = next((field for field in PolicyModel._meta.concrete_fields if field.name == name), None)
        default = model_field.get_default() if model_field is not None else ""
        return self.fields[name].prepare_value(default)

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        provider = cleaned.get("provider")
        # A field that the provider does not use may be out of sight: what was typed there before is not an error.
        for group in GROUPS:
            for name in group.names:
                if provider and provider not in group.providers and name in self.fields:
                    self._drop(name, cleaned)
        if not cleaned.get("base_url"):
            cleaned["base_url"] = DEFAULT_BASE_URLS.get(str(provider), "")
        return cleaned

    def _drop(self, name: str, cleaned: dict[str, Any]) -> None:
        self.errors.pop(name, None)
        field = next((field for field in PolicyModel._meta.concrete_fields if field.name == name), None)
        if field is not None:
            # A scripted model calls nothing: its endpoint stays as stored, and so does the key that belongs to it.
            is_kept = cleaned["provider"] == Provider.SCRIPTED and self.instance.pk
            cleaned[name] = self.initial[name] if is_kept else field.get_default()
        elif name == "api_key":
            cleaned[name] = ""

    def given_key(self) -> str | None:
        """The key as typed; "" to remove the stored one; None to keep it."""
        typed: str = self.cleaned_data["api_key"]
        if typed:
            return typed
        return "" if self.cleaned_data.get("forget_key") else None
