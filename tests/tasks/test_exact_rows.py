"""Task rows are stored exactly as uploaded, and suspected credentials in them are reported, rejected or redacted."""

import hashlib
import io

import pytest

from apps.gym.traces.events import Prompt
from apps.gym.traces.exact_prompts import restore_prompts
from apps.policies.installation_redactor import fresh_redactor
from apps.tasks.models import Task, Upload
from apps.tasks.suspected_credentials import find_difference
from apps.tasks.unchanged_rows import read_rows
from apps.tasks.upload_choices import Choices
from apps.tasks.upload_jobs import upload_file
from scripts.check_nemo_gym_files import check_files
from tests.factories import make_dataset
from tests.nemo_gym.attempts import SHARED, needs_shared

pytestmark = pytest.mark.django_db

SECRET = "zq81-ppwl-7742-kk"
ROW = (
    '{"responses_create_params": {"input": "Call it with api_key=\\"EMPTY\\"", "tools": null, "temperature": 1.10},'
    '  "verifier_metadata": {"api_key": "' + SECRET + '", "zero": -0.0, "big": 123456789012345678901234567890},'
    ' "expected_answer": "4", "none": null }'
)
CLEAN = '{"responses_create_params":{"input":"2 + 2?"},"expected_answer":"4"}'


def load(content: str, **choices: str) -> Upload:
    dataset = make_dataset(rows=[])
    stream = io.BytesIO(content.encode())
    return upload_file(dataset=dataset, stream=stream, filename="tasks.jsonl", choices=Choices(**choices))


@pytest.mark.parametrize("content", [f"{ROW}\n{CLEAN}\n", f"{ROW}\n{CLEAN}", f"{ROW}\r\n  {CLEAN} \r\n"])
def test_the_rows_of_a_version_are_the_bytes_of_the_file(content):
    version = load(content).version
    body = b"".join(read_rows(version=version))
    assert body == content.encode()
    assert version.content_hash == hashlib.sha256(body).hexdigest()


def test_the_next_version_has_unchanged_rows_whatever_space_is_around_them():
    dataset = make_dataset(rows=[])
    for content in (f"{CLEAN}\n", f" {CLEAN}\r\n"):
        upload = upload_file(dataset=dataset, stream=io.BytesIO(content.encode()), filename="tasks.jsonl")
    assert upload.counts == {"unchanged": 1, "removed": 0}


def test_a_suspected_credential_is_stored_and_reported_and_pages_mask_it():
    upload = load(f"{CLEAN}\n{ROW}\n")
    task = Task.objects.get(index=1)
    assert (task.row["verifier_metadata"]["api_key"], task.row_json) == (SECRET, ROW)
    assert task.masked_row["verifier_metadata"]["api_key"] == "[REDACTED:named]"
    assert upload.counts["credentials"] == 1
    assert (
        "Suspected credentials in 1 row, first in line 2 /verifier_metadata/api_key (by field name)." in upload.message
    )


def test_an_uploader_may_reject_or_redact_them():
    rejected = load(f"{CLEAN}\n{ROW}\n", on_credential="reject")
    assert (rejected.state, Task.objects.count()) == ("rejected", 0)
    assert [(one["line"], one["pointer"], one["code"]) for one in rejected.errors] == [
        (2, "/verifier_metadata/api_key", "credential")
    ]
    redacted = load(f"{ROW}\n", on_credential="redact")
    assert redacted.version.tasks.get().row["verifier_metadata"]["api_key"] == "[REDACTED:named]"
    assert "They were redacted, which may change prompts and verifier inputs." in redacted.message


def test_the_place_of_a_difference_is_named():
    assert find_difference({"a": [1, {"b/c": "x"}]}, {"a": [1, {"b/c": "y"}]}) == "/a/1/b~1c"
    assert find_difference({"a": 1}, {"a": 1}) == ""


def test_only_masked_items_of_the_prompt_are_restored():
    asked = [{"role": "user", "content": f'password = "{SECRET}"'}]
    masked = fresh_redactor().redact_value([dict(asked[0])])[0]
    other = {"role": "user", "content": "[REDACTED:named] of another text"}
    (restored,) = restore_prompts([Prompt(items=[*masked, other])], asked, fresh_redactor())
    assert restored.items == [*asked, other]


@needs_shared
@pytest.mark.parametrize("folder", ["nemo_gym", "nemo_gym_promptless"])
def test_every_example_file_of_nemo_gym_is_loaded_and_returned_unchanged(folder):
    outcomes = list(check_files(SHARED.parent / folder))
    assert {one.outcome for one in outcomes} == {"loaded"}
    assert len(outcomes) == {"nemo_gym": 26, "nemo_gym_promptless": 4}[folder]


def test_a_file_without_task_rows_may_be_refused_and_another_may_not(tmp_path):
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "other.jsonl").write_text('{"a": 1}\n')
    (tmp_path / "partly.jsonl").write_text(f'{CLEAN}\n{{"a": 1}}\n')
    outcomes = {one.path.stem: one for one in check_files(tmp_path)}
    assert {name: (one.outcome, one.is_wrong) for name, one in outcomes.items()} == {
        "empty": ("no task rows", False),
        "other": ("no task rows", False),
        "partly": ("refused", True),
    }
