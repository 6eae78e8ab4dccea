import copy
import json

import pytest

from apps.gym.environments.kits import KITS
from apps.gym.environments.protocol import ToolRefused
from apps.gym.environments.task_generation import generate_tasks
from apps.gym.environments.workplace.environment import Workplace
from apps.gym.environments.workplace.office_tools import READING, TOOLS
from apps.gym.errors import EnvironmentFault, VerifierError
from tests.gym.verifiers.replies import attempt, calls, returns, says

ROW = next(generate_tasks(KITS["workplace"], count=1, difficulty="easy"))
OFFICE = {
    "today": "2026-03-09",
    "me": "me@office.example",
    "contacts": [
        {"id": "c1", "name": "Ines Holt", "email": "ines@office.example", "department": "Legal", "phone": "555-1"},
        {"id": "c2", "name": "Otto Roth", "email": "otto@office.example", "department": "Sales", "phone": "555-2"},
    ],
    "emails": [
        {
            "id": f"m{at}",
            "sender": "ines@office.example",
            "to": ["me@office.example"],
            "subject": f"Offer {at}",
            "body": "As agreed.",
            "date": f"2026-02-0{at}",
            "folder": "inbox",
        }
        for at in (1, 2)
    ],
    "events": [
        {
            "id": "e1",
            "title": "Demo",
            "date": "2026-03-10",
            "start": "09:00",
            "minutes": 30,
            "attendees": ["ines@office.example"],
        }
    ],
    "tasks": [
        {
            "id": "t1",
            "title": "Count keys",
            "assignee": "otto@office.example",
            "due": "2026-03-08",
            "priority": "normal",
            "status": "open",
        }
    ],
}


def workplace(**more):
    row = {"responses_create_params": {"input": "?"}, "databases": copy.deepcopy(OFFICE), "expected_calls": []}
    return Workplace({**row, **more})


def use(office, tool, /, **arguments):
    return json.loads(office.call_tool(tool, arguments))


def verify(expected, *made, said="Done."):
    """The reward for these calls, each answered."""
    items = []
    for at, (name, arguments) in enumerate(made):
        items += [calls(name, arguments, f"c{at}"), returns("…", f"c{at}")]
    wanted = [{"name": name, "arguments": arguments} for name, arguments in expected]
    return workplace(expected_calls=wanted).verify(attempt(*items, says(said)))


def test_there_are_twenty_tools_with_schemas_of_their_arguments():
    assert len({tool["name"] for tool in TOOLS}) == len(TOOLS) == 20
    assert {tool["name"] for tool in TOOLS} > READING
    assert {tool["parameters"]["additionalProperties"] for tool in TOOLS} == {False}


def test_the_tools_read_and_change_the_tables():
    office = workplace()
    assert [one["id"] for one in use(office, "search_contacts", query="legal holt")] == ["c1"]
    new = use(office, "add_contact", name="Uma Tamm", email="u@x.example", department="Legal")["id"]
    assert use(office, "update_contact", id=new, phone="555-3")["phone"] == "555-3"
    assert use(office, "delete_contact", id=new) == {"deleted": new}
    assert [mail["id"] for mail in use(office, "search_emails", sender="ines", folder="inbox")] == ["m2", "m1"]
    assert use(office, "read_email", id="m1")["body"] == "As agreed."
    assert use(office, "reply_to_email", id="m1", body="Yes.")["subject"] == "Re: Offer 1"
    sent = use(office, "forward_email", id="m1", to=["otto@office.example"])
    assert (sent["subject"], sent["body"], sent["date"], sent["folder"]) == (
        "Fwd: Offer 1",
        "As agreed.",
        "2026-03-09",
        "sent",
    )
    assert use(office, "move_email", id="m1", folder="archive")["folder"] == "archive"
    assert use(office, "delete_email", id="m2") == {"deleted": "m2"}
    made = use(office, "create_event", title="Tour", date="2026-03-10", start="08:00", minutes=30)
    assert made["attendees"] == []
    assert [event["id"] for event in use(office, "list_events", first_day="2026-03-10")] == [made["id"], "e1"]
    invited = use(office, "invite_to_event", id="e1", attendees=["otto@office.example", "ines@office.example"])
    assert invited["attendees"] == ["ines@office.example", "otto@office.example"]
    assert use(office, "update_event", id="e1", start="10:00")["start"] == "10:00"
    assert use(office, "delete_event", id=made["id"]) == {"deleted": made["id"]}
    assert use(office, "create_task", title="Print", assignee="ines@office.example")["status"] == "open"
    assert use(office, "update_task", id="t1", status="done")["status"] == "done"
    assert [task["id"] for task in use(office, "list_tasks", assignee="otto", status="done")] == ["t1"]
    assert use(office, "delete_task", id="t1") == {"deleted": "t1"}


def test_added_rows_have_the_same_id_in_any_order():
    print_it = {"title": "Print", "assignee": "ines@office.example"}
    count_it = {"title": "Count", "assignee": "otto@office.example"}
    one, other = workplace(), workplace()
    first = [use(one, "create_task", **task)["id"] for task in (print_it, count_it, print_it)]
    second = [use(other, "create_task", **task)["id"] for task in (count_it, print_it, print_it)]
    assert len(set(first)) == 3
    assert sorted(first) == sorted(second)


def test_attempts_at_one_task_see_nothing_of_each_other():
    row = {"responses_create_params": {"input": "?"}, "databases": copy.deepcopy(OFFICE), "expected_calls": []}
    one, other = Workplace(row), Workplace(row)
    use(one, "invite_to_event", id="e1", attendees=["otto@office.example"])
    use(one, "delete_task", id="t1")
    assert len(use(other, "list_tasks")) == 1
    assert use(other, "list_events")[0]["attendees"] == ["ines@office.example"]
    assert row["databases"] == OFFICE


@pytest.mark.parametrize(
    ("name", "arguments", "error", "told"),
    [
        ("send_email", {"to": ["x@y"], "subject": "s"}, "bad_arguments", "body is missing"),
        ("send_email", {"to": "x@y", "subject": "s", "body": "b"}, "bad_arguments", "to must be a list"),
        ("send_email", {"to": [], "subject": "s", "body": "b"}, "bad_arguments", "at least one address"),
        ("send_email", {"to": ["Ines"], "subject": "s", "body": "b"}, "bad_arguments", "is no e-mail address"),
        ("send_email", {"to": ["x@y"] * 41, "subject": "s", "body": "b"}, "bad_arguments", "up to 40 texts"),
        ("send_email", {"to": ["x@y"], "subject": "s", "body": "b" * 4001}, "bad_arguments", "up to 4,000"),
        ("send_email", {"to": ["x@y"], "subject": "\ud800", "body": "b"}, "bad_arguments", "can be stored"),
        ("move_email", {"id": "m1", "folder": "bin"}, "bad_arguments", "one of inbox, archive, sent"),
        ("create_event", {"title": "t", "date": "tomorrow", "start": "09:00", "minutes": 30}, "bad_arguments", "YYYY"),
        (
            "create_event",
            {"title": "t", "date": "2026-01-01", "start": "09:00", "minutes": True},
            "bad_arguments",
            "from 5 to 600",
        ),
        ("update_task", {"id": "t1"}, "bad_arguments", "at least one field"),
        ("update_task", {"id": "t1", "boss": "x"}, "bad_arguments", "there is no 'boss'"),
        ("delete_task", {"id": "t9"}, "not_found", "'t9' in tasks"),
        ("drop_table", {}, "unknown_tool", "the tools are: search_contacts"),
    ],
)
def test_wrong_calls_are_refused_and_change_nothing(name, arguments, error, told):
    office = workplace()
    with pytest.raises(ToolRefused, match=told) as refusal:
        office.call_tool(name, arguments)
    assert refusal.value.error == error
    assert use(office, "list_tasks") == OFFICE["tasks"]
    assert len(use(office, "search_emails")) == 2


def test_no_table_grows_without_a_bound():
    office = workplace()
    with pytest.raises(ToolRefused, match="there are 300 tasks, and no room for more"):
        for _ in range(301):
            use(office, "create_task", title="x", assignee="a@b")


SEND = ("send_email", {"to": ["ines@office.example", "otto@office.example"], "subject": "Keys", "body": "Here."})
CLOSE = ("update_task", {"id": "t1", "status": "done"})
AGAIN = ("send_email", {"to": ["otto@office.example", "ines@office.example"], "subject": "keys", "body": " Here "})


@pytest.mark.parametrize(
    ("expected", "made", "parts"),
    [
        ([SEND, CLOSE], [CLOSE, AGAIN], (1.0, 1.0, 1.0)),
        ([SEND, CLOSE], [CLOSE], (0.0, 0.5, 1.0)),
        ([CLOSE], [CLOSE, SEND], (0.0, 1.0, 0.0)),
        ([SEND], [SEND, SEND], (0.0, 1.0, 0.0)),
        ([CLOSE], [("update_task", {"id": "t1", "status": "open"})], (0.0, 0.0, 1.0)),
        ([CLOSE], [("delete_task", {"id": "t1"})], (0.0, 0.0, 0.0)),
        ([CLOSE], [("update_task", {"id": "t1", "status": "never"}), CLOSE], (1.0, 1.0, 1.0)),
    ],
    ids=["any order", "half", "more", "twice", "no change", "another change", "a mistake mended"],
)
def test_the_final_state_is_compared_with_the_expected_one(expected, made, parts):
    reward = verify(expected, *made)
    assert tuple(reward.components.values()) == parts
    assert reward.value == parts[0]


def test_a_call_that_was_never_answered_was_never_made():
    wanted = [{"name": CLOSE[0], "arguments": CLOSE[1]}]
    made = attempt(calls(*CLOSE), says("Done."))
    assert workplace(expected_calls=wanted).verify(made).value == 0.0


def test_a_row_that_is_no_office_is_said():
    with pytest.raises(EnvironmentFault, match="`databases` must hold lists of records"):
        workplace(databases={"contacts": []}).call_tool("list_tasks", {})
    with pytest.raises(VerifierError, match="`expected_calls` cannot be made: there is nothing with the id 't9'"):
        verify([("delete_task", {"id": "t9"})])
    with pytest.raises(VerifierError, match="must be a list of calls"):
        verify([])


def test_hardly_any_request_is_one_that_doing_nothing_fulfils():
    rows = list(generate_tasks(KITS["workplace"], count=500))
    assert 0 < sum("must_read" in row for row in rows) < 25
    assert ROW["databases"]["contacts"][0]["id"] == "c1"


def test_no_task_forwards_an_e_mail_to_its_sender():
    checked = 0
    for row in generate_tasks(KITS["workplace"], count=120, seed=3, difficulty="medium"):
        senders = {mail["id"]: mail["sender"] for mail in row["databases"]["emails"]}
        for call in row["expected_calls"]:
            if call["name"] == "forward_email":
                assert senders[call["arguments"]["id"]] not in call["arguments"]["to"]
                checked += 1
    assert checked > 10
