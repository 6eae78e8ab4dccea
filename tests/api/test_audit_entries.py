"""The audit log over the API: filters, pages, and files that are streamed."""

import csv
import io
import json
from datetime import timedelta

import pytest
from asgiref.sync import async_to_sync
from django.utils import timezone

from apps.accounts.api_keys import create_api_key
from apps.accounts.audit_files import COLUMNS, FORMATS, tag_entries
from apps.accounts.audit_log import record
from apps.accounts.models import AuditEntry, Role
from tests.api.conftest import client_of
from tests.factories import make_user

ADDRESS = "/api/v1/audit-entries/"


@pytest.fixture
def admin(db):
    client = client_of(Role.ADMIN)
    AuditEntry.objects.all().delete()
    return client


@pytest.fixture
def ada(admin):
    return make_user(username="ada")


def actions(reply):
    return [row["action"] for row in reply.json()["results"]]


def test_entries_are_found_by_who_what_and_when(admin, ada):
    old = record(user=ada, action="dataset.create", target="sums")
    AuditEntry.objects.filter(pk=old.pk).update(at=timezone.now() - timedelta(days=2))
    record(user=None, action="dataset.delete", target="sums")
    record(user=ada, action="agent.create", target="careful")
    yesterday = (timezone.now() - timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    found = {
        query: actions(admin.get(f"{ADDRESS}?{query}"))
        for query in ("user=ada", "noun=dataset", "action=dataset.delete", f"since={yesterday}", f"until={yesterday}")
    }
    assert list(found.values()) == [
        ["agent.create", "dataset.create"],
        ["dataset.delete", "dataset.create"],
        ["dataset.delete"],
        ["agent.create", "dataset.delete"],
        ["dataset.create"],
    ]
    assert actions(admin.get(f"{ADDRESS}?user=nobody")) == []


def test_an_entry_names_the_key_that_did_it(admin):
    api_key, _ = create_api_key(user=make_user(), name="cluster", scopes=["admin"])
    entry = record(user=api_key.user, action="export.create", before={"rows": 1}, after={"rows": 2})
    AuditEntry.objects.filter(pk=entry.pk).update(api_key=api_key)
    row = admin.get(f"{ADDRESS}?key={api_key.prefix}").json()["results"][0]
    assert (row["key"], row["user"], row["before"], row["after"]) == (
        api_key.prefix,
        api_key.user.username,
        {"rows": 1},
        {"rows": 2},
    )


def test_pages_do_not_shift(admin):
    for number in range(5):
        record(user=None, action=f"agent.{number}")
    first = admin.get(f"{ADDRESS}?limit=2").json()
    record(user=None, action="agent.later")
    assert [row["action"] for row in first["results"]] == ["agent.4", "agent.3"]
    assert actions(admin.get(first["next"])) == ["agent.2", "agent.1"]


@pytest.mark.parametrize(
    ("query", "pointer"),
    [("since=yesterday", "?since"), ("format=xml", "?format"), ("user__password=x", "?user__password")],
)
def test_an_export_that_cannot_be_says_why(admin, query, pointer):
    reply = admin.get(f"{ADDRESS}export/?{query}")
    assert (reply.status_code, reply.json()["errors"][0]["pointer"]) == (400, pointer)


def body(reply):
    if not reply.streaming:
        return reply.content

    async def collect():
        return b"".join([chunk async for chunk in reply])

    return async_to_sync(collect)()


@pytest.mark.django_db(transaction=True)
def test_files_hold_what_the_filters_let_through_the_oldest_first():
    ada, client = make_user(username="ada"), client_of(Role.ADMIN)
    for number in range(1203):
        record(user=ada, action="task.mark", target=f"task {number}", before={"n": number}, after={"n": -1})
    record(user=ada, action="agent.create", target="=cmd()")
    reply = client.get(f"{ADDRESS}export/?noun=task")
    assert (reply["Content-Type"], reply["Content-Disposition"]) == (
        "application/x-ndjson",
        'attachment; filename="audit.ndjson"',
    )
    rows = [json.loads(line) for line in body(reply).splitlines()]
    assert [row["target"] for row in rows] == [f"task {number}" for number in range(1203)]
    assert (rows[7]["before"], rows[7]["after"], rows[7]["user"], rows[7]["at"][-1]) == (
        {"n": 7},
        {"n": -1},
        "ada",
        "Z",
    )
    reply = client.get(f"{ADDRESS}export/?format=csv&user=ada")
    table = list(csv.reader(io.StringIO(body(reply).decode())))
    assert table[0] == COLUMNS
    assert len(table) == 1 + 1204
    # A spreadsheet must not take what somebody wrote for a formula.
    assert table[-1][COLUMNS.index("target")] == "'=cmd()"


@pytest.mark.django_db(transaction=True)
def test_a_file_is_not_sent_again_until_the_log_or_the_question_is_another():
    ada, client = make_user(username="ada"), client_of(Role.ADMIN)
    record(user=ada, action="task.mark", target="one")
    first = client.get(f"{ADDRESS}export/?noun=task")
    assert body(first).count(b"\n") == 1
    tag = {"If-None-Match": first.headers["ETag"]}
    assert first.headers["Accept-Ranges"] == "none"

    def answered(query):
        reply = client.get(f"{ADDRESS}export/?{query}", headers=tag)
        return reply.status_code, body(reply)

    assert answered("noun=task") == (304, b"")
    # What other filters leave out changes nothing.
    record(user=ada, action="agent.create", target="careful")
    assert answered("noun=task") == (304, b"")
    assert [answered(query)[0] for query in ("noun=agent", "noun=task&format=csv", "noun=task&user=ada")] == [200] * 3
    record(user=ada, action="task.mark", target="two")
    status, content = answered("noun=task")
    assert (status, content.count(b"\n")) == (200, 2)
    second = client.get(f"{ADDRESS}export/?noun=task")
    ada.delete()
    third = client.get(f"{ADDRESS}export/?noun=task", headers={"If-None-Match": second.headers["ETag"]})
    assert (third.status_code, [json.loads(line)["user"] for line in body(third).splitlines()]) == (200, [None, None])
    body(second)


def test_an_entry_that_comes_while_a_file_is_read_is_in_the_next_one(admin):
    record(user=None, action="task.mark", target="one")
    tag, entries = tag_entries(AuditEntry.objects.all(), format="csv")
    record(user=None, action="task.mark", target="two")
    assert [entry.target for entry in entries] == ["one"]
    assert tag_entries(AuditEntry.objects.all(), format="csv")[0] != tag


@pytest.mark.django_db(transaction=True)
def test_an_export_reads_a_chunk_at_a_time(django_assert_num_queries):
    for number in range(1001):
        AuditEntry(action="task.mark", noun="task", target=str(number))
    AuditEntry.objects.bulk_create(AuditEntry(action="task.mark", noun="task") for _ in range(1001))

    _, write = FORMATS["ndjson"]
    with django_assert_num_queries(1):
        assert next(write(AuditEntry.objects.all())).count(b"\n") == 500


@pytest.mark.parametrize("role", [Role.VIEWER, Role.ANNOTATOR, Role.ENGINEER])
def test_others_do_not_read_the_log(db, role):
    assert client_of(role).get(ADDRESS).status_code == 403
    assert client_of(role).get(f"{ADDRESS}export/").status_code == 403
