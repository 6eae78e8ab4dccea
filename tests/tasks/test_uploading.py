"""A file becomes a whole new version of its dataset, or a list of bad lines and nothing else."""

import hashlib
import io
import os
import threading
from datetime import timedelta
from pathlib import Path

import orjson
import pytest
from django.db import connection
from django.utils import timezone

from apps.accounts.models import AuditEntry
from apps.tasks import version_loading
from apps.tasks.dataset_changes import create_dataset
from apps.tasks.models import DatasetVersion, Task, Upload
from apps.tasks.received_files import NotReceiving, PartTooLarge, WrongOffset, append_part, create_upload, finish_parts
from apps.tasks.rejected_rows import rejected_path
from apps.tasks.upload_choices import Choices
from apps.tasks.upload_cleanup import sweep_uploads
from apps.tasks.upload_jobs import load_now, upload_file
from tests.factories import make_environment, make_row, make_user

pytestmark = pytest.mark.django_db

SHARED = Path(os.environ.get("GYMWEB_SHARED", Path(__file__).resolve().parents[3] / "shared"))
EXAMPLES = sorted((SHARED / "data" / "nemo_gym").glob("*.example.jsonl"))


@pytest.fixture
def dataset():
    return create_dataset(slug="sums", name="Sums", environment=make_environment())


def jsonl(*rows: object) -> bytes:
    return b"".join(row + b"\n" if isinstance(row, bytes) else orjson.dumps(row) + b"\n" for row in rows)


def load(dataset, content: bytes, **fields) -> Upload:
    return upload_file(dataset=dataset, stream=io.BytesIO(content), filename="tasks.jsonl", choices=Choices(**fields))


def stored() -> tuple[int, int]:
    return Task.objects.count(), DatasetVersion.objects.count()


def test_a_good_file_becomes_a_ready_version(dataset):
    rows = [make_row(f"What is {n} + 1?", str(n + 1), id=n) for n in range(3)]
    upload = load(dataset, jsonl(*rows))
    version = dataset.latest_version()
    assert (upload.state, upload.lines, upload.accepted, upload.rejected) == ("ready", 3, 3, 0)
    assert upload.received_bytes == len(jsonl(*rows))
    assert (upload.version, version.number, version.task_count) == (version, 1, 3)
    assert version.content_hash == hashlib.sha256(jsonl(*rows)).hexdigest()
    tasks = list(version.tasks.order_by("index"))
    assert [task.row for task in tasks] == rows
    assert [(task.index, task.external_id, task.prompt_excerpt) for task in tasks] == [
        (n, str(n), f"What is {n} + 1?") for n in range(3)
    ]
    assert rejected_path(upload) is None


def test_a_new_version_is_in_the_audit_log_with_who_uploaded_it(dataset):
    user = make_user()
    upload = upload_file(dataset=dataset, stream=io.BytesIO(jsonl(make_row())), filename="a.jsonl", user=user)
    [entry] = AuditEntry.objects.filter(action="dataset_version.create")
    assert (entry.user, entry.target, entry.detail) == (
        user, "sums@v1", {"upload": upload.pk, "mode": "replace", "tasks": 1},
    )  # fmt: skip


def test_a_second_upload_makes_a_second_version_and_leaves_the_first(dataset):
    load(dataset, jsonl(make_row("one")))
    load(dataset, jsonl(make_row("two"), make_row("three")))
    versions = dataset.versions.order_by("number").values_list("number", "state", "task_count")
    assert list(versions) == [(1, "ready", 1), (2, "ready", 2)]


@pytest.mark.parametrize(
    ("bad", "line", "pointer", "code", "message"),
    [
        (b'{"responses_create_params": {"input"', 2, "", "not_json", "not JSON: unexpected end of data (column 37)"),
        (
            b'{"question": 1}',
            2,
            "/responses_create_params",
            "missing",
            "/responses_create_params is missing: the object that holds the prompt",
        ),
        (b'{"caf\xe9": 1}', 2, "", "not_utf8", "byte 6 (0xe9) is not UTF-8"),
        (
            b'{"x": "' + b"y" * 50 * 1024**2 + b'"}',
            2,
            "",
            "too_long",
            "52,428,809 bytes in one line: the limit is 8,388,608 (GYMWEB_MAX_LINE_BYTES)",
        ),
    ],
    ids=["broken", "wrong shape", "not UTF-8", "50 MB"],
)
def test_one_bad_line_refuses_the_file_by_name_and_stores_nothing(dataset, bad, line, pointer, code, message):
    upload = load(dataset, jsonl(make_row("good"), bad, make_row("good too")))
    entry = {"line": line, "pointer": pointer, "code": code, "message": message}
    assert (upload.state, upload.lines, upload.accepted, upload.rejected) == ("rejected", 3, 0, 1)
    assert upload.errors == [entry]
    assert (upload.message.startswith("1 of 3 lines "), f"Line 2: {message}" in upload.message) == (True, True)
    assert upload.version is None
    assert stored() == (0, 0)
    assert orjson.loads(rejected_path(upload).read_bytes()) == {**entry, "text": bad[:2048].decode(errors="replace")}


@pytest.mark.parametrize("content", [b"", b"\n \n", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("on_error", ["reject", "skip"])
def test_a_file_without_rows_is_an_error(dataset, content, on_error):
    upload = load(dataset, content, on_error=on_error)
    [error] = upload.errors
    assert (upload.state, error["line"], error["pointer"], error["code"]) == ("rejected", 1, "", "empty_file")
    assert ("no rows" in upload.message, "no rows" in error["message"]) == (True, True)
    assert stored() == (0, 0)


def test_skip_loads_the_good_lines_and_offers_the_others(dataset):
    upload = load(dataset, jsonl(b"[]", make_row("one"), b"{", make_row("two")), on_error="skip")
    assert (upload.state, upload.lines, upload.accepted, upload.rejected) == ("ready", 4, 2, 2)
    assert [(error["line"], error["code"]) for error in upload.errors] == [(1, "wrong_type"), (3, "not_json")]
    assert list(dataset.latest_version().tasks.values_list("index", "prompt_excerpt")) == [(0, "one"), (1, "two")]
    rejected = [orjson.loads(line) for line in rejected_path(upload).read_bytes().splitlines()]
    assert [(entry["line"], entry["text"]) for entry in rejected] == [(1, "[]"), (3, "{")]


def test_skip_refuses_a_file_without_a_good_line(dataset):
    upload = load(dataset, jsonl(b"[]", b"{"), on_error="skip")
    assert (upload.state, upload.rejected, stored()) == ("rejected", 2, (0, 0))


def test_the_row_holds_a_hundred_bad_lines_and_the_file_all(dataset):
    upload = load(dataset, b"x\n" * 250)
    assert (len(upload.errors), upload.rejected) == (100, 250)
    assert len(rejected_path(upload).read_bytes().splitlines()) == 250


def test_a_bad_last_line_takes_back_the_chunks_already_written(dataset, monkeypatch):
    monkeypatch.setattr(version_loading, "CHUNK_ROWS", 10)
    upload = load(dataset, jsonl(*[make_row()] * 35, b"{"))
    assert (upload.state, upload.accepted, stored()) == ("rejected", 0, (0, 0))


def test_big_rows_are_written_in_small_chunks(dataset, monkeypatch):
    monkeypatch.setattr(version_loading, "CHUNK_BYTES", 10_000)
    sizes = []
    create = Task.objects.bulk_create
    monkeypatch.setattr(Task.objects, "bulk_create", lambda tasks: sizes.append(len(tasks)) or create(tasks))
    upload = load(dataset, jsonl(*[make_row("x" * 4000)] * 7))
    assert (upload.accepted, sizes) == (7, [3, 3, 1])


def test_a_crash_in_the_middle_leaves_nothing_visible(dataset, monkeypatch):
    monkeypatch.setattr(version_loading, "CHUNK_ROWS", 10)

    class Breaks(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(2000) or self.fail()

        def fail(self) -> bytes:
            raise OSError("the disk went away")

    with pytest.raises(OSError, match="the disk went away"):
        upload_file(dataset=dataset, stream=Breaks(jsonl(*[make_row()] * 50)), filename="tasks.jsonl")
    upload = Upload.objects.get()
    assert (upload.state, upload.version, stored()) == ("failed", None, (0, 0))
    assert "see the server log" in upload.message


def make_half_loaded(dataset, *, quiet: timedelta) -> Upload:
    version = DatasetVersion.objects.create(dataset=dataset, number=1)
    Task.objects.create(dataset=dataset, version=version, index=0, row_json="{}")
    upload = Upload.objects.create(dataset=dataset, version=version, state=Upload.State.LOADING)
    Upload.objects.filter(pk=upload.pk).update(touched_at=timezone.now() - quiet)
    return upload


def test_an_upload_whose_process_died_is_swept(dataset):
    upload = make_half_loaded(dataset, quiet=timedelta(minutes=2, seconds=9))
    assert (Task.objects.ready().count(), dataset.latest_version()) == (0, None)
    assert sweep_uploads() is True
    upload.refresh_from_db()
    assert (upload.state, upload.version, stored()) == ("failed", None, (0, 0))
    assert sweep_uploads() is False


def test_an_upload_that_shows_signs_of_life_is_left_alone(dataset):
    make_half_loaded(dataset, quiet=timedelta(minutes=1))
    assert (sweep_uploads(), stored()) == (False, (1, 1))


def test_a_loader_that_was_given_up_stops_and_publishes_nothing(dataset, monkeypatch):
    monkeypatch.setattr(version_loading, "CHUNK_ROWS", 10)

    class Swept(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            Upload.objects.filter(state="loading").update(touched_at=timezone.now() - timedelta(hours=1))
            sweep_uploads()
            return super().read(size)

    with pytest.raises(version_loading.UploadTakenAway):
        upload_file(dataset=dataset, stream=Swept(jsonl(*[make_row()] * 5)), filename="tasks.jsonl")
    assert (Upload.objects.get().state, stored()) == ("failed", (0, 0))


def test_an_incomplete_version_without_owner_is_deleted(dataset):
    upload = make_half_loaded(dataset, quiet=timedelta(0))
    Upload.objects.update(state=Upload.State.FAILED)
    DatasetVersion.objects.update(created_at=timezone.now() - timedelta(hours=1))
    assert (sweep_uploads(), stored(), sweep_uploads()) == (True, (0, 0), False)
    assert Upload.objects.get() == upload


def test_parts_make_a_file(dataset):
    content = jsonl(make_row("one"), make_row("two"))
    upload = create_upload(dataset=dataset, filename="C:\\folder\\tasks.jsonl")
    append_part(upload=upload, offset=0, stream=io.BytesIO(content[:50]))
    append_part(upload=upload, offset=50, stream=io.BytesIO(content[50:]))
    upload = load_now(upload=finish_parts(upload=upload))
    assert (upload.state, upload.accepted, upload.filename) == ("ready", 2, "tasks.jsonl")
    with pytest.raises(NotReceiving, match="This upload is ready"):
        finish_parts(upload=upload)
    with pytest.raises(NotReceiving, match="This upload is ready"):
        append_part(upload=upload, offset=len(content), stream=io.BytesIO(b"more"))


def test_the_last_part_can_be_sent_again_and_any_other_offset_is_refused(dataset):
    content = jsonl(make_row("one"))
    upload = create_upload(dataset=dataset, filename="tasks.jsonl")
    append_part(upload=upload, offset=0, stream=io.BytesIO(content[:20]))
    append_part(upload=upload, offset=0, stream=io.BytesIO(content[:20]))
    for offset, part in [(0, b"x" * 20), (5, content[20:]), (21, content[20:])]:
        with pytest.raises(WrongOffset) as refused:
            append_part(upload=upload, offset=offset, stream=io.BytesIO(part))
        assert refused.value.expected == 20
    append_part(upload=upload, offset=20, stream=io.BytesIO(content[20:]))
    assert load_now(upload=finish_parts(upload=upload)).accepted == 1


def test_bytes_after_a_crash_are_not_part_of_the_file(dataset, uploads_dir):
    content = jsonl(make_row("one"))
    upload = create_upload(dataset=dataset, filename="tasks.jsonl")
    append_part(upload=upload, offset=0, stream=io.BytesIO(content))
    with (uploads_dir / f"{upload.pk}.parts").open("ab") as file:
        file.write(b"half a part")
    assert load_now(upload=finish_parts(upload=upload)).accepted == 1
    assert list(uploads_dir.iterdir()) == []


def test_a_part_and_a_file_have_limits(dataset, settings):
    settings.UPLOAD_PART_BYTES, settings.MAX_BODY_BYTES = 10, 15
    upload = create_upload(dataset=dataset, filename="tasks.jsonl")
    with pytest.raises(PartTooLarge, match="A part has at most 10 bytes"):
        append_part(upload=upload, offset=0, stream=io.BytesIO(b"x" * 11))
    append_part(upload=upload, offset=0, stream=io.BytesIO(b"x" * 10))
    with pytest.raises(PartTooLarge, match="A file has at most 15 bytes"):
        append_part(upload=upload, offset=10, stream=io.BytesIO(b"x" * 6))


def test_unfinished_parts_are_deleted_after_a_day(dataset, uploads_dir):
    upload = create_upload(dataset=dataset, filename="tasks.jsonl")
    append_part(upload=upload, offset=0, stream=io.BytesIO(b"x"))
    assert sweep_uploads() is False
    Upload.objects.update(touched_at=timezone.now() - timedelta(hours=25))
    assert sweep_uploads() is True
    assert (Upload.objects.get().state, list(uploads_dir.iterdir())) == ("failed", [])


@pytest.mark.django_db(transaction=True)
def test_two_uploads_at_once_get_two_versions():
    dataset = create_dataset(slug="sums", name="Sums", environment=make_environment())
    start = threading.Barrier(4)

    def work() -> None:
        try:
            start.wait()
            load(dataset, jsonl(make_row()))
        finally:
            connection.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(dataset.versions.values_list("number", "state")) == [(n, "ready") for n in (1, 2, 3, 4)]


@pytest.mark.skipif(not EXAMPLES, reason="the shared example files are not here")
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name.split(".")[0])
def test_every_example_of_nemo_gym_uploads_without_a_refused_line(dataset, path):
    upload = load(dataset, path.read_bytes())
    assert (upload.state, upload.errors, upload.accepted) == ("ready", [], len(path.read_bytes().splitlines()))


def test_tasks_that_the_environment_cannot_verify_are_loaded_and_said_so(dataset):
    lines = [orjson.dumps(make_row()), orjson.dumps({"responses_create_params": {"input": "hi"}})]
    upload = upload_file(dataset=dataset, stream=io.BytesIO(b"\n".join(lines)), filename="two.jsonl")
    assert (upload.state, upload.accepted) == ("ready", 2)
    assert "No expected_answer in 1 of 2" in upload.message
    assert f"{dataset.environment} cannot verify" in upload.message


def test_rows_without_an_expected_answer_can_be_loaded_for_review():
    people = create_dataset(slug="open", name="Open", environment=make_environment(verifies=False))
    line = orjson.dumps({"responses_create_params": {"input": "hi"}})
    assert upload_file(dataset=people, stream=io.BytesIO(line), filename="one.jsonl").message == ""


def test_a_task_with_a_verifier_of_its_own_that_cannot_be_is_refused_with_its_place():
    declared = create_dataset(slug="sums", name="Sums", environment=make_environment(adapter="declared", builtin=""))
    wrong = make_row(verifier={"type": "numeric", "absolute_tolerance": -1})
    upload = load(declared, jsonl(make_row(verifier={"type": "numeric"}), wrong))
    [error] = upload.errors
    assert (upload.state, error["line"], error["code"]) == ("rejected", 2, "bad_verifier")
    assert error["pointer"] == "/verifier/absolute_tolerance"
    assert error["message"].endswith("is -1: give a number of 0 or more")


def test_where_the_server_verifies_a_field_of_that_name_is_its_own(dataset):
    assert load(dataset, jsonl(make_row(verifier={"type": "regex", "verify_regex": "x"}))).state == "ready"


@pytest.mark.parametrize(
    ("verifier", "row", "message"),
    [
        ({"type": "multiple_choice"}, {"options": ["a", "b"], "expected_answer": "cat"}, "'CAT', not the letter"),
        ({"type": "multiple_choice"}, {"options": ["a", "b"], "expected_answer": 0}, "'0', not the letter"),
        ({"type": "numeric"}, {"expected_answer": "four"}, "is not a number: 'four'"),
        ({"type": "instructions"}, {"instruction_id_list": ["punctuation:no_comma"], "kwargs": ["x"]}, "an object"),
        (
            {"type": "hybrid", "components": [{"name": "right", "verifier": {"type": "numeric"}}]},
            {"expected_answer": "four"},
            "is not a number: 'four'",
        ),
    ],
)
def test_a_task_that_no_attempt_could_be_held_to_is_refused(verifier, row, message):
    environment = make_environment(adapter="declared", builtin="", verifier=verifier)
    configured = create_dataset(slug="configured", name="Configured", environment=environment)
    [error] = load(configured, jsonl(make_row(**row))).errors
    assert error["code"] == "not_verifiable"
    assert message in error["message"]
    open_to_rows = create_dataset(slug="o", name="O", environment=make_environment(adapter="declared", builtin=""))
    [error] = load(open_to_rows, jsonl(make_row(**row, verifier=verifier))).errors
    assert error["code"] == "not_verifiable"


def test_tasks_without_what_the_configured_verifier_needs_are_loaded_and_said_so():
    environment = make_environment(adapter="declared", builtin="", verifier={"type": "multiple_choice"})
    choices = create_dataset(slug="choices", name="Choices", environment=environment)
    upload = load(
        choices, jsonl(make_row(), make_row(answer="B", options=["a", "b"]), make_row(verifier={"type": "numeric"}))
    )
    assert "No options in 1 of 3" in upload.message
    assert f"{environment} cannot verify" in upload.message
    open_to_rows = create_dataset(slug="o", name="O", environment=make_environment(adapter="declared", builtin=""))
    assert load(open_to_rows, jsonl(make_row())).message.startswith("No verifier in 1 of 1 tasks")


@pytest.mark.parametrize(
    "line",
    [
        b'{"responses_create_params":{"input":"q","ghp_AbCdEf0123456789AbCdEf0123456789ZZZZ":1}}',
        b'{"ghp_AbCdEf0123456789AbCdEf0123456789ZZZZ":1,"ghp_AbCdEf0123456789AbCdEf0123456789ZZZZ":2}',
    ],
)
def test_quoted_rows_contain_no_credential(dataset, line):
    upload = load(dataset, line)
    kept = rejected_path(upload).read_text() + str(upload.errors) + upload.message
    assert (upload.state, "AbCdEf0123456789" in kept, "[REDACTED:github_token]" in str(upload.errors)) == (
        "rejected",
        False,
        True,
    )


def test_quoted_files_contain_no_credential(dataset):
    token = "ghp_AbCdEf0123456789AbCdEf0123456789ZZZZ"
    content = f"question,{token},{token}\nq,1,2\n".encode()
    upload = upload_file(dataset=dataset, stream=io.BytesIO(content), filename="rows.csv")
    told = "the column name [REDACTED:github_token] is repeated"
    assert upload.errors == [{"line": 1, "pointer": "", "code": "bad_header", "message": told}]
    assert upload.message == f"{told.capitalize().replace('redacted', 'REDACTED')}. Nothing was stored."
