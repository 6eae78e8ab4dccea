"""Planning, cancelling and measuring a collection, pairing it and exporting it."""

import hashlib
import json
from pathlib import Path

import pytest
from asgiref.sync import async_to_sync
from django.test import AsyncClient

from apps.accounts.models import Role
from apps.exports.export_jobs import write_export
from apps.exports.models import Export
from apps.gym.exporters.registry import FORMATS
from apps.rollouts.models import Collection, Rollout
from apps.rollouts.steering.collection_deletion import delete_next_collection
from apps.tasks.models import Task
from tests.api.conftest import client_of
from tests.factories import (
    make_agent,
    make_collection,
    make_dataset,
    make_next_version,
    make_policy_model,
    make_rollout,
    make_row,
    make_user,
)

pytestmark = pytest.mark.django_db


def post(client, url, body, **headers):
    return client.post(f"/api/v1/{url}", json.dumps(body), content_type="application/json", headers=headers)


def plan(**fields):
    return {
        "dataset": make_dataset().slug,
        "agent": make_agent().slug,
        "policy_model": make_policy_model().slug,
        **fields,
    }


def test_a_plan_becomes_queued_rollouts(engineer):
    answer = post(engineer, "collections/", plan(repeats=4, limit=2, seed=7, name="first"))
    assert answer.status_code == 201
    shown = answer.json()
    assert (shown["name"], shown["total"], shown["state"], shown["seed"]) == ("first", 8, "running", 7)
    assert Rollout.objects.filter(collection_id=shown["id"], status="queued").count() == 8


def test_the_same_idempotency_key_plans_once(engineer):
    body = plan()
    answers = [post(engineer, "collections/", body, **{"Idempotency-Key": "k1"}) for _ in range(2)]
    assert answers[0].json()["id"] == answers[1].json()["id"]
    assert Collection.objects.count() == 1


def test_a_key_is_its_persons_own(engineer):
    body, key = plan(), {"Idempotency-Key": "nightly"}
    answers = [post(one, "collections/", body, **key) for one in (engineer, client_of("admin"), engineer)]
    assert [answer.status_code for answer in answers] == [201, 201, 201]
    mine, theirs, again = (answer.json()["id"] for answer in answers)
    assert (mine == again, mine == theirs) == (True, False)


@pytest.mark.parametrize(
    ("fields", "pointers"),
    [
        ({"dataset": "none"}, ["/dataset"]),
        ({"repeats": 0}, ["/repeats"]),
        ({"repeats": "many", "limit": 0}, ["/limit", "/repeats"]),
        ({"sampling": [1]}, ["/sampling"]),
        ({"seed": 2**40}, ["/seed"]),
    ],
)
def test_a_plan_that_makes_no_sense_names_each_value(engineer, fields, pointers):
    answer = post(engineer, "collections/", plan(**fields))
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:gymweb:problem:invalid")
    assert sorted(error["pointer"] for error in answer.json()["errors"]) == pointers


def test_an_empty_dataset_gives_nothing_to_collect(engineer):
    answer = post(engineer, "collections/", plan(dataset=make_dataset([]).slug))
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:gymweb:problem:nothing-to-collect")


def test_a_body_that_is_not_json_is_refused(engineer):
    answer = engineer.post("/api/v1/collections/", "{", content_type="application/json")
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:gymweb:problem:parse-error")
    assert engineer.post("/api/v1/collections/", "a=1", content_type="text/csv").status_code == 415


def test_a_cancelled_collection_drops_queued_rollouts(engineer):
    collection = post(engineer, "collections/", plan()).json()
    answer = engineer.post(f"/api/v1/collections/{collection['id']}/cancel/")
    assert (answer.status_code, answer.json()["state"], answer.json()["cancelled"]) == (200, "cancelled", 3)


@pytest.fixture
def collection():
    collection = make_collection()
    make_rollout(collection)
    make_rollout(collection, reward=0.0)
    return collection


def test_the_figures_of_a_collection(viewer, collection):
    figures = viewer.get(f"/api/v1/collections/{collection.pk}/metrics/").json()
    assert {key: figures[key] for key in ["rollouts", "completed", "rewarded", "mean_reward", "pass_at_1"]} == {
        "rollouts": 2,
        "completed": 2,
        "rewarded": 2,
        "mean_reward": 0.5,
        "pass_at_1": 0.5,
    }
    assert (figures["groups"]["sometimes"], figures["pass_at_k"]["2"]) == (1, 1.0)


def test_a_collection_is_paired(engineer, collection):
    answer = post(engineer, "pair-sets/", {"collection": collection.pk, "margin": 0.5})
    assert answer.status_code == 201
    pairs = engineer.get(f"/api/v1/pairs/?pair_set={answer.json()['id']}").json()["results"]
    assert len(pairs) == answer.json()["pair_count"]
    refused = post(engineer, "pair-sets/", {"collection": collection.pk, "margin": -1})
    assert refused.json()["errors"][0]["pointer"] == "/margin"


def test_an_export_is_queued_and_downloaded_with_ranges(engineer, collection):
    answer = post(engineer, "exports/", {"format": "nemo_gym_rollouts", "collection": collection.pk})
    assert (answer.status_code, answer.json()["state"]) == (201, "queued")
    url = f"/api/v1/exports/{answer.json()['id']}/"
    assert engineer.get(f"{url}download/").status_code == 409
    export = write_export(export=Export.objects.get())
    assert engineer.get(f"{url}manifest/").json() == export.manifest
    client = AsyncClient()
    client.force_login(make_user(Role.ENGINEER))

    async def go():
        whole = await client.get(f"{url}download/")
        body = b"".join([chunk async for chunk in whole.streaming_content])
        part = await client.get(f"{url}download/", headers={"Range": "bytes=2-5"})
        return whole, body, part.status_code, b"".join([chunk async for chunk in part.streaming_content])

    whole, body, status, part = async_to_sync(go)()
    assert body == (Path(export.path) / "train.jsonl").read_bytes()
    assert (status, part) == (206, body[2:6])
    assert whole.headers["ETag"] == f'"{export.sha256}"'
    beyond = engineer.get(f"{url}download/", headers={"Range": f"bytes={len(body)}-"})
    assert (beyond.status_code, beyond.headers["Content-Range"]) == (416, f"bytes */{len(body)}")
    assert (beyond.headers["Content-Type"], beyond.json()["type"]) == (
        "application/problem+json",
        "urn:gymweb:problem:range",
    )
    for address in (f"{url}download/", url):
        changed = engineer.get(address, headers={"If-Match": '"another"'})
        assert (changed.headers["Content-Type"], changed.json()["status"], changed.json()["type"]) == (
            "application/problem+json",
            412,
            "urn:gymweb:problem:precondition-failed",
        )
    (Path(export.path) / "train.jsonl").unlink()
    assert engineer.get(f"{url}download/").status_code == 410


def test_an_export_of_nothing_is_ready_and_has_no_file(engineer, collection):
    answer = post(
        engineer, "exports/", {"format": "trl_sft", "collection": collection.pk, "filters": {"min_reward": 9}}
    )
    write_export(export=Export.objects.get())
    url = f"/api/v1/exports/{answer.json()['id']}/"
    found = engineer.get(url).json()
    assert (found["state"], found["rows"], found["files"], found["sha256"]) == ("ready", 0, [], "")
    assert found["beside"] == ["README.md", "manifest.json"]
    refused = engineer.get(f"{url}download/")
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:gymweb:problem:no-rows")


def test_the_formats_say_what_they_take_and_what_they_refuse(engineer):
    formats = {one["slug"]: one for one in engineer.get("/api/v1/exports/formats/").json()}
    assert set(formats) == set(FORMATS)
    dpo = formats["nemo_rl_dpo"]
    assert (dpo["options"]["level"], dpo["encodings"]) == (["step"], ["jsonl"])
    assert "only on the last message of a completion" in dpo["refused"]["level"]["trajectory"]
    of_pairs = ["include_rejected", "only_accepted", "sources"]
    assert dpo["filters"] == sorted(
        [
            *("include_ambiguous", "include_flagged", "include_noticed", "max_rows", "min_reward", "per_task", "q"),
            *("rollouts", "splits"),
            *of_pairs,
        ]
    )


def test_a_preview_shows_the_rows_and_stores_nothing(engineer, collection):
    order = {"format": "trl_sft", "collection": collection.pk, "limit": 2, "options": {"reasoning": "dropped"}}
    answer = post(engineer, "exports/preview/", order)
    found = answer.json()
    assert (answer.status_code, Export.objects.count()) == (200, 0)
    assert len(found["rows"]) == len(found["bytes"]) == len(found["tokens"]) == len(found["tokens_from"]) <= 2
    assert {"messages", "tools", "reward"} <= set(found["rows"][0])
    refused = post(engineer, "exports/preview/", {**order, "options": {"level": "step"}})
    assert refused.json()["type"] == "urn:gymweb:problem:export-refused"


def test_every_file_of_an_export_is_there_by_its_name(engineer, collection):
    # Of its three prompts, some come to each side.
    for task in collection.version.tasks.all():
        make_rollout(collection, task=task)
    order = {"format": "trl_sft", "collection": collection.pk, "validation_share": 0.5, "filters": {"min_reward": None}}
    answer = post(engineer, "exports/", order)
    export = write_export(export=Export.objects.get())
    url = f"/api/v1/exports/{answer.json()['id']}/"
    files = engineer.get(url).json()["files"]
    assert [one["split"] for one in files] == ["train", "validation"]
    for one in files:
        body = b"".join(engineer.get(f"{url}files/{one['name']}/").streaming_content)
        assert hashlib.sha256(body).hexdigest() == one["sha256"]
    card = b"".join(engineer.get(f"{url}files/README.md/").streaming_content)
    assert card.startswith(b"---\nconfigs:")
    for name in ("etc", "..", "manifest.json.bak"):
        assert engineer.get(f"{url}files/{name}/").status_code == 404
    assert export.rows == sum(one["rows"] for one in files)


def test_an_export_that_makes_no_file_is_refused(engineer, collection):
    answer = post(engineer, "exports/", {"format": "trl_dpo", "collection": collection.pk})
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:gymweb:problem:export-refused")


def test_a_plan_takes_filters_repeats_by_split_and_a_template(engineer):
    dataset = make_dataset()
    Task.objects.filter(dataset=dataset).update(split="train")
    body = plan(
        dataset=dataset.slug,
        repeats=2,
        split_repeats={"train": 3},
        search="what",
        tags=[],
        prompt_template={"user": "Think. {prompt}"},
    )
    shown = post(engineer, "collections/", body).json()
    assert (shown["total"], shown["split_repeats"], shown["prompt_template"]) == (
        9,
        {"train": 3},
        {"user": "Think. {prompt}"},
    )
    detail = engineer.get(f"/api/v1/collections/{shown['id']}/").json()
    assert detail["snapshot_digest"] == shown["snapshot_digest"]
    assert detail["snapshot"]["plan"]["search"] == "what"
    wrong = post(engineer, "collections/", plan(split_repeats={"train": 0}, prompt_template={"user": "{"}, splits=[""]))
    assert [error["pointer"] for error in wrong.json()["errors"]] == ["/split_repeats/train", "/splits/0"]
    wrong = post(engineer, "collections/", plan(prompt_template={"user": "{"}))
    assert [error["pointer"] for error in wrong.json()["errors"]] == ["/prompt_template"]


def test_an_estimate_plans_nothing(engineer, viewer):
    body = plan(repeats=4)
    answer = post(engineer, "collections/estimate/", body)
    assert (answer.status_code, answer.json()["tasks"], answer.json()["rollouts"]) == (200, 3, 12)
    assert Collection.objects.count() == 0
    assert post(viewer, "collections/estimate/", body).status_code == 403
    empty = post(engineer, "collections/estimate/", plan(dataset=make_dataset([]).slug)).json()
    assert (empty["rollouts"], empty["cost"], empty["basis"]) == (0, None, "No rollouts to run.")


def test_a_clone_is_planned_with_what_the_body_changes(engineer):
    first = post(engineer, "collections/", plan(repeats=2, seed=9)).json()
    again = post(engineer, f"collections/{first['id']}/clone/", {"repeats": 1})
    assert (again.status_code, again.json()["total"], again.json()["seed"]) == (201, 3, 9)
    same = post(engineer, f"collections/{first['id']}/clone/", {}).json()
    assert same["snapshot_digest"] == first["snapshot_digest"]
    rest = post(engineer, f"collections/{first['id']}/clone/", {"resume_from": first["id"]})
    assert (rest.status_code, rest.json()["type"]) == (400, "urn:gymweb:problem:nothing-to-collect")


def test_a_plan_names_its_version_and_a_clone_has_its_sources_unless_told_otherwise(engineer):
    dataset = make_dataset()
    make_next_version(dataset, [make_row()])
    body = plan(dataset=dataset.slug, version=1)
    told = post(engineer, "collections/estimate/", body).json()
    assert (told["version"], told["rollouts"]) == (1, 3)
    first = post(engineer, "collections/", body).json()
    assert (first["version"], first["total"]) == (1, 3)
    clone = f"collections/{first['id']}/clone/"
    made = [post(engineer, clone, changes).json() for changes in ({}, {"version": 2}, {"version": None})]
    assert [(one["version"], one["total"]) for one in made] == [(1, 3), (2, 1), (2, 1)]
    refused = post(engineer, clone, {"version": 3})
    [error] = refused.json()["errors"]
    assert (refused.status_code, error["pointer"]) == (400, "/version")
    assert ("no version 3" in error["message"], "Choose one of: 2, 1" in error["message"]) == (True, True)
    assert post(engineer, "collections/", {**body, "version": 0}).status_code == 400


def test_lists_leave_out_archived_collections_by_default(engineer):
    shown, hidden = make_collection(state="completed"), make_collection(state="completed")
    assert post(engineer, f"collections/{hidden.pk}/archive/", {}).json()["is_archived"] is True

    def listed(query=""):
        return [row["id"] for row in engineer.get(f"/api/v1/collections/{query}").json()["results"]]

    assert (listed(), listed("?archived=true"), listed("?archived=all")) == (
        [shown.pk],
        [hidden.pk],
        [hidden.pk, shown.pk],
    )
    assert engineer.get(f"/api/v1/collections/{hidden.pk}/").status_code == 200
    post(engineer, f"collections/{hidden.pk}/restore/", {})
    assert listed() == [hidden.pk, shown.pk]


def test_a_deletion_is_accepted_and_says_how_far_it_is(engineer, collection, django_capture_on_commit_callbacks):
    url = f"/api/v1/collections/{collection.pk}/"
    assert engineer.delete(url).json()["type"] == "urn:gymweb:problem:cannot-steer"
    Collection.objects.update(state="completed", finished_at=collection.created_at, total=2)
    post(engineer, "exports/", {"format": "nemo_gym_rollouts", "collection": collection.pk})
    assert (engineer.delete(url).status_code, engineer.delete(url).json()["type"]) == (409, "urn:gymweb:problem:in-use")
    export = write_export(export=Export.objects.get())
    Export.objects.update(state="writing")
    assert engineer.delete(f"/api/v1/exports/{export.pk}/").json()["type"] == "urn:gymweb:problem:being-written"
    Export.objects.update(state="ready")
    for q, found in ((f"nemo #{export.pk}", [export.pk]), ("dpo", [])):
        assert [row["id"] for row in engineer.get("/api/v1/exports/", {"q": q}).json()["results"]] == found
    with django_capture_on_commit_callbacks(execute=True):
        assert engineer.delete(f"/api/v1/exports/{export.pk}/").status_code == 204
    assert not Path(export.path).exists()
    answer = engineer.delete(url)
    assert (answer.status_code, engineer.get(url).status_code) == (202, 404)
    assert delete_next_collection()
    ended = engineer.get(answer["Location"]).json()
    assert (ended["state"], ended["deleted"], ended["total"], ended["collection"]) == ("done", 2, 2, None)


@pytest.mark.parametrize("address", ["collections/", "collections/estimate/"])
@pytest.mark.parametrize("choice", [{"split_repeats": {"trian": 8}}, {"splits": ["trian"]}])
def test_a_split_that_does_not_exist_is_refused_by_a_plan_and_by_its_estimate(engineer, address, choice):
    wrong = post(engineer, address, plan(**choice))
    assert wrong.status_code == 400
    [error] = wrong.json()["errors"]
    assert error["pointer"] == f"/{next(iter(choice))}"
    assert "has no split trian." in error["message"]
    assert Collection.objects.count() == 0


def test_one_split_of_several_that_does_not_exist_is_refused_too(engineer):
    given = plan(splits=["train"], split_repeats={"train": 2})
    Task.objects.update(split="train")
    wrong = post(engineer, "collections/estimate/", {**given, "splits": ["train", "test"]})
    assert [error["pointer"] for error in wrong.json()["errors"]] == ["/splits"]
    right = post(engineer, "collections/estimate/", given)
    assert (right.status_code, right.json()["rollouts"]) == (200, 6)
