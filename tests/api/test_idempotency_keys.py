"""`Idempotency-Key`: a repeated request has one effect and gets the first answer."""

import os
import subprocess
import sys
from datetime import timedelta

import pytest
from asgiref.sync import async_to_sync
from django.test import AsyncClient, Client
from django.utils import timezone

from apps.accounts.api_keys import create_api_key
from apps.accounts.idempotent_requests import sweep_answers
from apps.accounts.models import KeptAnswer, Role, User
from apps.api.framework.operation_schemas import KEY_PARAMETER
from apps.gym.process_names import name_process
from apps.reviews.comments.commenting import add_comment
from apps.reviews.models import Comment
from apps.rollouts.models import Collection
from apps.tasks.models import Upload
from tests.api.conftest import client_of
from tests.factories import (
    make_agent,
    make_collection,
    make_dataset,
    make_policy_model,
    make_rollout,
    make_user,
)

pytestmark = pytest.mark.django_db
COMMENTS = "/api/v1/comments/"


@pytest.fixture
def rollout():
    return make_rollout(make_collection())


def say(client, rollout, text="ok", key="k1"):
    body = {"rollout": rollout.pk, "text": text}
    return client.post(COMMENTS, body, content_type="application/json", headers={"Idempotency-Key": key})


def kind(response):
    return response.status_code, response.json()["type"].removeprefix("urn:gymweb:problem:")


def test_the_same_request_again_has_no_effect_and_the_same_answer(engineer, rollout):
    first, again = say(engineer, rollout), say(engineer, rollout)
    assert (first.status_code, again.status_code, again.json()) == (201, 201, first.json())
    assert (first.headers.get("Idempotency-Replayed"), again.headers["Idempotency-Replayed"]) == (None, "true")
    assert Comment.objects.count() == 1
    assert say(engineer, rollout, key="k2").json()["id"] != first.json()["id"]
    assert Comment.objects.count() == 2


def test_a_key_identifies_one_request(engineer, rollout):
    say(engineer, rollout)
    assert kind(say(engineer, rollout, text="other")) == (422, "idempotency-key-reused")
    agent = {"slug": "a", "name": "A"}
    other = engineer.post("/api/v1/agents/", agent, "application/json", headers={"Idempotency-Key": "k1"})
    assert kind(other) == (422, "idempotency-key-reused")
    assert Comment.objects.get().text == "ok"


def test_keys_of_different_people_are_different_keys(engineer, rollout):
    assert say(engineer, rollout).json()["id"] != say(client_of("engineer"), rollout).json()["id"]


def test_a_request_that_comes_while_the_first_is_under_way_waits(engineer, rollout, monkeypatch):
    seen = []

    def slow(**given):
        seen.append(say(engineer, rollout))
        return add_comment(**given)

    monkeypatch.setattr("apps.api.reviews.comment_viewsets.add_comment", slow)
    first = say(engineer, rollout)
    assert (first.status_code, kind(seen[0]), seen[0].headers["Retry-After"]) == (
        201,
        (409, "idempotency-under-way"),
        "2",
    )
    assert Comment.objects.count() == 1
    assert say(engineer, rollout).json() == first.json()


def test_refused_requests_are_not_stored(engineer, rollout):
    assert say(engineer, rollout, text="").status_code == 400
    assert say(engineer, rollout).status_code == 201


def test_what_broke_is_not_kept(engineer, rollout, monkeypatch):
    def broken(**given):
        raise RuntimeError("broken")

    engineer.raise_request_exception = False
    with monkeypatch.context() as patched:
        patched.setattr("apps.api.reviews.comment_viewsets.add_comment", broken)
        assert say(engineer, rollout).status_code == 500
    assert (say(engineer, rollout).status_code, Comment.objects.count()) == (201, 1)


def test_a_request_whose_process_was_lost_gives_its_key_back(engineer, rollout):
    say(engineer, rollout)
    KeptAnswer.objects.update(status=None, created_at=timezone.now() - timedelta(minutes=9))
    assert kind(say(engineer, rollout)) == (409, "idempotency-under-way")
    KeptAnswer.objects.update(created_at=timezone.now() - timedelta(minutes=11))
    assert say(engineer, rollout).status_code == 201


NAMED = "import sys, pathlib; from apps.gym.process_names import *; print(name_process(pathlib.Path(sys.argv[1])))"


@pytest.fixture
def processes(settings, tmp_path):
    settings.PROCESSES_DIR = tmp_path / "tmp" / "processes"
    return settings.PROCESSES_DIR


def test_the_key_of_a_process_that_has_ended_is_free_at_once(engineer, rollout, processes):
    script = f"{NAMED}; sys.stdout.flush(); sys.stdin.read()"
    piped = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", script, str(processes)], **piped) as other:
        process = other.stdout.readline().strip()
        assert say(engineer, rollout).status_code == 201
        KeptAnswer.objects.update(status=None, body=process)
        assert kind(say(engineer, rollout)) == (409, "idempotency-under-way")
        # As in a container that is killed and starts again: its successor may have the same number.
        other.kill()
    assert say(engineer, rollout).status_code == 201


def test_the_key_of_this_process_or_of_one_elsewhere_is_held(engineer, rollout, processes):
    say(engineer, rollout)
    for alive in (name_process(processes), "unknown", "", "boot pid:[4026531836] 7 12345"):
        KeptAnswer.objects.update(status=None, body=alive)
        assert kind(say(engineer, rollout)) == (409, "idempotency-under-way")


def test_files_of_ended_processes_are_removed_after_a_month(processes):
    run = [sys.executable, "-c", NAMED, str(processes)]
    old, recent = (subprocess.run(run, capture_output=True, text=True, check=True).stdout.strip() for _ in range(2))
    os.utime(processes / old, (0, 0))
    assert {each.name for each in processes.iterdir()} == {old, recent}
    own = name_process(processes)
    os.utime(processes / own, (0, 0))
    subprocess.run(run, capture_output=True, text=True, check=True)
    left = {each.name for each in processes.iterdir()}
    assert (old in left, left >= {recent, own}) == (False, True)


def test_without_a_folder_a_process_has_no_name(tmp_path):
    (tmp_path / "file").touch()
    assert name_process(tmp_path / "file") == ""


def test_answers_are_kept_for_a_day_and_swept_afterwards(engineer, rollout, settings):
    say(engineer, rollout)
    KeptAnswer.objects.update(created_at=timezone.now() - timedelta(hours=23))
    assert (sweep_answers(), KeptAnswer.objects.count()) == (False, 1)
    settings.KEEP_ANSWERS_HOURS = 22
    assert (sweep_answers(), sweep_answers(), KeptAnswer.objects.count()) == (True, False, 0)
    assert say(engineer, rollout).headers.get("Idempotency-Replayed") is None


def test_a_file_that_is_sent_again_is_one_upload_and_the_address_of_its_progress_comes_again(engineer):
    url = f"/api/v1/datasets/{make_dataset().slug}/uploads/"
    line = b'{"responses_create_params": {"input": "2 + 2"}, "expected_answer": "4"}\n'
    headers = {"Idempotency-Key": "file"}
    answers = [engineer.post(url, line, "application/x-ndjson", headers=headers) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 202]
    assert answers[0].headers["Location"] == answers[1].headers["Location"]
    assert Upload.objects.filter(state=Upload.State.QUEUED).count() == 1
    longer = engineer.post(url, line * 2, "application/x-ndjson", headers=headers)
    assert kind(longer) == (422, "idempotency-key-reused")


def test_a_plan_keeps_its_own_key(engineer):
    plan = {"dataset": make_dataset().slug, "agent": make_agent().slug, "policy_model": make_policy_model().slug}
    answers = [
        engineer.post("/api/v1/collections/", plan, "application/json", headers={"Idempotency-Key": "k"})
        for _ in range(2)
    ]
    assert [answer.json()["id"] for answer in answers] == [Collection.objects.get().pk] * 2
    assert KeptAnswer.objects.count() == 0


WRONG_KEYS = {
    "": "is empty.",
    "k" * 129: "has 129.",
    "schlüssel": "has other characters.",
    "a key": "has other characters.",
}


@pytest.mark.parametrize("key", WRONG_KEYS)
def test_a_key_is_short_and_can_be_read_and_is_never_empty(engineer, rollout, key):
    answer = say(engineer, rollout, key=key)
    assert kind(answer) == (400, "invalid")
    [error] = answer.json()["errors"]
    # The header is meant, which no pointer into the body could say.
    assert (error["pointer"], error["code"]) == ("Idempotency-Key:", "invalid")
    assert error["message"].endswith(WRONG_KEYS[key])
    assert Comment.objects.count() == 0


def test_an_empty_key_is_refused_by_plans_too(engineer):
    dataset = make_dataset()
    plan = {"agent": make_agent().slug, "policy_model": make_policy_model().slug}
    chosen = {
        "/api/v1/collections/": {"dataset": dataset.slug},
        "/api/v1/rollouts/stream/": {"task_ids": [dataset.tasks.first().pk]},
    }
    for address, tasks in chosen.items():
        answer = engineer.post(address, plan | tasks, "application/json", headers={"Idempotency-Key": ""})
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, "Idempotency-Key:"), address
    assert Collection.objects.count() == 0


def test_a_post_to_an_address_without_one_is_still_no_method(engineer):
    refused = engineer.post("/api/v1/workers/", headers={"Idempotency-Key": "k"})
    assert kind(refused) == (405, "method-not-allowed")


def test_every_post_takes_a_key_except_those_that_return_a_secret(viewer):
    paths = viewer.get("/api/schema/", headers={"Accept": "application/json"}).json()["paths"]
    without = [
        path
        for path, operations in paths.items()
        if "post" in operations
        and KEY_PARAMETER["name"] not in {one["name"] for one in operations["post"].get("parameters", [])}
    ]
    assert sorted(without) == [
        "/api/v1/invitations/",
        "/api/v1/me/keys/",
        "/api/v1/people/",
        "/api/v1/people/{id}/link/",
    ]


def test_an_answer_with_a_secret_is_never_kept():
    client = Client()
    client.force_login(make_user("admin"))
    body = {"username": "ada", "role": "viewer"}
    refused = client.post("/api/v1/people/", body, "application/json", headers={"Idempotency-Key": "k"})
    assert kind(refused) == (400, "invalid")
    assert (User.objects.filter(username="ada").exists(), KeptAnswer.objects.count()) == (False, 0)


@pytest.mark.parametrize("as_form", [False, True])
def test_another_file_of_the_same_length_is_another_request(engineer, as_form):
    url = f"/api/v1/datasets/{make_dataset().slug}/uploads/?wait=true"

    def send(answer, boundary="x"):
        line = b'{"responses_create_params": {"input": "2 + 2"}, "expected_answer": "%s"}\n' % answer
        body, content_type = line, "application/x-ndjson"
        if as_form:
            content_type = f"multipart/form-data; boundary={boundary}"
            head = b'Content-Disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n'
            mark = b"--" + boundary.encode()
            body = mark + b"\r\n" + head + line + b"\r\n" + mark + b"--\r\n"
        return engineer.post(url, body, content_type, headers={"Idempotency-Key": "file"})

    first, again, other = send(b"4"), send(b"4", boundary="y"), send(b"5")
    assert (first.status_code, first.json()["accepted"]) == (201, 1)
    assert (again.json(), again.headers["Idempotency-Replayed"]) == (first.json(), "true")
    assert kind(other) == (422, "idempotency-key-reused")
    assert Upload.objects.count() == 1


def test_a_file_with_a_key_arrives_whole_over_asgi():
    rows = b'{"responses_create_params": {"input": "2 + 2"}, "expected_answer": "4"}\n' * 5_000
    _, token = create_api_key(user=make_user(Role.ENGINEER), name="test", scopes=["admin"])
    client, headers = AsyncClient(), {"Authorization": f"Bearer {token}", "Idempotency-Key": "file"}
    url = f"/api/v1/datasets/{make_dataset().slug}/uploads/?wait=true"
    for body, status in [(rows, 201), (rows, 201), (rows.replace(b'"4"', b'"5"'), 422)]:
        answer = async_to_sync(client.post)(url, body, content_type="application/x-ndjson", headers=headers)
        assert answer.status_code == status
    assert Upload.objects.get().accepted == 5_000
