"""What people may choose when they plan a collection: the one declaration of form, API and commands."""

from dataclasses import dataclass, field, fields
from typing import Annotated, Any

from apps.agents.models import Agent
from apps.gym.specs import Option, described
from apps.policies.models import PolicyModel
from apps.rollouts.models import Collection
from apps.tasks.models import Dataset

MAX_INTEGER = 2**31 - 1
MAX_REPEATS = 10_000
MAX_MARKS = 64
"""Splits or tags that one plan may name."""
_MARK = Option("Name", low=1, length=64)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What may be set when a collection is planned and while it runs."""

    priority: Annotated[int, Option("Priority", "Workers claim smaller numbers first", low=-1000, high=1000)] = 0
    concurrency: Annotated[
        int | None,
        Option(
            "Rollouts at once",
            "Over all workers",
            low=1,
            high=MAX_INTEGER,
            none="as many as the model and the environment allow",
            example=64,
        ),
    ] = None
    rollout_timeout: Annotated[
        float,
        Option("Attempt time limit", "An attempt that takes longer ends as timed_out", low=0.1, high=86_400, unit="s"),
    ] = 1800.0
    max_attempts: Annotated[
        int,
        Option(
            "Attempts per rollout",
            "Tries while the model or the environment fails; attempts lost with a worker do not count",
            low=1,
            high=20,
        ),
    ] = 2
    max_seconds: Annotated[
        int | None,
        Option(
            "Collection time limit",
            "Counts from its first rollout; then the collection pauses",
            low=1,
            high=3650 * 86_400,
            none="no limit",
            unit="s",
        ),
    ] = 7 * 86_400
    max_tokens: Annotated[
        int | None,
        Option(
            "Token limit",
            "Input and output tokens of all models, judges included; then the collection pauses",
            low=1,
            high=2**63 - 1,
            none="no limit",
            example=5_000_000,
        ),
    ] = None
    max_cost: Annotated[
        float | None,
        Option(
            "Cost limit",
            "At the prices of its models; then the collection pauses",
            low=0,
            high=1e12,
            none="no limit",
            unit="USD",
            example=20.0,
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class TaskSelection:
    """Which tasks a collection attempts, and how often."""

    dataset: Dataset = field(metadata=described("Dataset", "Its tasks are attempted"))
    version: Annotated[
        int | None,
        Option("Version", "Number of the dataset's version", low=1, high=MAX_INTEGER, none="latest"),
    ] = None
    repeats: Annotated[int, Option("Repeats", "Rollouts of each task", low=1, high=MAX_REPEATS)] = 1
    limit: Annotated[
        int | None,
        Option("Task limit", "Only the first so many tasks", low=1, high=MAX_INTEGER, none="all tasks", example=100),
    ] = None
    split_repeats: Annotated[
        dict[str, int],
        Option(
            "Repeats by split",
            "Rollouts of each task of a split; tasks of other splits get the repeats above",
            length=MAX_MARKS,
            each=Option("Repeats", low=1, high=MAX_REPEATS),
            example={"train": 8, "validation": 2},
        ),
    ] = field(default_factory=dict)
    splits: Annotated[
        list[str],
        Option("Splits", "Only tasks of these splits", length=MAX_MARKS, each=_MARK, example=["train", "validation"]),
    ] = field(default_factory=list)
    tags: Annotated[
        list[str],
        Option(
            "Tags", "Only tasks that have all of these tags", length=MAX_MARKS, each=_MARK, example=["hard", "algebra"]
        ),
    ] = field(default_factory=list)
    search: Annotated[
        str, Option("Words", "Only tasks with these words in their id or at the start of their prompt", length=200)
    ] = ""
    resume_from: Annotated[
        Collection | None,
        Option(
            "Earlier collection",
            "Only rollouts that failed, were cancelled or are missing in this collection, on the same version",
            none="all rollouts",
        ),
    ] = None
    unsolved_in: Annotated[
        Collection | None,
        Option(
            "Unsolved in",
            "Only tasks that no rollout of this collection solved; it must be of the same dataset version",
            none="all tasks",
        ),
    ] = None
    only_failed: Annotated[
        bool, Option("Only failed rollouts", "Of the earlier collection, only rollouts that failed")
    ] = False


@dataclass(frozen=True, kw_only=True)
class Plan(TaskSelection, Limits):
    """A collection to be planned: tasks × agent × policy model."""

    agent: Agent = field(metadata=described("Agent", "How the model is prompted, and its limits"))
    policy_model: PolicyModel = field(metadata=described("Policy model", "The model that makes the rollouts"))
    prompt_template: Annotated[
        dict[str, str],
        Option(
            "Prompt template",
            "Replaces the prompts of the tasks; {gaps} are fields of the task, {prompt} is its own user message",
            example={"user": "Solve step by step: {prompt}"},
        ),
    ] = field(default_factory=dict)
    seed: Annotated[
        int, Option("Seed", "The same seed gives every rollout the same seed again", low=0, high=MAX_INTEGER)
    ] = 0
    sampling: Annotated[
        dict[str, Any],
        Option(
            "Sampling", "Overrides the settings of the agent and the model", example={"temperature": 1.0, "top_p": 0.95}
        ),
    ] = field(default_factory=dict)
    name: Annotated[str, Option("Name", "Left empty: dataset × policy model", length=200)] = ""


LIMITS = tuple(each.name for each in fields(Limits))
SELECTED = tuple(each.name for each in fields(TaskSelection) if each.name not in {"dataset", "version"})
