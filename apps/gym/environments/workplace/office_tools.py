"""The twenty tools with the schemas of their arguments, and the function that calls them."""

import re
from typing import Any

from apps.gym.environments.protocol import ToolRefused, unknown_tool
from apps.gym.environments.workplace.office import FOLDERS, PRIORITIES, STATUSES, Office, Record
from apps.gym.redaction.shortening import cut
from apps.gym.traces.items import Tool

Schema = dict[str, Any]

_LONGEST = 4_000
_MOST_LISTED = 40
_DAY, _CLOCK = r"^\d{4}-\d{2}-\d{2}$", r"^\d{2}:\d{2}$"


def _text(about: str, **more: Any) -> Schema:
    return {"type": "string", "description": about, **more}


def _one_of(names: tuple[str, ...], about: str) -> Schema:
    return {"type": "string", "enum": list(names), "description": about}


_ID = _text("As the search or list gives it")
_PEOPLE: Schema = {"type": "array", "items": {"type": "string"}, "description": "E-mail addresses"}
_MINUTES: Schema = {"type": "integer", "minimum": 5, "maximum": 600, "description": "How long it takes"}
_DATE, _START = _text("YYYY-MM-DD", pattern=_DAY), _text("HH:MM, 24 hours", pattern=_CLOCK)
_DUE, _PRIORITY = _text("YYYY-MM-DD", pattern=_DAY), _one_of(PRIORITIES, "normal, unless it is said otherwise")


def _tool(name: str, description: str, needed: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Tool:
    parameters = {
        "type": "object",
        "properties": {**needed, **(optional or {})},
        "required": list(needed),
        "additionalProperties": False,
    }
    return {
        "type": "function",
        "name": name,
        "description": description,
        "parameters": parameters,
        # Strict tools have no optional arguments.
        "strict": not optional,
    }


TOOLS: list[Tool] = [
    _tool(
        "search_contacts",
        "People by words in name, address, department or phone; all without words.",
        {},
        {"query": _text("Words that must all be there")},
    ),
    _tool(
        "add_contact",
        "Add a person.",
        {"name": _text("Full name"), "email": _text("Address"), "department": _text("Where they work")},
        {"phone": _text("Number")},
    ),
    _tool(
        "update_contact",
        "Change what is known of a person.",
        {"id": _ID},
        {
            "name": _text("Full name"),
            "email": _text("Address"),
            "department": _text("New one"),
            "phone": _text("New number"),
        },
    ),
    _tool("delete_contact", "Remove a person.", {"id": _ID}),
    _tool(
        "search_emails",
        "E-mails, the newest first, without their texts.",
        {},
        {
            "query": _text("Words in subject or text"),
            "sender": _text("Address, or a part of it"),
            "folder": _one_of(FOLDERS, "All folders without it"),
        },
    ),
    _tool("read_email", "One e-mail with its text.", {"id": _ID}),
    _tool(
        "send_email",
        "Send an e-mail.",
        {"to": _PEOPLE, "subject": _text("Subject"), "body": _text("The text, without greeting unless asked for")},
    ),
    _tool("reply_to_email", "Answer the sender of an e-mail.", {"id": _ID, "body": _text("The text")}),
    _tool("forward_email", "Send an e-mail on as it is.", {"id": _ID, "to": _PEOPLE}),
    _tool("move_email", "Put an e-mail into a folder.", {"id": _ID, "folder": _one_of(FOLDERS, "Where to")}),
    _tool("delete_email", "Delete an e-mail.", {"id": _ID}),
    _tool(
        "list_events",
        "Events of the calendar by day and time.",
        {},
        {"first_day": _DATE, "last_day": _DATE, "query": _text("Words in the title")},
    ),
    _tool(
        "create_event",
        "Put an event into the calendar.",
        {"title": _text("Title"), "date": _DATE, "start": _START, "minutes": _MINUTES},
        {"attendees": _PEOPLE},
    ),
    _tool(
        "update_event",
        "Change an event.",
        {"id": _ID},
        {"title": _text("Title"), "date": _DATE, "start": _START, "minutes": _MINUTES},
    ),
    _tool("invite_to_event", "Add people to an event.", {"id": _ID, "attendees": _PEOPLE}),
    _tool("delete_event", "Cancel an event.", {"id": _ID}),
    _tool(
        "list_tasks",
        "Tasks.",
        {},
        {
            "query": _text("Words in the title"),
            "assignee": _text("Address, or a part of it"),
            "status": _one_of(STATUSES, "Both without it"),
        },
    ),
    _tool(
        "create_task",
        "Add a task.",
        {"title": _text("Title"), "assignee": _text("Address")},
        {"due": _DUE, "priority": _PRIORITY},
    ),
    _tool(
        "update_task",
        "Change a task.",
        {"id": _ID},
        {
            "title": _text("Title"),
            "assignee": _text("Address"),
            "due": _DUE,
            "priority": _PRIORITY,
            "status": _one_of(STATUSES, "New status"),
        },
    ),
    _tool("delete_task", "Delete a task.", {"id": _ID}),
]
_BY_NAME = {tool["name"]: tool for tool in TOOLS}
READING = frozenset({"search_contacts", "search_emails", "read_email", "list_events", "list_tasks"})
"""Read-only tools."""


def use_tool(office: Office, name: str, arguments: dict[str, Any]) -> Record | list[Record]:
    """Return the result of a tool. Raises ToolRefused, and then nothing has changed."""
    if name not in _BY_NAME:
        raise unknown_tool(name, TOOLS)
    schema = _BY_NAME[name]["parameters"]
    missing = [field for field in schema["required"] if field not in arguments]
    unknown = [field for field in arguments if field not in schema["properties"]]
    if missing or unknown:
        told = [
            *(f"{field} is missing" for field in missing),
            *(f"there is no {cut(field, 40)!r}" for field in unknown),
        ]
        raise ToolRefused("bad_arguments", f"{name}: {', '.join(told[:5])}")
    for field, value in arguments.items():
        if problem := _find_problem(schema["properties"][field], value):
            raise ToolRefused("bad_arguments", f"{name}: {field} {problem}")
    result: Record | list[Record] = getattr(office, name)(**arguments)
    return result


def _find_problem(schema: Schema, value: object) -> str:
    match schema["type"]:
        case "string":
            return _find_text_problem(schema, value)
        case "integer":
            fits = isinstance(value, int) and not isinstance(value, bool)
            inside = fits and schema["minimum"] <= value <= schema["maximum"]
            return "" if inside else f"must be a whole number from {schema['minimum']} to {schema['maximum']}"
        case _:
            if not isinstance(value, list) or len(value) > _MOST_LISTED:
                return f"must be a list of up to {_MOST_LISTED} texts"
            return next((problem for one in value if (problem := _find_text_problem({}, one))), "")


def _find_text_problem(schema: Schema, value: object) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST:
        return f"must be text of up to {_LONGEST:,} characters"
    if "enum" in schema and value not in schema["enum"]:
        return f"must be one of {', '.join(schema['enum'])}"
    if "pattern" in schema and not re.fullmatch(schema["pattern"], value):
        return f"must be written {schema['description']}"
    return "" if value.encode(errors="replace").decode() == value else "must be text that can be stored"
