"""Uploading by form, by streamed body and in parts: all or nothing, with the bad lines named."""

import json
import os
from pathlib import Path
from urllib.parse import urlencode

import pytest
from asgiref.sync import async_to_sync
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import AsyncClient, Client
from django.utils.html import escape

from apps.accounts.models import Role
from apps.tasks.models import Dataset, Task, Upload
from tests.factories import make_dataset, make_environment, make_row, make_user

pytestmark = pytest.mark.django_db

GOOD = b"".join(json.dumps(make_row(f"What is {n} + 1?", str(n + 1))).encode() + b"\n" for n in range(3))
BROKEN = GOOD + b'{"responses_create_params": \n' + GOOD


@pytest.fixture
def dataset():
    return make_dataset([], slug="sums")


def upload(client, data=GOOD, query="", content_type="application/x-ndjson", slug="sums"):
    """Loaded before the answer."""
    query = f"{query}&wait=true" if query else "?wait=true"
    return client.post(f"/api/v1/datasets/{slug}/uploads/{query}", data, content_type=content_type)


@pytest.mark.parametrize("content_type", ["application/x-ndjson", "application/jsonl", "application/octet-stream"])
def test_a_body_that_is_the_file_is_loaded(engineer, dataset, content_type):
    answer = upload(engineer, content_type=content_type, query="?filename=sums.jsonl")
    assert answer.status_code == 201
    shown = answer.json()
    assert {key: shown[key] for key in ["state", "version", "lines", "accepted", "rejected", "errors", "filename"]} == {
        "state": "ready",
        "version": 2,
        "lines": 3,
        "accepted": 3,
        "rejected": 0,
        "errors": [],
        "filename": "sums.jsonl",
    }
    tasks = engineer.get("/api/v1/tasks/?dataset=sums&version=2&ordering=id").json()["results"]
    assert [task["index"] for task in tasks] == [0, 1, 2]
    assert engineer.get(f"/api/v1/tasks/{tasks[0]['id']}/").json()["row"] == make_row("What is 0 + 1?", "1")


def test_a_form_with_the_file_is_loaded(engineer, dataset):
    form = {"file": SimpleUploadedFile("sums.jsonl", GOOD)}
    answer = engineer.post("/api/v1/datasets/sums/uploads/?wait=true", form)
    assert (answer.status_code, answer.json()["filename"], answer.json()["accepted"]) == (201, "sums.jsonl", 3)
    listed = engineer.get("/api/v1/datasets/sums/uploads/").json()["results"]
    assert [one["id"] for one in listed] == [answer.json()["id"]]


def test_a_streamed_body_is_never_held_in_memory(engineer, dataset, settings):
    # Whoever reads `request.body` runs into this limit.
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 10
    assert upload(engineer).status_code == 201


def test_a_signed_in_browser_needs_its_csrf_token_and_can_stream_too(dataset, settings):
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 10
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(make_user(Role.ENGINEER))
    refused = upload(browser)
    assert (refused.status_code, refused.headers["Content-Type"]) == (403, "application/problem+json")
    browser.get("/api/docs/")
    token = browser.cookies["csrftoken"].value
    answer = browser.post(
        "/api/v1/datasets/sums/uploads/?wait=true",
        GOOD,
        content_type="application/x-ndjson",
        headers={"X-CSRFToken": token},
    )
    assert answer.status_code == 201


def test_one_bad_line_rejects_the_file_and_is_named(engineer, dataset):
    answer = upload(engineer, BROKEN)
    problem = answer.json()
    assert (answer.status_code, problem["type"]) == (400, "urn:gymweb:problem:rejected-file")
    assert [error["line"] for error in problem["errors"]] == [4]
    assert set(problem["errors"][0]) == {"line", "pointer", "code", "message"}
    assert (problem["state"], problem["accepted"], problem["rejected"]) == ("rejected", 0, 1)
    assert Task.objects.count() == 0
    assert engineer.get(f"/api/v1/uploads/{problem['upload']}/").json()["state"] == "rejected"


def test_skipping_loads_the_good_lines_and_offers_the_bad_ones(dataset):
    client = AsyncClient()
    client.force_login(make_user(Role.ENGINEER))

    async def go():
        url = "/api/v1/datasets/sums/uploads/?on_error=skip&wait=true"
        answer = await client.post(url, BROKEN, content_type="application/x-ndjson")
        rejected = await client.get(f"/api/v1/uploads/{answer.json()['id']}/rejected/")
        return answer, b"".join([chunk async for chunk in rejected.streaming_content])

    answer, rejected = async_to_sync(go)()
    assert (answer.status_code, answer.json()["accepted"], answer.json()["rejected"]) == (201, 6, 1)
    assert [json.loads(line)["line"] for line in rejected.splitlines()] == [4]


def test_an_upload_without_bad_lines_has_no_rejected_file(engineer, dataset):
    done = upload(engineer).json()["id"]
    assert engineer.get(f"/api/v1/uploads/{done}/rejected/").status_code == 404


@pytest.mark.parametrize(
    ("query", "pointer"),
    [("?on_error=ignore", "?on_error"), ("?onerror=skip", "?onerror"), ("?environment=nowhere", "?environment")],
)
def test_a_wrong_parameter_stores_nothing(engineer, query, pointer):
    answer = upload(engineer, query=query)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, pointer)
    assert (Dataset.objects.count(), Upload.objects.count()) == (0, 0)


def test_a_body_of_another_type_is_refused(engineer):
    environment = make_environment()
    answer = upload(engineer, content_type="text/html", query=f"?environment={environment.slug}")
    assert (answer.status_code, answer.json()["type"]) == (415, "urn:gymweb:problem:unsupported-media-type")
    assert not Dataset.objects.exists()


def test_a_form_without_a_file_is_refused(engineer, dataset):
    answer = engineer.post("/api/v1/datasets/sums/uploads/", {"note": "x"})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, "/file")


def test_an_unknown_dataset_is_not_found_unless_its_environment_is_named(engineer):
    environment = make_environment()
    assert upload(engineer, slug="newer").status_code == 404
    assert upload(engineer, slug="newer", query=f"?environment={environment.slug}").status_code == 201
    dataset = Dataset.objects.get()
    assert (dataset.slug, dataset.name, dataset.environment) == ("newer", "newer", environment)


def test_a_body_over_the_limit_is_refused_with_the_limit_named(engineer, dataset, settings):
    settings.MAX_BODY_BYTES = 100
    answer = upload(engineer)
    assert (answer.status_code, answer.json()["limit"]) == (413, 100)
    assert "GYMWEB_MAX_BODY_BYTES" in answer.json()["detail"]


def put_part(client, upload_id, offset, data):
    url = f"/api/v1/uploads/{upload_id}/parts/?offset={offset}"
    return client.put(url, data, content_type="application/octet-stream")


def test_a_large_file_comes_in_parts(engineer, dataset):
    begun = engineer.post(
        "/api/v1/datasets/sums/uploads/parts/", {"filename": "big.jsonl"}, content_type="application/json"
    )
    assert (begun.status_code, begun.json()["state"]) == (201, "receiving")
    upload_id = begun.json()["id"]
    assert put_part(engineer, upload_id, 0, GOOD[:100]).json()["received_bytes"] == 100
    wrong = put_part(engineer, upload_id, 50, GOOD[100:])
    assert (wrong.status_code, wrong.json()["expected"]) == (409, 100)
    assert put_part(engineer, upload_id, 100, GOOD[100:]).json()["received_bytes"] == len(GOOD)
    done = engineer.post(f"/api/v1/uploads/{upload_id}/finish/?wait=true")
    assert (done.status_code, done.json()["state"], done.json()["accepted"]) == (201, "ready", 3)
    again = engineer.post(f"/api/v1/uploads/{upload_id}/finish/")
    assert (again.status_code, again.json()["type"]) == (409, "urn:gymweb:problem:not-receiving")


def test_a_part_over_the_limit_and_an_offset_that_is_no_number_are_refused(engineer, dataset, settings):
    settings.UPLOAD_PART_BYTES = 10
    begun = engineer.post("/api/v1/datasets/sums/uploads/parts/", {}, content_type="application/json").json()
    assert put_part(engineer, begun["id"], 0, b"x" * 11).status_code == 413
    assert [put_part(engineer, begun["id"], offset, b"x").status_code for offset in ["", "-1", "²", "9" * 30]] == [
        400
    ] * 4


def test_who_may_only_read_uploads_nothing(viewer, dataset):
    answers = [
        upload(viewer),
        viewer.post("/api/v1/datasets/sums/uploads/parts/", {}, content_type="application/json"),
        viewer.post("/api/v1/datasets/", {}, content_type="application/json"),
    ]
    assert [answer.status_code for answer in answers] == [403] * 3
    assert "permission “upload”" in answers[0].json()["detail"]
    assert not Upload.objects.exists()


def test_a_dataset_is_created_and_a_taken_slug_is_refused(engineer):
    environment = make_environment()
    given = {"slug": "sums", "name": "Sums", "environment": environment.slug}
    answers = [engineer.post("/api/v1/datasets/", given, content_type="application/json") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 400]
    assert (answers[0].json()["version_count"], answers[0].json()["latest_version"]) == (0, None)
    assert [(error["pointer"], error["code"]) for error in answers[1].json()["errors"]] == [("/slug", "unique")]


SHARED = Path(os.environ.get("GYMWEB_SHARED", Path(__file__).resolve().parents[3] / "shared"))
EXAMPLES = sorted((SHARED / "data" / "nemo_gym").glob("*.example.jsonl"))


@pytest.mark.skipif(not EXAMPLES, reason="the field's example files are not beside this checkout")
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_fields_own_files_upload_without_a_rejected_row(engineer, dataset, path):
    content = path.read_bytes()
    answer = upload(engineer, content)
    shown = answer.json()
    assert (answer.status_code, shown["rejected"], shown["accepted"]) == (201, 0, len(content.splitlines()))
    client = AsyncClient()
    client.force_login(make_user(Role.VIEWER))

    async def read() -> bytes:
        rows = await client.get(f"/api/v1/datasets/sums/versions/{shown['version']}/rows/")
        return b"".join([chunk async for chunk in rows.streaming_content])

    assert async_to_sync(read)() == content


def test_fields_of_the_form_are_choices_as_parameters_of_the_address_are(engineer, dataset):
    fields = {"mode": "upsert", "on_error": "skip", "check_only": "true", "wait": "true", "filename": "mine.jsonl"}
    form = {**fields, "file": SimpleUploadedFile("sums.jsonl", GOOD)}
    answer = engineer.post("/api/v1/datasets/sums/uploads/", form)
    shown = answer.json()
    assert answer.status_code == 201
    assert {name: shown[name] for name in ["mode", "on_error", "check_only", "filename", "state", "version"]} == {
        "mode": "upsert",
        "on_error": "skip",
        "check_only": True,
        "filename": "mine.jsonl",
        "state": "checked",
        "version": None,
    }


@pytest.mark.parametrize(
    ("query", "fields", "error"),
    [
        ("", {"moda": "upsert"}, ("/moda", "unknown", "Did you mean “mode”?")),
        ("", {"mode": "upset"}, ("/mode", "invalid", "")),
        ("", {"wait": "perhaps"}, ("/wait", "invalid", "true or false")),
        ("", {"mode": ["upsert", "replace"]}, ("/mode", "repeated", "more than once")),
        ("?mode=replace", {"mode": "upsert"}, ("/mode", "repeated", "more than once")),
        ("", {"file": "no file"}, ("/file", "invalid", "as a file")),
    ],
)
def test_a_field_of_the_form_that_cannot_be_meant_stores_nothing(engineer, dataset, query, fields, error):
    files = {} if "file" in fields else {"file": SimpleUploadedFile("sums.jsonl", GOOD)}
    answer = engineer.post(f"/api/v1/datasets/sums/uploads/{query}", {**fields, **files})
    assert answer.status_code == 400
    (shown,) = answer.json()["errors"]
    assert (shown["pointer"], shown["code"], error[2] in shown["message"]) == (*error[:2], True)
    assert Upload.objects.count() == 0


def test_a_form_brings_one_file(engineer, dataset):
    two = [SimpleUploadedFile("a.jsonl", GOOD), SimpleUploadedFile("b.jsonl", GOOD)]
    answer = engineer.post("/api/v1/datasets/sums/uploads/", {"file": two})
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (400, "repeated")
    assert Upload.objects.count() == 0


NAMES = ["überprüft – 日本語.jsonl", '<b>"Q&A".jsonl', "=cmd().csv'; drop", "  many   spaces.jsonl"]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_keeps_its_name_and_pages_show_it_escaped(engineer, dataset, name):
    shown = upload(engineer, query=f"?{urlencode({'filename': name})}").json()
    assert shown["filename"] == name
    browser = Client()
    browser.force_login(make_user(Role.ENGINEER))
    page = browser.get(f"/uploads/{shown['id']}/").content.decode()
    assert escape(name) in page
    assert "<b>" not in page


def test_of_a_path_the_last_part_is_the_name(engineer, dataset):
    for given in ("../../etc/rows.jsonl", "C:\\data\\rows.jsonl", "/rows.jsonl"):
        shown = upload(engineer, query=f"?{urlencode({'filename': given})}").json()
        assert shown["filename"] == "rows.jsonl"


@pytest.mark.parametrize(("choice", "most"), [("note", 200), ("filename", 255)])
def test_a_text_that_is_too_long_is_refused_and_not_cut(engineer, dataset, choice, most):
    before = Upload.objects.count()
    query = f"?environment={make_environment().slug}&{choice}={'x' * (most + 1)}"
    answer = upload(engineer, query=query, slug="unknown")
    assert answer.status_code == 400
    [error] = answer.json()["errors"]
    assert error["pointer"] == f"?{choice}"
    assert (f"at most {most} characters" in error["message"], f"has {most + 1}" in error["message"]) == (True, True)
    assert (Upload.objects.count(), Dataset.objects.filter(slug="unknown").exists()) == (before, False)
    shown = upload(engineer, query=f"?{choice}={'x' * most}").json()
    kept = Upload.objects.get(pk=shown["id"])
    assert getattr(kept, choice) == "x" * most
