"""Which tools an environment has, as far as is known here."""

from apps.environments.models import Environment
from apps.gym.traces.items import Tool
from apps.gym.written.registry import find_environment
from apps.tasks.models import Task

_TASKS_READ_FOR_TOOLS = 50


def list_tools(environment: Environment) -> list[Tool]:
    """The environment's own tools, then those that the newest tasks declare, each name once."""
    builtin = find_environment(environment.builtin)
    own = builtin.tools if builtin else environment.survey.get("tools", [])
    found: dict[str, Tool] = {tool["name"]: tool for tool in own}
    tasks = Task.objects.ready().filter(dataset__environment=environment).order_by("-pk")[:_TASKS_READ_FOR_TOOLS]
    for task in tasks:
        for tool in task.row["responses_create_params"].get("tools") or []:
            found.setdefault(str(tool.get("name") or tool.get("type")), tool)
    return list(found.values())
