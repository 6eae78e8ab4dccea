"""Versions, changes, metrics, marks, mappings, previews and deletions over the API."""

import hashlib
import json

import pytest
from asgiref.sync import async_to_sync
from django.db import connection
from django.test import AsyncClient
from django.test.utils import CaptureQueriesContext

from apps.accounts.models import AuditEntry, Role
from apps.tasks.dataset_deletion import delete_next
from apps.tasks.models import ColumnMapping, Dataset, DatasetVersion, Task, Upload
from apps.tasks.upload_jobs import load_queued_upload
from tests.factories import make_collection, make_dataset, make_row, make_user

pytestmark = pytest.mark.django_db

JSON = "application/json"
DATASET = "/api/v1/datasets/sums/"
UPLOADS = f"{DATASET}uploads/"


@pytest.fixture(autouse=True)
def dataset():
    dataset = make_dataset([], slug="sums")
    dataset.versions.all().delete()
    return dataset


def lines(*rows: dict[str, object]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def row(key: int, answer: str = "4", **fields: object) -> dict[str, object]:
    return make_row(f"Question {key}", answer, id=key, **fields)


def load(client, *rows: dict[str, object], query: str = "") -> dict:
    answer = client.post(f"{UPLOADS}?wait=true{query}", lines(*rows), content_type="application/x-ndjson")
    assert answer.status_code == 201, answer.content
    return answer.json()


def test_a_received_file_is_answered_at_once_and_loaded_by_a_worker(engineer):
    answer = engineer.post(UPLOADS, lines(row(1)), content_type="application/x-ndjson")
    assert (answer.status_code, answer.json()["state"]) == (202, "queued")
    address = answer.headers["Location"]
    assert address == f"/api/v1/uploads/{answer.json()['id']}/"
    assert Task.objects.count() == 0
    load_queued_upload()
    shown = engineer.get(address).json()
    assert (shown["state"], shown["version"], shown["read_bytes"]) == ("ready", 1, shown["received_bytes"])


@pytest.mark.parametrize(
    ("content", "content_type"),
    [
        (b"question,answer\n1 + 1?,2\n", "text/csv"),
        (b"question\tanswer\n1 + 1?\t2\n", "text/tab-separated-values"),
        (b'[{"question": "1 + 1?", "answer": "2"}]', "application/json"),
    ],
)
def test_a_body_is_what_its_type_and_content_say(engineer, content, content_type):
    answer = engineer.post(f"{UPLOADS}?wait=true", content, content_type=content_type)
    assert (answer.status_code, answer.json()["shape"]) == (201, "prompt_answer")
    assert Task.objects.get().row["expected_answer"] == "2"


def test_a_file_over_a_limit_is_a_413_that_names_it(engineer, settings):
    settings.MAX_UPLOAD_ROWS = 1
    answer = engineer.post(f"{UPLOADS}?wait=true", lines(row(1), row(2)), content_type="application/x-ndjson")
    problem = answer.json()
    assert (answer.status_code, problem["type"], problem["limit"]) == (
        413, "urn:gymweb:problem:too-large", "GYMWEB_MAX_UPLOAD_ROWS",
    )  # fmt: skip
    assert problem["errors"][0]["line"] == 2


def test_a_check_stores_nothing_until_it_is_committed(engineer):
    checked = load(engineer, row(1), row(2), query="&check_only=true&note=first")
    assert (checked["state"], checked["counts"]["new"], Task.objects.count()) == ("checked", 2, 0)
    commit = f"/api/v1/uploads/{checked['id']}/commit/"
    done = engineer.post(f"{commit}?wait=true", {}, content_type=JSON)
    assert (done.status_code, done.json()["version"], done.json()["note"]) == (201, 1, "first")
    again = engineer.post(commit, {}, content_type=JSON)
    assert (again.status_code, again.json()["type"]) == (409, "urn:gymweb:problem:not-waiting")


def test_a_draft_is_previewed_mapped_checked_and_committed(engineer):
    content = lines({"frage": "1 + 1?", "antwort": "2"}, {"frage": "2 + 2?"})
    begun = engineer.post(f"{UPLOADS}?draft=true", content, content_type="application/x-ndjson")
    assert (begun.status_code, begun.json()["state"]) == (202, "draft")
    upload = begun.headers["Location"]
    preview = engineer.get(f"{upload}preview/").json()
    assert (preview["shape"], preview["mapping"], [one["path"] for one in preview["columns"]]) == (
        "unknown", None, ["frage", "antwort"],
    )  # fmt: skip
    assert [one["error"]["code"] for one in preview["rows"]] == ["missing", "missing"]
    wrong = engineer.post(f"{upload}check/", {"mapping": {"inptu": "frage"}}, content_type=JSON)
    assert (wrong.status_code, wrong.json()["errors"][0]["pointer"]) == (400, "/mapping")
    mapping = {"input": "frage", "expected_answer": "antwort", "rest": "drop"}
    given = {"mapping": mapping, "split_ratios": {"train": 1.0}, "note": "mapped"}
    assert engineer.post(f"{upload}check/", given, content_type=JSON).status_code == 202
    load_queued_upload()
    assert engineer.get(upload).json()["state"] == "checked"
    assert [one["prompt"] for one in engineer.get(f"{upload}preview/").json()["rows"]] == ["1 + 1?", "2 + 2?"]
    done = engineer.post(f"{upload}commit/?wait=true", {}, content_type=JSON).json()
    assert (done["state"], done["split_ratios"], done["note"], done["mapping"]) == (
        "ready", {"train": 1.0}, "mapped", mapping,
    )  # fmt: skip


def test_a_saved_mapping_is_named_or_given_as_json(engineer):
    mapping = {"user": "{q}!", "expected_answer": "a"}
    made = engineer.post(
        "/api/v1/column-mappings/", {"slug": "qa", "name": "Q and A", "mapping": mapping}, content_type=JSON
    )
    assert made.status_code == 201
    assert load(engineer, {"q": "hi", "a": "1"}, query="&mapping=qa")["mapping"] == mapping
    load(engineer, {"q": "hi", "a": "1"}, query='&mapping={"input":"q"}')
    assert sorted(Task.objects.values_list("prompt_excerpt", flat=True)) == ["hi", "hi!"]
    refused = engineer.post(f"{UPLOADS}?mapping=none", lines(row(1)), content_type="application/x-ndjson")
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (400, "?mapping")
    wrong = {"slug": "w", "name": "W", "mapping": {"user": "{"}}
    answer = engineer.post("/api/v1/column-mappings/", wrong, content_type=JSON)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, "/mapping")
    changed = engineer.patch("/api/v1/column-mappings/qa/", {"mapping": {"input": "q"}}, content_type=JSON)
    assert changed.json()["mapping"] == {"input": "q"}
    assert engineer.delete("/api/v1/column-mappings/qa/").status_code == 204
    assert ColumnMapping.objects.count() == 0
    assert AuditEntry.objects.filter(action__startswith="column_mapping").count() == 3


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("mode=merge", "?mode"),
        ("mode=upsert&on_duplicate=keep", "?on_duplicate"),
        ("split_ratios=train", "?split_ratios"),
        ("split_ratios=train:0.5", "?split_ratios"),
        ("split_seed=x", "?split_seed"),
        ("mapping={", "?mapping"),
        ("check_only=maybe", "?check_only"),
        ("draft=2", "?draft"),
        ("wait=perhaps", "?wait"),
        ("notes=x", "?notes"),
    ],
)
def test_a_choice_that_cannot_be_is_named_and_stores_nothing(engineer, query, pointer):
    answer = engineer.post(f"{UPLOADS}?{query}", lines(row(1)), content_type="application/x-ndjson")
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, pointer)
    assert Upload.objects.count() == 0


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("split_seed=-1", "from 0 to 9223372036854775807"),
        ("split_ratios=a:0.5,a:0.5", "split a is repeated"),
    ],
)
def test_an_invalid_split_is_explained(engineer, query, told):
    answer = engineer.post(f"{UPLOADS}?{query}", lines(row(1)), content_type="application/x-ndjson")
    assert (answer.status_code, told in answer.json()["errors"][0]["message"]) == (400, True)


def test_versions_tell_what_they_changed_and_are_made_of(engineer, viewer):
    load(engineer, row(1), row(2), row(3), query="&split=train")
    load(engineer, row(2, "5"), row(4), query="&mode=upsert&note=more")
    version = viewer.get(f"{DATASET}versions/2/").json()
    changes = {"new": 1, "updated": 1, "unchanged": 2, "removed": 0}
    assert (version["base"], version["task_count"], version["note"], version["changes"]) == (1, 4, "more", changes)
    assert [one["number"] for one in viewer.get(f"{DATASET}versions/").json()["results"]] == [2, 1]
    counts = viewer.get(f"{DATASET}versions/2/changes/").json()
    assert counts == {"old": 1, "new": 2, "added": 1, "removed": 0, "changed": 1, "unchanged": 2}
    changed = viewer.get(f"{DATASET}versions/2/changes/tasks/?kind=changed").json()["results"]
    assert [(one["external_id"], one["fields_changed"]) for one in changed] == [("2", ["expected_answer"])]
    assert viewer.get(f"/api/v1/tasks/{changed[0]['before']}/").json()["row"]["expected_answer"] == "4"
    removed = viewer.get(f"{DATASET}versions/1/changes/tasks/?kind=removed&from=2").json()["results"]
    assert [one["external_id"] for one in removed] == ["4"]
    for query in ("versions/1/changes/", "versions/2/changes/tasks/", "versions/2/changes/?from=x"):
        assert viewer.get(DATASET + query).status_code == 400
    for query in ("versions/9/", "versions/2/changes/?from=9", "versions/9/rows/"):
        assert viewer.get(DATASET + query).status_code == 404
    figures = viewer.get(f"{DATASET}versions/1/metrics/").json()
    assert (figures["examples"], figures["splits"], figures["fields"]["id"]["numbers"]["max"]) == (3, {"train": 3}, 3.0)
    theirs = viewer.get(f"{DATASET}versions/1/metrics/?shape=nemo_gym").json()
    assert theirs["expected_answer"] == {"unique_count": 1, "total_count": 3}
    assert viewer.get(f"{DATASET}versions/1/metrics/?shape=x").status_code == 400


def test_the_tasks_of_a_version_are_listed_in_the_order_of_its_file_also_after_an_upsert(engineer, viewer):
    load(engineer, *[row(n) for n in range(5)])
    load(engineer, row(3, "9"), row(7), row(1, "9"), query="&mode=upsert")
    address = f"/api/v1/tasks/?dataset={DATASET.split('/')[-2]}&version=2"

    def read(ordering: str) -> list[str]:
        ids: list[str] = []
        page = {"next": f"{address}&limit=2&ordering={ordering}"}
        while page["next"]:
            page = viewer.get(page["next"]).json()
            ids += [task["external_id"] for task in page["results"]]
        return ids

    assert read("index") == ["0", "1", "2", "3", "4", "7"]
    assert read("-index") == ["7", "4", "3", "2", "1", "0"]
    assert sorted(read("id")) == sorted(read("index")) != read("id")
    for missing in ("&version=2", f"&dataset={DATASET.split('/')[-2]}", ""):
        refused = viewer.get(f"/api/v1/tasks/?ordering=index{missing}")
        assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (400, "?ordering")


@pytest.mark.skipif(connection.vendor != "sqlite", reason="PostgreSQL plans by how many rows there are")
@pytest.mark.parametrize("ordering", ["id", "index", "-index"])
def test_a_page_of_a_versions_tasks_is_a_range_of_an_index(engineer, viewer, ordering):
    load(engineer, *[row(n) for n in range(50)])
    load(engineer, *[row(n, "9") for n in range(0, 50, 5)], query="&mode=upsert")
    with CaptureQueriesContext(connection) as queries:
        address = f"/api/v1/tasks/?dataset={DATASET.split('/')[-2]}&version=2&limit=5&ordering={ordering}"
        assert len(viewer.get(address).json()["results"]) == 5
    page = next(one["sql"] for one in queries if "LIMIT 6" in one["sql"] and "ORDER BY" in one["sql"])
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {page}")
        plan = " ".join(str(line) for line in cursor.fetchall())
    # SQLite calls the index of a constraint by a name of its own.
    assert ("task_page" if ordering == "id" else "sqlite_autoindex_tasks_task_1") in plan, plan
    assert "TEMP B-TREE" not in plan


def test_all_rows_of_a_version_are_streamed(engineer):
    load(engineer, *[row(n) for n in range(3)])
    client = AsyncClient()
    client.force_login(make_user(Role.VIEWER))

    async def go() -> tuple[str, bytes]:
        answer = await client.get(f"{DATASET}versions/1/rows/")
        return answer.headers["Content-Disposition"], b"".join([chunk async for chunk in answer.streaming_content])

    disposition, content = async_to_sync(go)()
    assert disposition == 'attachment; filename="sums-v1.jsonl"'
    assert [json.loads(line) for line in content.splitlines()] == [row(n) for n in range(3)]


def test_a_dataset_has_its_latest_version_and_a_paged_list_of_all(engineer, viewer):
    for number in range(1, 6):
        load(engineer, row(number), query=f"&note=n{number}")
    sums = Dataset.objects.get(slug="sums")
    sums.versions.filter(number=5).update(state="deleting")
    [listed] = viewer.get("/api/v1/datasets/").json()["results"]
    assert (listed["version_count"], listed["latest_version"]) == (4, viewer.get(f"{DATASET}versions/4/").json())
    assert listed == viewer.get(DATASET).json()
    assert "versions" not in listed
    pages, address = [], f"{DATASET}versions/?limit=2&fields=number,state,base"
    while address:
        page = viewer.get(address).json()
        pages.append([(one["number"], one["state"], one["base"]) for one in page["results"]])
        address = page["next"]
    assert pages == [
        [(5, "deleting", 4), (4, "ready", 3)],
        [(3, "ready", 2), (2, "ready", 1)],
        [(1, "ready", None)],
    ]
    renamed = engineer.patch(DATASET, {"name": "More sums"}, content_type=JSON).json()
    assert (renamed["name"], renamed["version_count"]) == ("More sums", 4)


def test_the_versions_of_many_datasets_take_one_query(viewer, django_assert_num_queries):
    made = [make_dataset() for _ in range(4)]
    for number in range(2, 30):
        DatasetVersion.objects.create(dataset=made[0], number=number, state="ready")
    viewer.get("/api/v1/me/")
    with django_assert_num_queries(3):
        rows = viewer.get("/api/v1/datasets/").json()["results"]
    shown = {row["slug"]: row["version_count"] for row in rows}
    assert [shown[dataset.slug] for dataset in made] == [29, 1, 1, 1]
    assert {row["slug"]: row["latest_version"]["number"] for row in rows if row["latest_version"]} == {
        dataset.slug: shown[dataset.slug] for dataset in made
    }


def test_the_etag_of_a_version_is_its_hash_and_gives_304(engineer):
    load(engineer, *[row(n) for n in range(3)])
    load(engineer, row(2, "5"), row(7), query="&mode=upsert")
    client = AsyncClient()
    client.force_login(make_user(Role.VIEWER))

    async def go(number: int, **headers: str):
        answer = await client.get(f"{DATASET}versions/{number}/rows/", headers=headers)
        content = b"".join([chunk async for chunk in answer.streaming_content]) if answer.streaming else answer.content
        return answer, content

    for version in Dataset.objects.get(slug="sums").versions.all():
        whole, content = async_to_sync(go)(version.number)
        assert whole.headers["ETag"] == f'"{version.content_hash}"' == f'"{hashlib.sha256(content).hexdigest()}"'
        assert whole.headers["Accept-Ranges"] == "none"
        again, nothing = async_to_sync(go)(version.number, **{"If-None-Match": f"W/{whole.headers['ETag']}"})
        assert (again.status_code, nothing, again.headers["ETag"]) == (304, b"", whole.headers["ETag"])
        part, same = async_to_sync(go)(version.number, Range="bytes=5-")
        assert (part.status_code, same) == (200, content)
        other, same = async_to_sync(go)(version.number, **{"If-None-Match": '"another"'})
        assert (other.status_code, same) == (200, content)


def test_the_head_of_a_version_reads_no_row(viewer, engineer):
    load(engineer, row(1))
    with CaptureQueriesContext(connection) as asked:
        head = viewer.head(f"{DATASET}versions/1/rows/")
    assert (head.status_code, head.content, head.headers["Accept-Ranges"]) == (200, b"", "none")
    assert [one["sql"] for one in asked.captured_queries if "row_json" in one["sql"]] == []


def test_tasks_are_marked_and_filtered_by_their_marks(engineer, viewer):
    load(engineer, row(1, tags=["a"]), row(2), row(3))
    first, second, third = Task.objects.order_by("index")
    marked = engineer.patch(
        f"/api/v1/tasks/{first.pk}/", {"split": "test", "add_tags": ["b"], "remove_tags": ["a"]}, content_type=JSON
    ).json()
    assert (marked["split"], marked["tags"], marked["is_retired"]) == ("test", ["b"], False)
    answer = engineer.post(
        "/api/v1/tasks/mark/", {"tasks": [second.pk, third.pk, 10**9], "retired": True}, content_type=JSON
    )
    assert answer.json() == {"marked": 2}

    def found(query: str) -> list[str]:
        return [one["external_id"] for one in viewer.get(f"/api/v1/tasks/?dataset=sums&{query}").json()["results"]]

    assert [found("tag=b"), found("split=test"), found("is_retired=true"), found("tag=a")] == [
        ["1"], ["1"], ["2", "3"], [],
    ]  # fmt: skip
    for wrong in ({"tasks": []}, {"tasks": list(range(1001))}, {"tasks": [1], "tags": ["x"]}, {"tasks": [-1]}):
        assert engineer.post("/api/v1/tasks/mark/", wrong, content_type=JSON).status_code == 400
    assert viewer.patch(f"/api/v1/tasks/{first.pk}/", {"split": "x"}, content_type=JSON).status_code == 403


def test_a_dataset_is_renamed_and_deleted(engineer):
    load(engineer, row(1), row(2))
    load(engineer, row(1))
    renamed = engineer.patch(DATASET, {"name": "Other"}, content_type=JSON)
    assert (renamed.json()["name"], renamed.json()["description"]) == ("Other", "")
    answer = engineer.delete(f"{DATASET}versions/1/")
    assert (answer.status_code, answer.json()["total"]) == (202, 2)
    assert engineer.delete(DATASET).status_code == 409
    delete_next()
    assert engineer.get(answer.headers["Location"]).json()["state"] == "done"
    answer = engineer.delete(DATASET)
    assert (answer.status_code, answer.json()["whole"]) == (202, True)
    refused = engineer.post(UPLOADS, lines(row(1)), content_type="application/x-ndjson")
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:gymweb:problem:being-deleted")
    delete_next()
    assert (engineer.get(DATASET).status_code, Dataset.objects.count()) == (404, 0)
    shown = engineer.get(answer.headers["Location"]).json()
    assert (shown["state"], shown["deleted"], shown["name"], shown["dataset"]) == ("done", 1, "sums", None)


def test_a_dataset_in_use_is_not_deleted(engineer):
    collection = make_collection()
    answer = engineer.delete(f"/api/v1/datasets/{collection.dataset.slug}/")
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:gymweb:problem:in-use")
    assert "is used by 1 collection" in answer.json()["detail"]


def test_a_waiting_file_is_forgotten(engineer):
    begun = engineer.post(f"{UPLOADS}?draft=true", lines(row(1)), content_type="application/x-ndjson")
    assert engineer.delete(begun.headers["Location"]).status_code == 204
    assert Upload.objects.count() == 0
    done = load(engineer, row(1))
    assert engineer.delete(f"/api/v1/uploads/{done['id']}/").status_code == 409
