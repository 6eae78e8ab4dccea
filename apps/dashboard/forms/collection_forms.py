"""The plan of a collection, and the limits that may be changed while it runs."""

import hashlib
import uuid
from dataclasses import dataclass
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.http import QueryDict

from apps.agents.models import Agent
from apps.dashboard.forms.fields import JSONTextField, MarksField, NumberedField, SecondsField
from apps.gym.tasks.prompt_templates import MAX_TEMPLATE, PromptTemplate, find_template_problems
from apps.policies.models import PolicyModel
from apps.rollouts.models import Collection
from apps.rollouts.plans.clones import plan_again, plan_rest
from apps.rollouts.plans.estimates import Estimate, estimate_plan
from apps.rollouts.plans.task_selection import NothingToCollect, Size, choose_rollouts
from apps.rollouts.plans.validation import LIMITS, MAX_REPEATS
from apps.tasks.models import Dataset, DatasetVersion


def _new_key() -> str:
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be made; `estimate` once the agent and the model are chosen too."""

    version: DatasetVersion
    size: Size
    repeats: int
    split_repeats: dict[str, int]
    is_rest: bool
    estimate: Estimate | None


def _default(name: str) -> Any:
    return Collection._meta.get_field(name).get_default()  # type: ignore[union-attr]


_CHOICE = {
    "split_repeats": "repeats",
    "splits": "splits",
    "tags": "tags",
    "search": "words",
    "resume_from": "what is left of #",
    "only_failed": "",
}

_SUMMED = (
    ("concurrency", "at once"),
    ("rollout_timeout", "an attempt"),
    ("max_attempts", "attempts"),
    ("max_seconds", "in all"),
    ("max_tokens", "tokens in all"),
    ("max_cost", "USD in all"),
)


class LimitsForm(forms.Form):
    """What may be set at planning and while a collection runs: see planning.LIMITS. Empty means no limit."""

    priority = forms.IntegerField(min_value=-1000, max_value=1000, initial=0, help_text="Smaller is claimed first")
    concurrency = forms.IntegerField(
        min_value=1,
        max_value=2**31 - 1,
        required=False,
        label="Rollouts at once",
        help_text="Over all workers; empty: as its model and environment allow",
    )
    rollout_timeout = SecondsField(
        high=86_400,
        initial=_default("rollout_timeout"),
        label="Time of one attempt",
        help_text="Such as 30 min; then it ends as timed_out",
    )
    max_attempts = forms.IntegerField(
        min_value=1,
        max_value=20,
        initial=_default("max_attempts"),
        label="Attempts at a rollout",
        help_text="While its model or environment fails; lost workers are counted apart",
    )
    max_seconds = SecondsField(
        whole=True,
        low=1,
        high=3650 * 86_400,
        required=False,
        initial=_default("max_seconds"),
        label="Time in all",
        help_text="From its first rollout on, such as 12 h; empty: no limit",
    )
    max_tokens = forms.IntegerField(
        min_value=1,
        max_value=2**63 - 1,
        required=False,
        label="Tokens in all",
        help_text="Read and written; empty: no limit",
    )
    max_cost = forms.FloatField(
        min_value=0,
        required=False,
        label="Cost in all, USD",
        help_text="By the prices of its policy model; empty: no limit",
        widget=forms.NumberInput(attrs={"step": "any"}),
    )

    @property
    def limits_errors(self) -> bool:
        return any(name in self.errors for name in LIMITS)

    @property
    def limits_summary(self) -> str:
        """The limits in all, as the form stands: what can be seen without opening it."""
        values = [(self[name].value(), meaning) for name, meaning in _SUMMED]
        return " · ".join(f"{value} {meaning}" for value, meaning in values if value not in (None, ""))

    @classmethod
    def of(cls, collection: Collection) -> "LimitsForm":
        """Unsent, with what holds now."""
        return cls(initial={name: getattr(collection, name) for name in LIMITS})


class CollectionForm(LimitsForm):
    """Field names are the arguments of plan_collection."""

    # Slugs are what addresses and the API call them by: a link can open this form with its dataset chosen.
    dataset = forms.ModelChoiceField(Dataset.objects.none(), to_field_name="slug", empty_label="Choose a dataset")
    version = forms.IntegerField(
        min_value=1, max_value=2**31 - 1, required=False, help_text="Its number; empty: the dataset's latest"
    )
    agent = forms.ModelChoiceField(Agent.objects.none(), to_field_name="slug", empty_label=None)
    policy_model = forms.ModelChoiceField(
        PolicyModel.objects.none(), to_field_name="slug", empty_label="Choose a policy model"
    )
    repeats = forms.IntegerField(min_value=1, max_value=1024, initial=4, help_text="Rollouts per task: its group")
    limit = forms.IntegerField(min_value=1, required=False, help_text="Only the first so many tasks; empty takes all")
    split_repeats = NumberedField(
        high=MAX_REPEATS, label="Repeats by split", help_text="Such as train=8, validation=2; others as above"
    )
    splits = MarksField(help_text="Only tasks of these, such as train, validation; empty takes all")
    tags = MarksField(help_text="Only tasks that have all of these")
    search = forms.CharField(
        max_length=200, required=False, label="Words", help_text="Only tasks with these in their id or prompt"
    )
    resume_from = forms.ModelChoiceField(
        Collection.objects.none(),
        required=False,
        label="Earlier collection",
        widget=forms.NumberInput(attrs={"min": 1}),
        help_text="Its number: only what failed, was cancelled or is missing there, on the version it had",
    )
    only_failed = forms.BooleanField(required=False, label="Of that, only what failed")
    system_template = forms.CharField(
        max_length=MAX_TEMPLATE,
        required=False,
        strip=False,
        label="System message",
        widget=forms.Textarea(attrs={"class": "code", "rows": 3}),
        help_text="In place of the tasks' own; {gaps} are fields of the task",
    )
    user_template = forms.CharField(
        max_length=MAX_TEMPLATE,
        required=False,
        strip=False,
        label="User's message",
        widget=forms.Textarea(attrs={"class": "code", "rows": 3}),
        help_text="In place of the tasks' own, which stands where you write {prompt}",
    )
    seed = forms.IntegerField(min_value=0, max_value=2**31 - 1, initial=0, help_text="The same seed repeats the plan")
    sampling = JSONTextField(
        kind=dict,
        rows=3,
        help_text='Overrides the agent\'s and the model\'s, e.g. {"temperature": 1.0, "max_output_tokens": 1024}',
    )
    name = forms.CharField(max_length=200, required=False, help_text="Empty: named after its parts")
    # A form that is sent twice plans once.
    idempotency_key = forms.CharField(max_length=128, required=False, widget=forms.HiddenInput, initial=_new_key)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        ready = Dataset.objects.filter(versions__state=DatasetVersion.State.READY).distinct()
        self._choices("dataset").queryset = ready
        self._choices("agent").queryset = Agent.objects.all()
        self._choices("policy_model").queryset = PolicyModel.objects.all()
        self._choices("resume_from").queryset = Collection.objects.present().select_related("version", "dataset")

    def _choices(self, name: str) -> "forms.ModelChoiceField[Any]":
        field = self.fields[name]
        assert isinstance(field, forms.ModelChoiceField)
        return field

    def clean(self) -> dict[str, Any]:
        """A form sent again after a change is another plan, so its key is one of form and plan together."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        key = cleaned.pop("idempotency_key", "")
        self._fold_template(cleaned)
        plan = "|".join(f"{name}={value!r}" for name, value in sorted(cleaned.items()))
        digest = hashlib.sha256(f"{key}|{plan}".encode()).hexdigest()
        return {**cleaned, "idempotency_key": digest if key else None}

    def _fold_template(self, fields: dict[str, Any]) -> None:
        """The two parts are one argument."""
        parts = {part: fields.pop(f"{part}_template", "").replace("\r\n", "\n") for part in ("system", "user")}
        for part, problem in find_template_problems(PromptTemplate(**parts)).items():
            self.add_error(f"{part}_template", problem)
        fields["prompt_template"] = {part: text for part, text in parts.items() if text.strip()}

    @classmethod
    def opened_with(
        cls, given: QueryDict, earlier: Collection | None = None, *, rest: bool = False
    ) -> "CollectionForm":
        """An unsent form that shows what the address gives, and its own initial values otherwise.

        With an earlier collection, that one's plan; `rest` is for what that one has not completed.
        """
        return cls(initial={**(cls._of_earlier(earlier, rest) if earlier else {}), **cls.known(given)})

    @staticmethod
    def _of_earlier(earlier: Collection, rest: bool) -> dict[str, Any]:
        plan = plan_rest(earlier) if rest else plan_again(earlier)
        for name in ("dataset", "agent", "policy_model"):
            plan[name] = plan[name].slug
        plan["resume_from"] = plan["resume_from"].pk if plan["resume_from"] else None
        parts = plan.pop("prompt_template")
        return {**plan, **{f"{part}_template": text for part, text in parts.items()}}

    @property
    def choice_errors(self) -> bool:
        return any(name in self.errors for name in _CHOICE)

    @property
    def choice_summary(self) -> str:
        """How tasks are chosen, as the form stands."""
        values = [(self[name].value(), name) for name in _CHOICE if name != "only_failed"]
        shown = [(self.fields[name].prepare_value(value), name) for value, name in values if value]
        return " · ".join(f"{_CHOICE[name]} {value}".replace("# ", "#") for value, name in shown)

    @classmethod
    def known(cls, given: QueryDict) -> dict[str, str]:
        """What may stand in the form's address: its own fields, without the key, which is of one sending."""
        # An emptied limit says something: that there is none.
        shown = [name for name in cls.base_fields if given.get(name) or (name == "max_seconds" and name in given)]
        return {name: str(given[name]) for name in shown if name != "idempotency_key"}

    def plan(self) -> Plan | None:
        """The size of the plan as the form stands; None while the dataset or a number is missing or wrong."""
        given = {name: self._understood(name) for name in self.fields}
        if not given["dataset"] or not given["repeats"]:
            return None
        plan = {name: value for name, value in given.items() if value is not None}
        parts = {part: plan.pop(f"{part}_template", "") for part in ("system", "user")}
        plan |= {"prompt_template": parts, "only_failed": bool(plan.get("only_failed") and plan.get("resume_from"))}
        try:
            choice = choose_rollouts(plan, version=plan.get("version"))
            estimate = estimate_plan(plan) if plan.get("agent") and plan.get("policy_model") else None
        except (ValidationError, NothingToCollect):
            return None
        size = Size(estimate.tasks, estimate.rollouts) if estimate else choice.size()
        return Plan(
            choice.version, size, choice.repeats, dict(choice.split_repeats), choice.resume_from is not None, estimate
        )

    def _understood(self, name: str) -> Any:
        try:
            return self.fields[name].clean(self[name].value())
        except forms.ValidationError:
            return None
