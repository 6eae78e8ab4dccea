"""Filters of the rollout tables, and the comment form. Only what is declared here can be filtered or sorted by."""

from typing import Any, get_args

from django import forms
from django.http import QueryDict

from apps.dashboard.keyset import Page, page_by_column, page_by_id
from apps.gym.errors import ErrorKind
from apps.policies.models import PolicyModel
from apps.rollouts.models import Collection, Rollout, RolloutQuerySet
from apps.tasks.models import Dataset

STOP_REASONS = (
    "answered",
    "environment_done",
    "max_steps",
    "max_output_tokens",
    "context_length",
    "content_filter",
    "time_limit",
    "token_limit",
    "empty_reply",
)
SORTS = (("", "oldest first"), ("-id", "newest first"), ("-reward", "best reward"), ("reward", "worst reward"))


def _choices(names: tuple[str, ...], label: str) -> list[tuple[str, str]]:
    return [("", label), *((name, name.replace("_", " ")) for name in names)]


class RolloutFilterForm(forms.Form):
    status = forms.ChoiceField(required=False, choices=[("", "any status"), *Rollout.Status.choices], label="Status")
    min_reward = forms.FloatField(required=False, label="Reward from", widget=forms.NumberInput(attrs={"step": "any"}))
    max_reward = forms.FloatField(required=False, label="to", widget=forms.NumberInput(attrs={"step": "any"}))
    stop_reason = forms.ChoiceField(required=False, choices=_choices(STOP_REASONS, "any"), label="Stop reason")
    error_kind = forms.ChoiceField(required=False, choices=_choices(get_args(ErrorKind), "any"), label="Error")
    usage = forms.ChoiceField(required=False, choices=[("", "any"), ("missing", "not told")], label="Usage")
    flagged = forms.ChoiceField(required=False, choices=[("", "any"), ("true", "not looked at")], label="Credentials")
    sort = forms.ChoiceField(required=False, choices=SORTS, label="Order")
    after = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)

    def page(self, rollouts: RolloutQuerySet) -> Page[Rollout]:
        """One page of the rollouts that pass; nothing when a filter is not understood (the form says which)."""
        if not self.is_valid():
            return Page(rows=[], after="", is_first=True)
        given = self.cleaned_data
        for field, lookup in self._lookups().items():
            if given.get(field) not in (None, ""):
                rollouts = rollouts.filter(**{lookup: given[field]})
        if given["usage"]:
            rollouts = rollouts.lacking_usage()
        if given["flagged"]:
            rollouts = rollouts.filter(flagged=True)
        sort, after = given["sort"], given["after"]
        if sort.endswith("reward"):
            return page_by_column(
                rollouts,
                "reward",
                after,
                descending=sort.startswith("-"),
                with_values=given["status"] in ("", Rollout.Status.COMPLETED) and not given["error_kind"],
                without_values=given["min_reward"] is None and given["max_reward"] is None,
            )
        return page_by_id(rollouts, after, descending=self._newest_first(sort))

    @property
    def chosen(self) -> dict[str, Any]:
        """What is asked for, as the deletion of rollouts takes it; empty where nothing is filtered."""
        if not self.is_valid():
            return {}
        names = ("status", "error_kind", "stop_reason", "min_reward", "max_reward")
        given = {name: self.cleaned_data[name] for name in names if self.cleaned_data.get(name) not in (None, "")}
        flags = {"flagged": "flagged", "lacks_usage": "usage"}
        return {**given, **{name: True for name, field in flags.items() if self.cleaned_data.get(field)}}

    @property
    def given(self) -> dict[str, str]:
        """The filters as they came, for a form that means the same rollouts."""
        return {name: self.data[name] for name in self.fields if name not in ("sort", "after") and self.data.get(name)}

    def _lookups(self) -> dict[str, str]:
        return {
            "status": "status",
            "min_reward": "reward__gte",
            "max_reward": "reward__lte",
            "stop_reason": "stop_reason",
            "error_kind": "error_kind",
        }

    def _newest_first(self, sort: str) -> bool:
        return sort == "-id"


class RolloutSearchForm(RolloutFilterForm):
    """The same across collections, newest first."""

    collection = forms.ModelChoiceField(
        Collection.objects.none(), required=False, label="Collection", widget=forms.NumberInput(attrs={"min": 1})
    )
    dataset = forms.ModelChoiceField(
        Dataset.objects.none(), to_field_name="slug", required=False, label="Dataset", empty_label="any"
    )
    policy_model = forms.ModelChoiceField(
        PolicyModel.objects.none(), to_field_name="slug", required=False, label="Model", empty_label="any"
    )
    version = forms.CharField(
        required=False, max_length=200, label="Version", widget=forms.TextInput(attrs={"autocomplete": "off"})
    )
    worker = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=2**63 - 1,
        label="Run by worker",
        widget=forms.NumberInput(attrs={"min": 1}),
    )
    field_order = ["collection", "dataset", "policy_model", "version"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        rows = {"collection": Collection, "dataset": Dataset, "policy_model": PolicyModel}
        for name, model in rows.items():
            field = self.fields[name]
            assert isinstance(field, forms.ModelChoiceField)
            field.queryset = model._default_manager.all()
        sort = self.fields["sort"]
        assert isinstance(sort, forms.ChoiceField)
        sort.choices = [("", "newest first"), ("id", "oldest first"), *SORTS[2:]]

    def page(self, rollouts: RolloutQuerySet) -> Page[Rollout]:
        if self.is_valid():
            given = self.cleaned_data
            if given["worker"]:
                rollouts = rollouts.run_by(given["worker"])
            if given["collection"]:
                rollouts = rollouts.of_collection(given["collection"].pk)
            if chosen := {name: given[name] for name in ("dataset", "policy_model") if given[name]}:
                rollouts = rollouts.of_collections(Collection.objects.filter(**chosen))
        return super().page(rollouts)

    def _lookups(self) -> dict[str, str]:
        return {"version": "model_version", **super()._lookups()}

    def _newest_first(self, sort: str) -> bool:
        return sort == ""


class CommentForm(forms.Form):
    text = forms.CharField(
        max_length=10_000, label="Comment", widget=forms.Textarea(attrs={"rows": 3, "placeholder": "What did you see?"})
    )
    seq = forms.IntegerField(
        min_value=0,
        max_value=2**31 - 1,
        required=False,
        label="About event",
        help_text="Filled by the “comment” beside an event. Empty: the whole rollout",
    )

    @classmethod
    def opened_with(cls, given: QueryDict) -> "CommentForm":
        """Unsent, about the event that the address names (`?comment=3`), if it names one."""
        seq = given.get("comment", "")
        return cls(initial={"seq": int(seq)} if seq.isascii() and seq.isdigit() and len(seq) < 10 else {})
