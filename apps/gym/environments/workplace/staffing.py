"""Draw the office of a task: people, their e-mails, a calendar and tasks, all with different titles."""

import random
from datetime import date, timedelta
from typing import Any

from apps.gym.environments.wordlists import FIRST_NAMES, LAST_NAMES

Databases = dict[str, Any]

DEPARTMENTS = ("Design", "Finance", "Legal", "Sales")
ME = "office@lindholm.example"
_SUBJECTS = "Budget Offer Contract Invoice Catalogue Delivery Training Survey Printer Parking Newsletter Audit Lease"
_MEETINGS = "Review Planning Interview Demo Workshop Retrospective Briefing Lunch Rehearsal Tour"
_ABOUT = ("of the catalogue", "with the bank", "on hiring", "for the fair", "of the website", "on prices", "on safety")
_VERBS = "Order Check Print Renew Translate Count Pack Repair Update Collect"
_THINGS = ("business cards", "the contracts", "the price list", "the fire doors", "the manual", "laptops", "the keys")
_BODIES = (
    "Please have a look when you find the time.",
    "The figures are attached, as we agreed.",
    "Could you tell me by Friday what you think?",
    "Nothing urgent, just so that you know.",
)


def draw_office(dice: random.Random) -> Databases:
    today = date(2026, 1, 5) + timedelta(days=dice.randrange(300))
    while today.weekday() > 4:
        today += timedelta(days=1)
    names = dice.sample([f"{first} {last}" for first in FIRST_NAMES for last in LAST_NAMES], 12)
    contacts = [
        {
            "id": f"c{at + 1}",
            "name": name,
            "email": f"{name.lower().replace(' ', '.')}@lindholm.example",
            "department": DEPARTMENTS[at % 4] if at < 8 else dice.choice(DEPARTMENTS),
            "phone": f"555-{dice.randint(1000, 9999)}",
        }
        for at, name in enumerate(names)
    ]
    people = [str(contact["email"]) for contact in contacts]
    return {
        "today": today.isoformat(),
        "me": ME,
        "contacts": contacts,
        "emails": _draw_emails(dice, today, people),
        "events": _draw_events(dice, today, people),
        "tasks": _draw_tasks(dice, today, people),
    }


def _draw_emails(dice: random.Random, today: date, people: list[str]) -> list[dict[str, Any]]:
    subjects = dice.sample([f"{word} for {what}" for word in _SUBJECTS.split() for what in _TOPICS], 14)
    days = sorted(dice.sample(range(1, 40), 14), reverse=True)
    return [
        {
            "id": f"m{at + 1}",
            "sender": dice.choice(people[:8]),
            "to": [ME],
            "subject": subject,
            "body": dice.choice(_BODIES),
            "date": (today - timedelta(days=days[at])).isoformat(),
            "folder": "archive" if dice.random() < 0.2 else "inbox",
        }
        for at, subject in enumerate(subjects)
    ]


_TOPICS = ("spring", "the fair", "Oslo", "the board", "next year", "the website", "suppliers", "the move", "the press")


def _draw_events(dice: random.Random, today: date, people: list[str]) -> list[dict[str, Any]]:
    titles = dice.sample([f"{word} {what}" for word in _MEETINGS.split() for what in _ABOUT], 12)
    slots = dice.sample([(day, hour) for day in range(1, 7) for hour in (9, 11, 13, 15)], 12)
    return [
        {
            "id": f"e{at + 1}",
            "title": title,
            "date": (today + timedelta(days=slot[0])).isoformat(),
            "start": f"{slot[1]:02}:{dice.choice((0, 30)):02}",
            "minutes": dice.choice((30, 45, 60, 90)),
            "attendees": sorted(dice.sample(people, dice.randint(1, 4))),
        }
        for at, (title, slot) in enumerate(zip(titles, slots, strict=True))
    ]


def _draw_tasks(dice: random.Random, today: date, people: list[str]) -> list[dict[str, Any]]:
    titles = dice.sample([f"{verb} {thing}" for verb in _VERBS.split() for thing in _THINGS], 14)
    return [
        {
            "id": f"t{at + 1}",
            "title": title,
            "assignee": dice.choice(people[:7]),
            "due": (today + timedelta(days=dice.choice((-9, -5, -2, 3, 6, 12)))).isoformat(),
            "priority": dice.choice(("low", "normal", "normal")),
            "status": "done" if dice.random() < 0.3 else "open",
        }
        for at, title in enumerate(titles)
    ]
