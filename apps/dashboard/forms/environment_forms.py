"""Form of an environment: a built-in one by name, or a resource server by URL."""

import json
from typing import Any

from django import forms
from django.conf import settings

from apps.dashboard.forms.fields import JSONTextField, ServerForm, slug_field
from apps.environments.models import Adapter, Environment
from apps.gym.judging.prompts import PLACEHOLDERS
from apps.gym.written.registry import list_names

_SPELLED_OUT = ("question", "reads")
"""Judge settings with a form field of their own."""


_RUBRIC_HELP = (
    "Criteria for the judge. Empty: the default rubric. Task rows can override it. Placeholders: "
    + "; ".join(f"{{{name}}} is {meaning}" for name, meaning in PLACEHOLDERS.items())
    + "."
)


class EnvironmentForm(ServerForm):
    key_owner = "address"
    no_key_help = "Sent as a bearer token. Stored encrypted and write-only. Most resource servers need none."
    conditional = ("builtin", "base_url", "command", "judge_model", "judge_question", "judge_reads")
    slug = slug_field("environment")
    builtin = forms.ChoiceField(label="Built-in environment", required=False)
    command = forms.ChoiceField(
        required=False,
        help_text="Started once per attempt. The operator lists the commands in GYMWEB_MCP_COMMANDS.",
    )
    judge_question = forms.ChoiceField(
        label="Question",
        required=False,
        choices=[
            ("score", "Score the rollout"),
            ("compare", "Compare the answer with the expected answer"),
            ("equal", "Check whether the answer equals the expected answer"),
        ],
        help_text="Each comparison runs twice, with the answers swapped. If the verdicts contradict each other, the "
        "rollout gets no reward.",
    )
    judge_reads = forms.ChoiceField(
        label="Input",
        required=False,
        choices=[("answer", "Final answer"), ("trace", "Whole trace, without reasoning")],
    )
    judge_settings = JSONTextField(
        kind=dict,
        label="Scores and tries",
        help_text=(
            "Default: a score from 0 to 10 and 3 tries. Examples: "
            '{"scale": {"low": 1, "high": 5}}, {"scale": {"verdicts": {"correct": 1, "wrong": 0}}}, '
            '{"worth": {"win": 1, "tie": 0.5, "loss": 0}} or {"tries": 5}.'
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
            "solve_threshold",
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
            "max_tries": "Maximum tries",
            "verifies": "Verify rollouts",
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
        for name, known in {"builtin": list_names(), "command": sorted(settings.MCP_COMMANDS)}.items():
            self.fields[name].choices = [("", "–"), *((one, one) for one in known)]  # type: ignore[attr-defined]
        usual = str(Environment._meta.get_field("concurrency").get_default())
        most = dict.fromkeys(Adapter.values, usual) | {Adapter.MCP_PROCESS.value: str(settings.MCP_PROCESSES)}
        self.fields["concurrency"].widget.attrs["data-proposed"] = json.dumps({"adapter": most})
        given = dict(self.instance.judge_settings)
        for name in _SPELLED_OUT:
            self.initial[f"judge_{name}"] = given.pop(name, None)
        self.initial["judge_settings"] = given
        self.fields["judge_rubric"].help_text = _RUBRIC_HELP
        model = self.fields["judge_model"]
        model.label = "User model" if self.instance.has_simulated_user else "Judge model"
        model.help_text = (
            "Calls count towards the concurrency limit of this model. Only for simulated_user: without a model, a "
            "script plays the user."
        )

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        given = dict(cleaned.get("judge_settings") or {})
        for name in _SPELLED_OUT:
            chosen = cleaned.get(f"judge_{name}")
            if chosen:
                given[name] = chosen
        cleaned["judge_settings"] = given
        return cleaned
