"""Options of a collection plan, in one declaration for form, API and commands."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any

from apps.agents.models import Agent
from apps.gym.specs import Option, described, spec_fields
from apps.policies.models import PolicyModel
from apps.rollouts.models import Collection
from apps.tasks.models import Dataset

MAX_INTEGER = 2**31 - 1
MAX_REPEATS = 10_000
MAX_SPLITS_OR_TAGS = 64
"""Maximum splits or tags of one plan."""
_SPLIT_OR_TAG = Option("Name", low=1, length=64)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Options that are set at planning time and can be changed while the collection runs."""

    priority: Annotated[int, Option("Priority", "Workers claim smaller numbers first", low=-1000, high=1000)] = 0
    concurrency: Annotated[
        int | None,
        Option(
            "Concurrency",
            "Maximum rollouts in flight over all workers",
            low=1,
            high=MAX_INTEGER,
            none="limited by model and environment",
            example=64,
        ),
    ] = None
    rollout_timeout: Annotated[
        float,
        Option("Attempt time limit", "Longer attempts end as timed_out", low=0.1, high=86_400, unit="s"),
    ] = 1800.0
    max_attempts: Annotated[
        int,
        Option(
            "Attempts per rollout",
            (
                "Maximum, including the first attempt. Failures of the model or environment are retried. Attempts "
                "lost with a worker do not count."
            ),
            low=1,
            high=20,
        ),
    ] = 2
    max_seconds: Annotated[
        int | None,
        Option(
            "Collection time limit",
            "Counted from the first rollout. The collection pauses at the limit.",
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
            "Input and output tokens of all models, judges included. The collection pauses at the limit.",
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
            "In US dollars, at the prices of the models. The collection pauses at the limit.",
            low=0,
            high=1e12,
            none="no limit",
            unit="USD",
            example=20.0,
        ),
    ] = None
    pause_on_notice: Annotated[
        bool,
        Option(
            "Pause on set-up notices",
            "The collection pauses if all of the first 20 rollouts show the same set-up notice",
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class TaskSelection:
    """Tasks of a collection, and rollouts per task."""

    dataset: Dataset = field(metadata=described("Dataset"))
    version: Annotated[
        int | None,
        Option("Version", low=1, high=MAX_INTEGER, none="latest"),
    ] = None
    repeats: Annotated[int, Option("Rollouts per task", low=1, high=MAX_REPEATS)] = 1
    limit: Annotated[
        int | None,
        Option(
            "Task limit",
            "Run only this many tasks, in the order of the dataset",
            low=1,
            high=MAX_INTEGER,
            none="all tasks",
            example=100,
        ),
    ] = None
    split_repeats: Annotated[
        dict[str, int],
        Option(
            "Rollouts per task by split",
            "Replaces “Rollouts per task” for these splits",
            length=MAX_SPLITS_OR_TAGS,
            each=Option("Rollouts per task", low=1, high=MAX_REPEATS),
            example={"train": 8, "validation": 2},
        ),
    ] = field(default_factory=dict)
    splits: Annotated[
        list[str],
        Option(
            "Splits",
            "Only tasks of these splits",
            length=MAX_SPLITS_OR_TAGS,
            each=_SPLIT_OR_TAG,
            example=["train", "validation"],
        ),
    ] = field(default_factory=list)
    tags: Annotated[
        list[str],
        Option(
            "Tags",
            "Only tasks that have all of these tags",
            length=MAX_SPLITS_OR_TAGS,
            each=_SPLIT_OR_TAG,
            example=["hard", "algebra"],
        ),
    ] = field(default_factory=list)
    search: Annotated[
        str, Option("Search", "Only tasks with these words in the ID or at the start of the prompt", length=200)
    ] = ""
    resume_from: Annotated[
        Collection | None,
        Option(
            "Continue collection",
            "Number of an earlier collection. Run only its failed, cancelled and missing rollouts.",
            none="all rollouts",
        ),
    ] = None
    unsolved_in: Annotated[
        Collection | None,
        Option(
            "Only tasks unsolved in",
            "Number of a collection of the same dataset version. Run only tasks that none of its rollouts solved.",
            none="all tasks",
        ),
    ] = None
    only_failed: Annotated[
        bool, Option("Only failed rollouts", "With “Continue collection”: run only its failed rollouts")
    ] = False


@dataclass(frozen=True, kw_only=True)
class Plan(TaskSelection, Limits):
    """A collection to be planned: tasks × agent × policy model."""

    agent: Agent = field(metadata=described("Agent", "System prompt, examples and limits"))
    policy_model: PolicyModel = field(metadata=described("Policy model"))
    prompt_template: Annotated[
        dict[str, str],
        Option(
            "Prompt template",
            "Replaces the task prompts. {field} inserts a task field, {prompt} the original user message.",
            example={"user": "Solve step by step: {prompt}"},
        ),
    ] = field(default_factory=dict)
    seed: Annotated[int, Option("Seed", "Rollout seeds derive from this number", low=0, high=MAX_INTEGER)] = 0
    sampling: Annotated[
        dict[str, Any],
        Option(
            "Sampling", "Overrides the settings of the agent and the model", example={"temperature": 1.0, "top_p": 0.95}
        ),
    ] = field(default_factory=dict)
    name: Annotated[str, Option("Name", "Default: dataset × policy model", length=200)] = ""


ON_ONE_DATASET = ("dataset", "version", "resume_from", "unsolved_in", "only_failed")
"""Options that a plan of several datasets cannot have."""
LIMITS = tuple(each.name for each in fields(Limits))
SELECTED = tuple(each.name for each in fields(TaskSelection) if each.name not in {"dataset", "version"})


def plan_again(collection: Collection) -> Plan:
    """Return the plan of a collection, on the same dataset version and without its name."""
    stored, plan = collection.snapshot.get("plan", {}), {}
    for name, about in spec_fields(Plan).items():
        if hasattr(collection, name):
            plan[name] = getattr(collection, name)
        elif name in stored:
            value = stored[name]
            plan[name] = about.type.objects.filter(pk=value).first() if about.is_row else value
    return Plan(**{**plan, "version": collection.version.number, "name": ""})


def plan_rest(collection: Collection, *, only_failed: bool = False) -> Plan:
    """Return the plan of the rollouts that failed, were cancelled or are missing in a collection."""
    return replace(plan_again(collection), resume_from=collection, only_failed=only_failed)


def change_plan(plan: Plan, changes: Mapping[str, Any]) -> Plan:
    """Return the plan with changes. If `dataset` or `resume_from` changes, the version is dropped."""
    moved = any(name in changes and changes[name] != getattr(plan, name) for name in ("dataset", "resume_from"))
    return replace(plan, **{**({"version": None} if moved else {}), **changes})
