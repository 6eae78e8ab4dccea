"""List the known tools of an environment."""

from apps.environments.models import Environment
from apps.gym.traces.items import Tool
from apps.gym.written.registry import find_environment
from apps.tasks.models import Task

_TASKS_READ_FOR_TOOLS = 50


def list_tools(environment: Environment) -> list[Tool]:
    """Return the tools of the environment, then those declared by the newest tasks, without duplicates."""
    builtin = find_environment(environment.builtin)
    own = builtin.tools if builtin else environment.survey.get("tools", [])
    found: dict[str, Tool] = {tool["name"]: tool for tool in own}
    for task in Task.objects.ready().filter(dataset__environment=environment).order_by("-pk")[:_TASKS_READ_FOR_TOOLS]:
        for tool in task.masked_row["responses_create_params"].get("tools") or []:
            found.setdefault(str(tool.get("name") or tool.get("type")), tool)
    return list(found.values())
