"""NeMo Gym configurations on the page: pasted or sent as files, looked at, confirmed."""

import re

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from apps.accounts.models import AuditEntry
from apps.agents.models import Agent
from apps.environments.models import Environment
from apps.policies.models import PolicyModel
from apps.policies.policy_clients import stored_key
from apps.tasks.models import Dataset
from tests.dashboard.pages import signed_in
from tests.gym.gymconfig.test_describing import ENV, LAB, MODEL

pytestmark = pytest.mark.django_db
URL = "/environments/import/"
ALL = f"--- # lab.yaml{LAB}--- # model.yaml{MODEL}--- # env.yaml\n{ENV}"
MANY = "".join(f"s{number}: {{resources_servers: {{x: {{port: 1}}}}}}\n" for number in range(201))


@pytest.fixture(autouse=True)
def reachable(settings):
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]


def previewed(page):
    return re.search(r'name="previewed" value="(\w*)"', page.text)[1]


def rows():
    return [model.objects.count() for model in (Environment, Agent, PolicyModel, Dataset, AuditEntry)]


def test_a_pasted_configuration_is_previewed_then_registered():
    client, before = signed_in(), rows()
    assert f'href="{URL}"' in client.get("/environments/").text
    shown = client.post(URL, {"text": ALL})
    assert (shown.status_code, rows()) == (200, before)
    assert re.findall(r">(\w+)</span></td><th scope=\"row\" class=\"second\"><code>([\w-]+)</code>", shown.text) == [
        ("created", "lab"),
        ("created", "lab_simple_agent"),
        ("created", "policy_model"),
        ("created", "lab-train"),
        ("created", "lab-example"),
        ("skipped", "lab-train"),
        ("skipped", "lab-example"),
    ]
    # As a browser sends it.
    again = {"text": ALL.replace("\n", "\r\n"), "previewed": previewed(shown), "register": "1"}
    done = client.post(URL, again, follow=True)
    assert "5 created, 2 skipped" in done.text
    assert Environment.objects.get(slug="lab").base_url == "http://127.0.0.1:8123"
    assert stored_key(PolicyModel.objects.get(slug="policy_model")) == "sk-1"
    who = AuditEntry.objects.get(action="environment.create", target="lab").user
    assert who is not None
    assert set(Dataset.objects.values_list("slug", "created_by")) == {("lab-train", who.pk), ("lab-example", who.pk)}


def test_files_go_into_the_text_so_that_they_can_be_confirmed():
    files = [SimpleUploadedFile(name, text.encode()) for name, text in (("lab.yaml", LAB), ("env.yaml", ENV))]
    client = signed_in()
    shown = client.post(URL, {"config_files": files, "without_data": "on"})
    text = re.search(r'<textarea name="text".*?>\n(.*?)</textarea>', shown.text, re.DOTALL)[1]
    assert text.startswith("--- # lab.yaml\n\nlab:\n  resources_servers:")
    assert "--- # env.yaml\npolicy_base_url" in text
    again = {"text": text, "without_data": "on", "previewed": previewed(shown), "register": "1"}
    assert client.post(URL, again)["Location"] == "/environments/"
    assert Environment.objects.filter(slug="lab").exists()


def test_refused_entries_have_a_reason_and_nothing_is_registered():
    client, before = signed_in(), rows()
    text = LAB.replace(", host: 0.0.0.0, port: 8123", "")
    shown = client.post(URL, {"text": text})
    assert shown.status_code == 422
    assert "<code>lab.resources_servers.lab</code>" in shown.text
    assert ("no host and port" in shown.text, "lab=URL" in shown.text) == (True, True)
    assert 'name="register"' not in shown.text
    forced = client.post(URL, {"text": text, "previewed": previewed(shown), "register": "1"})
    assert (forced.status_code, rows()) == (422, before)
    mended = client.post(URL, {"text": text, "addresses": "lab=http://127.0.0.1:9001"})
    assert (mended.status_code, 'name="register"' in mended.text) == (200, True)
    assert "http://127.0.0.1:9001" in mended.text


def test_a_change_after_the_preview_is_previewed_again():
    client, before = signed_in(), rows()
    shown = client.post(URL, {"text": LAB})
    other = client.post(URL, {"text": LAB.replace("8123", "8124"), "previewed": previewed(shown), "register": "1"})
    assert (other.status_code, rows()) == (200, before)
    assert "changed since the preview" in other.text


def test_nothing_of_this_machine_is_read(tmp_path, monkeypatch):
    monkeypatch.setenv("HIDDEN_TOKEN", "sk-hidden")
    (tmp_path / "base.yaml").write_text(LAB)
    client = signed_in()
    included = client.post(URL, {"text": f"config_paths: [{tmp_path}/base.yaml]"})
    assert "`--- # base.yaml`" in included.text
    assert "lab_simple_agent" not in included.text
    secret = client.post(URL, {"text": LAB.replace("Tools of the lab", "'${oc.env:HIDDEN_TOKEN}'")})
    assert "HIDDEN_TOKEN from the environment, which is not set there" in secret.text
    assert "sk-hidden" not in secret.text
    among = client.post(URL, {"text": f"config_paths: [configs/base.yaml]\n--- # base.yaml{LAB}", "without_data": "on"})
    assert among.status_code == 200


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "a configuration or choose"),
        ({"text": "a: ["}, "is not YAML"),
        ({"text": "- a"}, "has no top-level keys"),
        ({"text": LAB, "addresses": "lab"}, "the form NAME=URL"),
        ({"text": "x" * 100_001}, "at most 100000 characters"),
        ({"text": MANY}, "describes 201 objects; the maximum is 200"),
        ({"config_files": SimpleUploadedFile("a.yaml", b"\xff")}, "a.yaml is not UTF-8"),
        ({"text": 'a: "\\0"'}, "contains a NUL character or an unpaired surrogate"),
        ({"text": "a.b: {resources_servers: {x: {port: 1}}}"}, "has a dot in its name"),
        ({"text": "a: &a [*a]"}, "nested more than 64 deep"),
    ],
)
def test_what_cannot_be_read_says_why(given, told):
    refused = signed_in().post(URL, given)
    assert (refused.status_code, told in refused.text) == (422, True)


def test_a_viewer_may_not():
    client = signed_in("viewer")
    assert [client.get(URL).status_code, client.post(URL, {"text": LAB}).status_code] == [403, 403]
    assert URL not in client.get("/environments/").text
