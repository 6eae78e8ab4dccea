"""Requests with the calls that carry them out: one change, a few, or as many as needed."""

import random
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any, NamedTuple

from apps.gym.environments.workplace.staffing import DEPARTMENTS, Databases

Call = dict[str, Any]
Record = dict[str, Any]

SUBJECTS = ("Keys", "A question", "Your desk", "Visitors", "Lunch", "New forms", "The projector", "Holiday plans")
TEXTS = (
    "The new keys are at the reception.",
    "Please send me the latest version.",
    "The visitors come an hour later.",
    "We start without you, if that is fine.",
    "Please fill in the form on the board.",
)
TITLES = (
    "Kick-off",
    "Handover",
    "Site visit",
    "Price talks",
    "Open day",
    "Onboarding",
    "Stocktaking",
    "Year-end review",
)
CHORES = ("Book the room", "Write the minutes", "Call the printer", "Buy stamps", "Test the alarm", "Clear the store")


class Request(NamedTuple):
    """A request. If nothing needs to change, one of the tools in `must_read` must be used."""

    text: str
    calls: list[Call]
    must_read: tuple[str, ...] = ()


Asks = Callable[[random.Random, Databases], Request]


def _call(tool: str, **arguments: Any) -> Call:
    return {"name": tool, "arguments": arguments}


def _soon(dice: random.Random, office: Databases) -> str:
    return (date.fromisoformat(office["today"]) + timedelta(days=dice.randint(7, 30))).isoformat()


def _clock(dice: random.Random) -> str:
    return f"{dice.randint(8, 17):02}:{dice.choice((0, 15, 30, 45)):02}"


def _name_of(office: Databases, email: str) -> str:
    return str(next(one["name"] for one in office["contacts"] if one["email"] == email))


def _two(dice: random.Random, office: Databases, *, but: str = "") -> tuple[Record, Record]:
    """Return two contacts other than the one with that address."""
    one, other = dice.sample([contact for contact in office["contacts"] if contact["email"] != but], 2)
    return one, other


# ── one change ──


def _send(dice: random.Random, office: Databases) -> Request:
    person, subject, text = dice.choice(office["contacts"]), dice.choice(SUBJECTS), dice.choice(TEXTS)
    return Request(
        f'Send {person["name"]} an e-mail with the subject "{subject}" and the text "{text}"',
        [_call("send_email", to=[person["email"]], subject=subject, body=text)],
    )


def _phone(dice: random.Random, office: Databases) -> Request:
    # No other number of the office begins with 556.
    person, phone = dice.choice(office["contacts"]), f"556-{dice.randint(1000, 9999)}"
    return Request(
        f"{person['name']} has a new phone number, {phone}. Put it into the contacts.",
        [_call("update_contact", id=person["id"], phone=phone)],
    )


def _meet(dice: random.Random, office: Databases) -> Request:
    person, title, day, start = dice.choice(office["contacts"]), dice.choice(TITLES), _soon(dice, office), _clock(dice)
    minutes = dice.choice((30, 45, 60))
    return Request(
        f'Put an event "{title}" with {person["name"]} into the calendar, on {day} at {start}, for {minutes} minutes.',
        [_call("create_event", title=title, date=day, start=start, minutes=minutes, attendees=[person["email"]])],
    )


def _done(dice: random.Random, office: Databases) -> Request:
    task = dice.choice([task for task in office["tasks"] if task["status"] == "open"])
    return Request(
        f'The task "{task["title"]}" is done. Mark it so.', [_call("update_task", id=task["id"], status="done")]
    )


def _shift(dice: random.Random, office: Databases) -> Request:
    event, day, start = dice.choice(office["events"]), _soon(dice, office), _clock(dice)
    return Request(
        f'Move the event "{event["title"]}" to {day} at {start}.',
        [_call("update_event", id=event["id"], date=day, start=start)],
    )


def _chore(dice: random.Random, office: Databases) -> Request:
    person, chore, due = dice.choice(office["contacts"]), dice.choice(CHORES), _soon(dice, office)
    return Request(
        f'Give {person["name"]} a task "{chore}", due on {due}, of high priority.',
        [_call("create_task", title=chore, assignee=person["email"], due=due, priority="high")],
    )


# ── some changes ──


def _forward_latest(dice: random.Random, office: Databases) -> Request:
    mail = dice.choice(office["emails"])
    latest = max((one for one in office["emails"] if one["sender"] == mail["sender"]), key=lambda one: one["date"])
    one, other = _two(dice, office, but=mail["sender"])
    return Request(
        f"Forward the latest e-mail from {_name_of(office, mail['sender'])} to {one['name']} and {other['name']}, "
        "in one "
        "e-mail, then move it to the archive.",
        [
            _call("forward_email", id=latest["id"], to=[one["email"], other["email"]]),
            _call("move_email", id=latest["id"], folder="archive"),
        ],
    )


def _reply(dice: random.Random, office: Databases) -> Request:
    mail, text, chore = dice.choice(office["emails"]), dice.choice(TEXTS), dice.choice(CHORES)
    return Request(
        f'Answer the e-mail "{mail["subject"]}" with the text "{text}" and give its sender a task "{chore}".',
        [
            _call("reply_to_email", id=mail["id"], body=text),
            _call("create_task", title=chore, assignee=mail["sender"]),
        ],
    )


def _clear_day(dice: random.Random, office: Databases) -> Request:
    day = dice.choice(office["events"])["date"]
    return Request(
        f"I am away on {day}. Cancel all events of that day.",
        [_call("delete_event", id=event["id"]) for event in office["events"] if event["date"] == day],
    )


def _hand_over(dice: random.Random, office: Databases) -> Request:
    busy = dice.choice([task for task in office["tasks"] if task["status"] == "open"])["assignee"]
    to = dice.choice([one for one in office["contacts"] if one["email"] != busy])
    open_tasks = [task for task in office["tasks"] if task["assignee"] == busy and task["status"] == "open"]
    return Request(
        f"{_name_of(office, busy)} is ill. Give all open tasks of theirs to {to['name']}, and leave those that "
        "are done.",
        [_call("update_task", id=task["id"], assignee=to["email"]) for task in open_tasks],
    )


def _tidy_inbox(dice: random.Random, office: Databases) -> Request:
    sender = dice.choice([mail for mail in office["emails"] if mail["folder"] == "inbox"])["sender"]
    mails = [mail for mail in office["emails"] if mail["sender"] == sender and mail["folder"] == "inbox"]
    return Request(
        f"Move every e-mail from {_name_of(office, sender)} that is in the inbox to the archive.",
        [_call("move_email", id=mail["id"], folder="archive") for mail in mails],
    )


# ── as many as needed ──


def _invite_department(dice: random.Random, office: Databases) -> Request:
    event, department, text = dice.choice(office["events"]), dice.choice(DEPARTMENTS), dice.choice(TEXTS)
    staff = [one["email"] for one in office["contacts"] if one["department"] == department]
    missing = [email for email in staff if email not in event["attendees"]]
    calls = [_call("invite_to_event", id=event["id"], attendees=missing)] if missing else []
    calls += [_call("send_email", to=[email], subject=event["title"], body=text) for email in missing]
    return Request(
        f'Everybody in {department} should come to "{event["title"]}". Invite those who are not on its list, and send '
        "each of them, and nobody else, an e-mail of their own with the title of the event as its subject and the text "
        f'"{text}"',
        calls,
        ("list_events",),
    )


def _chase_overdue(dice: random.Random, office: Databases) -> Request:
    department, text = dice.choice(DEPARTMENTS), dice.choice(TEXTS)
    staff = {one["email"] for one in office["contacts"] if one["department"] == department}
    late = [
        task
        for task in office["tasks"]
        if task["assignee"] in staff and task["status"] == "open" and task["due"] < office["today"]
    ]
    calls = [_call("update_task", id=task["id"], priority="high") for task in late]
    calls += [
        _call("send_email", to=[email], subject="Overdue", body=text)
        for email in sorted({task["assignee"] for task in late})
    ]
    return Request(
        f"Set all open tasks of people in {department} that were due before today to high priority, and send each of "
        f'these people one e-mail with the subject "Overdue" and the text "{text}"',
        calls,
        ("list_tasks",),
    )


def _leave(dice: random.Random, office: Databases) -> Request:
    gone, to = _two(dice, office)
    calls = [
        _call("update_task", id=task["id"], assignee=to["email"])
        for task in office["tasks"]
        if task["assignee"] == gone["email"] and task["status"] == "open"
    ]
    return Request(
        f"{gone['name']} has left. Give their open tasks to {to['name']}, delete their e-mails from the inbox, "
        "and remove "
        "them from the contacts.",
        [
            *calls,
            *(
                _call("delete_email", id=mail["id"])
                for mail in office["emails"]
                if mail["sender"] == gone["email"] and mail["folder"] == "inbox"
            ),
            _call("delete_contact", id=gone["id"]),
        ],
    )


def _if_busy(dice: random.Random, office: Databases) -> Request:
    busy = dice.random() < 0.5
    event = dice.choice(office["events"])
    first = date.fromisoformat(office["today"])
    days = [(first + timedelta(days=step)).isoformat() for step in range(1, 9)]
    free = [day for day in days if all(one["date"] != day for one in office["events"])]
    day = event["date"] if busy or not free else dice.choice(free)
    title, start = dice.choice(TITLES), _clock(dice)
    person, text = dice.choice(office["contacts"]), dice.choice(TEXTS)
    taken = any(one["date"] == day for one in office["events"])
    one_way = [_call("send_email", to=[person["email"]], subject=title, body=text)]
    other = [
        _call("create_event", title=title, date=day, start=start, minutes=60, attendees=[person["email"]]),
        _call("create_task", title=f"Prepare: {title}", assignee=person["email"], due=day),
    ]
    return Request(
        f'If there is nothing in the calendar on {day}, put an event "{title}" with {person["name"]} there at {start} '
        f'for 60 minutes and give them a task "Prepare: {title}" due on that day. If there is anything, only send them '
        f'an e-mail with the subject "{title}" and the text "{text}"',
        one_way if taken else other,
    )


def _if_done(dice: random.Random, office: Databases) -> Request:
    task = dice.choice(office["tasks"])
    person, text = dice.choice(office["contacts"]), dice.choice(TEXTS)
    calls = [
        _call("delete_task", id=task["id"]),
        _call("send_email", to=[person["email"]], subject=task["title"], body=text),
    ]
    return Request(
        f'If the task "{task["title"]}" is done, delete it and send {person["name"]} an e-mail with the title of the '
        f'task as its subject and the text "{text}" If it is not done, change nothing and tell me so.',
        calls if task["status"] == "done" else [],
        ("list_tasks",),
    )


REQUESTS: dict[int, tuple[Asks, ...]] = {
    1: (_send, _phone, _meet, _done, _shift, _chore),
    2: (_forward_latest, _reply, _clear_day, _hand_over, _tidy_inbox),
    3: (_invite_department, _chase_overdue, _leave, _if_busy, _if_done),
}
