"""Save agents with valid few-shot examples and sampling settings."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction

from apps.agents.models import Agent
from apps.gym.boxes.command_spec import find_spec_problems
from apps.gym.boxes.mounts import find_mount_problem
from apps.gym.slugs import find_slug_problem
from apps.gym.wires.sampling_values import find_default_problems
from apps.policies.row_checks import check_row, find_url_problem, save_row

_ROLES = ("user", "assistant", "system", "developer")


def save_agent(*, agent: Agent, user: object) -> Agent:
    """Create or change an agent. Raise ValidationError by field.

    Planned collections do not change: they hold a snapshot.
    """
    check_row(agent, find_errors(agent))
    with transaction.atomic():
        stored = Agent.objects.filter(pk=agent.pk).first()
        save_row(agent, stored, user=user, noun="agent", target=agent.slug)
    return agent


def never_send_strict(*, agent: Agent, user: object) -> Agent:
    """Let the agent send tools without `strict`, so that no grammar forces tokens."""
    agent.strict_tools = Agent.StrictTools.NEVER
    return save_agent(agent=agent, user=user)


def find_errors(agent: Agent) -> dict[str, list[str]]:
    """Return errors by field that the fields' own validators do not find."""
    problem = find_problem(agent.examples)
    found = {"examples": [problem] if problem else [], "sampling": find_default_problems(agent.sampling)}
    stored = Agent.objects.filter(pk=agent.pk).first()
    if stored is not None and stored.kind != agent.kind:
        found["kind"] = ["The kind of an agent cannot be changed. Create another agent."]
    if problems := find_command_problems(agent.kind, agent.command_settings):
        found["command_settings"] = [f"{option}: {problem}" for option, problem in problems.items()]
    if problem := _find_server_problem(agent):
        found["server_url"] = [problem]
    if stored is None and (taken := find_slug_problem(agent.slug)):
        found["slug"] = [taken]
    return {field: problems for field, problems in found.items() if problems}


def _find_server_problem(agent: Agent) -> str:
    if agent.kind != Agent.Kind.SERVER:
        return "Only agent servers have an address." if agent.server_url else ""
    if problem := find_url_problem(agent.server_url):
        return f"Give the address of the agent server, for example http://10.0.0.5:8102. {problem}"
    return ""


def find_command_problems(kind: str, given: object) -> dict[str, str]:
    """Return the first problem of each option of a command agent."""
    if not isinstance(given, dict):
        return {"command": "Give a JSON object."}
    if kind != Agent.Kind.COMMAND:
        return {"command": "Only command agents have a command."} if any(given.values()) else {}
    found = find_spec_problems(given)
    if "mounts" not in found and (problem := find_mounts_problem(given.get("mounts", []))):
        found["mounts"] = problem
    return found


def find_mounts_problem(mounts: Sequence[str]) -> str:
    """Return why a command may not read one of these folders; empty if it may read all."""
    found = (find_mount_problem(one, allowed=settings.AGENT_MOUNTS, hidden=hidden_folders()) for one in mounts)
    return next(filter(None, found), "")


def hidden_folders() -> list[str]:
    """Return the folders of this installation, which have secrets."""
    database = settings.DATABASES["default"]
    is_file = database["ENGINE"].endswith("sqlite3") and Path(database["NAME"]).is_absolute()
    own = [str(Path(database["NAME"]).parent)] if is_file else []
    return [str(settings.BASE_DIR), str(settings.VAR_DIR), *own]


def find_problem(examples: object) -> str:
    """Return why these examples are not a conversation that every policy model accepts; empty if they are."""
    if not isinstance(examples, list):
        return "Give a JSON list of items of the Responses API."
    open_calls: set[str] = set()
    for number, item in enumerate(examples, start=1):
        problem = _problem_of_item(item, open_calls)
        if problem:
            return f"Item {number} {problem}."
    if open_calls:
        return f"The call {min(open_calls)!r} has no function_call_output."
    return ""


def _problem_of_item(item: object, open_calls: set[str]) -> str:
    if not isinstance(item, dict):
        return "is not an object"
    kind = item.get("type", "message")
    if kind == "message":
        return _problem_of_message(item)
    if kind == "function_call":
        absent = [key for key in ("call_id", "name", "arguments") if not isinstance(item.get(key), str)]
        open_calls.update([] if absent else [item["call_id"]])
        return f"is a function_call without {absent[0]!r}" if absent else ""
    if kind == "function_call_output":
        return _problem_of_output(item, open_calls)
    return "" if isinstance(kind, str) else "has a type that is not text"


def _problem_of_message(item: dict[str, Any]) -> str:
    if item.get("role") not in _ROLES:
        return f"has none of the roles {', '.join(_ROLES)}"
    return "" if isinstance(item.get("content"), str | list) else "has no content"


def _problem_of_output(item: dict[str, Any], open_calls: set[str]) -> str:
    if not isinstance(item.get("output"), str | list):
        return "is a function_call_output without an output"
    call_id = item.get("call_id")
    if not isinstance(call_id, str) or call_id not in open_calls:
        return "is the output of a call that does not precede it"
    open_calls.discard(call_id)
    return ""
