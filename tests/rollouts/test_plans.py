"""What a plan chooses, resumes, estimates; and what becomes of a collection afterwards: archive, deletion."""

from dataclasses import replace

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import ValidationError

from apps.accounts.models import AuditEntry
from apps.gym.traces.items import message
from apps.rollouts.models import Collection, CollectionDeletion, Rollout, TraceEvent
from apps.rollouts.plans.estimates import estimate_plan
from apps.rollouts.plans.plan_spec import Plan, change_plan, plan_again, plan_rest
from apps.rollouts.plans.planning import PlanConflict, plan_collection
from apps.rollouts.plans.task_selection import NothingToCollect, choose_rollouts
from apps.rollouts.steering.collection_deletion import delete_next_collection, queue_collection_deletion
from apps.rollouts.steering.controls import CannotSteer, archive_collection, restore_collection
from apps.rollouts.steering.local_worker import finish_collection
from apps.tasks.dataset_deletion import queue_deletion
from apps.tasks.deletion_jobs import AlreadyBeingDeleted
from apps.tasks.models import Task
from tests.factories import (
    make_agent,
    make_collection,
    make_dataset,
    make_environment,
    make_next_version,
    make_policy_model,
    make_rollout,
    make_row,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def dataset():
    """Six tasks: four to train on, of which the third is hard and the fourth retired, and two to validate with."""
    dataset = make_dataset([make_row(f"What is {n} + 1?", str(n + 1)) for n in range(6)])
    tasks = list(Task.objects.filter(dataset=dataset).order_by("index"))
    for task in tasks:
        task.split = "train" if task.index < 4 else "validation"
        task.prompt_excerpt = f"What is {task.index} + 1?"
        task.tags = ["hard", "math"] if task.index in {2, 5} else ["math"]
        task.is_retired = task.index == 3
        task.save()
    return dataset


def plan(dataset, **fields):
    return {"dataset": dataset, "agent": make_agent(), "policy_model": make_policy_model(), **fields}


def planned(collection):
    """(index, repeat) of every rollout, in order."""
    return list(collection.rollouts.order_by("pk").values_list("task__index", "repeat"))


CHOICES = [
    ({"repeats": 1}, [(0, 0), (1, 0), (2, 0), (4, 0), (5, 0)]),
    ({"split_repeats": {"train": 2}}, [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (4, 0), (5, 0)]),
    ({"splits": ["validation"], "repeats": 2}, [(4, 0), (4, 1), (5, 0), (5, 1)]),
    ({"splits": ["train", "validation"], "limit": 4}, [(0, 0), (1, 0), (2, 0), (4, 0)]),
    ({"tags": ["hard", "math"]}, [(2, 0), (5, 0)]),
    ({"tags": ["math"], "search": "IS 4", "split_repeats": {"validation": 3}}, [(4, 0), (4, 1), (4, 2)]),
]


@pytest.mark.parametrize(("fields", "wanted"), CHOICES)
def test_a_plan_makes_the_rollouts_it_chose_and_counts_them_before(dataset, fields, wanted):
    arguments = plan(dataset, **fields)
    assert estimate_plan(Plan(**arguments))[1:3] == (len({index for index, _ in wanted}), len(wanted))
    collection = plan_collection(Plan(**arguments))
    assert planned(collection) == wanted
    assert collection.total == len(wanted)


def test_filters_that_leave_nothing_say_so(dataset):
    with pytest.raises(NothingToCollect, match="matches the filters"):
        plan_collection(Plan(**plan(dataset, tags=["nobody"])))
    assert Collection.objects.count() == 0


@pytest.fixture
def earlier(dataset):
    """Two repeats of five tasks, of which one failed, one is completed, and the rest was cancelled."""
    collection = plan_collection(Plan(**plan(dataset, repeats=2, seed=5)))
    Rollout.objects.filter(collection=collection).update(status="cancelled")
    failed = Rollout.objects.filter(collection=collection, task__index=1, repeat=1)
    failed.update(status="failed", error_kind="policy_error", attempt=1, finished_at=collection.created_at)
    done = Rollout.objects.filter(collection=collection, task__index=0, repeat=0)
    done.update(status="completed", stop_reason="answered", attempt=1, finished_at=collection.created_at)
    Collection.objects.filter(pk=collection.pk).update(
        state="cancelled", completed=1, failed=1, cancelled=8, finished_at=collection.created_at
    )
    collection.refresh_from_db()
    return collection


def test_only_what_failed_is_made_again_with_its_repeat_and_seed(earlier):
    rest = plan_rest(earlier, only_failed=True)
    assert estimate_plan(rest)[1:3] == (5, 1)
    again = plan_collection(rest)
    assert planned(again) == [(1, 1)]
    old = earlier.rollouts.get(task__index=1, repeat=1)
    assert list(again.rollouts.values_list("seed", flat=True)) == [old.seed]
    assert (again.resume_from, again.only_failed, again.snapshot["plan"]["resume_from"]) == (earlier, True, earlier.pk)


def test_resuming_makes_what_failed_was_cancelled_or_is_missing(earlier):
    rest = replace(plan_rest(earlier), repeats=3)
    assert estimate_plan(rest).rollouts == 14
    made = plan_collection(rest)
    everything = [(index, repeat) for index in (0, 1, 2, 4, 5) for repeat in range(3)]
    assert planned(made) == [one for one in everything if one != (0, 0)]


def test_what_waits_or_runs_in_the_earlier_collection_is_not_made_again(earlier):
    Rollout.objects.filter(collection=earlier, status="cancelled").update(status="queued")
    assert planned(plan_collection(plan_rest(earlier))) == [(1, 1)]


def test_retired_tasks_are_left_out_of_a_resumed_plan(earlier, dataset):
    Task.objects.filter(dataset=dataset, index=1).update(is_retired=True)
    with pytest.raises(NothingToCollect, match=f"These tasks have no failed rollouts in #{earlier.pk} "):
        plan_collection(plan_rest(earlier, only_failed=True))


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"only_failed": True}, "only_failed"),
        ({"split_repeats": {"train": 0}}, "split_repeats"),
        ({"tags": [""]}, "tags"),
        ({"search": "\x00"}, "search"),
        ({"prompt_template": {"user": "{"}}, "prompt_template"),
        ({"prompt_template": {"both": "x"}}, "prompt_template"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_by_its_field(dataset, fields, field):
    with pytest.raises(ValidationError) as refused:
        plan_collection(Plan(**plan(dataset, **fields)))
    assert list(refused.value.message_dict) == [field]


def test_an_earlier_collection_has_to_be_of_the_same_dataset(earlier):
    with pytest.raises(ValidationError, match="uses another dataset"):
        plan_collection(Plan(**plan(make_dataset(), resume_from=earlier)))


def test_a_clone_has_the_same_digest_and_another_seed_gives_another(earlier):
    again = plan_again(earlier)
    same, other = plan_collection(again), plan_collection(replace(again, seed=6))
    assert (same.snapshot_digest, planned(same)) == (earlier.snapshot_digest, planned(earlier))
    assert other.snapshot_digest != earlier.snapshot_digest
    assert len(same.snapshot_digest) == 64


@pytest.mark.parametrize(
    ("model", "agent"),
    [
        ({"version": "step-2"}, {}),
        ({"capture_tokens": True}, {}),
        ({}, {"strict_tools": "never"}),
        ({}, {"retry_empty_replies": True}),
    ],
)
def test_settings_that_change_the_tokens_change_the_digest(dataset, model, agent):
    given = plan(dataset)
    before = plan_collection(Plan(**given)).snapshot_digest
    for row, changes in ((given["policy_model"], model), (given["agent"], agent)):
        for name, value in changes.items():
            setattr(row, name, value)
        row.save()
    assert plan_collection(Plan(**given)).snapshot_digest != before


def test_an_estimate_goes_by_earlier_collections_like_it(dataset):
    model = make_policy_model(input_price=2.0, output_price=10.0, concurrency=2)
    like = {"dataset": dataset, "policy_model": model, "agent": make_agent()}
    begun = make_collection(**like, state="running", total=4, completed=3, failed=1, started_at="2026-01-01T00:00Z")
    for _ in range(3):
        make_rollout(begun, trace=[], duration=6.0)
    Collection.objects.filter(pk=begun.pk).update(input_tokens=4000, output_tokens=400)
    found = estimate_plan(Plan(**{**like, "repeats": 2}))
    assert (found.rollouts, found.input_tokens, found.output_tokens) == (10, 10_000, 1_000)
    assert (round(found.cost, 9), found.seconds, found.based_on) == (0.03, 6.0 * 5, [begun.pk])


def test_without_any_an_estimate_goes_by_the_words_of_the_tasks(dataset):
    found = estimate_plan(Plan(**plan(dataset, sampling={"max_output_tokens": 100}, limit=2)))
    assert (found.output_tokens, found.seconds, found.based_on) == (200, None, [])
    assert found.input_tokens > 10
    assert "6" in found.basis


def test_only_finished_collections_can_be_archived_and_restored():
    running, done = make_collection(), make_collection(state="completed")
    with pytest.raises(CannotSteer, match="only finished collections can be archived"):
        archive_collection(collection=running)
    for _ in range(2):
        assert archive_collection(collection=done).is_archived
    assert list(Collection.objects.listed()) == [running]
    assert not restore_collection(collection=done).is_archived
    assert set(Collection.objects.listed()) == {running, done}
    assert list(AuditEntry.objects.order_by("pk").values_list("action", flat=True)) == [
        "collection.archived",
        "collection.restored",
    ]


def test_a_deletion_removes_all_rows_of_a_collection():
    done, other = make_collection(state="completed", total=3), make_collection(state="completed")
    later = make_collection(dataset=done.dataset, resume_from=done, state="completed")
    for _ in range(3):
        make_rollout(done)
    kept = make_rollout(other)
    deletion = queue_collection_deletion(collection=done)
    assert (deletion.state, list(Collection.objects.present())) == ("queued", [later, other])
    with pytest.raises(AlreadyBeingDeleted):
        queue_collection_deletion(collection=done)
    assert (delete_next_collection(), delete_next_collection()) == (True, False)
    deletion.refresh_from_db()
    assert (deletion.state, deletion.deleted, deletion.share, deletion.collection) == ("done", 3, 1.0, None)
    assert list(Rollout.objects.all()) == [kept]
    assert set(TraceEvent.objects.values_list("rollout", flat=True)) == {kept.pk}
    later.refresh_from_db()
    assert later.resume_from is None


def test_a_collection_that_goes_on_is_not_deleted():
    with pytest.raises(CannotSteer, match="Cancel it first"):
        queue_collection_deletion(collection=make_collection())
    assert CollectionDeletion.objects.count() == 0


def test_a_dataset_can_be_deleted_once_its_collections_are(dataset):
    done = make_collection(dataset=dataset, state="completed")
    make_rollout(done)
    queue_collection_deletion(collection=done)
    delete_next_collection()
    assert queue_deletion(dataset=dataset).total == 6


@pytest.mark.usefixtures("migrated")
@pytest.mark.django_db(transaction=True)
def test_a_planned_template_is_what_the_model_is_asked(settings):
    settings.WORKER_BACKGROUND_JOBS = []
    dataset = make_dataset([make_row("What is 2 + 2?", "4", unit="apples")])
    template = {"system": "Count {unit}.", "user": "Carefully: {prompt}"}
    arguments = plan(dataset, prompt_template=template)
    collection = async_to_sync(finish_collection)(plan_collection(Plan(**arguments)), progress=lambda seen: None)
    prompt = next(event for event in collection.rollouts.get().trace() if type(event).__name__ == "Prompt")
    assert prompt.items == [message("system", "Count apples."), message("user", "Carefully: What is 2 + 2?")]


def test_the_choice_reads_a_version_of_the_earlier_collection(earlier):
    assert choose_rollouts(plan_rest(earlier)).version == earlier.version


def test_an_older_version_is_planned_and_estimated_and_a_clone_stays_with_it(dataset):
    make_next_version(dataset, [make_row()])
    older = plan(dataset, version=1)
    assert estimate_plan(Plan(**older))[1:3] == (5, 5)
    first = plan_collection(Plan(**older))
    assert (first.version.number, first.total, plan_collection(Plan(**plan(dataset))).total) == (1, 5, 1)
    clone = plan_collection(plan_again(first))
    assert (clone.version, clone.total) == (first.version, 5)
    latest = plan_collection(change_plan(plan_again(first), {"version": None}))
    assert (latest.version.number, latest.total) == (2, 1)
    other = make_dataset()
    elsewhere = plan_collection(change_plan(plan_again(first), {"dataset": other}))
    assert (elsewhere.version.dataset, elsewhere.total) == (other, 3)


def test_an_unknown_version_is_refused_with_the_known_ones(dataset):
    make_next_version(dataset, [make_row()])
    make_next_version(dataset, [make_row()])
    dataset.versions.filter(number=2).update(state="deleting")
    for make in (plan_collection, estimate_plan):
        with pytest.raises(ValidationError) as refusal:
            make(Plan(**plan(dataset, version=2)))
        [message] = refusal.value.message_dict["version"]
        assert ("no version 2" in message, "Choose one of: 3, 1" in message) == (True, True)
    assert Collection.objects.count() == 0


def test_a_collection_that_resumes_another_has_no_version_of_its_own(earlier, dataset):
    make_next_version(dataset, [make_row()])
    assert plan_collection(Plan(**plan(dataset, resume_from=earlier))).version == earlier.version
    with pytest.raises(ValidationError, match="Leave the version empty"):
        plan_collection(Plan(**plan(dataset, resume_from=earlier, version=2)))


def test_the_version_is_part_of_the_digest_of_a_key(dataset):
    make_next_version(dataset, [make_row()])
    asked = plan(dataset)
    first = plan_collection(Plan(**asked, version=1), idempotency_key="k")
    assert plan_collection(Plan(**asked, version=1), idempotency_key="k") == first
    with pytest.raises(PlanConflict):
        plan_collection(Plan(**asked, version=2), idempotency_key="k")


def test_only_unsolved_tasks_are_planned_and_a_clone_plans_the_same(dataset, earlier):
    make_rollout(earlier, task=Task.objects.get(dataset=dataset, index=4), reward=0.5)
    make_rollout(earlier, task=Task.objects.get(dataset=dataset, index=5), reward=1.0)
    hard = plan_collection(Plan(**plan(dataset, unsolved_in=earlier, limit=4)))
    assert planned(hard) == [(0, 0), (1, 0), (2, 0), (4, 0)]
    again = plan_again(hard)
    assert (again.unsolved_in, planned(plan_collection(again))) == (earlier, planned(hard))


def test_unsolved_tasks_are_of_the_same_version(dataset, earlier):
    make_next_version(dataset, [make_row()])
    with pytest.raises(ValidationError, match=r"this plan uses .*@v2"):
        plan_collection(Plan(**plan(dataset, unsolved_in=earlier)))


def _without_prompt(**fields):
    rows = [make_row("What is 1 + 1?", "2"), {**make_row(), "responses_create_params": {"input": []}}]
    return make_dataset(rows, environment=make_environment(builtin="", **fields))


def test_tasks_without_a_prompt_are_refused_if_no_component_gives_one():
    silent = _without_prompt(slug="silent", adapter="declared", verifier={"type": "exact_match"})
    with pytest.raises(ValidationError, match="Task 2 has no prompt") as refused:
        plan_collection(Plan(**plan(silent)))
    assert set(refused.value.message_dict) == {"agent"}
    with pytest.raises(ValidationError, match="Task 2 has no prompt"):
        estimate_plan(Plan(**plan(silent)))
    with pytest.raises(ValidationError, match="Task 2 has no prompt"):
        plan_collection(Plan(**plan(silent, limit=2)))
    assert not Collection.objects.exists()


def test_tasks_without_a_prompt_are_planned_where_one_can_be_given():
    silent = _without_prompt(slug="silent", adapter="declared", verifier={"type": "exact_match"})
    asking = _without_prompt(slug="asking", adapter="gymnasium", base_url="http://127.0.0.1:9")
    plans = [
        plan(asking),
        plan(silent, limit=1),
        plan(silent, prompt_template={"user": "Answer with {expected_answer}."}),
        plan(silent, agent=make_agent(slug="outside", kind="external")),
        plan(silent, agent=make_agent(slug="server", kind="agent_server", server_url="http://127.0.0.1:9")),
    ]
    assert [plan_collection(Plan(**each)).total for each in plans] == [2, 1, 2, 2, 2]
