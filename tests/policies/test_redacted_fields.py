"""What people type beside the data is stored without credentials, whoever saves it and however."""

import pytest
from django.test import Client

from apps.accounts.models import Role
from apps.policies.installation_redactor import forget_redactor
from apps.policies.models import RedactionPattern
from apps.policies.policy_model_changes import save_policy_model
from apps.rollouts.models import Collection
from apps.tasks.models import Dataset, DatasetVersion, Upload
from tests.api.conftest import client_of
from tests.factories import (
    make_agent,
    make_collection,
    make_dataset,
    make_environment,
    make_policy_model,
    make_rollout,
    make_row,
    make_user,
)

pytestmark = pytest.mark.django_db
JSON = "application/json"
VENDOR = "ghp_AbCdEf0123456789AbCdEf0123456789ZZZZ"
SAID = f"made with {VENDOR}, see there"
CLEAN = "made with [REDACTED:github_token], see there"


@pytest.fixture
def engineer():
    return client_of(Role.ENGINEER)


def call(client, method, address, body):
    answer = getattr(client, method)(f"/api/v1/{address}", body, content_type=JSON)
    assert answer.status_code in {200, 201}, answer.content
    return answer


def test_the_answer_shows_the_stored_text_and_its_redactions(engineer):
    environment = make_environment()
    plan = {"dataset": make_dataset().slug, "agent": make_agent().slug, "policy_model": make_policy_model().slug}
    sums = {"slug": "sums", "name": SAID, "description": SAID * 2, "environment": environment.slug}
    made = call(engineer, "post", "datasets/", sums)
    shown = made.json()
    assert (shown["name"], shown["description"], made.headers["GymWeb-Redacted"]) == (
        CLEAN,
        CLEAN * 2,
        "github_token=3",
    )
    for method, address, body, field in [
        ("patch", "datasets/sums/", {"name": SAID}, "name"),
        ("post", "agents/", {"slug": "careful", "name": SAID}, "name"),
        ("post", "policy-models/", {"slug": "s", "name": SAID, "provider": "scripted"}, "name"),
        ("post", "collections/", {**plan, "name": SAID}, "name"),
        ("post", "comments/", {"rollout": make_rollout(make_collection()).pk, "text": SAID}, "text"),
    ]:
        answer = call(engineer, method, address, body)
        assert (answer.json()[field], answer.headers["GymWeb-Redacted"]) == (CLEAN, "github_token=1"), address
    quiet = call(engineer, "patch", "datasets/sums/", {"name": "Sums of two numbers"})
    assert "GymWeb-Redacted" not in quiet.headers


def test_the_note_and_the_file_name_of_an_upload_are_clean_in_its_version_too(engineer):
    make_dataset([], slug="sums")
    body = b'{"question": "1 + 1?", "answer": "2"}\n'
    address = f"/api/v1/datasets/sums/uploads/?wait=true&note={VENDOR}&filename=of-{VENDOR}.jsonl"
    answer = engineer.post(address, body, content_type="application/x-ndjson")
    assert (answer.status_code, answer.json()["filename"]) == (201, "of-[REDACTED:github_token].jsonl")
    assert answer.headers["GymWeb-Redacted"] == "github_token=2"
    assert (Upload.objects.get().note, DatasetVersion.objects.get(number=2).note) == ("[REDACTED:github_token]",) * 2


def test_a_page_tells_who_typed_a_credential():
    browser, environment = Client(), make_environment()
    browser.force_login(make_user(Role.ENGINEER))
    form = {"slug": "sums", "name": "Sums", "description": SAID, "environment": environment.slug}
    page = browser.post("/datasets/new/", form, follow=True).content.decode()
    assert Dataset.objects.get().description == CLEAN
    told = "1 × github token"
    assert (told in page, VENDOR in page) == (True, False)
    assert told not in browser.get("/datasets/sums/").content.decode()


def test_texts_saved_outside_operations_are_redacted():
    collection = make_collection(name=SAID)
    assert collection.name == Collection.objects.get().name == CLEAN
    Collection.objects.update(name=f"again {VENDOR}")
    assert Collection.objects.get().name == "again [REDACTED:github_token]"
    collection.name = f"bulk {VENDOR}"
    Collection.objects.bulk_update([collection], ["name"])
    assert Collection.objects.get().name == "bulk [REDACTED:github_token]"


def test_a_redaction_mark_does_not_exceed_the_column():
    RedactionPattern.objects.create(kind=RedactionPattern.Kind.PREFIX, text="zz-", least=4)
    forget_redactor()
    policy_model, text = make_policy_model(), "zz-1234 " * 12
    assert len(text) == 96
    policy_model.name = text.strip()
    save_policy_model(policy_model=policy_model, api_key=None, user=None)
    assert len(make_dataset([], name=text).name) == len(policy_model.name) == 100
    assert Dataset.objects.get().name[:22] == "[REDACTED:pattern] [RE"
    forget_redactor()


@pytest.mark.parametrize("address", ["datasets/", "agents/", "policy-models/"])
def test_no_slug_is_a_credential(engineer, address):
    body = {"slug": VENDOR, "name": "x", "environment": make_environment().slug, "provider": "scripted"}
    wanted = {"datasets/": ("slug", "name", "environment"), "policy-models/": ("slug", "name", "provider")}
    names = wanted.get(address, ("slug", "name"))
    answer = engineer.post(f"/api/v1/{address}", {name: body[name] for name in names}, content_type=JSON)
    assert answer.status_code == 400
    [error] = answer.json()["errors"]
    assert (error["pointer"], "looks like a credential" in error["message"]) == ("/slug", True)


def test_searching_for_a_text_does_not_change_it():
    make_dataset([make_row()], name="Sums")
    assert Dataset.objects.filter(name="Sums").count() == 1
    assert Dataset.objects.filter(name=SAID).count() == 0


def test_sampling_prompts_mappings_and_saved_views_are_stored_clean(engineer):
    plan = {"dataset": make_dataset(rows=[make_row()]).slug, "agent": make_agent().slug}
    plan |= {"policy_model": make_policy_model().slug, "sampling": {"stop": [SAID], "top_p": 0.5}}
    made = call(engineer, "post", "collections/", {**plan, "prompt_template": {"system": SAID, "user": "{prompt}"}})
    collection = Collection.objects.get(pk=made.json()["id"])
    assert collection.sampling == {"stop": [CLEAN], "top_p": 0.5}
    assert collection.prompt_template == {"system": CLEAN, "user": "{prompt}"}
    assert VENDOR not in str(collection.snapshot)
    assert made.headers["GymWeb-Redacted"] == "github_token=2"
    mapping = {"slug": "mine", "name": "mine", "mapping": {"input": "question", "fields": {"password": SAID}}}
    stored = call(engineer, "post", "column-mappings/", mapping).json()
    assert stored["mapping"]["fields"] == {"password": CLEAN}
    view = call(engineer, "post", "saved-views/", {"name": SAID, "query": f'"{VENDOR}"'}).json()
    assert (view["name"], VENDOR in str(view)) == (CLEAN, False)
    changed = call(engineer, "patch", f"saved-views/{view['id']}/", {"name": f"again {VENDOR}"}).json()
    assert changed["name"] == "again [REDACTED:github_token]"
