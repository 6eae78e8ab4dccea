"""The state of one attempt: four small tables, and the operations of the tools on them."""

import re
from functools import partialmethod
from typing import Any
from zlib import crc32

from apps.gym.environments.protocol import ToolRefused
from apps.gym.errors import EnvironmentFault
from apps.gym.redaction.shortening import cut
from apps.gym.traces.items import TaskRow, dump_json

Record = dict[str, Any]
Table = dict[str, Record]

TABLES: dict[str, str] = {"contacts": "c", "emails": "m", "events": "e", "tasks": "t"}
"""Each table with the letter that begins the ids of new records."""
FOLDERS = ("inbox", "archive", "sent")
STATUSES = ("open", "done")
PRIORITIES = ("low", "normal", "high")
_MOST_RECORDS = 300
_MOST_FOUND = 50


class Office:
    """The tables of an attempt.

    Records are replaced, never changed: offices of one row share unchanged records. No table grows without limit.
    """

    def __init__(self, row: TaskRow) -> None:
        """Raise EnvironmentFault for a row without these tables."""
        given = row.get("databases")
        if not isinstance(given, dict) or not all(_is_table(given.get(name)) for name in TABLES):
            told = f"must hold lists of records with an `id`: {', '.join(TABLES)}"
            raise EnvironmentFault(f"the task row's `databases` {told}").permanent()
        self.me = str(given.get("me", "me@office.example"))
        self.today = str(given.get("today", "2026-01-01"))
        self.tables: dict[str, Table] = {name: {str(record["id"]): record for record in given[name]} for name in TABLES}

    # ── contacts ──

    def search_contacts(self, query: str = "") -> list[Record]:
        return self._matching("contacts", query, ("name", "email", "department", "phone"))

    def add_contact(self, name: str, email: str, department: str, phone: str = "") -> Record:
        return self._add("contacts", name=name, email=_address(email), department=department, phone=phone)

    def update_contact(self, id: str, **changes: str) -> Record:
        if "email" in changes:
            _address(changes["email"])
        return self._change("contacts", id, changes)

    # ── e-mail ──

    def search_emails(self, query: str = "", sender: str = "", folder: str = "") -> list[Record]:
        """Return e-mails without their bodies, newest first."""
        found = [
            {key: value for key, value in mail.items() if key != "body"}
            for mail in self._matching("emails", query, ("subject", "body"), most=_MOST_RECORDS)
            if sender.lower() in mail["sender"].lower() and folder in ("", mail["folder"])
        ]
        return sorted(found, key=lambda mail: str(mail["date"]), reverse=True)[:_MOST_FOUND]

    def send_email(self, to: list[str], subject: str, body: str) -> Record:
        people = list(dict.fromkeys(_address(one) for one in to))
        if not people:
            raise ToolRefused("bad_arguments", "name at least one address in `to`")
        return self._add(
            "emails", sender=self.me, to=people, subject=subject, body=body, date=self.today, folder="sent"
        )

    def reply_to_email(self, id: str, body: str) -> Record:
        mail = self._find("emails", id)
        return self.send_email([mail["sender"]], f"Re: {mail['subject']}", body)

    def forward_email(self, id: str, to: list[str]) -> Record:
        mail = self._find("emails", id)
        return self.send_email(to, f"Fwd: {mail['subject']}", mail["body"])

    def move_email(self, id: str, folder: str) -> Record:
        return self._change("emails", id, {"folder": folder})

    # ── calendar ──

    def list_events(self, first_day: str = "", last_day: str = "9999-12-31", query: str = "") -> list[Record]:
        found = self._matching("events", query, ("title",), most=_MOST_RECORDS)
        inside = [event for event in found if first_day <= event["date"] <= last_day]
        return sorted(inside, key=lambda event: (event["date"], event["start"]))[:_MOST_FOUND]

    def create_event(
        self, title: str, date: str, start: str, minutes: int, attendees: list[str] | None = None
    ) -> Record:
        people = [_address(one) for one in attendees or []]
        return self._add("events", title=title, date=date, start=start, minutes=minutes, attendees=people)

    def update_event(self, id: str, **changes: Any) -> Record:
        return self._change("events", id, changes)

    def invite_to_event(self, id: str, attendees: list[str]) -> Record:
        event = self._find("events", id)
        more = [_address(one) for one in attendees if one not in event["attendees"]]
        return self._change("events", id, {"attendees": [*event["attendees"], *dict.fromkeys(more)]})

    # ── tasks ──

    def list_tasks(self, query: str = "", assignee: str = "", status: str = "") -> list[Record]:
        found = self._matching("tasks", query, ("title",), most=_MOST_RECORDS)
        return [
            task for task in found if assignee.lower() in task["assignee"].lower() and status in ("", task["status"])
        ][:_MOST_FOUND]

    def create_task(self, title: str, assignee: str, due: str = "", priority: str = "normal") -> Record:
        return self._add("tasks", title=title, assignee=_address(assignee), due=due, priority=priority, status="open")

    def update_task(self, id: str, **changes: str) -> Record:
        if "assignee" in changes:
            _address(changes["assignee"])
        return self._change("tasks", id, changes)

    # ── all tables ──

    def _find(self, table: str, id: str) -> Record:
        record = self.tables[table].get(id)
        if record is None:
            raise ToolRefused("not_found", f"there is nothing with the id {cut(id, 40)!r} in {table}")
        return record

    def _matching(self, table: str, query: str, fields: tuple[str, ...], *, most: int = _MOST_FOUND) -> list[Record]:
        """Return records with every word of the query in these fields."""
        words = query.lower().split()
        records = self.tables[table].values()
        texts = ((record, " ".join(str(record[field]) for field in fields).lower()) for record in records)
        return [record for record, text in texts if all(word in text for word in words)][:most]

    def _add(self, table: str, **fields: Any) -> Record:
        records = self.tables[table]
        if len(records) >= _MOST_RECORDS:
            raise ToolRefused("too_many", f"there are {_MOST_RECORDS} {table}, and no room for more")
        # Ids depend on content, not on order, because calls of one turn may run in any order.
        mark = crc32(dump_json(fields).encode())
        while (id := f"{TABLES[table]}-{mark:08x}") in records:
            mark = (mark + 1) & 0xFFFFFFFF
        records[id] = {"id": id, **fields}
        return records[id]

    def _change(self, table: str, id: str, changes: Record) -> Record:
        record = self._find(table, id)
        if not changes:
            raise ToolRefused("bad_arguments", "name at least one field with its new value")
        self.tables[table][id] = {**record, **changes}
        return self.tables[table][id]

    def _remove(self, table: str, id: str) -> Record:
        record = self._find(table, id)
        del self.tables[table][id]
        return {"deleted": record["id"]}

    read_email = partialmethod(_find, "emails")
    delete_contact = partialmethod(_remove, "contacts")
    delete_email = partialmethod(_remove, "emails")
    delete_event = partialmethod(_remove, "events")
    delete_task = partialmethod(_remove, "tasks")


def _address(given: str) -> str:
    if not re.fullmatch(r"[^@\s]{1,80}@[^@\s]{1,80}", given):
        raise ToolRefused("bad_arguments", f"{cut(given, 80)!r} is no e-mail address; search_contacts finds them")
    return given


def _is_table(given: object) -> bool:
    return (
        isinstance(given, list)
        and len(given) <= _MOST_RECORDS // 2
        and all(isinstance(record, dict) and isinstance(record.get("id"), str) for record in given)
    )
