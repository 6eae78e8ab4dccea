"""The audit log: who, what, on what, before and after, from where; never a secret, and no change is left out."""

import pytest
from asgiref.sync import async_to_sync
from django.conf import settings
from django.test import AsyncClient, Client
from django.urls import get_resolver

from apps.accounts.api_keys import create_api_key
from apps.accounts.audit_log import describe, record
from apps.accounts.models import AuditEntry, Role
from apps.accounts.user_accounts import edit_user
from apps.policies.policy_model_changes import save_policy_model
from apps.rollouts.steering.controls import adjust_collection
from tests.access.routes import every_route
from tests.factories import make_agent, make_collection, make_dataset, make_policy_model, make_rollout, make_user

pytestmark = pytest.mark.django_db
SECRET = "sk-proj-Zx81kQw90aLmN2bVc3dFg4hJ5kL6"


def session_of(role: str) -> Client:
    client = Client(REMOTE_ADDR="192.0.2.7")
    client.force_login(make_user(role, username=f"a-{role}"))
    return client


def program(role: str) -> tuple[Client, str]:
    api_key, token = create_api_key(user=make_user(role, username="robot"), name="test", scopes=["admin"])
    return Client(headers={"Authorization": f"Bearer {token}"}, REMOTE_ADDR="192.0.2.8"), api_key.prefix


def last() -> AuditEntry:
    return AuditEntry.objects.with_actors()[0]


def test_a_page_says_who_from_where_and_how_it_was_before():
    person = make_user(Role.VIEWER, username="vera")
    sent = {"email": "v@example.org", "role": "engineer", "is_active": "on"}
    session_of(Role.ADMIN).post(f"/people/{person.pk}/", sent)
    entry = last()
    assert (entry.user.username, entry.api_key, entry.origin, entry.address) == ("a-admin", None, "page", "192.0.2.7")
    assert (entry.noun, entry.action, entry.target) == ("user", "user.edit", "vera")
    assert entry.before == {"role": "viewer", "email": ""}
    assert entry.after == {"role": "engineer", "email": "v@example.org"}


def test_a_program_is_named_by_its_key():
    client, prefix = program(Role.ENGINEER)
    dataset = make_dataset(name="Sums")
    client.patch(f"/api/v1/datasets/{dataset.slug}/", {"name": "Products"}, content_type="application/json")
    entry = last()
    assert (entry.user.username, entry.api_key.prefix, entry.origin) == ("robot", prefix, "api")
    assert (entry.address, entry.action, entry.before, entry.after) == (
        "192.0.2.8",
        "dataset.change",
        {"name": "Sums"},
        {"name": "Products"},
    )


def test_outside_of_a_request_the_program_is_named(monkeypatch):
    monkeypatch.setattr("sys.argv", ["/srv/gymweb/manage.py", "collect", "--max-cost", "3"])
    collection = make_collection(priority=5)
    adjust_collection(collection=collection, changes={"priority": 1})
    entry = last()
    assert (entry.user, entry.origin, entry.address) == (None, "manage.py collect", "")
    assert (entry.before, entry.after) == ({"priority": 5}, {"priority": 1})


def test_the_request_is_forgotten_when_it_is_answered():
    session_of(Role.ENGINEER).post("/sign-out/")
    assert (last().action, last().origin) == ("sign_out", "page")
    assert record(user=None, action="dataset.create").origin not in {"page", "api"}
    async_to_sync(AsyncClient().get)("/api/v1/me/")
    assert record(user=None, action="dataset.create").origin not in {"page", "api"}


def test_a_secret_that_a_caller_passes_by_mistake_does_not_stay():
    pem = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n-----END PRIVATE KEY-----"
    record(
        user=None,
        action="policy_model.change",
        target=f"key {SECRET}",
        before={"api_key": "swordfish-1", "url": "https://u:pass-word-1@example.org"},
        after={"api_key": "swordfish-2", "note": f"Bearer {SECRET}"},
        password="hunter2-hunter2",
        text=pem,
    )
    stored = str(AuditEntry.objects.values().get())
    assert [one for one in (SECRET, "swordfish", "pass-word-1", "hunter2", "MIIEvQ") if one in stored] == []
    assert "REDACTED" in stored


def test_the_key_of_a_model_and_password_hashes_are_never_described():
    model = make_policy_model(provider="vllm", base_url="http://example.org/v1", model_name="m")
    save_policy_model(policy_model=model, api_key=SECRET, user=None)
    person = make_user(password="a long enough secret")
    stored = str(list(AuditEntry.objects.values()))
    assert SECRET not in stored
    assert model.api_key_encrypted not in stored
    assert last().detail["key_changed"] is True
    described = {**describe(model), **describe(person)}
    assert {"api_key_encrypted", "api_key_hint", "password", "last_login"} & set(described) == set()
    assert {"base_url", "username", "role"} <= set(described)


def test_long_values_are_cut_and_say_so():
    deep: object = "x"
    for _ in range(50):
        deep = [deep]
    record(user=None, action="task.mark", text="x" * 5000, tasks=list(range(1000)), deep=deep, odd=float("inf"))
    detail = AuditEntry.objects.get().detail
    assert detail["text"] == "x" * 400 + "… (5,000 characters)"
    assert (len(detail["tasks"]), detail["tasks"][-1]) == (51, "… 950 more")
    assert detail["deep"] == [[[[["…"]]]]]
    assert detail["odd"] is None


def test_what_differs_alone_is_kept():
    agent = make_agent(name="Careful")
    before = describe(agent)
    agent.name = "Careless"
    entry = record(user=None, action="agent.change", before=before, after=describe(agent))
    assert (entry.before, entry.after) == ({"name": "Careful"}, {"name": "Careless"})


def test_a_change_that_says_nothing_itself_is_logged_under_its_address(monkeypatch):
    monkeypatch.setattr("apps.reviews.comments.commenting.record", lambda **entry: None)
    rollout = make_rollout(make_collection())
    session_of(Role.ENGINEER).post(f"/rollouts/{rollout.pk}/comments/", {"text": "Odd."})
    entry = last()
    assert (entry.action, entry.target) == ("request.post", f"/rollouts/{rollout.pk}/comments/")
    assert (entry.user.username, entry.detail) == ("a-engineer", {"route": "dashboard:rollout_comment"})


def test_refused_requests_and_reads_are_not_logged():
    session = session_of(Role.VIEWER)
    session.get("/")
    assert session.post("/datasets/new/").status_code == 403
    session.post("/theme/", {"theme": "dark"})
    client, _ = program(Role.ENGINEER)
    AuditEntry.objects.all().delete()
    assert client.post("/api/v1/datasets/", {}, content_type="application/json").status_code == 400
    assert client.get("/api/v1/me/").status_code == 200
    assert AuditEntry.objects.count() == 0


def test_every_route_without_entries_exists():
    resolver = get_resolver()
    assert len(every_route()) > 100
    names = {resolver.resolve(route.path).view_name for route in every_route() if not route.path.startswith("/static")}
    assert settings.UNAUDITED_ROUTES - names == set()


def test_a_person_changed_by_a_command_has_no_author():
    edit_user(person=make_user(Role.VIEWER, username="vera"), role=Role.ANNOTATOR, by=None)
    assert (last().user, last().after) == (None, {"role": "annotator"})
