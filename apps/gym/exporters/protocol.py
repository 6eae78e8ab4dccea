"""What an exporter is: a pure function from attempts, pairs or tasks to the rows of one trainer, and its choices.

A choice that the trainer would take and silently corrupt is refused with the reason, before anything is written.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, get_args, get_type_hints

import msgspec

from apps.gym.specs import Option
from apps.gym.traces.events import TraceUnion
from apps.gym.traces.items import TaskRow, Tool

Row = dict[str, Any]

Feature = Literal["json", "json[]", "string", "bool", "int64", "float64", "int32[]", "float32[]"]
"""What a column holds, for dataset cards and Parquet. Arrow must never infer nested types: it unifies the arguments of
different calls and writes nulls into them."""

Encoding = Literal["jsonl", "jsonl.gz", "parquet"]

Makes = Literal["demonstrations", "preferences", "labels", "tasks", "scored"]
"""What a format is made of: single attempts worth imitating, pairs, attempts called good or bad, tasks, or all attempts
with their rewards."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """The rewards of all attempts at one task in a collection; `size` counts those with a reward."""

    size: int
    mean: float
    std: float
    least: float
    most: float
    solved: int

    @property
    def zero_variance(self) -> bool:
        """By range, not by `std == 0`, which misses equal floats whose mean is rounded."""
        return self.most - self.least < 1e-8


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One rollout with its trace; `columns` say where the row comes from and are no part of what is trained on."""

    events: list[TraceUnion]
    task: TaskRow
    reward: float
    components: dict[str, float] = {}
    stop_reason: str = ""
    model_version: str = ""
    agent: str = ""
    task_index: int = 0
    repeat: int = 0
    ended: float = 0.0
    """Seconds since 1970; 0 where nobody knows."""
    columns: dict[str, Any] = {}
    group: Group | None = None
    override: dict[str, Any] = {}
    """The reward that a person set, why, and the verifier's; empty where nobody did."""


class Preference(msgspec.Struct, frozen=True, kw_only=True):
    """Two attempts at the same task; `columns` are those of the pair. `margin` is None where people chose."""

    chosen: Attempt
    rejected: Attempt
    margin: float | None
    columns: dict[str, Any] = {}


class TaskPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A task to be attempted by a trainer's own policy; `group` is what attempts at it got so far.

    `asked` is the row with the whole prompt of these attempts as its input; None where they could not be asked.
    `tools` are those that they were offered, by the task or by its environment; empty also where nobody knows.
    `agent_ref` names the agent that made them elsewhere, where they were imported.
    """

    task: TaskRow
    asked: TaskRow | None
    agent: str
    dataset: str
    tools: list[Tool] = []
    agent_ref: dict[str, Any] = {}
    environment: str
    split: str = ""
    task_id: str = ""
    task_index: int = 0
    columns: dict[str, Any] = {}
    group: Group | None = None


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How the rows are worded. A format names those that it has, see `Format.choices`."""

    reasoning: Annotated[
        Literal["field", "inline", "dropped"],
        Option(
            "Reasoning",
            names={
                "field": "In a field of its own (reasoning_content)",
                "inline": "As <think> text before the answer",
                "dropped": "Left out",
            },
        ),
    ] = "field"
    arguments: Annotated[
        Literal["object", "text"],
        Option("Arguments of calls", names={"object": "As objects", "text": "As the text the model wrote"}),
    ] = "object"
    malformed: Annotated[
        Literal["dropped", "text"],
        Option(
            "Malformed arguments",
            "Arguments of calls that are not a JSON object",
            names={"dropped": "Leave the attempt out", "text": "Keep them as text"},
        ),
    ] = "dropped"
    numbers: Annotated[
        Literal["exact", "any"],
        Option(
            "Numbers that datasets would change",
            "As text, arguments and tools keep all numbers",
            names={"exact": "Leave the attempt out", "any": "Keep them: 0.3 becomes 0.30000000000000004"},
        ),
    ] = "any"
    tools: Annotated[
        Literal["column", "text", "system", "dropped"],
        Option(
            "Tools",
            names={
                "column": "In a column",
                "text": "In a column, as JSON text",
                "system": "In the system message",
                "dropped": "Left out",
            },
        ),
    ] = "column"
    level: Annotated[
        Literal["trajectory", "step"],
        Option(
            "Level",
            names={
                "trajectory": "Trajectory: all turns",
                "step": "Step: the first action that differs after the same state",
            },
        ),
    ] = "trajectory"
    prompt: Annotated[
        Literal["explicit", "implicit"],
        Option("Prompt", names={"explicit": "In a column of its own", "implicit": "Before chosen and rejected"}),
    ] = "explicit"
    opening: Annotated[
        Literal["attempts", "task"],
        Option(
            "Start of prompts",
            "Attempts began with the agent's system prompt and examples, and the prompt template",
            names={"attempts": "System prompt, examples and task", "task": "The prompt of the task alone"},
        ),
    ] = "task"
    good_from: Annotated[
        float, Option("Good from a reward of", "Attempts with a lower reward are labelled bad", low=-1e100, high=1e100)
    ] = 0.5


class OptionRefused(Exception):
    """`option` is the one to change; the message says why, and what would do."""

    def __init__(self, option: str, message: str) -> None:
        super().__init__(message)
        self.option = option


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """One file format of one trainer."""

    slug: str
    title: str
    trainer: str
    makes: Makes
    rows: Callable[[Any, Options], Iterator[Row]]
    """From an Attempt, a Preference or a TaskPrompt, as `makes` says. Raises Dropped before the first row."""
    features: Callable[[Options], dict[str, Feature]]
    """Every column that a row may have."""
    choices: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """The values of each option that this format has; the first is the default."""
    refused: Mapping[tuple[str, str], str] = MappingProxyType({})
    """Values of options that the trainer would corrupt, with the reason."""
    encodings: tuple[Encoding, ...] = ("jsonl", "jsonl.gz", "parquet")
    """The first is the default."""
    note: str = ""
    """What the trainer's loss covers, and the trap that people fall into."""
    companions: Callable[[Mapping[str, str], Options], dict[str, str]] = lambda _files, _options: {}
    """Files that the trainer wants beside the data, by name; given the data's file names by split."""
    needs_tokens: bool = False
    """Its rows are made of captured token ids."""
    keeps_all: bool = False
    """Its rows are kept and verified again rather than trained on: what a dataset holds out is theirs, too."""


NUMBERS = frozenset({"good_from"})

_VALUES = {
    name: get_args(hint) for name, hint in get_type_hints(Options).items() if name not in NUMBERS
}  # fmt: skip


def resolve_options(format: Format, given: Mapping[str, Any]) -> Options:
    """The options of an export, with the format's defaults. Raises OptionRefused."""
    resolved: dict[str, Any] = {name: values[0] for name, values in format.choices.items() if name not in NUMBERS}
    for name, value in given.items():
        if name not in format.choices:
            has = ", ".join(format.choices) or "none"
            raise OptionRefused(name, f"{format.title} has no option {name}; it has: {has}.")
        resolved[name] = _number(name, value) if name in NUMBERS else _choice(format, name, value)
    if "malformed" not in given and resolved.get("arguments") != "text" and "malformed" in resolved:
        resolved["malformed"] = "dropped"
    if resolved.get("malformed") == "text" and resolved.get("arguments") != "text":
        raise OptionRefused(
            "malformed", "Arguments that are no object can only be kept as text: set arguments to text as well."
        )
    return Options(**resolved)


def _choice(format: Format, name: str, value: object) -> str:
    if reason := format.refused.get((name, str(value))):
        raise OptionRefused(name, reason)
    if value not in format.choices[name]:
        raise OptionRefused(name, f"{name} of {format.title} is one of: {', '.join(format.choices[name])}.")
    assert value in _VALUES[name]
    return str(value)


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1e100 <= value <= 1e100:
        raise OptionRefused(name, f"{name} is a finite number.")
    return float(value)
