"""Build tasks with the full prompt of a collection: its prompt template, and the agent's system prompt and examples."""

from typing import Any

import msgspec

from apps.gym.loop.agent_loop import Harness, compose_prompt
from apps.gym.tasks.prompt_templates import apply_prompt_template
from apps.gym.traces.items import TaskRow
from apps.rollouts.models import Collection


def planned_harness(collection: Collection) -> Harness:
    """Return system prompt and examples from the plan, or without a plan from the current agent."""
    agent = collection.agent
    planned = collection.snapshot.get("agent", {})
    given = {
        "system_prompt": planned.get("system_prompt", agent.system_prompt),
        "examples": planned.get("examples", agent.examples),
        "prompt": collection.prompt_template,
    }
    return msgspec.convert(given, Harness)


def row_with_prompt(row: TaskRow, harness: Harness) -> TaskRow:
    """Return the row with the full prompt as its input.

    Initial messages of an environment are not included, because they may differ between attempts. Raise GapEmpty if the
    row lacks a field of the template.
    """
    prompted: dict[str, Any] = apply_prompt_template(harness.prompt, row)
    params = {key: value for key, value in prompted["responses_create_params"].items() if key != "instructions"}
    return {**prompted, "responses_create_params": {**params, "input": compose_prompt(prompted, harness)}}
