"""Tasks, players and cases of workplace: requests, and a player that knows the calls."""

import random
from typing import Any

from apps.gym.environments.task_generation import LEVELS, Call, Case, Difficulty, Kit, Move, Seen, ask, say
from apps.gym.environments.workplace.requests import REQUESTS
from apps.gym.environments.workplace.staffing import draw_office
from apps.gym.traces.items import TaskRow

_NOTHING_TO_DO = 0.2
"""Share of requests for no change that are kept. They are rare, so that doing nothing earns little reward."""


def make_task(dice: random.Random, difficulty: Difficulty) -> TaskRow:
    while True:
        office = draw_office(dice)
        request = dice.choice(REQUESTS[LEVELS[difficulty]])(dice, office)
        if request.calls or dice.random() < _NOTHING_TO_DO:
            prompt = (
                f"You are the office assistant for {office['me']}, with tools for e-mail, calendar, contacts and "
                f"tasks. Today is {office['today']}. Do only the following, then say what you did.\n\n{request.text}"
            )
            must_read = {} if request.calls else {"must_read": list(request.must_read)}
            return {
                "responses_create_params": ask(prompt),
                "databases": office,
                "expected_calls": request.calls,
                **must_read,
            }


def _solve(seen: Seen) -> Move:
    row = seen.row
    if seen.turn == 0:
        return Move(calls=[Call((row.get("must_read") or ["search_contacts"])[0])])
    if seen.turn == 1 and row["expected_calls"]:
        return Move(calls=[Call(call["name"], call["arguments"]) for call in row["expected_calls"]])
    return Move(text=f"{len(row['expected_calls'])} changes made.")


def _cases() -> list[Case]:
    office: dict[str, Any] = {
        "today": "2026-03-09",
        "me": "me@office.example",
        "contacts": [{"id": "c1", "name": "Ines Holt", "email": "ines@office.example", "department": "Legal"}],
        "emails": [],
        "events": [],
        "tasks": [{"id": "t1", "title": "Count keys", "assignee": "ines@office.example", "status": "open"}],
    }
    office["contacts"][0]["phone"] = "555-1000"
    office["tasks"][0] |= {"due": "2026-03-08", "priority": "normal"}
    send = {"to": ["ines@office.example"], "subject": "Keys", "body": "They are at the reception."}
    row: TaskRow = {
        "responses_create_params": ask('Send Ines Holt an e-mail, "Keys": "They are at the reception."'),
        "databases": office,
        "expected_calls": [{"name": "send_email", "arguments": send}],
    }
    nothing: TaskRow = {
        "responses_create_params": ask('If the task "Count keys" is done, delete it.'),
        "databases": office,
        "expected_calls": [],
        "must_read": ["list_tasks"],
    }
    sends = Move(calls=[Call("send_email", send)])
    again = Move(calls=[Call("send_email", send), Call("send_email", send)])
    more = Move(calls=[Call("send_email", send), Call("delete_task", {"id": "t1"})])
    looks, wrong = Move(calls=[Call("list_tasks", {"query": "keys"})]), Move(calls=[Call("list_tasks", {"page": 2})])
    undone = Move(calls=[Call("update_task", {"id": "t1", "status": status}) for status in ("done", "open")])
    forms = Move(calls=[Call("send_email", {**send, "to": "ines@office.example"}), Call("send_email", '["x"]')])
    return [
        Case(name="done", kind="full reward", row=row, play=say(sends, "Sent."), reward=1.0),
        Case(name="done, with a detour", kind="full reward", row=row, play=say(undone, sends, "Sent."), reward=1.0),
        Case(name="done twice", kind="zero reward", row=row, play=say(again, "Sent."), reward=0.0),
        Case(name="done, and more", kind="zero reward", row=row, play=say(more, "Sent."), reward=0.0),
        Case(name="said, not done", kind="zero reward", row=row, play=say("Sent."), reward=0.0),
        Case(name="nothing to do, seen", kind="full reward", row=nothing, play=say(looks, "It is open."), reward=1.0),
        Case(name="nothing to do, unseen", kind="zero reward", row=nothing, play=say("It is open."), reward=0.0),
        Case(name="a look refused", kind="malformed", row=nothing, play=say(wrong, "It is open."), reward=0.0),
        Case(name="arguments in a wrong form", kind="malformed", row=row, play=say(forms, "Sent."), reward=0.0),
    ]


KIT = Kit(make_task=make_task, solve=_solve, cases=_cases, max_steps=20)
