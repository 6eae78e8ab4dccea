"""Forms for planning a collection, and for its limits while it runs."""

import hashlib
import uuid
from dataclasses import fields
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db.models import Model
from django.http import QueryDict

from apps.dashboard.forms.fields import bound_fields
from apps.dashboard.forms.spec_fields import spec_form
from apps.gym.specs import spec_fields
from apps.gym.tasks.prompt_templates import MAX_TEMPLATE, PromptTemplate, find_template_problems
from apps.rollouts.models import Collection
from apps.rollouts.plans.estimates import estimate_plan
from apps.rollouts.plans.plan_spec import LIMITS, SELECTED, Limits, Plan, TaskSelection, plan_again, plan_rest
from apps.rollouts.plans.task_selection import NothingToCollect, choose_rollouts
from apps.tasks.models import Dataset, DatasetVersion

_SHOWN_VERSIONS = 100
_BASICS = ("name", "dataset", "version", "policy_model", "agent", "repeats", "limit")
_CHOICE = [name for name in SELECTED if name not in _BASICS]
_REST = [name for name in spec_fields(Plan) if name not in {*_BASICS, *_CHOICE, *LIMITS, "prompt_template"}]


def _is_default(name: str, value: Any) -> bool:
    """Return True for values that a summary leaves out: no limit, or a priority or seed of 0."""
    return value in (None, "", "{}", False) or (name in {"priority", "seed"} and str(value) == "0")


@spec_form(Limits)
class LimitsForm(forms.Form):
    """Limits of a collection, which can change while it runs. Empty means no limit."""

    limit_fields = bound_fields(LIMITS)

    @property
    def limits_errors(self) -> bool:
        return any(each.errors for each in self.limit_fields)

    @property
    def limits_summary(self) -> str:
        """Return the labels of the limits that are set."""
        values = [(each, each.value()) for each in self.limit_fields]
        return " · ".join(f"{each.label} {value}" for each, value in values if not _is_default(each.name, value))

    @classmethod
    def of(cls, collection: Collection) -> "LimitsForm":
        """Return an unbound form with the current limits."""
        return cls(initial={name: getattr(collection, name) for name in LIMITS})


class PlanForm(LimitsForm):
    """A plan of one or more collections. `key` identifies it, so that a form that is sent twice plans once."""

    key: str | None = None
    idempotency_key = forms.CharField(
        max_length=128, required=False, widget=forms.HiddenInput, initial=lambda: uuid.uuid4().hex
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["agent"].empty_label = None  # type: ignore[attr-defined]
        # Groups of one rollout have no variance, so trainers learn nothing from them.
        self.fields["repeats"].initial = 4

    def clean(self) -> dict[str, Any]:
        """Combine the idempotency key with the plan: a changed form is another plan."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        key = cleaned.pop("idempotency_key", "")
        self.fold_fields(cleaned)
        plan = "|".join(f"{name}={value!r}" for name, value in sorted(cleaned.items()))
        self.key = hashlib.sha256(f"{key}|{plan}".encode()).hexdigest() if key else None
        return cleaned

    def fold_fields(self, fields: dict[str, Any]) -> None:
        """Combine fields that are one option of the plan."""


@spec_form(Plan, leave=["prompt_template"])
class CollectionForm(PlanForm):
    """The plan of a collection. The two parts of the prompt template are separate fields."""

    system_template = forms.CharField(
        max_length=MAX_TEMPLATE,
        required=False,
        strip=False,
        label="System message",
        widget=forms.Textarea(attrs={"class": "code", "rows": 3}),
        help_text="Replaces the system message. {field} inserts a field of the task.",
    )
    user_template = forms.CharField(
        max_length=MAX_TEMPLATE,
        required=False,
        strip=False,
        label="User message",
        widget=forms.Textarea(attrs={"class": "code", "rows": 3}),
        help_text="Replaces the user message; {prompt} inserts the original",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        ready = Dataset.objects.filter(versions__state=DatasetVersion.State.READY).distinct()
        self.fields["dataset"].queryset = ready  # type: ignore[attr-defined]
        self.fields["version"].widget.attrs["list"] = "versions"

    @property
    def order(self) -> Plan:
        return Plan(**self.cleaned_data)

    def fold_fields(self, fields: dict[str, Any]) -> None:
        parts = {part: fields.pop(f"{part}_template", "").replace("\r\n", "\n") for part in ("system", "user")}
        for part, problem in find_template_problems(PromptTemplate(**parts)).items():
            self.add_error(f"{part}_template", problem)
        fields["prompt_template"] = {part: text for part, text in parts.items() if text.strip()}

    @classmethod
    def opened_with(
        cls, given: QueryDict, earlier: Collection | None = None, *, rest: bool = False
    ) -> "CollectionForm":
        """Return an unbound form with the values in the URL, and its own initial values otherwise.

        With an earlier collection, that collection's plan; with `rest`, the plan of its unfinished rollouts.
        """
        return cls(initial={**(cls._of_earlier(earlier, rest) if earlier else {}), **cls.known(given)})

    @staticmethod
    def _of_earlier(earlier: Collection, rest: bool) -> dict[str, Any]:
        plan = vars(plan_rest(earlier) if rest else plan_again(earlier)).copy()
        parts = plan.pop("prompt_template")
        keys = {name: getattr(value, "slug", value.pk) for name, value in plan.items() if isinstance(value, Model)}
        return {**plan, **keys, **{f"{part}_template": text for part, text in parts.items()}}

    choice_fields = bound_fields(_CHOICE)
    other_fields = bound_fields(_REST)

    @property
    def other_summary(self) -> str:
        """Return the seed and the sampling settings that are set, on one line."""
        values = [(each, " ".join(str(each.field.prepare_value(each.value())).split())) for each in self.other_fields]
        return " · ".join(f"{each.label} {value}" for each, value in values if not _is_default(each.name, value))

    @property
    def versions(self) -> list[DatasetVersion]:
        """Return the newest versions of the chosen dataset that can be used."""
        dataset = self._understood("dataset")
        ready = dataset.versions.filter(state=DatasetVersion.State.READY).defer("metrics") if dataset else ()
        return list(ready[:_SHOWN_VERSIONS])

    @property
    def choice_errors(self) -> bool:
        return any(each.errors for each in self.choice_fields)

    @property
    def choice_summary(self) -> str:
        """Return the labels of the task selection options that are set."""
        values = [(each, each.value()) for each in self.choice_fields]
        return " · ".join(
            f"{each.label} {'' if value is True else each.field.prepare_value(value)}".strip()
            for each, value in values
            if value and value != "false"
        )

    @classmethod
    def known(cls, given: QueryDict) -> dict[str, str]:
        """Return the fields that the form's URL may contain: all but the idempotency key."""
        # An empty time limit is a value: it means no limit.
        shown = [name for name in cls.base_fields if given.get(name) or (name == "max_seconds" and name in given)]
        return {name: str(given[name]) for name in shown if name != "idempotency_key"}

    def plan(self) -> dict[str, Any] | None:
        """Return the size of the plan for the current form; None if the dataset or a number is missing or invalid.

        It has an estimate if agent and model are selected.
        """
        given = {name: self._understood(name) for name in self.fields}
        if not given["dataset"] or not given["repeats"]:
            return None
        plan = {name: value for name, value in given.items() if value is not None}
        parts = {part: plan.pop(f"{part}_template", "") for part in ("system", "user")}
        plan |= {"prompt_template": parts, "only_failed": bool(plan.get("only_failed") and plan.get("resume_from"))}
        plan.pop("idempotency_key", None)
        selected = {each.name: plan[each.name] for each in fields(TaskSelection) if each.name in plan}
        try:
            choice = choose_rollouts(TaskSelection(**selected))
            estimate = estimate_plan(Plan(**plan)) if plan.get("agent") and plan.get("policy_model") else None
        except (ValidationError, NothingToCollect):
            return None
        return {
            "version": choice.version,
            "size": estimate or choice.size(),
            "repeats": choice.selection.repeats,
            "split_repeats": choice.selection.split_repeats,
            "is_rest": choice.selection.resume_from is not None,
            "estimate": estimate,
        }

    def _understood(self, name: str) -> Any:
        try:
            return self.fields[name].clean(self[name].value())
        except forms.ValidationError:
            return None
