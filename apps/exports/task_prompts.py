"""Tasks as a collection asked them: with its prompt template, and its agent profile's system prompt and examples."""

from typing import Any

import msgspec

from apps.gym.loop.agent_loop import Harness, compose_prompt
from apps.gym.tasks.prompt_templates import apply_prompt_template
from apps.gym.traces.items import TaskRow
from apps.rollouts.models import Collection


def planned_harness(collection: Collection) -> Harness:
    """What stands around its prompts, as planned; the agent profile as it is now where nothing was planned."""
    agent = collection.agent
    planned = collection.snapshot.get("agent", {})
    given = {
        "system_prompt": planned.get("system_prompt", agent.system_prompt),
        "examples": planned.get("examples", agent.examples),
        "prompt": collection.prompt_template,
    }
    return msgspec.convert(given, Harness)


def row_as_asked(row: TaskRow, harness: Harness) -> TaskRow:
    """The row with all of the prompt as its input. What an environment itself says first is no part of it, since it may
    say something else to every attempt. Raises GapEmpty where the template needs what the row lacks."""
    asked: dict[str, Any] = apply_prompt_template(harness.prompt, row)
    params = {key: value for key, value in asked["responses_create_params"].items() if key != "instructions"}
    return {**asked, "responses_create_params": {**params, "input": compose_prompt(asked, harness)}}
