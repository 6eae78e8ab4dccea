"""The library: the desk's records and the user's own things, with the tools of both sides."""

from copy import deepcopy
from datetime import date, timedelta
from typing import Any

from apps.gym.environments.protocol import ToolRefused, unknown_tool
from apps.gym.redaction.shortening import cut
from apps.gym.traces.items import Tool, as_object

Record = dict[str, Any]
_LONGEST = 1_000

_MEMBERS = [
    ("M-104", "Ines Holt"),
    ("M-118", "Goran Ivarsen"),
    ("M-127", "Uma Sandoval"),
    ("M-133", "Otto Jansky"),
    ("M-141", "Femi Adeyemi"),
    ("M-156", "Lucia Marchetti"),
    ("M-162", "Tarik Demir"),
    ("M-175", "Noor van Dijk"),
    ("M-188", "Pavel Horak"),
    ("M-193", "Aiko Tanabe"),
]
_BOOKS = [
    ("B-01", "The Salt Road", "M. Okafor"),
    ("B-02", "Nine Quiet Rivers", "H. Lindqvist"),
    ("B-03", "A Field Guide to Clouds", "P. Moreau"),
    ("B-04", "The Glass Orchard", "T. Brennan"),
    ("B-05", "Bread for Beginners", "A. Castellano"),
    ("B-06", "Letters from the Lighthouse", "E. Strand"),
    ("B-07", "The Clockmaker of Vell", "R. Ashdown"),
    ("B-08", "Small Engines Explained", "K. Duarte"),
    ("B-09", "Winter Beekeeping", "J. Halloran"),
    ("B-10", "The Map Thief", "S. Petrov"),
    ("B-11", "Knots and Splices", "C. Underhill"),
    ("B-12", "An Atlas of Moss", "D. Fujimoto"),
]
MEMBERS = dict(_MEMBERS)
BOOKS = {id: title for id, title, _ in _BOOKS}
LOAN_DAYS = 21


def email_of(name: str) -> str:
    return f"{name.lower().replace(' ', '.')}@mail.example"


AGENT_DATA: Record = {
    "today": "2026-05-04",
    "members": {
        id: {"name": name, "email": email_of(name), "card": "active", "fine": 0.0} for id, name in MEMBERS.items()
    },
    "books": {id: {"title": title, "author": author} for id, title, author in _BOOKS},
    "loans": {},
    "holds": {},
}
USER_DATA: Record = {"card_number": "", "at_home": [], "returns_box": [], "reminders": "off"}


class Library:
    """The state of one attempt: `agent` has the desk's records, `user` the user's own things."""

    def __init__(self, agent_data: object = None, user_data: object = None) -> None:
        """Start from the default records, updated by the given ones. Raises ValueError for records of another form."""
        self.agent: Record = _merge(AGENT_DATA, as_object(agent_data))
        self.user: Record = _merge(USER_DATA, as_object(user_data))
        _check(self.agent, self.user)

    # ── tools of the agent ──

    def find_member(self, query: str) -> list[Record]:
        return self._search("members", query)

    def search_books(self, query: str) -> list[Record]:
        return self._search("books", query)

    def list_loans(self, member: str) -> list[Record]:
        self._find("members", member)
        return [
            {"id": id, **loan, "title": self._title(loan["book"])}
            for id, loan in self.agent["loans"].items()
            if loan["member"] == member
        ]

    def list_holds(self, query: str) -> list[Record]:
        """Return the holds of a member or on a book, given its id."""
        holds = ({"id": id, **hold} for id, hold in self.agent["holds"].items())
        return [
            {**hold, "title": self._title(hold["book"])} for hold in holds if query in (hold["member"], hold["book"])
        ]

    def renew_loan(self, loan: str) -> Record:
        found = self._find("loans", loan)
        found["due"] = (date.fromisoformat(found["due"]) + timedelta(days=LOAN_DAYS)).isoformat()
        found["renewals"] += 1
        return found

    def check_in(self, loan: str) -> Record:
        title = self._title(self._find("loans", loan)["book"])
        if title not in self.user["returns_box"]:
            raise ToolRefused("not_returned", f"{title!r} is not in the returns box")
        self.user["returns_box"].remove(title)
        return {"checked_in": title, **self.agent["loans"].pop(loan)}

    def place_hold(self, member: str, book: str) -> Record:
        self._find("members", member)
        self._find("books", book)
        id = f"H-{member[2:]}-{book[2:]}"
        if id in self.agent["holds"]:
            raise ToolRefused("exists", f"{member} already has a hold on {book}")
        self.agent["holds"][id] = {"member": member, "book": book}
        return {"id": id, "member": member, "book": book}

    def cancel_hold(self, hold: str) -> Record:
        self._find("holds", hold)
        return {"cancelled": hold, **self.agent["holds"].pop(hold)}

    def waive_fine(self, member: str) -> Record:
        self._find("members", member)["fine"] = 0.0
        return {"member": member, "fine": 0.0}

    def set_email(self, member: str, email: str) -> Record:
        self._find("members", member)["email"] = email
        return {"member": member, "email": email}

    def block_card(self, member: str, reason: str) -> Record:
        self._find("members", member)["card"] = f"blocked: {reason}"
        return {"member": member, "card": f"blocked: {reason}"}

    def transfer(self, summary: str) -> Record:
        return {"transferred": summary}

    # ── tools of the user ──

    def read_card(self) -> Record:
        return {"card_number": self.user["card_number"]}

    def look_at_shelf(self) -> Record:
        return {"at_home": self.user["at_home"]}

    def return_book(self, title: str) -> Record:
        if title not in self.user["at_home"]:
            raise ToolRefused("not_found", f"{cut(title, 80)!r} is not at home")
        self.user["at_home"].remove(title)
        self.user["returns_box"].append(title)
        return {"in_returns_box": title}

    def set_reminders(self, state: str) -> Record:
        self.user["reminders"] = state
        return {"reminders": state}

    # ── assertions ──

    def assert_card(self, member: str, status: str) -> bool:
        """Return True if the card is `active` or `blocked`."""
        return bool(self._find("members", member)["card"].split(":")[0] == status)

    def assert_fine(self, member: str, amount: float) -> bool:
        return bool(self._find("members", member)["fine"] == amount)

    def assert_loan_count(self, member: str, count: int) -> bool:
        return len(self.list_loans(member)) == count

    def assert_at_home(self, title: str) -> bool:
        return title in self.user["at_home"]

    def assert_reminders(self, state: str) -> bool:
        return bool(self.user["reminders"] == state)

    # ── records ──

    def _find(self, table: str, id: str) -> Record:
        found: Record | None = self.agent[table].get(id)
        if found is None:
            raise ToolRefused("not_found", f"there is nothing with the id {cut(id, 40)!r} in {table}")
        return found

    def _search(self, table: str, query: str) -> list[Record]:
        """Return the records that contain every word of the query."""
        records = ({"id": id, **record} for id, record in self.agent[table].items())
        words = query.lower().split()
        return [one for one in records if all(word in " ".join(map(str, one.values())).lower() for word in words)]

    def _title(self, book: str) -> str:
        return str(self._find("books", book)["title"])


_FIELDS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "members": {"name": str, "email": str, "card": str, "fine": (int, float)},
    "books": {"title": str, "author": str},
    "loans": {"member": str, "book": str, "due": str, "renewals": int},
    "holds": {"member": str, "book": str},
}
"""The fields of each table's records."""


def _check(agent: Record, user: Record) -> None:
    for table, fields in _FIELDS.items():
        for id, record in as_object(agent[table]).items():
            if any(not isinstance(as_object(record).get(field), kind) for field, kind in fields.items()):
                raise ValueError(f"{table} {id} must have {', '.join(fields)}")
        if not isinstance(agent[table], dict):
            raise ValueError(f"{table} must be an object of records by id")
    for loan in agent["loans"].values():
        date.fromisoformat(loan["due"])
    if any(not isinstance(user[name], list) for name in ("at_home", "returns_box")):
        raise ValueError("at_home and returns_box must be lists of titles")


def _merge(default: Record, given: Record) -> Record:
    """Return a copy of the default, updated recursively as tau2 does."""
    merged = deepcopy(default)
    for key, value in given.items():
        nested = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merge(merged[key], value) if nested else deepcopy(value)
    return merged


def _tool(name: str, description: str, **parameters: str | list[str]) -> Tool:
    """Describe a tool of text arguments: each with its description, or its possible values."""
    properties = {
        key: {"type": "string", "enum": told} if isinstance(told, list) else {"type": "string", "description": told}
        for key, told in parameters.items()
    }
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"type": "function", "name": name, "description": description, "parameters": schema, "strict": True}


_MEMBER, _LOAN, _BOOK = "Member id, for example M-104", "Loan id", "Book id, for example B-01"
AGENT_TOOLS: list[Tool] = [
    _tool("find_member", "Find members by card number, name or e-mail address.", query="Words"),
    _tool("search_books", "Find books by title or author.", query="Words"),
    _tool("list_loans", "List the loans of a member.", member=_MEMBER),
    _tool("list_holds", "List the holds of a member or on a book.", query="Member id or book id"),
    _tool("renew_loan", f"Renew a loan by {LOAN_DAYS} days.", loan=_LOAN),
    _tool("check_in", "End the loan of a book that is in the returns box.", loan=_LOAN),
    _tool("place_hold", "Reserve a book for a member.", member=_MEMBER, book=_BOOK),
    _tool("cancel_hold", "Cancel a hold.", hold="Hold id"),
    _tool("waive_fine", "Set the fine of a member to 0.", member=_MEMBER),
    _tool("set_email", "Change the e-mail address of a member.", member=_MEMBER, email="New address"),
    _tool("block_card", "Block the card of a member.", member=_MEMBER, reason=["lost", "stolen"]),
    _tool("transfer", "Transfer the member to a librarian.", summary="What the member wants"),
]
USER_TOOLS: list[Tool] = [
    _tool("read_card", "Read the number on your library card."),
    _tool("look_at_shelf", "See which library books you have at home."),
    _tool("return_book", "Put a book into the returns box of the library.", title="Title"),
    _tool("set_reminders", "Switch reminders in your library app on or off.", state=["on", "off"]),
]
TOOLS: dict[str, list[Tool]] = {"assistant": AGENT_TOOLS, "user": USER_TOOLS}
ASSERTIONS = ("assert_card", "assert_fine", "assert_loan_count", "assert_at_home", "assert_reminders")


def use_tool(library: Library, side: str, name: str, arguments: dict[str, Any]) -> Any:
    """Return the result of a tool of one side. Raises ToolRefused, and then nothing has changed."""
    tool = next((tool for tool in TOOLS[side] if tool["name"] == name), None)
    if tool is None:
        raise unknown_tool(name, TOOLS[side])
    properties = tool["parameters"]["properties"]
    if arguments.keys() != properties.keys():
        raise ToolRefused("bad_arguments", f"{name} takes exactly: {', '.join(properties) or 'no arguments'}")
    for key, value in arguments.items():
        allowed = properties[key].get("enum")
        if not isinstance(value, str) or len(value) > _LONGEST or (allowed and value not in allowed):
            wanted = f"one of {', '.join(allowed)}" if allowed else f"text of up to {_LONGEST:,} characters"
            raise ToolRefused("bad_arguments", f"{name}: {key} must be {wanted}")
    return getattr(library, name)(**arguments)


def check_assertion(library: Library, name: str, arguments: dict[str, Any]) -> bool:
    """Return the result of an assertion. Raises ToolRefused for an unknown one."""
    if name not in ASSERTIONS:
        raise ToolRefused("unknown_assertion", f"there is no assertion {cut(name, 60)!r}; use: {', '.join(ASSERTIONS)}")
    try:
        return bool(getattr(library, name)(**arguments))
    except TypeError:
        raise ToolRefused("bad_arguments", f"{name} does not take these arguments") from None
