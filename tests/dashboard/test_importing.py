import orjson
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from apps.rollouts.models import Collection
from tests.dashboard.pages import signed_in
from tests.factories import make_agent, make_dataset
from tests.rollouts.stored import stored_row

pytestmark = pytest.mark.django_db
URL = "/collections/import/"


def file(*rows, name="rollouts.jsonl"):
    lines = [row if isinstance(row, bytes) else orjson.dumps(row) for row in rows]
    return SimpleUploadedFile(name, b"\n".join(lines))


@pytest.fixture
def fields():
    make_agent(slug="plain")
    return {"dataset": make_dataset(rows=[]).slug, "agent": "plain", "on_error": "reject"}


def test_files_become_a_collection_whose_page_opens(fields):
    client = signed_in()
    assert f'href="{URL}"' in client.get("/collections/").text
    assert 'enctype="multipart/form-data"' in client.get(URL).text
    task = {name: stored_row()[name] for name in ("responses_create_params", "expected_answer")}
    done = client.post(URL, {**fields, "rollout_files": [file(stored_row()), file(task, name="tasks.jsonl")]})
    collection = Collection.objects.get()
    assert (done.status_code, done["Location"]) == (302, f"/collections/{collection.pk}/")
    assert "Imported from rollouts.jsonl, tasks.jsonl" in client.get(done["Location"]).text
    again = client.post(
        URL, {**fields, "rollout_files": [file(stored_row()), file(task, name="tasks.jsonl")]}, follow=True
    )
    assert "These files were imported before" in again.text
    assert Collection.objects.count() == 1


def test_invalid_lines_are_listed_in_the_form(fields):
    refused = signed_in().post(URL, {**fields, "rollout_files": [file(stored_row(), b"{oops")]})
    assert (refused.status_code, "1 line was rejected" in refused.text) == (422, True)
    assert '<td>rollouts.jsonl</td><td class="num">2</td><td>not JSON' in refused.text
    assert ">not_json</span></td>" in refused.text
    assert Collection.objects.count() == 0


def test_valid_lines_are_imported_and_skipped_ones_are_counted(fields):
    made = signed_in().post(
        URL, {**fields, "on_error": "skip", "rollout_files": [file(stored_row(), b"{oops")]}, follow=True
    )
    assert "1 line was left out, such as line 2: not JSON" in made.text


def test_no_file_is_refused(fields):
    assert signed_in().post(URL, fields).status_code == 422


def test_chat_logs_and_results_of_verifiers_are_imported_as_what_they_are_said_to_be(fields):
    asked = [{"role": "user", "content": "2 + 2?"}]
    answered = [{"role": "assistant", "content": "4"}]
    row = {"messages": [*asked, *answered], "prompt": asked, "completion": answered, "reward": 1, "metrics": {"a": 0.5}}
    client = signed_in()
    for wanted in ("openai_chat", "verifiers"):
        made = client.post(URL, {**fields, "format": wanted, "rollout_files": [file(row)]})
        assert made.status_code == 302
    components = Collection.objects.order_by("pk").values_list("rollouts__components", flat=True)
    assert list(components) == [{}, {"a": 0.5}]


def test_failures_of_attempts_that_were_made_again_are_told(fields):
    at = {"_ng_task_index": 0, "_ng_rollout_index": 0}
    failure = {"responses_create_params": stored_row()["responses_create_params"], "_ng_failure_class": "lost", **at}
    made = signed_in().post(URL, {**fields, "rollout_files": [file(stored_row(**at), failure)]}, follow=True)
    assert "1 failure was left" in made.text
