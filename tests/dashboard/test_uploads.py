"""The wizard: a file, what its columns mean, a check with counts, a commit; each step a page that works by itself."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone

from apps.tasks.models import ColumnMapping, Dataset, Task, Upload
from apps.tasks.upload_jobs import load_queued_upload
from tests.dashboard.pages import squeezed
from tests.factories import make_dataset, make_environment, make_row, make_worker

HTMX = {"HX-Request": "true"}
GOOD = json.dumps(make_row())
QUESTIONS = "".join(f'{{"question": "Is {n} odd?", "answer": "no", "nr": {n}}}\n' for n in range(4))
FOUND = {"kind": "found", "mode": "replace", "on_error": "reject", "rest": "keep"}


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


def _file(text: str, name: str = "rows.jsonl") -> SimpleUploadedFile:
    return SimpleUploadedFile(name, text.encode())


def begin(pages: Client, text: str, name: str = "rows.jsonl") -> str:
    """The address of the mapping of an uploaded file."""
    reply = pages.post("/datasets/empty/upload/", {"file": _file(text, name)})
    assert reply.status_code == 302, reply.text
    return str(reply["Location"])


def load(pages: Client, text: str, **fields: object) -> Upload:
    address = begin(pages, text)
    reply = pages.post(address, {**FOUND, "action": "load", **fields})
    assert reply.status_code == 302, reply.context["form"].errors
    return loaded()


def test_the_page_asks_for_nothing_before_it_was_sent(pages: Client, empty: Dataset):
    page = pages.get("/datasets/empty/upload/")
    assert page.status_code == 200
    assert page.context["form"].is_bound is False
    assert 'role="alert"' not in page.text
    assert 'enctype="multipart/form-data"' in page.text


def test_a_file_is_mapped_checked_and_loaded(pages: Client, empty: Dataset):
    address = begin(pages, QUESTIONS + '{"question": ""}\n' + QUESTIONS)
    upload = Upload.objects.get()
    assert (address, upload.state, upload.created_by.username) == (f"/uploads/{upload.pk}/map/", "draft", "erika")
    page = pages.get(address)
    assert "prompt and answer" in page.text
    assert [row.prompt for row in page.context["rows"]][:2] == ["Is 0 odd?", "Is 1 odd?"]
    assert "/question is missing: the prompt column" in page.text
    assert '<option value="question">Is 0 odd?</option>' in page.text
    assert "<code>question</code> → input, <code>answer</code> → expected_answer" in squeezed(page.text)
    own = {**FOUND, "kind": "own", "user": "Yes or no: {question}", "expected_answer": "answer", "external_id": "nr"}
    preview = pages.post(address, {**own, "action": "preview"}, headers=HTMX)
    assert [row.prompt for row in preview.context["rows"]][:2] == ["Yes or no: Is 0 odd?", "Yes or no: Is 1 odd?"]
    assert "<html" not in preview.text
    reply = pages.post(address, {**own, "on_duplicate": "skip", "save_as": "Odd questions", "action": "check"})
    assert (reply.status_code, reply["Location"]) == (302, f"/uploads/{upload.pk}/")
    upload = loaded()
    assert (upload.state, upload.accepted, upload.rejected, Task.objects.count()) == ("checked", 5, 0, 0)
    page = squeezed(pages.get(f"/uploads/{upload.pk}/").text)
    assert "5 rows are valid" in page
    assert "<dt>Added</dt><dd>5</dd>" in page
    assert "<dt>Duplicates</dt><dd>4</dd>" in page
    assert ColumnMapping.objects.get().slug == "odd-questions"
    reply = pages.post(f"/uploads/{upload.pk}/commit/", {"note": "by page"})
    upload = loaded()
    assert (upload.state, upload.version.note, upload.version.task_count) == ("ready", "by page", 5)
    assert Task.objects.order_by("index")[0].prompt_excerpt == "Yes or no: Is 0 odd?"
    assert "Version 1" in pages.get(f"/uploads/{upload.pk}/").text
    assert pages.get(address)["Location"] == f"/uploads/{upload.pk}/"


def test_a_checked_file_with_bad_rows_is_loaded_only_without_them(pages: Client, empty: Dataset):
    address = begin(pages, QUESTIONS + '{"question": "", "answer": "x"}\n')
    pages.post(address, {**FOUND, "action": "check"})
    upload = loaded()
    detail = f"/uploads/{upload.pk}/"
    page = squeezed(pages.get(detail).text)
    assert "1 of 5 rows" in page
    assert "4 rows are valid" in page
    assert '<td class="mono">/question</td>' in page
    pages.post(f"{detail}commit/", {"note": ""})
    assert Upload.objects.get().state == "checked"
    assert "Some rows are invalid" in pages.get(detail).text
    pages.post(f"{detail}commit/", {"note": "", "skip_bad": "on"})
    upload = loaded()
    assert (upload.state, upload.accepted, upload.rejected) == ("ready", 4, 1)
    assert "Download all invalid rows" in pages.get(detail).text


def test_rows_of_nemo_gym_have_nothing_to_map(pages: Client, empty: Dataset):
    address = begin(pages, f"{GOOD}\n{GOOD}\n")
    page = pages.get(address).text
    assert "NeMo Gym rows" in page
    assert "No mapping is needed" in page
    pages.post(address, {**FOUND, "action": "load"})
    upload = loaded()
    assert (upload.state, upload.accepted, upload.mapping) == ("ready", 2, None)


def test_a_csv_is_mapped_by_its_header(pages: Client, empty: Dataset):
    address = begin(pages, "frage,antwort\nWas ist 1 + 1?,2\n", "fragen.csv")
    page = pages.get(address)
    assert page.context["form"].initial["kind"] == "own"
    wrong = pages.post(address, {**FOUND, "kind": "own", "action": "check"})
    assert (wrong.status_code, list(wrong.context["form"].errors)) == (422, ["input"])
    fields = {**FOUND, "kind": "own", "input": "frage", "fields_text": "expected_answer = antwort", "rest": "drop"}
    pages.post(address, {**fields, "split_ratios": "train:0.5, test:0.5", "split_seed": "3", "action": "load"})
    upload = loaded()
    assert (upload.state, upload.split_ratios) == ("ready", {"train": 0.5, "test": 0.5})
    assert Task.objects.get().row == {
        "responses_create_params": {"input": [{"role": "user", "content": "Was ist 1 + 1?"}]},
        "expected_answer": "2",
    }


def test_the_preview_has_expected_answers_and_names_dropped_columns(pages: Client, empty: Dataset):
    address = begin(pages, QUESTIONS)
    assert {row.expected for row in pages.get(address).context["rows"]} == {"no"}
    own = {**FOUND, "kind": "own", "input": "question", "action": "preview"}
    kept = pages.post(address, own).context["preview"]
    assert not [note for note in kept.notes if "dropped" in note]
    dropped = pages.post(address, {**own, "rest": "drop"}).context["preview"]
    (note,) = dropped.notes
    assert "answer, nr" in note
    assert {row.expected for row in dropped.rows} == {""}


def test_invalid_rows_disable_the_buttons_until_they_may_be_skipped(pages: Client, empty: Dataset):
    address = begin(pages, QUESTIONS + '{"question": "", "answer": "x"}\n')
    page = pages.get(address)
    assert "1 of the first 5" in page.context["refused"]
    assert page.text.count('disabled aria-describedby="refused"') == 2
    skipping = pages.post(address, {**FOUND, "on_error": "skip", "action": "preview"})
    assert (skipping.context["refused"], "disabled" in skipping.text) == ("", False)
    none = {**FOUND, "kind": "own", "input": "absent", "on_error": "skip", "action": "preview"}
    assert "None of the first 5" in pages.post(address, none).context["refused"]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"kind": "own", "user": "{"}, "user"),
        ({"kind": "own", "input": "q", "system": "{x!r}"}, "system"),
        ({"kind": "own", "input": "q", "fields_text": "nonsense"}, "fields_text"),
        ({"kind": "own", "input": "q", "fields_text": "responses_create_params = x"}, "fields_text"),
        ({"split_ratios": "train"}, "split_ratios"),
        ({"split_ratios": "train:0.5"}, "split_ratios"),
        ({"split_ratios": "train:1", "split": "test"}, "split"),
        ({"mode": "upsert", "on_duplicate": "keep"}, "on_duplicate"),
        ({"split_seed": "-1"}, "split_seed"),
        ({"mode": "merge"}, "mode"),
    ],
)
def test_a_mapping_that_cannot_be_says_why_beside_the_field(pages: Client, empty: Dataset, fields, field):
    reply = pages.post(begin(pages, QUESTIONS), {**FOUND, **fields, "action": "load"}, headers=HTMX)
    assert (reply.status_code, list(reply.context["form"].errors)) == (422, [field])
    assert f'id="id_{field}_error"' in reply.text
    assert Upload.objects.get().state == "draft"


def test_a_saved_mapping_is_offered_and_used(pages: Client, empty: Dataset):
    ColumnMapping.objects.create(slug="odd", name="Odd ones", mapping={"user": "Say: {question}", "rest": "drop"})
    address = begin(pages, QUESTIONS)
    page = pages.get(f"{address}?saved=odd")
    assert page.context["rows"][0].prompt == "Say: Is 0 odd?"
    assert page.context["form"].initial["user"] == "Say: {question}"
    assert '<option value="odd" selected>Odd ones</option>' in page.text
    assert [pages.get(f"{address}?saved={wrong}").status_code for wrong in ("nobody", "%00")] == [200, 200]


def test_saved_mappings_are_listed_and_deleted(pages: Client, viewer_pages: Client):
    assert "No mappings yet" in pages.get("/column-mappings/").text
    ColumnMapping.objects.create(slug="odd", name="Odd ones", mapping={"user": "<b>{question}</b>"})
    assert "&lt;b&gt;{question}&lt;/b&gt;" in pages.get("/column-mappings/").text
    assert "Delete" not in viewer_pages.get("/column-mappings/").text
    assert viewer_pages.post("/column-mappings/odd/delete/").status_code == 403
    assert "Odd ones" in pages.post("/column-mappings/odd/delete/", follow=True).text
    assert ColumnMapping.objects.count() == 0


def test_a_file_can_be_forgotten_until_it_is_loaded(pages: Client, empty: Dataset):
    begin(pages, QUESTIONS)
    upload = Upload.objects.get()
    reply = pages.post(f"/uploads/{upload.pk}/discard/")
    assert (reply["Location"], Upload.objects.count()) == ("/datasets/empty/", 0)
    upload = load(pages, QUESTIONS)
    reply = pages.post(f"/uploads/{upload.pk}/discard/")
    assert (reply["Location"], Upload.objects.get().state) == (f"/uploads/{upload.pk}/", "ready")


def test_pasted_rows_become_a_version(pages: Client, empty: Dataset):
    address = pages.post("/datasets/empty/upload/", {"rows": GOOD})["Location"]
    pages.post(address, {**FOUND, "action": "load"})
    loaded()
    assert Dataset.objects.get().latest_version().task_count == 1


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ({}, "at least one row"),
        ({"rows": GOOD, "file": True}, "rows, not both"),
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


def test_a_file_that_is_none_of_ours_is_said_so_on_its_page(pages: Client, empty: Dataset):
    page = pages.get(begin(pages, "PK\x03\x04" + "x" * 20, "tasks.zip")).text
    assert "the ZIP archive cannot be read" in page
    assert "No rows to show" in page


def test_an_empty_file_is_refused_in_the_words_of_the_api(pages: Client, empty: Dataset):
    upload = load(pages, "")
    assert upload.state == "rejected"
    page = pages.get(f"/uploads/{upload.pk}/").text
    assert upload.message and upload.message in page
    assert '<td class="num">1</td>' in page


def test_bad_lines_are_a_table_with_numbers_and_can_be_had_as_a_file(pages: Client, empty: Dataset):
    rows = f'{GOOD}\n{{"broken\n{{"expected_answer": "<script>alert(1)</script>"}}\n'
    upload = load(pages, rows)
    page = pages.get(f"/uploads/{upload.pk}/")
    assert [error["line"] for error in upload.errors] == [2, 3]
    assert '<td class="num">2</td>' in page.text
    assert '<td class="num">3</td>' in page.text
    assert "<script>alert" not in page.text
    assert "Load valid rows, skip invalid ones" in page.text
    assert empty.versions.count() == 0
    download = pages.get(f"/uploads/{upload.pk}/rejected/")
    assert download.status_code == 200
    assert download["Content-Disposition"].startswith("attachment")
    beyond = pages.get(f"/uploads/{upload.pk}/rejected/", headers={"Range": "bytes=9999999-"})
    size = int(download["Content-Length"])
    assert (beyond.status_code, beyond["Content-Range"], beyond["Content-Type"]) == (
        416,
        f"bytes */{size}",
        "text/plain; charset=utf-8",
    )
    assert f"{size:,} bytes" in beyond.content.decode()


def test_what_bad_rows_had_rejected_can_be_loaded_without_them(pages: Client, empty: Dataset):
    upload = load(pages, QUESTIONS + '{"question": ""}\n')
    detail = f"/uploads/{upload.pk}/"
    assert upload.state == "rejected"
    page = pages.get(detail).text
    assert "Load valid rows, skip invalid ones" in page
    assert "upload the file again" not in page
    assert pages.get(f"{detail}map/").status_code == 200
    pages.post(f"{detail}commit/", {"note": "", "skip_bad": "on"})
    upload = loaded()
    assert (upload.state, upload.accepted) == ("ready", 4)


def test_hostile_columns_stay_text(pages: Client, empty: Dataset):
    hostile = '</pre></textarea><script>alert(1)</script>" onfocus="alert(2)'
    page = pages.get(begin(pages, json.dumps({hostile: hostile, "question": hostile, "tags": [hostile]}))).text
    assert "<script>alert" not in page
    assert '" onfocus="' not in page


def test_an_upload_without_bad_lines_has_no_file_of_them(pages: Client, empty: Dataset):
    upload = load(pages, GOOD)
    assert pages.get(f"/uploads/{upload.pk}/rejected/").status_code == 404


def test_an_upload_that_goes_on_is_looked_at_again(pages: Client, empty: Dataset):
    upload = Upload.objects.create(
        dataset=empty, state=Upload.State.LOADING, filename="big.jsonl", received_bytes=200, read_bytes=50
    )
    address = f"/uploads/{upload.pk}/"
    page = pages.get(address).text
    assert f'hx-get="{address}" hx-trigger="every 1s"' in page
    assert '<progress max="1" value="0.2500"' in page
    assert '<noscript><meta http-equiv="refresh" content="3"></noscript>' in page
    assert "sign of life" not in page
    Upload.objects.update(touched_at=timezone.now() - timedelta(seconds=50))
    assert "last heartbeat of the worker" in pages.get(address).text
    upload.state = Upload.State.FAILED
    upload.save()
    fragment = pages.get(address, headers=HTMX).text
    assert "hx-trigger" not in fragment
    assert "<html" not in fragment
    assert "http-equiv" not in pages.get(address).text


def test_a_file_that_no_worker_will_load_says_which_to_start(pages: Client, empty: Dataset):
    pages.post(begin(pages, GOOD), {**FOUND, "action": "load"})
    address = f"/uploads/{Upload.objects.get().pk}/"
    assert "No worker is running" in pages.get(address).text
    make_worker()
    assert "No worker is running" not in pages.get(address).text


def test_only_who_may_upload_sees_the_form(viewer_pages: Client):
    dataset = make_dataset()
    assert viewer_pages.get(f"/datasets/{dataset.slug}/upload/").status_code == 403
    assert "Upload tasks" not in viewer_pages.get(f"/datasets/{dataset.slug}/").text


def test_the_addresses_that_the_script_sends_parts_to_exist(pages: Client, empty: Dataset):
    page = pages.get("/datasets/empty/upload/").text
    assert 'data-parts-url="/api/v1/datasets/empty/uploads/parts/"' in page
    assert 'data-result-url="/uploads/0/map/"' in page
    begun = pages.post(
        "/api/v1/datasets/empty/uploads/parts/",
        {"filename": "big.jsonl", "draft": True},
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
    finished = pages.post(f"{upload}finish/")
    assert (finished.status_code, finished.json()["state"]) == (202, "draft")
    assert pages.get(f"/uploads/{begun.json()['id']}/map/").status_code == 200
