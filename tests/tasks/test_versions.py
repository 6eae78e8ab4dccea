"""Versions know what they changed, can be compared, replaced in part, marked and deleted until nothing is left."""

import io
import json
from datetime import timedelta

import orjson
import pytest
from django.utils import timezone

from apps.accounts.models import AuditEntry
from apps.gym import process_exit
from apps.rollouts.models import Rollout
from apps.rollouts.plans.plan_spec import Plan
from apps.rollouts.plans.planning import plan_collection
from apps.rollouts.plans.task_selection import NothingToCollect
from apps.tasks import dataset_deletion, unchanged_rows, version_loading
from apps.tasks.dataset_changes import create_dataset
from apps.tasks.dataset_deletion import delete_next, queue_deletion
from apps.tasks.deletion_jobs import AlreadyBeingDeleted, StillInUse
from apps.tasks.models import Dataset, DatasetVersion, Deletion, Task, Upload
from apps.tasks.received_files import DatasetIsBeingDeleted, store_file
from apps.tasks.task_marks import MarkRefused, mark_tasks
from apps.tasks.unchanged_rows import read_rows
from apps.tasks.upload_choices import ChoiceRefused, Choices
from apps.tasks.upload_jobs import load_queued_upload, upload_file
from apps.tasks.version_differences import changed_fields, count_changes, find_changes, with_counterparts
from tests.factories import make_agent, make_collection, make_environment, make_policy_model, make_row, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def dataset():
    return create_dataset(slug="sums", name="Sums", environment=make_environment())


def row(key: int | str, answer: object = "4", **fields: object) -> dict[str, object]:
    return make_row(f"Question {key}", str(answer), id=key, **fields)


def load(dataset, *rows: dict[str, object], **choices) -> Upload:
    content = b"".join(orjson.dumps(one) + b"\n" for one in rows)
    return upload_file(dataset=dataset, stream=io.BytesIO(content), filename="a.jsonl", choices=Choices(**choices))


def ids(version: DatasetVersion) -> list[str]:
    return list(version.tasks.order_by("index").values_list("external_id", flat=True))


def test_a_version_counts_new_updated_unchanged_and_removed_rows(dataset):
    first = load(dataset, row(1), row(2), row(3))
    second = load(dataset, row(2), row(3, "5"), row(4), row(5))
    assert first.counts == {"new": 3, "removed": 0}
    assert {name: second.counts[name] for name in ("new", "updated", "unchanged", "removed")} == {
        "new": 2, "updated": 1, "unchanged": 1, "removed": 1,
    }  # fmt: skip
    assert (second.version.base, second.version.changes) == (
        first.version,
        {"new": 2, "updated": 1, "unchanged": 1, "removed": 1},
    )


def test_rows_without_an_id_are_the_same_when_they_are_equal(dataset):
    load(dataset, make_row("a"), make_row("b"))
    assert load(dataset, make_row("b"), make_row("c")).version.changes == {
        "new": 1, "updated": 0, "unchanged": 1, "removed": 1,
    }  # fmt: skip


A, B, C = row(1, "a"), row(1, "b"), row(1, "c")
X, Y = make_row("x"), make_row("y")


@pytest.mark.parametrize(
    ("base", "file", "changes"),
    [
        ([A, B, X, X, Y], [A, B, X, X, Y], (0, 0, 5, 0)),
        ([A, B, X, X, Y], [X, B, Y, A, X], (0, 0, 5, 0)),
        ([A], [B, A], (1, 0, 1, 0)),
        ([A, B], [B], (0, 0, 1, 1)),
        ([A, B], [C, C], (0, 2, 0, 0)),
        ([A, A, B], [B, C, B, A], (1, 1, 2, 0)),
        ([X], [X, X, X], (2, 0, 1, 0)),
        ([X, X, X], [X], (0, 0, 1, 2)),
        ([Y], [A, A], (2, 0, 0, 1)),
    ],
)
def test_duplicate_rows_are_matched_one_to_one(dataset, monkeypatch, base, file, changes):
    monkeypatch.setattr(version_loading, "CHUNK_ROWS", 2)
    assert load(dataset, *base).version.changes["new"] == len(base)
    upload = load(dataset, *file)
    assert tuple(upload.version.changes[name] for name in ("new", "updated", "unchanged", "removed")) == changes
    assert {name: upload.counts.get(name, 0) for name in upload.version.changes} == upload.version.changes


def test_an_upsert_leaves_equal_rows_of_which_the_base_has_several(dataset):
    base = load(dataset, X, X, Y).version
    version = load(dataset, X, make_row("z"), mode="upsert").version
    assert version.changes == {"new": 1, "updated": 0, "unchanged": 3, "removed": 0}
    assert [one.prompt_excerpt for one in version.tasks.order_by("index")] == ["x", "x", "y", "z"]
    assert load(dataset, X, mode="upsert", split="test").errors[0]["code"] == "ambiguous_id"
    assert base.tasks.count() == 3


def test_duplicates_are_kept_skipped_or_refused_as_was_chosen(dataset):
    rows = [row(1), row(2), row(1, "other"), row(2)]
    kept = load(dataset, *rows)
    assert (kept.accepted, kept.counts["duplicate"], kept.version.task_count) == (4, 2, 4)
    skipped = load(dataset, *rows, on_duplicate="skip")
    assert (skipped.accepted, skipped.counts["duplicate"], ids(skipped.version)) == (2, 2, ["1", "2"])
    refused = load(dataset, *rows, on_duplicate="reject")
    assert (refused.state, [(e["line"], e["code"], e["message"]) for e in refused.errors]) == (
        "rejected",
        [(3, "duplicate", "the id 1 is already in line 1"), (4, "duplicate", "the id 2 is already in line 2")],
    )
    refused = load(dataset, make_row("a"), make_row("a"), on_duplicate="reject", on_error="skip")
    assert (refused.accepted, refused.errors[0]["message"]) == (1, "the same row is already in line 1")


def test_an_upsert_replaces_in_place_adds_at_the_end_and_leaves_the_rest(dataset, monkeypatch):
    monkeypatch.setattr(unchanged_rows, "COPIED_ROWS", 2)
    monkeypatch.setattr(version_loading, "CHUNK_ROWS", 2)
    base = load(dataset, *[row(n) for n in range(7)]).version
    mark_tasks(task_ids=[base.tasks.get(index=0).pk], retired=True)
    upload = load(dataset, row(8), row(3, "new"), row(5), row(9), mode="upsert", note="two more")
    version = upload.version
    assert (version.task_count, ids(version)) == (9, ["0", "1", "2", "3", "4", "5", "6", "8", "9"])
    assert version.changes == {"new": 2, "updated": 1, "unchanged": 6, "removed": 0}
    assert [task.row["expected_answer"] for task in version.tasks.order_by("index")] == ["4"] * 3 + ["new"] + ["4"] * 5
    assert (version.note, version.metrics["examples"]) == ("two more", 9)
    assert list(version.tasks.filter(is_retired=True).values_list("external_id", flat=True)) == ["0"]
    whole = load(dataset, *[task.row for task in version.tasks.order_by("index")]).version
    assert (whole.content_hash, whole.changes["unchanged"]) == (version.content_hash, 9)
    assert ids(base) == [str(n) for n in range(7)]


def test_an_upsert_into_an_empty_dataset_is_its_first_version(dataset):
    assert ids(load(dataset, row(1), row(2), mode="upsert").version) == ["1", "2"]


def test_an_upsert_of_a_refused_row_leaves_everything(dataset):
    load(dataset, row(1))
    upload = load(dataset, row(2), {"responses_create_params": {}}, mode="upsert")
    assert (upload.state, dataset.versions.count(), Task.objects.count()) == ("rejected", 1, 1)


def test_an_id_that_the_base_has_twice_cannot_be_replaced(dataset):
    load(dataset, row(1), row(1, "other"), row(2))
    upload = load(dataset, row(1, "third"), row(2, "new"), mode="upsert", on_error="skip")
    assert [(error["line"], error["code"]) for error in upload.errors] == [(1, "ambiguous_id")]
    assert upload.version.task_count == 3


@pytest.mark.parametrize(
    ("choices", "argument"),
    [
        ({"mode": "upsert", "on_duplicate": "keep"}, "on_duplicate"),
        ({"mode": "merge"}, "mode"),
        ({"on_error": "ignore"}, "on_error"),
        ({"split_ratios": {"train": 0.5}}, "split_ratios"),
        ({"split_ratios": {"train": -1, "test": 2}}, "split_ratios"),
        ({"split_ratios": {"": 1}}, "split_ratios"),
        ({"split_ratios": {"train": float("nan")}}, "split_ratios"),
        ({"split_ratios": {"train": 1.0}, "split": "test"}, "split"),
        ({"split_seed": -1}, "split_seed"),
        ({"mapping": "nobody"}, "mapping"),
        ({"mapping": "no\x00body"}, "mapping"),
        ({"mapping": "no\ud800body"}, "mapping"),
        ({"mapping": {"inptu": "q"}}, "mapping"),
        ({"mapping": {"input": "q", "user": "{q}"}}, "mapping/input"),
        ({"mapping": {"user": "\x00{q}"}}, "mapping"),
    ],
)
def test_a_choice_that_cannot_be_is_refused_by_name_and_stores_nothing(dataset, choices, argument):
    with pytest.raises(ChoiceRefused) as refused:
        load(dataset, row(1), **choices)
    assert (refused.value.argument, Upload.objects.count()) == (argument, 0)


def test_splits_are_given_by_the_row_by_the_upload_or_by_a_seeded_share(dataset):
    rows = [row(n) for n in range(400)] + [row(1000, split="test")]
    given = load(dataset, *rows, split="train").version
    assert given.metrics["splits"] == {"train": 400, "test": 1}
    shares = {"train": 0.8, "validation": 0.2}
    shared = load(dataset, *rows, split_ratios=shares, split_seed=7).version
    again = load(dataset, *reversed(rows), split_ratios=shares, split_seed=7).version
    other = load(dataset, *rows, split_ratios=shares, split_seed=8).version

    def splits(version: DatasetVersion) -> dict[str, str]:
        return dict(version.tasks.values_list("external_id", "split"))

    assert 280 < shared.metrics["splits"]["train"] < 360
    assert splits(shared) == splits(again)
    assert splits(shared) != splits(other)
    assert splits(shared)["1000"] == "test"


def test_tags_of_rows_are_stored_and_found(dataset):
    version = load(dataset, row(1, tags=["math", "hard"]), row(2, tags=["math"]), row(3, tags=None)).version
    assert version.metrics["tags"] == {"math": 2, "hard": 1}
    assert [task.external_id for task in Task.objects.tagged("hard")] == ["1"]
    assert Task.objects.tagged("har").count() == 0


def test_versions_are_compared_by_key_and_row(dataset, django_assert_num_queries):
    one = load(dataset, row(1), row(2), row(3)).version
    two = load(dataset, row(2), row(3, "5"), row(4)).version
    three = load(dataset, row(1), row(2), row(3, "5", more=True)).version
    assert count_changes(old=one, new=two) == {"added": 1, "removed": 1, "changed": 1, "unchanged": 1}
    assert count_changes(old=one, new=three) == {"added": 0, "removed": 0, "changed": 1, "unchanged": 2}
    assert count_changes(old=three, new=one) == {"added": 0, "removed": 0, "changed": 1, "unchanged": 2}
    assert [task.external_id for task in find_changes(old=one, new=two, kind="removed")] == ["1"]
    assert [task.external_id for task in find_changes(old=one, new=two, kind="added")] == ["4"]
    [(task, before)] = with_counterparts(find_changes(old=one, new=three, kind="changed"), old=one)
    assert (task.version, before.version, before.external_id) == (three, one, "3")
    assert changed_fields(before.row_json, task.row_json) == ["expected_answer", "more"]
    assert changed_fields('{"a": {"x": 1, "y": 2}}', '{"a": {"y": 2, "x": 1}}') == []


def test_tasks_are_marked_and_the_version_counts_again(dataset):
    version = load(dataset, row(1, tags=["a"]), row(2, tags=["a", "b"]), row(3), split="train").version
    first, second = list(version.tasks.order_by("index"))[:2]
    user = make_user()
    marked = mark_tasks(
        task_ids=[first.pk, second.pk, 10**9], split="test", add_tags=[" c ", ""], remove_tags=["a"], user=user
    )
    assert marked == 2
    assert [(task.split, task.tags) for task in version.tasks.order_by("index")] == [
        ("test", ["c"]), ("test", ["b", "c"]), ("train", []),
    ]  # fmt: skip
    version.refresh_from_db()
    assert (version.metrics["splits"], version.metrics["tags"]) == ({"test": 2, "train": 1}, {"c": 2, "b": 1})
    assert AuditEntry.objects.filter(action="task.mark", user=user).count() == 1
    with pytest.raises(MarkRefused):
        mark_tasks(task_ids=range(1001))


@pytest.mark.parametrize("mode", ["replace", "upsert"])
def test_marks_stay_with_the_task_in_the_next_version(dataset, mode):
    rows = [row(1, tags=["a", "b"]), row(2, tags=["a"], split="train"), row(3), make_row("no id"), row(5, tags=["a"])]
    base = load(dataset, *rows).version
    tasks = list(base.tasks.order_by("index").values_list("pk", flat=True))
    mark_tasks(task_ids=tasks[:2], split="test", add_tags=["mine"], remove_tags=["a"], retired=True)
    mark_tasks(task_ids=tasks[2:4], split="held", add_tags=["mine"], retired=True)
    mark_tasks(task_ids=tasks[4:], remove_tags=["a"])
    changed = [row(1, "5", tags=["b", "c"]), row(2, "5", tags=["a"], split="train"), row(3), make_row("no id")]
    changed += [row(5, "5", tags=["a", "d"]), row(6)]
    version = load(dataset, *changed, mode=mode).version
    assert [(one.split, one.tags, one.is_retired) for one in version.tasks.order_by("index")] == [
        ("test", ["b", "c", "mine"], True),
        ("test", ["mine"], True),
        ("held", ["mine"], True),
        ("held", ["mine"], True),
        ("", ["d"], False),
        ("", [], False),
    ]
    assert version.metrics["splits"] == {"test": 2, "held": 2}
    assert version.metrics["tags"] == {"mine": 4, "b": 1, "c": 1, "d": 1}


def test_values_of_the_row_and_the_upload_override_earlier_marks(dataset):
    base = load(dataset, row(1, split="train", tags=["a"]), row(2), row(3, split="train")).version
    mark_tasks(task_ids=list(base.tasks.values_list("pk", flat=True)), split="marked")
    version = load(dataset, row(1, split="test", tags=[]), row(2), row(3, split="train"), split="chosen").version
    assert [(one.split, one.tags) for one in version.tasks.order_by("index")] == [
        ("test", []), ("chosen", []), ("marked", []),
    ]  # fmt: skip


def test_marks_of_a_duplicate_id_are_not_carried_over(dataset):
    base = load(dataset, row(1), row(1, "other")).version
    mark_tasks(task_ids=[base.tasks.get(index=0).pk], retired=True)
    assert load(dataset, row(1), row(1, "other")).version.tasks.filter(is_retired=True).count() == 0


@pytest.mark.parametrize("choice", [{"split": "test"}, {"split_ratios": {"test": 1.0}}])
def test_a_split_that_an_upsert_chooses_is_that_of_unchanged_rows_too(dataset, choice):
    base = load(dataset, row(1), row(2), row(3, split="own"), row(4)).version
    mark_tasks(task_ids=list(base.tasks.values_list("pk", flat=True)), add_tags=["mine"])
    upload = load(dataset, row(1), row(2, "5"), row(3, split="own"), row(5), mode="upsert", **choice)
    version = upload.version
    splits = [(one.external_id, one.split) for one in version.tasks.order_by("index")]
    assert splits == [("1", "test"), ("2", "test"), ("3", "own"), ("4", ""), ("5", "test")]
    assert list(version.tasks.tagged("mine").values_list("index", flat=True)) == [0, 1, 2, 3]
    assert version.changes == {"new": 1, "updated": 1, "unchanged": 3, "removed": 0}
    assert (version.task_count, version.metrics["splits"]) == (5, {"test": 3, "own": 1})


def test_a_retired_task_is_left_out_of_new_collections(dataset):
    version = load(dataset, row(1), row(2)).version
    plan = {"dataset": dataset, "agent": make_agent(), "policy_model": make_policy_model()}
    mark_tasks(task_ids=[version.tasks.get(index=0).pk], retired=True)
    collection = plan_collection(Plan(**plan))
    assert list(Rollout.objects.filter(collection=collection).values_list("task__external_id", flat=True)) == ["2"]
    mark_tasks(task_ids=[version.tasks.get(index=1).pk], retired=True)
    with pytest.raises(NothingToCollect):
        plan_collection(Plan(**plan))
    mark_tasks(task_ids=list(version.tasks.values_list("pk", flat=True)), retired=False)
    assert plan_collection(Plan(**plan)).rollouts.count() == 2


def test_all_rows_are_returned_as_uploaded(dataset, monkeypatch):
    monkeypatch.setattr("apps.tasks.unchanged_rows.CHUNK_ROWS", 2)
    rows = [row(n) for n in range(5)]
    version = load(dataset, *rows).version
    assert [json.loads(line) for line in b"".join(read_rows(version=version)).splitlines()] == rows


def test_a_version_is_deleted_in_chunks_and_its_number_never_comes_back(dataset, monkeypatch):
    monkeypatch.setattr(dataset_deletion, "CHUNK_ROWS", 2)
    load(dataset, row(1))
    second = load(dataset, *[row(n) for n in range(5)]).version
    deletion = queue_deletion(dataset=dataset, version=second, user=make_user())
    assert (dataset.latest_version().number, Task.objects.ready().count()) == (1, 1)
    assert (delete_next(), delete_next()) == (True, False)
    deletion.refresh_from_db()
    assert (deletion.state, deletion.total, deletion.deleted, deletion.name) == ("done", 5, 5, "sums@v2")
    assert (Task.objects.count(), dataset.versions.count()) == (1, 1)
    assert load(dataset, row(1)).version.number == 3


def test_a_dataset_is_deleted_with_its_versions_uploads_and_files(dataset, uploads_dir):
    load(dataset, row(1))
    load(dataset, {"a": 1}, row(1), on_error="skip")
    load(dataset, row(1), row(2))
    assert len(list(uploads_dir.iterdir())) == 1
    deletion = queue_deletion(dataset=dataset)
    with pytest.raises(AlreadyBeingDeleted):
        queue_deletion(dataset=dataset)
    with pytest.raises(DatasetIsBeingDeleted):
        load(dataset, row(1))
    assert delete_next() is True
    deletion.refresh_from_db()
    assert (deletion.state, deletion.deleted, deletion.dataset) == ("done", 4, None)
    assert [model.objects.count() for model in (Dataset, DatasetVersion, Task, Upload)] == [0, 0, 0, 0]
    assert list(uploads_dir.iterdir()) == []


def test_a_dataset_into_which_a_file_is_loaded_is_not_deleted(dataset):
    store_file(dataset=dataset, stream=io.BytesIO(orjson.dumps(row(1))), filename="a.jsonl")
    with pytest.raises(AlreadyBeingDeleted, match="Wait until it is finished"):
        queue_deletion(dataset=dataset)
    load_queued_upload()
    assert queue_deletion(dataset=dataset).total == 1


def test_what_collections_were_made_of_is_not_deleted(dataset):
    load(dataset, row(1))
    make_collection(dataset=dataset)
    for version in (None, dataset.latest_version()):
        with pytest.raises(StillInUse, match=r"used by 1 collection"):
            queue_deletion(dataset=dataset, version=version)
    assert (Deletion.objects.count(), Task.objects.ready().count()) == (0, 1)


def test_a_collection_that_began_meanwhile_stops_the_deletion_and_all_comes_back(dataset):
    load(dataset, row(1))
    version = dataset.latest_version()
    deletion = queue_deletion(dataset=dataset)
    DatasetVersion.objects.update(state="ready")
    make_collection(dataset=dataset)
    DatasetVersion.objects.update(state="deleting")
    assert delete_next() is True
    deletion.refresh_from_db()
    version.refresh_from_db()
    assert (deletion.state, version.state, Task.objects.count()) == ("failed", "ready", 1)
    assert "1 collection" in deletion.message


def test_a_deletion_whose_worker_was_lost_is_taken_up_again(dataset):
    load(dataset, row(1))
    deletion = queue_deletion(dataset=dataset)
    Deletion.objects.update(state="deleting", touched_at=timezone.now() - timedelta(minutes=6))
    assert delete_next() is True
    deletion.refresh_from_db()
    assert deletion.state == "done"


def test_a_worker_that_leaves_hands_its_deletion_on(dataset, monkeypatch):
    load(dataset, row(1))
    deletion = queue_deletion(dataset=dataset)

    def leave() -> None:
        raise process_exit.Leaving

    monkeypatch.setattr(process_exit, "check", leave)
    with pytest.raises(process_exit.Leaving):
        delete_next()
    deletion.refresh_from_db()
    assert deletion.state == "queued"
    monkeypatch.undo()
    assert delete_next() is True
    assert Dataset.objects.count() == 0
