import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from apps.tasks.models import Dataset, Upload
from apps.tasks.uploading import load_queued_upload
from tests.factories import make_dataset, make_environment, make_row

GOOD = json.dumps(make_row())


@pytest.fixture(autouse=True)
def _uploads_dir(settings, tmp_path: Path) -> None:
    settings.UPLOADS_DIR = tmp_path


@pytest.fixture
def empty(db: None) -> Iterator[Dataset]:
    yield Dataset.objects.create(slug="empty", name="Empty", environment=make_environment())


def loaded() -> Upload:
    """What a worker makes of it."""
    assert load_queued_upload()
    return Upload.objects.get()


def _file(text: str) -> SimpleUploadedFile:
    return SimpleUploadedFile("rows.jsonl", text.encode())


def test_the_page_asks_for_nothing_before_it_was_sent(pages: Client, empty: Dataset):
    page = pages.get("/datasets/empty/upload/")
    assert page.status_code == 200
    assert page.context["form"].is_bound is False
    assert 'role="alert"' not in page.text
    assert 'enctype="multipart/form-data"' in page.text


def test_a_file_becomes_a_version(pages: Client, empty: Dataset):
    reply = pages.post("/datasets/empty/upload/", {"file": _file(f"{GOOD}\n{GOOD}\n"), "on_error": "reject"})
    upload = Upload.objects.get()
    assert (reply.status_code, reply["Location"], upload.state) == (302, f"/uploads/{upload.pk}/", "queued")
    upload = loaded()
    assert (upload.state, upload.accepted, upload.filename) == ("ready", 2, "rows.jsonl")
    assert upload.created_by is not None
    assert upload.created_by.username == "erika"
    assert "Version 1 is ready." in pages.get(f"/uploads/{upload.pk}/").text


def test_pasted_rows_become_a_version(pages: Client, empty: Dataset):
    pages.post("/datasets/empty/upload/", {"rows": GOOD, "on_error": "reject"})
    loaded()
    assert Dataset.objects.get().latest_version().task_count == 1


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ({"on_error": "reject"}, "Choose a file or paste at least one row."),
        ({"rows": GOOD, "file": True, "on_error": "reject"}, "Choose a file or paste rows, not both."),
        ({"rows": GOOD, "on_error": "ignore"}, "Select a valid choice."),
    ],
)
def test_a_form_that_cannot_be_read_says_why(pages: Client, empty: Dataset, sent, words):
    sent = dict(sent)
    if sent.get("file") is True:
        sent["file"] = _file(GOOD)
    reply = pages.post("/datasets/empty/upload/", sent)
    assert reply.status_code == 422
    assert words in reply.text
    assert Upload.objects.count() == 0


def test_an_empty_file_is_refused_in_the_words_of_the_api(pages: Client, empty: Dataset):
    reply = pages.post("/datasets/empty/upload/", {"file": _file(""), "on_error": "reject"})
    upload = loaded()
    assert (upload.state, upload.message) == ("rejected", "The file holds no rows.")
    page = pages.get(reply["Location"]).text
    assert "The file holds no rows." in page
    assert '<td class="num">1</td>' in page


def test_bad_lines_are_a_table_with_numbers_and_can_be_had_as_a_file(pages: Client, empty: Dataset):
    rows = f'{GOOD}\n{{"broken\n{{"expected_answer": "<script>alert(1)</script>"}}\n'
    pages.post("/datasets/empty/upload/", {"file": _file(rows), "on_error": "reject"})
    upload = loaded()
    page = pages.get(f"/uploads/{upload.pk}/")
    assert [error["line"] for error in upload.errors] == [2, 3]
    assert '<td class="num">2</td>' in page.text
    assert '<td class="num">3</td>' in page.text
    assert "<script>alert" not in page.text
    assert "load the good lines" in page.text
    assert empty.versions.count() == 0
    download = pages.get(f"/uploads/{upload.pk}/rejected/")
    assert download.status_code == 200
    assert download["Content-Disposition"].startswith("attachment")


def test_the_good_lines_are_loaded_when_asked_for(pages: Client, empty: Dataset):
    pages.post("/datasets/empty/upload/", {"rows": f"{GOOD}\nnonsense", "on_error": "skip"})
    upload = loaded()
    assert (upload.state, upload.accepted, upload.rejected) == ("ready", 1, 1)
    page = pages.get(f"/uploads/{upload.pk}/").text
    assert "Version 1 is ready." in page
    assert "Download all bad lines" in page


def test_an_upload_without_bad_lines_has_no_file_of_them(pages: Client, empty: Dataset):
    pages.post("/datasets/empty/upload/", {"rows": GOOD, "on_error": "reject"})
    loaded()
    assert pages.get(f"/uploads/{Upload.objects.get().pk}/rejected/").status_code == 404


def test_an_upload_that_goes_on_is_looked_at_again(pages: Client, empty: Dataset):
    upload = Upload.objects.create(dataset=empty, state=Upload.State.LOADING, filename="big.jsonl")
    address = f"/uploads/{upload.pk}/"
    assert f'hx-get="{address}" hx-trigger="load delay:1s"' in pages.get(address).text
    upload.state = Upload.State.FAILED
    upload.save()
    fragment = pages.get(address, headers={"HX-Request": "true"}).text
    assert "hx-trigger" not in fragment
    assert "<html" not in fragment


def test_only_who_may_upload_sees_the_form(viewer_pages: Client):
    dataset = make_dataset()
    assert viewer_pages.get(f"/datasets/{dataset.slug}/upload/").status_code == 403
    assert "Upload tasks" not in viewer_pages.get(f"/datasets/{dataset.slug}/").text


def test_the_addresses_that_the_script_sends_parts_to_exist(pages: Client, empty: Dataset):
    page = pages.get("/datasets/empty/upload/").text
    assert 'data-parts-url="/api/v1/datasets/empty/uploads/parts/"' in page
    begun = pages.post(
        "/api/v1/datasets/empty/uploads/parts/",
        {"filename": "big.jsonl", "on_error": "reject"},
        content_type="application/json",
    )
    assert begun.status_code == 201
    upload = f"/api/v1/uploads/{begun.json()['id']}/"
    part = pages.put(f"{upload}parts/?offset=0", GOOD.encode(), content_type="application/octet-stream")
    assert (part.status_code, part.json()["received_bytes"]) == (200, len(GOOD))
    # What the script reads when a part went astray: where to go on.
    astray = pages.put(f"{upload}parts/?offset=5", b"x" * 9, content_type="application/octet-stream")
    assert astray.status_code == 409
    assert pages.get(upload).json()["received_bytes"] == len(GOOD)
    assert pages.post(f"{upload}finish/").status_code == 202
    loaded()
    assert "Version 1 is ready." in pages.get(f"/uploads/{begun.json()['id']}/").text
