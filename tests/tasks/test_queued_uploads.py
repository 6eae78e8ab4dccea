"""Received files wait for a worker, which loads each once, whatever happens to it on the way."""

import io
import json
import os
import time
import zipfile
from datetime import timedelta

import orjson
import pytest
from django.db import OperationalError
from django.utils import timezone

from apps.accounts.disk_space import DiskFull
from apps.gym import process_exit
from apps.tasks import received_files, rejected_rows, upload_cleanup, upload_jobs, version_loading
from apps.tasks.dataset_changes import create_dataset
from apps.tasks.models import Task, Upload
from apps.tasks.received_files import PartTooLarge, create_upload, store_file
from apps.tasks.rejected_rows import rejected_path
from apps.tasks.row_preview import preview_upload
from apps.tasks.upload_choices import Choices
from apps.tasks.upload_cleanup import sweep_files, sweep_uploads
from apps.tasks.upload_jobs import NotWaiting, discard_upload, load_now, load_queued_upload, queue_upload, upload_file
from tests.factories import make_environment, make_row

pytestmark = pytest.mark.django_db

QUESTIONS = b"".join(orjson.dumps({"question": f"Is {n} odd?", "answer": "no", "nr": n}) + b"\n" for n in range(5))


@pytest.fixture
def dataset():
    return create_dataset(slug="sums", name="Sums", environment=make_environment())


def store(dataset, content: bytes = QUESTIONS, **options) -> Upload:
    draft, filename = options.pop("draft", False), options.pop("filename", "a.jsonl")
    choices = Choices(**options)
    return store_file(dataset=dataset, stream=io.BytesIO(content), filename=filename, choices=choices, draft=draft)


def test_a_stored_file_is_loaded_by_the_next_background_job_and_then_removed(dataset, uploads_dir):
    upload = store(dataset)
    assert (upload.state, upload.received_bytes, Task.objects.count()) == ("queued", len(QUESTIONS), 0)
    assert (load_queued_upload(), load_queued_upload()) == (True, False)
    upload.refresh_from_db()
    assert (upload.state, upload.accepted, upload.shape, upload.format, upload.attempt, upload.share) == (
        "ready", 5, "prompt_answer", "jsonl", 1, 1.0,
    )  # fmt: skip
    assert upload.mapping == {"input": "question", "expected_answer": "answer"}
    assert Task.objects.order_by("index")[0].row == {
        "responses_create_params": {"input": [{"role": "user", "content": "Is 0 odd?"}]},
        "nr": 0,
        "expected_answer": "no",
    }
    assert list(uploads_dir.iterdir()) == []


def test_a_draft_is_previewed_checked_and_committed(dataset, uploads_dir):
    broken = QUESTIONS + b'{"question": "", "answer": "x"}\n' + QUESTIONS
    upload = store(dataset, broken, draft=True)
    assert (upload.state, load_queued_upload()) == ("draft", False)
    preview = preview_upload(upload=upload)
    assert (preview.shape, preview.mapping) == ("prompt_answer", {"input": "question", "expected_answer": "answer"})
    assert [column["path"] for column in preview.columns] == ["question", "answer", "nr"]
    assert [(one.line, one.prompt, one.error and one.error["code"]) for one in preview.rows[4:7]] == [
        (5, "Is 4 odd?", None), (6, "", "missing"), (7, "Is 0 odd?", None),
    ]  # fmt: skip
    mapping = {"user": "Answer yes or no. {question}", "expected_answer": "answer", "external_id": "nr"}
    queue_upload(upload=upload, choices=Choices(mapping=mapping, check_only=True))
    assert load_queued_upload() is True
    upload.refresh_from_db()
    assert (upload.state, upload.accepted, upload.rejected, upload.version) == ("checked", 11, 0, None)
    assert (upload.counts["new"], upload.counts["duplicate"], Task.objects.count()) == (11, 5, 0)
    again = {**mapping, "input": "question", "user": ""}
    queue_upload(upload=upload, choices=Choices(mapping=again, check_only=True, on_duplicate="skip"))
    load_queued_upload()
    upload.refresh_from_db()
    assert (upload.accepted, upload.rejected, upload.errors[0]["pointer"]) == (5, 1, "/question")
    choices = Choices(mapping=again, on_duplicate="skip", on_error="skip", note="odd ones")
    upload = load_now(upload=queue_upload(upload=upload, choices=choices))
    assert (upload.state, upload.version.task_count, upload.version.note) == ("ready", 5, "odd ones")
    assert [path.suffix for path in uploads_dir.iterdir()] == [".jsonl"]
    with pytest.raises(NotWaiting, match="The file was deleted"):
        queue_upload(upload=upload, choices=Choices())


def test_rollouts_that_are_uploaded_as_tasks_are_told_apart(dataset):
    attempted = {**make_row("1+1?", "2"), "response": {"output": []}, "reward": 1.0}
    upload = store(dataset, orjson.dumps(attempted), draft=True)
    (told,) = preview_upload(upload=upload).notes
    assert "attempts with rewards" in told
    assert load_now(upload=queue_upload(upload=upload, choices=Choices(check_only=True))).message.endswith(told)
    assert preview_upload(upload=store(dataset, orjson.dumps(make_row("1+1?", "2")), draft=True)).notes == []


def test_columns_that_a_found_mapping_leaves_out_are_told_in_the_preview_and_by_the_check(dataset):
    content = b"question,choices,answer\n" + b"Which?,a or b,\n" * 60 + b"Which?,a or b,a\n"
    upload = store(dataset, content, draft=True, filename="a.csv")
    preview = preview_upload(upload=upload)
    assert preview.mapping == {"input": "question", "expected_answer": "answer"}
    (told,) = preview.notes
    assert "not mapped: choices." in told
    assert [(one["path"], one["example"], one["rows"]) for one in preview.columns] == [
        ("question", "Which?", 50), ("choices", "a or b", 50), ("answer", "", 0),
    ]  # fmt: skip
    upload = load_now(upload=queue_upload(upload=upload, choices=Choices(mapping=preview.mapping, check_only=True)))
    assert upload.message.endswith(told)
    own = {"user": "{question} {choices}", "expected_answer": "answer"}
    upload = load_now(upload=queue_upload(upload=upload, choices=Choices(mapping=own)))
    assert told not in upload.message
    assert [task.row.get("expected_answer") for task in upload.version.tasks.order_by("index")] == [None] * 60 + ["a"]


def test_an_answer_that_no_sampled_row_has_is_told(dataset):
    rows = [{"question": f"Is {n} odd?"} for n in range(60)] + [{"question": "Is 7 odd?", "answer": "yes"}]
    upload = load_now(upload=store(dataset, b"\n".join(json.dumps(row).encode() for row in rows)))
    assert "are not mapped: answer." in upload.message


def test_verl_rows_of_two_splits_do_not_replace_each_other(dataset):
    for split in ("train", "test", "train"):
        rows = [
            {
                "data_source": "gsm8k",
                "prompt": [{"role": "user", "content": f"{split} {n}?"}],
                "reward_model": {"ground_truth": "2"},
                "extra_info": {"split": split, "index": n},
            }
            for n in range(2)
        ]
        content = b"\n".join(json.dumps(row).encode() for row in rows)
        upload = load_now(upload=store(dataset, content, mode="upsert"))
    ids = list(upload.version.tasks.order_by("index").values_list("external_id", flat=True))
    assert ids == ["gsm8k/train/0", "gsm8k/train/1", "gsm8k/test/0", "gsm8k/test/1"]


def test_a_preview_masks_credentials_and_the_row_is_stored_exactly_unless_redaction_is_chosen(dataset):
    token = "ghp_AbCdEf0123456789AbCdEf0123456789ZZZZ"
    rows = [
        {"question": f"Is {token} a key?", "answer": "yes", "api_key": "zq81-ppwl-7742"},
        {token: 1},
    ]
    content = b"\n".join(json.dumps(row).encode() for row in rows)
    upload = store(dataset, content, draft=True)
    mapping = {"user": "{question}", "expected_answer": "answer", "fields": {token: token}}
    preview = preview_upload(upload=upload, mapping=mapping)
    assert [secret in repr(preview.rows) + repr(preview.columns) for secret in (token, "zq81-ppwl-7742")] == [False] * 2
    marked = "Is [REDACTED:github_token] a key?"
    assert (preview.rows[0].prompt, preview.columns[0]["example"]) == (marked, marked)
    assert [column["path"] for column in preview.columns] == [
        "question",
        "answer",
        "api_key",
        "[REDACTED:github_token]",
    ]
    choices = Choices(mapping=mapping, on_error="skip", on_credential="redact")
    upload = load_now(upload=queue_upload(upload=upload, choices=choices))
    assert upload.version.tasks.get().row == preview.rows[0].row
    kept = load_now(upload=store(dataset, content, mapping=mapping, on_error="skip"))
    task = kept.version.tasks.get()
    assert (task.row["api_key"], task.prompt_excerpt) == ("zq81-ppwl-7742", marked)
    assert (task.masked_row, kept.counts["credentials"]) == (preview.rows[0].row, 1)
    assert "Suspected credentials in 1 row, first in line 1 /responses_create_params/input/0/content" in kept.message
    assert upload.mapping["fields"] == {"[REDACTED:github_token]": "[REDACTED:github_token]"}
    table = preview_upload(upload=store(dataset, f"question,{token}\nhi,\n".encode(), draft=True, filename="a.csv"))
    assert [column["path"] for column in table.columns] == ["question", "[REDACTED:github_token]"]


def test_a_draft_can_be_discarded_but_not_a_loaded_version(dataset, uploads_dir):
    upload = store(dataset, draft=True)
    discard_upload(upload=upload)
    assert (Upload.objects.count(), list(uploads_dir.iterdir())) == (0, [])
    upload = store(dataset)
    Upload.objects.filter(pk=upload.pk).update(state=Upload.State.LOADING)
    with pytest.raises(NotWaiting):
        discard_upload(upload=upload)


def test_a_checked_file_that_cannot_be_read_to_its_end_is_rejected(dataset):
    upload = store(dataset, b'[{"question": "q", "answer": "a"}, {"qu', draft=True)
    queue_upload(upload=upload, choices=Choices(check_only=True))
    load_queued_upload()
    upload.refresh_from_db()
    assert (upload.state, upload.errors[0]["code"]) == ("rejected", "cut_off")
    assert preview_upload(upload=upload).problem == "The file is missing."


def test_a_worker_that_leaves_hands_the_upload_on_with_nothing_left_behind(dataset, monkeypatch):
    upload = store(dataset)

    def leave() -> None:
        raise process_exit.Leaving

    monkeypatch.setattr(version_loading.process_exit, "check", leave)
    monkeypatch.setattr("apps.tasks.upload_jobs.delete_version", lambda version: version.delete())
    assert load_queued_upload() is True
    upload.refresh_from_db()
    assert (upload.state, upload.attempt, upload.version, dataset.versions.count()) == ("queued", 0, None, 0)
    monkeypatch.undo()
    assert load_queued_upload() is True
    assert dataset.latest_version().task_count == 5


def quiet(upload: Upload, attempt: int) -> None:
    past = timezone.now() - timedelta(minutes=11)
    Upload.objects.filter(pk=upload.pk).update(state="loading", attempt=attempt, touched_at=past)


def test_an_upload_of_a_lost_worker_is_loaded_by_another_and_given_up_after_the_third(dataset, uploads_dir):
    upload = store(dataset)
    quiet(upload, 1)
    assert sweep_uploads() is True
    upload.refresh_from_db()
    assert upload.state == "queued"
    quiet(upload, 3)
    assert sweep_uploads() is True
    upload.refresh_from_db()
    assert (upload.state, list(uploads_dir.iterdir())) == ("failed", [])


def test_an_attempt_that_was_taken_over_writes_nothing_more(dataset, monkeypatch):
    monkeypatch.setattr(version_loading, "CHUNK_ROWS", 2)
    upload = store(dataset)
    create = Task.objects.bulk_create

    def taken(tasks):
        # Another worker has it now.
        Upload.objects.filter(pk=upload.pk).update(attempt=9)
        return create(tasks)

    monkeypatch.setattr(Task.objects, "bulk_create", taken)
    assert load_queued_upload() is True
    upload.refresh_from_db()
    assert (upload.state, upload.attempt, Task.objects.count(), dataset.versions.count()) == ("loading", 9, 0, 0)


def test_a_database_that_goes_away_is_not_the_files_fault(dataset, monkeypatch):
    upload = store(dataset)

    def lost(tasks):
        raise OperationalError("the connection is closed")

    monkeypatch.setattr(Task.objects, "bulk_create", lost)
    for _ in range(5):
        Upload.objects.filter(pk=upload.pk).update(retry_at=timezone.now())
        assert load_queued_upload() is True
        upload.refresh_from_db()
        assert (upload.state, upload.attempt, upload.version) == ("queued", 0, None)
        assert "the connection is closed" in upload.message
    an_hour_ago = timezone.now() - timedelta(minutes=61)
    Upload.objects.filter(pk=upload.pk).update(retry_at=timezone.now(), failing_since=an_hour_ago)
    load_queued_upload()
    upload.refresh_from_db()
    assert (upload.state, "see the server log" in upload.message) == ("failed", True)
    assert (Task.objects.count(), dataset.versions.count()) == (0, 0)


def test_of_two_workers_one_loads_the_file(dataset):
    upload = store(dataset)
    assert upload_jobs._claim(upload.pk).attempt == 1
    assert upload_jobs._claim(upload.pk) is None
    assert load_queued_upload() is False


def test_a_missing_file_is_explained(dataset, uploads_dir):
    upload = store(dataset)
    next(uploads_dir.iterdir()).unlink()
    load_queued_upload()
    upload.refresh_from_db()
    assert (upload.state, "file is missing" in upload.message) == ("failed", True)
    assert "GYMWEB_VAR" in upload.message


def test_a_file_over_the_limit_or_a_full_disk_leaves_nothing(dataset, settings, uploads_dir, monkeypatch):
    settings.MAX_BODY_BYTES = 10
    with pytest.raises(PartTooLarge):
        store(dataset)
    settings.MAX_BODY_BYTES, settings.MIN_FREE_BYTES = 10**9, 2**62
    monkeypatch.setattr(received_files, "LOOK_AT_DISK_BYTES", 10)
    with pytest.raises(DiskFull):
        store(dataset)
    upload = create_upload(dataset=dataset, filename="a.jsonl")
    with pytest.raises(DiskFull):
        received_files.append_part(upload=upload, offset=0, stream=io.BytesIO(b"x"))
    assert (Upload.objects.count(), [path.stat().st_size for path in uploads_dir.iterdir()]) == (1, [0])


def test_a_limit_that_refuses_the_whole_file_is_named(dataset, settings):
    settings.MAX_UPLOAD_ROWS = 3
    upload = load_now(upload=store(dataset))
    assert (upload.state, upload.over_limit, upload.errors[0]["code"], upload.errors[0]["line"]) == (
        "rejected", "GYMWEB_MAX_UPLOAD_ROWS", "too_many_rows", 4,
    )  # fmt: skip
    assert "more than 3 rows (GYMWEB_MAX_UPLOAD_ROWS)" in upload.message
    assert Task.objects.count() == 0


def test_more_refused_rows_than_can_be_kept_end_the_reading(dataset, monkeypatch):
    monkeypatch.setattr(rejected_rows, "MAX_REJECTS_BYTES", 2000)
    upload = upload_file(dataset=dataset, stream=io.BytesIO(b"nonsense\n" * 1000), filename="a.jsonl")
    assert (upload.errors[0]["code"], upload.over_limit, upload.rejected < 100) == (
        "too_many_bad_rows", "rejected rows", True,
    )  # fmt: skip


def test_files_have_their_time(dataset, uploads_dir, settings):
    bad = upload_file(
        dataset=dataset,
        stream=io.BytesIO(b"x\n" + orjson.dumps(make_row())),
        filename="a",
        choices=Choices(on_error="skip"),
    )
    waiting = store(dataset, draft=True)
    ended = store(dataset)
    Upload.objects.filter(pk=ended.pk).update(state="rejected")
    (uploads_dir / "999999.rejected.jsonl").write_bytes(b"of an upload that is gone")
    foreign = ["2026-notes.parts", "notes.parts", "notes.rejected.jsonl"]
    for name in foreign:
        (uploads_dir / name).write_bytes(b"of another program")
    assert sweep_files() == 1
    past = time.time() - 25 * 3600
    for path in uploads_dir.iterdir():
        os.utime(path, (past, past))
    assert sweep_files() == 1
    assert sorted(path.name for path in uploads_dir.iterdir()) == sorted(
        [f"{bad.pk}.rejected.jsonl", f"{waiting.pk}.parts", *foreign]
    )
    settings.KEEP_REJECTED_DAYS = 1
    assert sweep_files() == 1
    assert rejected_path(bad) is None
    assert upload_cleanup.sweep_uploads() is False


def test_zero_bytes_in_names_and_texts_reach_no_column_that_cannot_hold_them(dataset):
    good = b'{"responses_create_params": {"input": "a\\u0000b"}, "n\\u0000": 1, "id": "i\\u0000", "tags": ["t\\u0000"]}'
    bad = b'{"responses_create_params": {"x\\u0000/y": 1}}'
    upload = load_now(upload=store(dataset, good + b"\n" + bad, on_error="skip"))
    assert (upload.state, upload.errors[0]["pointer"]) == ("ready", "/responses_create_params/x ~1y")
    task = Task.objects.get()
    assert (task.external_id, task.tags, task.prompt_excerpt, list(task.row)[1]) == ("i ", ["t"], "a b", "n\x00")
    assert set(upload.version.metrics["fields"]) == {"n ", "id", "tags"}


def test_numbers_and_odd_keys_survive_being_mapped(dataset):
    line = b'{"question": "q", "answer": 12345678901234567890123, "a.b": 1.10}'
    load_now(upload=store(dataset, line))
    assert Task.objects.get().row_json == (
        '{"responses_create_params": {"input": [{"role": "user", "content": "q"}]}, "a.b": 1.1, '
        '"expected_answer": 12345678901234567890123}'
    )


def test_before_the_first_upload_there_is_no_file_to_delete(settings, tmp_path):
    settings.UPLOADS_DIR = tmp_path / "none"
    assert sweep_files() == 0


@pytest.mark.parametrize("packing", ["plain", "zip"])
def test_a_file_without_rows_reports_its_progress_and_stops_when_asked(dataset, monkeypatch, packing):
    blank = b"\n" * 8 * 1024**2
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("rows.jsonl", blank)
    content, filename = {"plain": (blank, "a.jsonl"), "zip": (packed.getvalue(), "a.zip")}[packing]
    monkeypatch.setattr(version_loading, "HEARTBEAT_SECONDS", -1)
    upload, places = store(dataset, content, filename=filename), []
    touched = upload.touched_at

    def leave_halfway():
        found = Upload.objects.get(pk=upload.pk)
        places.append(found.read_bytes)
        assert found.touched_at >= touched
        if found.read_bytes > len(blank) // 2:
            raise process_exit.Leaving

    monkeypatch.setattr(version_loading.process_exit, "check", leave_halfway)
    assert load_queued_upload()
    assert len(places) > 10
    assert places == sorted(places)
    upload.refresh_from_db()
    assert (upload.state, upload.attempt, upload.lines) == (Upload.State.QUEUED, 0, 0)


def test_a_cancelled_upload_without_rows_stops(dataset, monkeypatch):
    monkeypatch.setattr(version_loading, "HEARTBEAT_SECONDS", -1)
    upload, checks = store(dataset, b"a,b\n" + b",\n" * 4 * 1024**2, filename="a.csv"), []

    def cancel():
        checks.append(Upload.objects.filter(pk=upload.pk).update(state=Upload.State.FAILED))

    monkeypatch.setattr(version_loading.process_exit, "check", cancel)
    assert load_queued_upload()
    assert len(checks) < 5
    upload.refresh_from_db()
    assert (upload.state, upload.version) == (Upload.State.FAILED, None)
