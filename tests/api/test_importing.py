import orjson
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from apps.rollouts.models import Collection
from tests.factories import make_agent, make_dataset, make_policy_model
from tests.rollouts.stored import stored_row

pytestmark = pytest.mark.django_db
URL = "/api/v1/collections/import/"


@pytest.fixture
def address():
    make_agent(slug="plain")
    return f"{URL}?dataset={make_dataset(rows=[]).slug}&agent=plain"


def lines(*rows):
    return b"".join((row if isinstance(row, bytes) else orjson.dumps(row)) + b"\n" for row in rows)


def test_one_file_is_the_body(engineer, address):
    body = lines(stored_row("a"), stored_row("b", reward=0.0))
    made = engineer.post(address, body, content_type="application/x-ndjson")
    collection = made.json()["collection"]
    assert (made.status_code, collection["total"], collection["mean_reward"]) == (201, 2, 0.5)
    again = engineer.post(address, body, content_type="application/x-ndjson")
    assert (again.status_code, again.json()["collection"]["id"]) == (200, collection["id"])


def test_several_files_are_a_form(engineer, address):
    row = stored_row(_ng_task_index=0, _ng_rollout_index=0)
    task = {name: row[name] for name in ("responses_create_params", "expected_answer", "_ng_task_index")}
    files = [
        SimpleUploadedFile("rollouts.jsonl", lines(row)),
        SimpleUploadedFile("inputs.jsonl", lines(task | {"_ng_rollout_index": 0})),
    ]
    make_policy_model(slug="mine")
    made = engineer.post(f"{address}&policy_model=mine&name=Mine", {"file": files})
    collection = made.json()["collection"]
    assert (made.status_code, collection["name"], collection["policy_model"]) == (201, "Mine", "mine")
    assert Collection.objects.get().snapshot["imported"]["files"] == ["rollouts.jsonl", "inputs.jsonl"]


def test_rollouts_that_two_files_have_are_told(engineer, address):
    row = stored_row(_ng_task_index=0, _ng_rollout_index=0)
    files = [SimpleUploadedFile(name, lines(row)) for name in ("a.jsonl", "b.jsonl")]
    made = engineer.post(address, {"file": files})
    assert (made.status_code, made.json()["renumbered"], made.json()["collection"]["total"]) == (201, 1, 2)


def test_bad_lines_are_told_by_their_places(engineer, address):
    refused = engineer.post(address, lines(stored_row(), b"{oops"), content_type="application/x-ndjson")
    assert (refused.status_code, refused.json()["type"]) == (400, "urn:gymweb:problem:import-refused")
    assert [(error["line"], error["code"]) for error in refused.json()["errors"]] == [(2, "not_json")]
    made = engineer.post(f"{address}&on_error=skip", lines(stored_row(), b"{oops"), content_type="application/x-ndjson")
    assert (made.status_code, made.json()["refused"], made.json()["errors"][0]["line"]) == (201, 1, 2)


@pytest.mark.parametrize("query", ["", "?dataset=none", "?dataset=none&filename=x"])
def test_what_the_address_lacks_is_named(engineer, query):
    refused = engineer.post(URL + query, b"{}", content_type="application/x-ndjson")
    assert refused.status_code == 400
    assert refused.json()["errors"][0]["pointer"] in {"?dataset", "?filename"}


def test_a_form_without_files_is_refused(engineer, address):
    assert engineer.post(address, {"other": "x"}).status_code == 400


def test_the_format_is_told_by_the_keys_or_by_the_address(engineer, address):
    asked, answered = {"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}
    result = {"prompt": [asked], "completion": [answered], "reward": 1.0, "metrics": {"exact": 1.0}}
    made = engineer.post(address, lines(result), content_type="application/x-ndjson")
    assert (made.status_code, made.json()["collection"]["mean_reward"], made.json()["superseded"]) == (201, 1.0, 0)
    refused = engineer.post(f"{address}&format=openai_chat", lines(result), content_type="application/x-ndjson")
    assert [error["code"] for error in refused.json()["errors"]] == ["wrong_type"]
    log = {"messages": [asked, answered]}
    made = engineer.post(f"{address}&format=openai_chat", lines(log), content_type="application/x-ndjson")
    assert (made.status_code, made.json()["collection"]["mean_reward"]) == (201, None)
    assert engineer.post(f"{address}&format=csv", lines(log), content_type="application/x-ndjson").status_code == 400


def test_a_form_may_bring_the_parameters_as_fields(engineer, address):
    make_policy_model(slug="mine")
    dataset = address.partition("?dataset=")[2].partition("&")[0]
    form = {"dataset": dataset, "agent": "plain", "policy_model": "mine", "name": "Mine"}
    made = engineer.post(URL, {**form, "file": SimpleUploadedFile("a.jsonl", lines(stored_row()))})
    collection = made.json()["collection"]
    assert (made.status_code, collection["name"], collection["policy_model"]) == (201, "Mine", "mine")
    refused = engineer.post(URL, {**form, "polcy": "x", "file": SimpleUploadedFile("b.jsonl", lines(stored_row("b")))})
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (400, "/polcy")
    refused = engineer.post(URL, {"dataset": "none", "file": SimpleUploadedFile("c.jsonl", lines(stored_row("c")))})
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (400, "/dataset")
