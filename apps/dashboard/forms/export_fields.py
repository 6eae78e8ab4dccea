"""How the options and filters of exports read on the page."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from django import forms

from apps.dashboard.forms.fields import MarksField
from apps.exports.held_out_splits import named_split
from apps.pairs.models import PreferencePair
from apps.rollouts.search.filters.filter_parser import MAX_LENGTH


@dataclass(frozen=True, slots=True)
class OptionText:
    """An option as people read it: `values` by what the exporter calls them."""

    label: str
    values: dict[str, str] = field(default_factory=dict)
    help: str = ""


OPTIONS = {
    "reasoning": OptionText(
        "Reasoning",
        {
            "field": "In a field of its own (reasoning_content)",
            "inline": "As <think> text before the answer",
            "dropped": "Left out",
        },
    ),
    "arguments": OptionText("Arguments of calls", {"object": "As objects", "text": "As the text the model wrote"}),
    "malformed": OptionText(
        "Arguments that are no JSON object",
        {"dropped": "Leave the attempt out", "text": "Keep them as text"},
    ),
    "numbers": OptionText(
        "Numbers that datasets would load as others",
        {"exact": "Leave the attempt out", "any": "Keep them: 0.3 becomes 0.30000000000000004"},
        "As text, arguments and tools keep them all",
    ),
    "tools": OptionText(
        "Tools on offer",
        {
            "column": "In a column",
            "text": "In a column, as JSON text",
            "system": "Written into the system message",
            "dropped": "Left out",
        },
    ),
    "level": OptionText(
        "Level",
        {
            "trajectory": "Trajectory: everything that was done",
            "step": "Step: the first action that differs after the same state",
        },
    ),
    "prompt": OptionText(
        "Prompt", {"explicit": "In a column of its own", "implicit": "In front of chosen and rejected"}
    ),
    "opening": OptionText(
        "What prompts begin with",
        {
            "attempts": "System prompt, examples and task",
            "task": "The task's own prompt alone",
        },
        "Attempts began with the agent's system prompt and examples, and the prompt template",
    ),
    "good_from": OptionText("Good from a reward of", help="Attempts below it are called bad"),
}


BOXES = 30
"""Splits that can be marked; of more, people write the names."""


def split_field(there: Mapping[str, int]) -> forms.Field:
    """Of splits with the number of their tasks."""
    label = "Splits of the dataset"
    if len(there) > BOXES:
        return MarksField(label=label, help_text="Their names, between commas; empty takes all")
    choices = [
        (split, f"{named_split(split)} · {count:,} task{'' if count == 1 else 's'}") for split, count in there.items()
    ]
    return forms.MultipleChoiceField(
        choices=choices,
        label=label,
        widget=forms.CheckboxSelectMultiple,
        help_text="Leave out what models are compared on: who trains on it compares nothing",
        error_messages={
            "required": "Mark the splits to write.",
            "invalid_choice": "No task of this collection is of the split %(value)s.",
        },
    )


def filter_fields() -> dict[str, forms.Field]:
    """A fresh field for each filter but splits, under its name in an order."""

    def number(label: str, text: str) -> forms.Field:
        widget = forms.NumberInput(attrs={"step": "any"})
        return forms.FloatField(required=False, label=label, help_text=text, widget=widget)

    def count(label: str, text: str) -> forms.Field:
        return forms.IntegerField(required=False, min_value=1, label=label, help_text=text)

    def switch(label: str, text: str) -> forms.Field:
        return forms.BooleanField(required=False, label=label, help_text=text)

    return {
        "q": forms.CharField(
            required=False,
            max_length=MAX_LENGTH,
            label="Rollouts that pass a filter",
            help_text="As above their table: reward:>0.5 -flag:truncated. Of pairs both, of tasks one attempt",
            widget=forms.TextInput(attrs={"class": "code", "spellcheck": "false"}),
        ),
        "rollouts": forms.CharField(
            required=False,
            label="These rollouts alone",
            help_text="Their numbers, separated by spaces; empty takes all",
            widget=forms.Textarea(attrs={"rows": 2}),
        ),
        "reward_from": forms.ChoiceField(
            required=False,
            choices=[("override", "Where people set one, theirs"), ("verifier", "The verifier's")],
            label="Rewards",
            help_text="For what is taken, and in the rows",
        ),
        "min_reward": number("Least reward", "Of a pair, of the chosen one; empty takes any"),
        "per_task": count("Best of each task", "At most so many; empty takes all"),
        "max_rows": count("Rows at most", "Empty takes all"),
        "min_solve_rate": number("Least solve rate", "Share of a task's attempts that solved it, 0 to 1"),
        "max_solve_rate": number("Greatest solve rate", "Below 1 leaves out what is solved always"),
        "sources": forms.MultipleChoiceField(
            required=False,
            choices=PreferencePair.Source.choices,
            label="Where preferences come from",
            help_text="None marked takes all",
            widget=forms.CheckboxSelectMultiple,
        ),
        "only_accepted": switch("Accepted pairs alone", "Those that somebody accepted"),
        "include_rejected": switch("Include rejected pairs", "Else those that somebody rejected are left out"),
        "dedupe": switch("Leave repetitions out", "Of a task's attempts that said and did the same, the first stays"),
        "drop_zero_variance": switch("Leave tasks out that teach nothing", "All their attempts got the same reward"),
        "include_truncated": switch("Include truncated attempts", "Those that a limit cut; they teach no ending"),
        "include_flagged": switch(
            "Include flagged rollouts", "Those that had credentials in their traces; what was redacted stays so"
        ),
    }
