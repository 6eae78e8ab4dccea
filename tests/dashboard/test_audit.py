import pytest
from asgiref.sync import async_to_sync
from django.test import Client
from django.urls import reverse

from apps.accounts.audit_log import record
from apps.accounts.models import AuditEntry, User
from tests.dashboard.markup import read

PAGE = "/audit/"


def shown(client: Client, query: str = "") -> list[str]:
    page = read(client.get(PAGE + query).text)
    return [one.text for one in page.all("th") if "mono" in one.attributes.get("class", "")]


def test_an_entry_shows_who_what_from_where_and_the_change(admin_pages: Client, engineer: User):
    entry = record(user=engineer, action="user.edit", target="vera", before={"role": "viewer"}, after={"role": "admin"})
    AuditEntry.objects.filter(pk=entry.pk).update(origin="page", address="192.0.2.7")
    page = read(admin_pages.get(PAGE).text)
    assert [one.text for one in page.all("del")] == ["viewer"]
    row = page.all("tbody")[0].text
    assert [word for word in ("erika", "page · 192.0.2.7", "user.edit", "vera", "→ admin") if word not in row] == []


def test_filters_narrow_the_log_and_a_wrong_one_shows_nothing(admin_pages: Client, engineer: User):
    record(user=engineer, action="dataset.create", target="sums")
    record(user=None, action="agent.create", target="careful")
    assert shown(admin_pages) == ["agent.create", "dataset.create"]
    assert shown(admin_pages, "?user=erika") == ["dataset.create"]
    assert shown(admin_pages, "?noun=agent") == ["agent.create"]
    assert shown(admin_pages, "?action=dataset.create") == ["dataset.create"]
    assert shown(admin_pages, "?since=2020-01-01T00:00&until=2999-01-01T00:00") == ["agent.create", "dataset.create"]
    assert shown(admin_pages, "?until=2020-01-01T00:00") == []
    assert shown(admin_pages, "?since=yesterday") == []
    assert "Enter a valid date/time" in admin_pages.get(f"{PAGE}?since=yesterday").text


def test_pages_follow_one_another(admin_pages: Client):
    AuditEntry.objects.bulk_create(AuditEntry(action=f"agent.{n}", noun="agent") for n in range(60))
    first = read(admin_pages.get(f"{PAGE}?noun=agent").text)
    [more] = [one.attributes["href"] for one in first.all("a") if one.attributes.get("rel") == "next"]
    assert "noun=agent" in more
    assert shown(admin_pages, more) == [f"agent.{n}" for n in range(9, -1, -1)]


def test_hostile_text_stays_text(admin_pages: Client):
    record(user=None, action="sign_in.refuse", target="<script>alert(1)</script>", after={"<b>": "<i>x</i>"})
    page = admin_pages.get(PAGE).text
    assert "<script>alert(1)" not in page
    assert "<i>x</i>" not in page


@pytest.mark.django_db(transaction=True)
def test_the_shown_entries_can_be_downloaded(admin_pages: Client):
    record(user=None, action="agent.create", target="careful")
    record(user=None, action="dataset.create", target="sums")
    page = read(admin_pages.get(f"{PAGE}?noun=agent").text)
    files = [one.attributes["href"] for one in page.all("a") if "download" in one.attributes]
    assert files == ["/audit/export/?noun=agent&format=csv", "/audit/export/?noun=agent&format=ndjson"]

    async def body(reply) -> bytes:
        return b"".join([chunk async for chunk in reply])

    texts = [async_to_sync(body)(admin_pages.get(file)).decode() for file in files]
    assert [("careful" in text, "sums" in text) for text in texts] == [(True, False)] * 2
    assert admin_pages.get("/audit/export/?format=xml").status_code == 404


def test_the_log_takes_the_same_queries_for_one_and_for_many(
    admin_pages: Client, engineer: User, django_assert_max_num_queries
):
    for _ in range(3):
        record(user=engineer, action="agent.create")
    with django_assert_max_num_queries(5):
        admin_pages.get(PAGE)


def test_only_admins_find_the_log(admin_pages: Client, pages: Client):
    assert reverse("dashboard:audit") in admin_pages.get("/").text
    assert pages.get(PAGE).status_code == 403
    assert PAGE not in pages.get("/").text
