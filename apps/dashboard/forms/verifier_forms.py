"""Form of a verifier, made from the JSON schema of its parameters."""

from collections.abc import Mapping
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from apps.dashboard.forms.fields import JSONTextField, LinesField, hide_optional_label
from apps.gym.verifiers.hybrid import Hybrid
from apps.gym.verifiers.parameters_reader import parameters_schema
from apps.gym.verifiers.protocol import read_type
from apps.gym.verifiers.registry import VERIFIERS, asks_judge

PREFIX = "verifier_"
KIND = "verifier_type"
CHOOSE = "choose_verifier"
"""Submitted to show the parameters of another verifier. Nothing is saved, and all input is kept."""

_LONG_TEXT = 5_000


class VerifierForm(forms.Form):
    """The choice of a verifier, then the parameters of the chosen one."""

    def __init__(
        self, data: Any = None, *, given: Mapping[str, Any] | None = None, fixed: str = "", none: str = ""
    ) -> None:
        """`given` are the stored parameters, `fixed` a verifier that cannot change, and `none` labels the empty one."""
        super().__init__(data)
        stored = dict(given or {})
        chosen = fixed or str(data.get(KIND, "") if data is not None else stored.get("type", ""))
        self.kind = chosen if chosen in VERIFIERS else ""
        if not fixed:
            names = [(name, verifier.title) for name, verifier in VERIFIERS.items()]
            # The page loads the parameters of the selected verifier at once; without JavaScript, a button does.
            asks = {"hx-post": "", "hx-trigger": "change", "hx-vals": f'{{"{CHOOSE}": "yes"}}'}
            asks |= {"hx-target": "closest form", "hx-swap": "outerHTML"}
            self.fields[KIND] = hide_optional_label(
                forms.ChoiceField(
                    label="Verifier",
                    required=False,
                    choices=[("", none), *names],
                    initial=self.kind,
                    widget=forms.Select(attrs=asks),
                    help_text="Overrides the server's verifier. No code needed.",
                )
            )
        self._properties: dict[str, Any] = {}
        if self.kind:
            schema = parameters_schema(VERIFIERS[self.kind])
            self._properties = {name: one for name, one in schema["properties"].items() if name != "type"}
            for name, one in self._properties.items():
                self.fields[PREFIX + name] = _make_field(one, required=name in schema["required"])
                if stored.get("type") == self.kind and name in stored:
                    self.initial[PREFIX + name] = stored[name]

    @property
    def formula(self) -> str:
        """Return the first paragraph of the verifier's description."""
        return " ".join(describe(self.kind).split("\n\n")[0].split()) if self.kind else ""

    @property
    def may_ask_judge(self) -> bool:
        """Return True if the verifier may call a judge. A hybrid may if it names a judge, even if it has errors."""
        parts = str(self[f"{PREFIX}components"].value()) if self.kind == read_type(Hybrid) else ""
        return any(asks_judge({"type": kind}) and (kind == self.kind or kind in parts) for kind in VERIFIERS)

    def parameters(self) -> list[forms.BoundField]:
        return [self[PREFIX + name] for name in self._properties]

    def configuration(self) -> dict[str, Any]:
        """Return the parameters to store. Parameters with their default value are left out."""
        if not self.kind:
            return {}
        given: dict[str, Any] = {"type": self.kind}
        for name, schema in self._properties.items():
            value = self.cleaned_data.get(PREFIX + name)
            if value not in (None, "", [], {}) and value != schema.get("default"):
                given[name] = value
        return given

    def add_problems(self, error: ValidationError) -> None:
        """Add each problem to the field that its JSON pointer names."""
        for problem in error.error_dict.get("verifier", []) if hasattr(error, "error_dict") else []:
            name = PREFIX + str((problem.params or {}).get("pointer", "")).removeprefix("/").split("/")[0]
            self.add_error(name if name in self.fields else None, problem.messages[0])


def describe(kind: str) -> str:
    return str(parameters_schema(VERIFIERS[kind])["description"])


def typed(form: forms.BaseForm) -> dict[str, Any]:
    """Return the unchecked input as initial values."""
    return {
        name: field.widget.value_from_datadict(form.data, form.files, form.add_prefix(name))
        for name, field in form.fields.items()
    }


def _make_field(schema: dict[str, Any], *, required: bool) -> forms.Field:
    given: dict[str, Any] = {
        "label": schema["title"],
        "help_text": schema.get("description", "").replace("`", ""),
        "required": required,
        "initial": schema.get("default"),
    }
    if "enum" in schema:
        names = [(name, name) for name in schema["enum"]]
        return forms.ChoiceField(choices=names if "default" in schema else [("", "–"), *names], **given)
    match schema.get("type"):
        case "boolean":
            return _yes_or_no("default" in schema, given)
        case "integer" | "number" as kind:
            field = forms.IntegerField if kind == "integer" else forms.FloatField
            return field(min_value=schema.get("minimum"), max_value=schema.get("maximum"), **given)
        case "array" if schema["items"].get("type") == "string":
            return LinesField(**{**given, "help_text": f"{given['help_text']}. One per line.".removeprefix(". ")})
        case "array" | "object" as kind:
            return JSONTextField(kind=list if kind == "array" else dict, rows=14, **given)
    return _text(schema, given)


def _text(schema: dict[str, Any], given: dict[str, Any]) -> forms.Field:
    most = schema.get("maxLength")
    widget = forms.Textarea(attrs={"rows": 4}) if (most or 0) > _LONG_TEXT else forms.TextInput()
    if "pattern" in schema["title"].lower() or "field" in schema["title"].lower():
        widget.attrs["class"] = "code"
    return forms.CharField(max_length=most, widget=widget, strip=False, **given)


def _yes_or_no(has_default: bool, given: dict[str, Any]) -> forms.Field:
    """Return a checkbox for two states, or a menu if "excluded" is a third."""
    if has_default:
        return forms.BooleanField(**{**given, "required": False})
    return forms.TypedChoiceField(
        choices=[("", "–"), ("True", "yes"), ("False", "no")],
        coerce=lambda word: word == "True",
        empty_value=None,
        **given,
    )


class TryVerifierForm(forms.Form):
    """The attempt on which a verifier is tried."""

    row = JSONTextField(kind=dict, label="Task row", rows=5, help_text="Fields that the verifier reads")
    reply = forms.CharField(label="Model reply", required=False, strip=False, widget=forms.Textarea(attrs={"rows": 5}))
    output = JSONTextField(
        kind=list,
        label="All items of the rollout",
        rows=4,
        help_text="Including tool calls and outputs, as in a trace. Replaces the reply.",
    )
