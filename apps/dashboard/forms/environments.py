"""The form of an environment: a built-in one by name, or a resource server by address."""

from typing import Any

from django import forms

from apps.dashboard.forms.fields import JSONTextField, count_from_one, slug_field
from apps.environments.models import Environment
from apps.gym.builtin.registry import BUILTINS


class EnvironmentForm(forms.ModelForm):  # type: ignore[type-arg]  # Django forms take none at run time
    slug = slug_field("environment")
    judge_settings = JSONTextField(
        kind=dict,
        label="How it is asked",
        help_text=(
            'Such as {"scale": {"low": 1, "high": 5}, "reads": "trace", "tries": 3} or '
            '{"scale": {"verdicts": {"correct": 1, "wrong": 0}}}; empty: the final answer, from 0 to 10.'
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
        names = [("", "–"), *((name, name) for name in sorted(BUILTINS))]
        self.fields["builtin"] = forms.ChoiceField(
            label="Built-in environment", required=False, choices=names, initial=self.instance.builtin
        )
        count_from_one(self, "max_tries", "concurrency")
        for name in ("builtin", "base_url", "judge_model"):
            # Optional for the database, required by one adapter: the page must not call them optional.
            self.fields[name].conditional = True  # type: ignore[attr-defined]
        if self.instance.pk:
            del self.fields["slug"]
