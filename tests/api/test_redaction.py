"""Redaction by the API: patterns that come and go, a text to try, flags of a whole collection."""

import json

import pytest

from apps.accounts.models import AuditEntry, Role
from apps.policies.installation_redactor import forget_redactor
from apps.policies.models import RedactionPattern
from apps.rollouts.models import Rollout
from apps.tasks.models import ColumnMapping
from tests.factories import make_agent, make_collection, make_dataset, make_rollout, make_user

pytestmark = pytest.mark.django_db
URL = "/api/v1/redaction-patterns/"


@pytest.fixture(autouse=True)
def read_anew():
    forget_redactor()
    yield
    forget_redactor()


def post(client, address, **body):
    return client.post(address, body, content_type="application/json")


def test_a_pattern_holds_for_the_next_text_until_it_is_deleted(engineer):
    sample = {"sample": " badge corp.abc123"}
    assert post(engineer, f"{URL}try/", **sample).json() == {"clean": " badge corp.abc123", "counts": {}}
    made = post(engineer, URL, kind="prefix", text="corp.", least=6)
    assert (made.status_code, made.json()["text"], made.json()["least"]) == (201, "corp.", 6)
    assert post(engineer, f"{URL}try/", **sample).json() == {
        "clean": " badge [REDACTED:pattern]",
        "counts": {"pattern": 1},
    }
    listed = engineer.get(f"{URL}?kind=prefix").json()["results"]
    assert listed == [made.json()]
    assert engineer.get(f"{URL}{made.json()['id']}/").json() == made.json()
    assert engineer.delete(f"{URL}{made.json()['id']}/").status_code == 204
    assert post(engineer, f"{URL}try/", **sample).json()["counts"] == {}
    told = AuditEntry.objects.filter(action__startswith="redaction")
    actions = sorted(told.values_list("action", flat=True))
    assert actions == ["redaction_pattern.create", "redaction_pattern.delete"]


@pytest.mark.parametrize(
    ("given", "pointer", "said"),
    [
        ({"kind": "name", "text": "Content"}, "/text", "Traces use this key"),
        ({"kind": "prefix", "text": "ab"}, "/text", "at least 3 characters"),
        ({"kind": "regex", "text": "a+"}, "/kind", "is not a valid choice"),
        ({"kind": "prefix", "text": "corp.", "least": 3}, "/least", "greater than or equal to 4"),
        ({"kind": "name"}, "/text", "required"),
        ({"kind": "name", "text": "badge", "expression": "x"}, "/expression", "field"),
    ],
)
def test_a_pattern_that_cannot_be_is_refused_by_field(engineer, given, pointer, said):
    refused = post(engineer, URL, **given)
    assert refused.status_code == 400
    [error] = refused.json()["errors"]
    assert (error["pointer"], said in error["message"]) == (pointer, True), error
    assert RedactionPattern.objects.count() == 0


def test_a_pattern_that_is_there_is_not_there_twice(engineer):
    assert post(engineer, URL, kind="name", text="badge").status_code == 201
    again = post(engineer, URL, kind="name", text="badge")
    assert (again.status_code, "This pattern already exists." in again.text) == (400, True)


def test_viewers_neither_see_patterns_nor_try_texts(client):
    client.force_login(make_user(Role.VIEWER))
    assert client.get(URL).status_code == 403
    assert post(client, f"{URL}try/", sample="x").status_code == 403


def test_the_flags_of_a_collection_are_resolved_together(engineer):
    collection, other = make_collection(), make_collection()
    for each in (collection, collection, other):
        make_rollout(each, reward=1.0, redactions={"jwt": 1}, flagged=True, repeat=Rollout.objects.count())
    url = f"/api/v1/collections/{collection.pk}/resolve_flags/"
    assert engineer.post(url).json() == {"resolved": 2}
    assert engineer.post(url).json() == {"resolved": 0}
    assert list(Rollout.objects.filter(flagged=True).values_list("collection", flat=True)) == [other.pk]
    told = AuditEntry.objects.filter(action="collection.flags_resolved")
    assert [(entry.target, entry.detail) for entry in told] == [(f"collection {collection.pk}", {"rollouts": 2})]
    viewer = type(engineer)()
    viewer.force_login(make_user(Role.VIEWER))
    assert viewer.post(url).status_code == 403


TOKEN = "ghp_AbCdEf0123456789AbCdEf0123456789ZZZZ"
MARK = "[REDACTED:github_token]"


def test_a_refusal_does_not_repeat_a_credential(engineer):
    dataset = make_dataset()
    refused = post(engineer, URL, kind=TOKEN, text="corp.")
    [error] = refused.json()["errors"]
    assert (refused.status_code, error["pointer"], error["code"]) == (400, "/kind", "invalid_choice")
    assert (TOKEN in refused.text, MARK in error["message"]) == (False, True)
    unknown = post(engineer, URL, kind="name", text="badge", **{TOKEN: 1})
    assert (TOKEN in unknown.content.decode(), unknown.json()["errors"][0]["pointer"]) == (False, f"/{MARK}")
    lines = json.dumps({"response": 1, TOKEN: 1}).replace(": 1}", f": 1, {json.dumps(TOKEN)}: 2}}").encode()
    address = f"/api/v1/collections/import/?dataset={dataset.slug}&agent={make_agent().slug}"
    imported = engineer.post(address, lines, content_type="application/x-ndjson")
    message = f"the name '{MARK}' is repeated in one object"
    assert (imported.status_code, imported.json()["errors"][0]["message"]) == (400, message)
    assert TOKEN not in imported.content.decode()


def test_a_saved_mapping_keeps_no_credential_in_the_names_of_its_fields(engineer):
    mapping = {"input": "question", "fields": {TOKEN: "badge", "token": "token"}}
    made = post(engineer, "/api/v1/column-mappings/", slug="qa", name="Q and A", mapping=mapping)
    assert made.json()["mapping"]["fields"] == {MARK: "badge", "token": "token"}
    assert ColumnMapping.objects.get().mapping == made.json()["mapping"]
