"""The form of an environment: a built-in one by name, or a resource server by address."""

import json
from typing import Any

from django import forms
from django.conf import settings

from apps.dashboard.forms.fields import JSONTextField, count_from_one, slug_field
from apps.environments.models import Adapter, Environment
from apps.gym.judging.judge_rubrics import PLACEHOLDERS
from apps.gym.written.registry import list_names

_SPELLED_OUT = ("question", "reads")
"""What of a judge's settings has a field of its own."""


_RUBRIC_HELP = (
    "What the judge looks for; empty: a rubric of its question; a task's row may bring its own. Placeholders: "
    + "; ".join(f"{{{name}}} is {meaning}" for name, meaning in PLACEHOLDERS.items())
    + "."
)


class EnvironmentForm(forms.ModelForm):  # type: ignore[type-arg]  # Django forms take none at run time
    slug = slug_field("environment")
    api_key = forms.CharField(
        label="API key",
        required=False,
        max_length=4000,
        widget=forms.PasswordInput(attrs={"autocomplete": "off", "class": "code"}),
        help_text="Sent as a bearer token. Kept encrypted and never shown again; most resource servers need none.",
    )
    forget_key = forms.BooleanField(label="Remove the stored key", required=False)
    judge_question = forms.ChoiceField(
        label="What it is asked",
        required=False,
        choices=[
            ("score", "score: how good is the attempt?"),
            ("compare", "compare: is its answer better than the expected one?"),
            ("equal", "equal: does its answer say the same as the expected one?"),
        ],
        help_text="Comparisons are asked in both orders; a judge that contradicts itself gives no reward.",
    )
    judge_reads = forms.ChoiceField(
        label="What it reads",
        required=False,
        choices=[("answer", "the final answer"), ("trace", "the whole trace, without reasoning")],
    )
    judge_settings = JSONTextField(
        kind=dict,
        label="Further settings",
        help_text=(
            'Such as {"scale": {"low": 1, "high": 5}}, {"scale": {"verdicts": {"correct": 1, "wrong": 0}}}, '
            '{"worth": {"win": 1, "tie": 0.5, "loss": 0}} or {"tries": 5}; empty: a score from 0 to 10, 3 tries.'
        ),
    )

    class Meta:
        model = Environment
        fields = [
            "name",
            "slug",
            "description",
            "adapter",
            "builtin",
            "base_url",
            "command",
            "verifies",
            "call_timeout",
            "connect_timeout",
            "verify_timeout",
            "max_tries",
            "concurrency",
            "worker_group",
            "judge_model",
            "judge_rubric",
            "judge_settings",
        ]
        labels = {
            "base_url": "Base URL",
            "builtin": "Built-in environment",
            "max_tries": "Tries",
            "judge_rubric": "Rubric",
        }
        widgets = {
            "description": forms.Textarea(attrs={"rows": 3}),
            "base_url": forms.TextInput(attrs={"inputmode": "url", "class": "code"}),
            "worker_group": forms.TextInput(attrs={"class": "code"}),
            "judge_rubric": forms.Textarea(attrs={"rows": 5}),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        names = [("", "–"), *((name, name) for name in list_names())]
        self.fields["builtin"] = forms.ChoiceField(
            label="Built-in environment", required=False, choices=names, initial=self.instance.builtin
        )
        commands = [("", "–"), *((name, name) for name in sorted(settings.MCP_COMMANDS))]
        self.fields["command"] = forms.ChoiceField(
            label="Command",
            required=False,
            choices=commands,
            initial=self.instance.command,
            help_text="Each attempt starts one of its own. The operator names the commands in GYMWEB_MCP_COMMANDS.",
        )
        count_from_one(self, "max_tries", "concurrency")
        usual = str(Environment._meta.get_field("concurrency").get_default())
        most = dict.fromkeys(Adapter.values, usual) | {Adapter.MCP_PROCESS.value: str(settings.MCP_PROCESSES)}
        self.fields["concurrency"].widget.attrs["data-proposed"] = json.dumps({"adapter": most})
        given = dict(self.instance.judge_settings)
        for name in _SPELLED_OUT:
            self.initial[f"judge_{name}"] = given.pop(name, None)
        self.initial["judge_settings"] = given
        self.fields["judge_rubric"].help_text = _RUBRIC_HELP
        for name in ("builtin", "base_url", "command", "judge_model", "judge_question", "judge_reads"):
            # Optional for the database, required by one adapter: the page must not call them optional.
            self.fields[name].conditional = True  # type: ignore[attr-defined]
        if self.instance.pk:
            del self.fields["slug"]
        if hint := self.instance.api_key_hint:
            told = f"A key is stored (…{hint.lstrip('…')}). Leave this empty to keep it; a new address needs it again."
            self.fields["api_key"].help_text = told
        else:
            del self.fields["forget_key"]

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        given = dict(cleaned.get("judge_settings") or {})
        for name in _SPELLED_OUT:
            chosen = cleaned.get(f"judge_{name}")
            if chosen:
                given[name] = chosen
        cleaned["judge_settings"] = given
        return cleaned

    def given_key(self) -> str | None:
        """The key as typed; "" to remove the stored one; None to keep it."""
        typed: str = self.cleaned_data["api_key"]
        if typed:
            return typed
        return "" if self.cleaned_data.get("forget_key") else None
