"""Datasets with generated tasks of in-process environments."""

import io
from collections.abc import Iterable, Iterator
from typing import Literal

import orjson

from apps.accounts.models import User
from apps.environments.environment_changes import save_environment
from apps.environments.models import Adapter, Environment
from apps.gym.environments.task_generation import Difficulty, Kit, generate_tasks
from apps.gym.json_lines import escape_line_ends
from apps.gym.traces.items import TaskRow, Tool
from apps.gym.written.registry import find_environment, find_kit, list_kits
from apps.tasks.dataset_changes import create_dataset
from apps.tasks.models import Dataset, Upload
from apps.tasks.upload_choices import Choices
from apps.tasks.upload_jobs import upload_file

SAMPLE_TASKS = 20
_TITLES = {"code_exec": "Code execution", "mcqa": "Multiple choice", "text_to_sql": "Text to SQL"}


class NoTaskGenerator(LookupError):
    """Raised if an environment cannot generate tasks."""


def find_generator(slug: str) -> tuple[str, Kit]:
    """Return the name of an in-process environment and its kit.

    `slug` may be that name, or the slug of an environment registered for it. Raise NoTaskGenerator.
    """
    found = Environment.objects.filter(slug=slug, adapter=Adapter.BUILTIN).values_list("builtin", flat=True).first()
    name = found or slug
    kit = find_kit(name)
    if kit is None:
        raise NoTaskGenerator(f"{slug}: only {', '.join(list_kits())} can generate tasks.")
    return name, kit


def encode_tasks(
    name: str,
    kit: Kit,
    *,
    count: int,
    seed: int = 0,
    difficulty: Difficulty | Literal["mixed"] = "mixed",
    with_tools: bool = False,
) -> Iterator[bytes]:
    """Yield generated tasks as lines of JSON. `with_tools` writes the tools into each row. Raise TooFewTasks."""
    found = find_environment(name) if with_tools else None
    tools: list[Tool] = list(found.tools) if found else []
    for row in generate_tasks(kit, count=count, seed=seed, difficulty=difficulty):
        yield escape_line_ends(orjson.dumps(_add_tools(row, tools))) + b"\n"


def _add_tools(row: TaskRow, tools: list[Tool]) -> TaskRow:
    params = row["responses_create_params"]
    return {**row, "responses_create_params": {**params, "tools": tools}} if tools else row


def ensure_environment(slug: str, *, user: User | None = None) -> Environment:
    """Return the environment, registering the in-process environment under its own name if needed."""
    known = Environment.objects.filter(slug=slug).first()
    if known:
        return known
    environment = Environment(slug=slug, name=environment_title(slug), adapter=Adapter.BUILTIN, builtin=slug)
    return save_environment(environment=environment, user=user)


def environment_title(name: str) -> str:
    """Return the display name of an in-process environment."""
    return _TITLES.get(name) or name.replace("_", " ").capitalize()


def load_generated(
    dataset: Dataset, lines: Iterable[bytes], *, filename: str, note: str, user: User | None = None
) -> Upload:
    """Load generated tasks as a new version of the dataset. Return the upload, ready or rejected."""
    content = io.BytesIO(b"".join(lines))
    return upload_file(dataset=dataset, stream=content, filename=filename, choices=Choices(note=note), user=user)


def ensure_sample(name: str, *, user: User | None) -> Dataset:
    """Return the sample dataset of an in-process environment: SAMPLE_TASKS generated tasks, loaded on first use.

    Raise NoTaskGenerator.
    """
    name, kit = find_generator(name)
    environment = ensure_environment(name, user=user)
    slug = f"{name.replace('_', '-')}-sample"
    dataset = Dataset.objects.filter(slug=slug).first() or create_dataset(
        slug=slug, name=f"{environment.name}: sample tasks", environment=environment, user=user
    )
    if dataset.latest_version() is None:
        lines = encode_tasks(name, kit, count=SAMPLE_TASKS)
        load_generated(dataset, lines, filename=f"{slug}.jsonl", note="generated: seed 0, mixed", user=user)
    return dataset
