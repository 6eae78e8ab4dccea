"""The interface of export formats. A format turns attempts, pairs or tasks into the rows of one trainer.

Some trainers silently corrupt certain data. Options that lead to this are refused before anything is written.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

import msgspec

from apps.gym.specs import Option
from apps.gym.traces.events import TraceUnion
from apps.gym.traces.items import TaskRow, Tool

Row = dict[str, Any]

Feature = Literal["json", "json[]", "string", "bool", "int64", "float64", "int32[]", "float32[]", "image[]", "turn[]"]
"""The type of a column, for dataset cards and Parquet.

Types are declared, because Arrow would infer one struct type for the arguments of all calls and fill the gaps with
nulls. Columns of type `image[]` contain data URLs in rows and image bytes in Parquet. A `turn` has the texts `from` and
`value`.
"""

Encoding = Literal["jsonl", "jsonl.gz", "parquet"]

RowKind = Literal["demonstrations", "preferences", "labels", "tasks", "scored"]
"""The kind of rows of a format: attempts to imitate, preference pairs, attempts labelled good or bad, tasks, or all
attempts with their rewards.
"""


SPREAD = 1e-4
"""The smallest difference of rewards in a group that teaches anything: GRPO adds as much to the standard deviation."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of the rewards at one task in a collection.

    `size` is the number of attempts with a reward, `solved` the number of attempts that solve the task. `std` is the
    population standard deviation.
    """

    size: int
    mean: float
    std: float
    lowest: float
    highest: float
    solved: int

    @property
    def zero_variance(self) -> bool:
        """Return True if the rewards differ by less than SPREAD, as 0.999999 and 1 do.

        Compares the range: rounding of the mean can make `std` of equal rewards differ from 0.
        """
        return self.highest - self.lowest < SPREAD


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """A rollout with its trace: linear, or a graph for formats with the option `branches`.

    `columns` are extra columns that describe the origin of the row.
    """

    events: list[TraceUnion]
    task: TaskRow
    reward: float
    components: dict[str, float] = {}
    stop_reason: str = ""
    model_version: str = ""
    logprob_mode: str = ""
    """How the server computed captured logprobs, as in vLLM's --logprobs-mode; empty if unknown."""
    engine: dict[str, str] = {}
    """The server's `engine`, `engine_version` and `dtype`, as far as they are known."""
    agent: str = ""
    provider: str = ""
    """The provider of the policy model, for example `vllm`; empty if unknown."""
    task_index: int = 0
    repeat: int = 0
    ended: float = 0.0
    """Seconds since 1970; 0 if unknown."""
    stored_at: float = 0.0
    """Seconds since 1970 at which the rollout ended or was imported; 0 if unknown."""
    columns: dict[str, Any] = {}
    group: Group | None = None
    override: dict[str, Any] = {}
    """The reward override: reward, reason and the verifier's reward. Empty without an override."""
    masked: frozenset[int] = frozenset()
    """Positions, from 1, of the model calls to leave out of the loss, because another row trains on them."""


class Preference(msgspec.Struct, frozen=True, kw_only=True):
    """Two attempts at the same task.

    `margin` is the chosen reward minus the rejected one, or None if reviewers decided. `columns` are extra columns.
    """

    chosen: Attempt
    rejected: Attempt
    margin: float | None
    columns: dict[str, Any] = {}


class TaskPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A task, for trainers that generate rollouts.

    `prompted_task` is the task row with the full prompt of the agent, or None if that cannot be built. `tools` are
    the tools of the task or, if it has none, of its environment; empty if unknown. `agent_ref` is the agent of imported
    attempts. `group` has statistics of the attempts so far.
    """

    task: TaskRow
    prompted_task: TaskRow | None
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


FAMILIES = {
    "qwen": "Qwen: parallel calls in one turn",
    "llama3": "Llama 3: one call per turn",
    "deepseek3": "DeepSeek V3: one call per turn",
    "glm4": "GLM 4: one call per turn",
    "gpt_oss": "gpt-oss: one call per turn, no reasoning",
    "mistral": "Mistral: one call per turn, no text beside it",
    "gemma3": "Gemma 3: one call per turn, no text beside it",
}


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of exported rows. Each format supports the options in `Format.choices`."""

    reasoning: Annotated[
        Literal["field", "inline", "dropped"],
        Option(
            "Reasoning",
            names={
                "field": "In a separate field (reasoning_content)",
                "inline": "As <think> text before the answer",
                "dropped": "Leave out",
            },
        ),
    ] = "field"
    arguments: Annotated[
        Literal["object", "text"],
        Option("Tool call arguments", names={"object": "As objects", "text": "As text, as the model wrote them"}),
    ] = "object"
    malformed: Annotated[
        Literal["dropped", "text"],
        Option(
            "Malformed arguments",
            "Tool call arguments that are not a JSON object",
            names={"dropped": "Leave the rollout out", "text": "Keep them as text"},
        ),
    ] = "dropped"
    parallel_calls: Annotated[
        Literal["kept", "split"],
        Option(
            "Parallel calls",
            "Turns with several calls, which some chat templates lose or refuse",
            names={"kept": "In one turn", "split": "One call per turn, each followed by its result"},
        ),
    ] = "kept"
    numbers: Annotated[
        Literal["exact", "any"],
        Option(
            "Inexact numbers",
            "Numbers that the `datasets` library rounds on loading. Write arguments and tools as text to keep "
            "all digits.",
            names={"exact": "Leave the rollout out", "any": "Keep them: 0.3 becomes 0.30000000000000004"},
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
                "dropped": "Leave out",
            },
        ),
    ] = "column"
    level: Annotated[
        Literal["trajectory", "step"],
        Option(
            "Level",
            names={
                "trajectory": "Trajectory: all turns",
                "step": "Step: the first action that differs after an identical history",
            },
        ),
    ] = "trajectory"
    prompt: Annotated[
        Literal["explicit", "implicit"],
        Option(
            "Prompt", names={"explicit": "In a separate column", "implicit": "At the start of both chosen and rejected"}
        ),
    ] = "explicit"
    opening: Annotated[
        Literal["attempts", "task"],
        Option(
            "Prompt contents",
            "Whether prompts include the agent's system prompt and examples, and the prompt template",
            names={"attempts": "System prompt, examples and task", "task": "Only the prompt of the task"},
        ),
    ] = "task"
    branches: Annotated[
        Literal["main", "conversation", "all", "longest"],
        Option(
            "Branches",
            "For agents with subagents or forks: which branches become rows",
            names={
                "main": "Main: the path to the final answer",
                "conversation": "Conversation: also its segments before compactions and edits of the history",
                "all": "All: one row per path. Some formats add weight and lineage columns.",
                "longest": "Longest: the path with the most calls",
            },
        ),
    ] = "main"
    injected: Annotated[
        Literal["dropped", "kept"],
        Option(
            "Injected turns",
            "Turns in the model's name that no captured call wrote, for example examples or turns that a framework "
            "reworded",
            names={"dropped": "Leave the rollout out", "kept": "Keep: train on them, too"},
        ),
    ] = "dropped"
    grammar_calls: Annotated[
        Literal["mask", "drop", "keep"],
        Option(
            "Calls with a grammar",
            "A grammar (strict tools, forced calls, response formats) forces some tokens. Their log probabilities are "
            "wrong for RL.",
            names={
                "mask": "Mask: leave their tokens out of the loss",
                "drop": "Leave the rollout out",
                "keep": "Keep: train on all sampled tokens",
            },
        ),
    ] = "mask"
    altered_sampling: Annotated[
        Literal["keep", "drop"],
        Option(
            "Altered sampling",
            "Tokens sampled with top_p, top_k, min_p, penalties, a logit bias or similar fields",
            names={"keep": "Keep, and count these rollouts", "drop": "Leave the rollout out"},
        ),
    ] = "keep"
    family: Annotated[
        Literal["qwen", "llama3", "deepseek3", "glm4", "gpt_oss", "mistral", "gemma3"],
        Option(
            "Template family",
            "The `template` of LLaMA-Factory. Rollouts that its templates would misread are left out.",
            names=FAMILIES,
        ),
    ] = "qwen"
    images: Annotated[
        Literal["dropped", "column", "parts"],
        Option(
            "Images",
            "Images of prompts and tool results",
            names={
                "dropped": "Leave the rollout out",
                "column": "In a column, for vision models",
                "parts": "In the messages, as data URLs",
            },
        ),
    ] = "dropped"
    messages: Annotated[
        Literal["all", "new", "none"],
        Option(
            "Messages",
            "Content of model calls and tool results. With all, a trace grows with the square of its turns.",
            names={
                "all": "All: each model call with its whole conversation",
                "new": "New: each model call with the messages since the call before",
                "none": "None: only times, models, token counts and rewards",
            },
        ),
    ] = "all"
    good_from: Annotated[
        float,
        Option("Minimum reward for good", "Rollouts with a lower reward are labelled bad", low=-1e100, high=1e100),
    ] = 0.5


MANY = frozenset({"conversation", "all"})
"""Branches with several rows."""


class OptionRefused(Exception):
    """Raised for an invalid option, named in `option`. The message gives the reason and a remedy."""

    def __init__(self, option: str, message: str) -> None:
        super().__init__(message)
        self.option = option


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """One file format of one trainer."""

    slug: str
    title: str
    trainer: str
    row_kind: RowKind
    rows: Callable[[Any, Options], Iterator[Row]]
    """Yield the rows of one input: an Attempt, a Preference or a TaskPrompt, depending on `row_kind`.

    Raises Dropped before the first row if the input is not exported.
    """
    features: Callable[[Options], dict[str, Feature]]
    """Return the type of each column that a row may have."""
    open_columns: bool = False
    """True if rows have the fields of their tasks. The types of the columns are then those of the written values."""
    choices: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """The supported options with their values. The first value is the default."""
    refused: Mapping[tuple[str, str], str] = MappingProxyType({})
    """Reasons to refuse an option's value, by (option, value): the trainer would corrupt the data."""
    encodings: tuple[Encoding, ...] = ("jsonl", "jsonl.gz", "parquet")
    """The first is the default."""
    image_encodings: tuple[Encoding, ...] = ("parquet",)
    """The encodings that can hold a column of images."""
    note: str = ""
    """Help text for users: what the trainer's loss covers, and common mistakes."""
    companions: Callable[[Mapping[str, str], Options], dict[str, str]] = lambda _files, _options: {}
    """Return the contents of additional files by name. The first argument has the names of the row files by split."""
    needs_tokens: bool = False
    """True if rows are made of captured token IDs."""
    keeps_all: bool = False
    """True if the format is for archives and re-verification. Then exports include held-out tasks."""
    keeps_masked: bool = False
    """True if rows of masked rollouts say that they are masked, so that their reader leaves them out."""
    reads_graph: bool = False
    """True if rows are made of whole traces, with all branches of a graph."""
    omits_tokens: bool = False
    """True if a scored format exports no token IDs. Only then can credentials in token rollouts be masked."""

    @property
    def has_tokens(self) -> bool:
        """Return True if rows may have captured token IDs."""
        return self.needs_tokens or (self.row_kind == "scored" and not self.omits_tokens)


def find_encodings(format: Format, options: Options) -> tuple[Encoding, ...]:
    """Return the encodings that can hold the rows. The first is the default."""
    return format.image_encodings if options.images == "column" else format.encodings


NUMBERS = frozenset({"good_from"})
"""Options whose value is any number. Their entry in `Format.choices` only shows that the format supports them."""


def resolve_options(format: Format, given: Mapping[str, Any]) -> Options:
    """Return the options of an export; those not given have the format's defaults. Raises OptionRefused."""
    resolved: dict[str, Any] = {name: values[0] for name, values in format.choices.items() if name not in NUMBERS}
    for name, value in given.items():
        if name not in format.choices:
            has = ", ".join(format.choices) or "none"
            raise OptionRefused(name, f"{format.title} has no option {name}. Choose one of: {has}.")
        resolved[name] = _number(name, value) if name in NUMBERS else _choice(format, name, value)
    if "malformed" not in given and resolved.get("arguments") != "text" and "malformed" in resolved:
        resolved["malformed"] = "dropped"
    if resolved.get("malformed") == "text" and resolved.get("arguments") != "text":
        raise OptionRefused("malformed", "Malformed arguments can only be kept as text. Also set arguments to text.")
    return Options(**resolved)


def _choice(format: Format, name: str, value: object) -> str:
    if reason := format.refused.get((name, str(value))):
        raise OptionRefused(name, reason)
    if value not in format.choices[name]:
        raise OptionRefused(name, f"{name} of {format.title} must be one of: {', '.join(format.choices[name])}.")
    return str(value)


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1e100 <= value <= 1e100:
        raise OptionRefused(name, f"{name} must be a finite number.")
    return float(value)
