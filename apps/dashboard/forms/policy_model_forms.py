"""Forms of a policy model: its settings, grouped by what its provider uses, and the filter of its versions.

The API key is write-only; the page shows its last characters.
"""

import json
from dataclasses import dataclass
from typing import Any

from django import forms

from apps.dashboard.forms.fields import (
    JSONTextField,
    LinesField,
    ServerForm,
    is_any_set,
    keep_if_empty,
    slug_field,
)
from apps.dashboard.forms.spec_fields import OneRow
from apps.policies.models import DEFAULT_BASE_URLS, PRICE_FIELDS, PolicyModel, Provider, Wire
from apps.rollouts.models import Collection

_ALL = tuple(Provider.values)
_CALLED = tuple(provider for provider in Provider.values if provider != Provider.SCRIPTED)
_OWN_SERVERS = (Provider.VLLM.value, Provider.COMPATIBLE.value)


@dataclass(frozen=True, slots=True)
class Group:
    """A group of fields, with a tuple of names per row, for the given providers."""

    legend: str
    rows: tuple[tuple[str, ...], ...]
    providers: tuple[str, ...] = _CALLED
    hint: str = ""

    @property
    def names(self) -> list[str]:
        return [name for row in self.rows for name in row]


ESSENTIAL = (
    Group("Endpoint", (("base_url",), ("model_name",), ("api_key",), ("forget_key",))),
    Group("Azure", (("api_version",), ("key_is_token",)), (Provider.AZURE.value,)),
    Group("Script", (("mistake_rate",),), (Provider.SCRIPTED.value,)),
)
FURTHER = (
    Group("Identity", (("slug", "version"),), _ALL),
    Group("API", (("wire", "reasoning"), ("call_content",))),
    Group("Token capture", (("capture_tokens",), ("logprob_mode",)), _OWN_SERVERS),
    Group("Sampling and limits", (("sampling",), ("concurrency", "worker_group")), _ALL),
    Group("Several servers", (("more_base_urls",),), _OWN_SERVERS),
    Group(
        "Prices",
        (PRICE_FIELDS,),
        hint="to compute the cost of rollouts",
    ),
    Group("Timeouts and retries", (("call_timeout", "connect_timeout", "max_tries"),), hint="per call"),
    Group(
        "Requests",
        (("extra_headers",), ("extra_body",), ("renamed_fields",)),
        hint="headers, body and field names",
    ),
)
"""Groups that are folded until one of their fields is set."""

# Initial values per provider. Capture needs the chat wire.
_PROPOSED = {
    "base_url": dict(DEFAULT_BASE_URLS),
    "wire": dict.fromkeys(_CALLED, Wire.CHAT.value)
    | dict.fromkeys((Provider.OPENAI.value, Provider.AZURE.value), Wire.RESPONSES.value)
    | {Provider.ANTHROPIC.value: Wire.MESSAGES.value},
}


class PolicyModelForm(ServerForm):
    key_owner = "base URL"
    no_key_help = "Stored encrypted and write-only. Most vLLM servers need none."
    conditional = ("base_url", "model_name", "api_version")
    slug = slug_field("model")
    more_base_urls = LinesField(
        label="Additional base URLs",
        help_text="More servers of the same model, one per line. A rollout stays on one server to reuse its prefix "
        "cache, and moves to the next if a call fails.",
    )
    sampling = JSONTextField(
        kind=dict,
        help_text='Defaults, for example {"temperature": 1.0, "max_output_tokens": 1024}; agents can override them.',
    )
    extra_headers = JSONTextField(
        kind=dict,
        rows=2,
        help_text='Sent with every request, for example {"X-Team": "rl"}. Do not enter secrets. Write {api_key} where '
        'the API key belongs, for example {"X-Auth-Token": "{api_key}"}.',
    )
    extra_body = JSONTextField(
        kind=dict,
        rows=2,
        help_text='Merged into every request, for example {"chat_template_kwargs": {"enable_thinking": false}}. '
        "Fields of the request take precedence.",
    )
    renamed_fields = JSONTextField(
        kind=dict,
        rows=2,
        label="Renamed fields",
        help_text='For servers that use older field names: {"max_completion_tokens": "max_tokens"}.',
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
            "call_content",
            "capture_tokens",
            *PRICE_FIELDS,
            "logprob_mode",
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
            "wire": "API",
            "api_version": "API version",
            "key_is_token": "The key is a Microsoft Entra ID token",
            "call_timeout": "Call timeout",
            "connect_timeout": "Connect timeout",
            "input_price": "Input",
            "cached_input_price": "Cached input",
            "cache_write_price": "Cache writes",
            "output_price": "Output",
            "max_tries": "Maximum tries",
            "logprob_mode": "Log probabilities",
        }
        help_texts = {
            "provider": "The fields below depend on it",
            "base_url": "Including /v1, for example http://127.0.0.1:8000/v1. OpenAI and Anthropic: leave this "
            "empty to use the provider's URL. Azure: the endpoint of the resource, for example https://my-resource.openai.azure.com.",
            "model_name": "Name that the endpoint expects. Azure: the deployment name.",
            "wire": "Token IDs need Chat Completions. OpenAI reasoning models work best with Responses. "
            "Anthropic uses Messages.",
            "api_version": "For example 2025-04-01-preview",
            "key_is_token": "Microsoft Entra ID tokens expire. Resource keys do not.",
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
        keep_if_empty(self, "logprob_mode")
        if not self.instance.pk:
            for name, proposed in _PROPOSED.items():
                self.fields[name].widget.attrs["data-proposed"] = json.dumps({"provider": proposed})

    def essential(self) -> list[dict[str, Any]]:
        return [self._bind(group) for group in ESSENTIAL]

    def further(self) -> list[dict[str, Any]]:
        return [self._bind(group) for group in FURTHER]

    def is_open(self) -> bool:
        """Return whether a folded field is set. The slug does not count: it is proposed from the name."""
        names = {name for group in FURTHER for name in group.names} - {"slug"}
        return "slug" in self.errors or is_any_set(self, names)

    def _bind(self, group: Group) -> dict[str, Any]:
        rows = [[self[name] for name in row if name in self.fields] for row in group.rows]
        providers = " ".join(group.providers)
        return {"legend": group.legend, "hint": group.hint, "providers": providers, "rows": rows}

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        provider = cleaned.get("provider")
        # Fields that the provider does not use may be hidden, so earlier input there is not an error.
        for group in (*ESSENTIAL, *FURTHER):
            for name in group.names:
                if provider and provider not in group.providers and name in self.fields:
                    self._drop(name, cleaned)
        if provider == Provider.ANTHROPIC:
            self.errors.pop("wire", None)
            cleaned["wire"] = Wire.MESSAGES.value
        if not cleaned.get("base_url"):
            cleaned["base_url"] = DEFAULT_BASE_URLS.get(str(provider), "")
        return cleaned

    def _drop(self, name: str, cleaned: dict[str, Any]) -> None:
        self.errors.pop(name, None)
        field = next((field for field in PolicyModel._meta.concrete_fields if field.name == name), None)
        if field is not None:
            # A scripted model calls no endpoint, so the stored endpoint and its key are kept.
            is_kept = cleaned["provider"] == Provider.SCRIPTED and self.instance.pk
            cleaned[name] = self.initial[name] if is_kept else field.get_default()
        elif name == "api_key":
            cleaned[name] = ""


_LATEST = 100


class VersionFilterForm(forms.Form):
    collection = OneRow(queryset=Collection.objects.none(), required=False, empty_label="All collections")

    def __init__(self, *args: Any, policy_model: PolicyModel, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field: Any = self.fields["collection"]
        field.queryset = Collection.objects.filter(policy_model=policy_model, rewarded__gt=0)
        # A model may have thousands of collections. The URL may name any of them.
        field.choices = [("", field.empty_label), *((each.pk, each.label) for each in field.queryset[:_LATEST])]

    def chosen(self) -> Collection | None:
        """Return the selected collection; None for all, or if it does not exist."""
        found: Collection | None = self.cleaned_data.get("collection") if self.is_valid() else None
        return found
