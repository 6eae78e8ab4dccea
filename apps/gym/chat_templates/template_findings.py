"""What a chat template can do to a conversation, declared once for pages, API and command."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class TemplateFinding:
    """A kind of finding with its number of rows. Rows with a kind that `harms` can be left out of the export.

    `example` names a row, and the error if the template raises.
    """

    kind: str
    effect: Literal["raised", "lost", "changed"]
    title: str
    remedy: str
    harms: bool = True
    rows: int = 0
    example: str = ""


@dataclass(frozen=True, kw_only=True)
class TemplateForm:
    """Options with which fewer rows have a finding that harms: `rows` of the `checked` ones."""

    options: dict[str, str]
    rows: int
    checked: int


@dataclass(frozen=True, kw_only=True)
class TemplateReport:
    """What a template does to the rows of an export."""

    template: str
    sha256: str
    every_row: bool
    misfits: str
    rows: int
    shapes: int
    rendered: int
    deviating: int
    unchecked: int
    dropped: int
    findings: list[TemplateFinding] = field(default_factory=list)
    form: TemplateForm | None = None
    stopped: str = ""


_LEAVE_OUT = "Train with another template, or leave these rows out (misfits=dropped)."
_SPLIT = "Write one call per turn (parallel_calls=split), or leave these rows out (misfits=dropped)."
_ARGUMENTS = "Write the arguments in the form that the template takes (arguments=object or arguments=text)."
_TOOLS = "Write the tools into the system message (tools=system)."
_SCHEMA = "Name the lost parts in the description of the tool, or use tools=system."
_REASONING = "Many templates drop earlier reasoning. trl_sft_turns keeps each turn's own; reasoning=inline keeps all."
_PYTHON = "Right for families whose calls are Python code. For others: arguments=text."
_COMPARE = "Right for some families. Compare a rendered row with a prompt of your model server."

KINDS = {
    one.kind: one
    for one in (
        TemplateFinding("raised", "raised", "The template raises an error", _LEAVE_OUT),
        TemplateFinding("system_lost", "lost", "System messages are lost", _LEAVE_OUT),
        TemplateFinding("text_lost", "lost", "Texts of messages are lost", _LEAVE_OUT),
        TemplateFinding("text_cut", "lost", "Texts are cut, for example at </think>", _LEAVE_OUT),
        TemplateFinding("call_text_lost", "lost", "Text beside a call is lost", _LEAVE_OUT),
        TemplateFinding("call_lost", "lost", "Calls are lost", _LEAVE_OUT),
        TemplateFinding("parallel_call_lost", "lost", "Parallel calls after the first are lost", _SPLIT),
        TemplateFinding("call_part_lost", "lost", "Names or arguments of calls are lost or changed", _ARGUMENTS),
        TemplateFinding("result_lost", "lost", "Tool results are lost", _LEAVE_OUT),
        TemplateFinding("tools_lost", "lost", "Tools are lost", _TOOLS),
        TemplateFinding("schema_lost", "lost", "Parts of tool schemas are lost", _SCHEMA, harms=False),
        TemplateFinding("reasoning_lost", "lost", "Reasoning is lost", _REASONING, harms=False),
        TemplateFinding("arguments_as_text", "changed", "Arguments are encoded twice, as text", _ARGUMENTS),
        TemplateFinding("python_values", "changed", "None, True or 'text' as in Python", _PYTHON, harms=False),
        TemplateFinding("reworded", "changed", "Texts are written otherwise, e.g. escaped", _COMPARE, harms=False),
        TemplateFinding("moved", "changed", "Parts are in another order", _COMPARE, harms=False),
    )
}
"""All kinds by name, the gravest first."""


def is_harmful(kinds: Iterable[str]) -> bool:
    """Return True if one of these names is of a kind that harms."""
    return any(KINDS[name].harms for name in kinds)
