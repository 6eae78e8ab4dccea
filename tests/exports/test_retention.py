"""Retention rules: what they match, what protects a collection, and that a run deletes what the dry run named."""

import re
from dataclasses import replace
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db.models import Sum
from django.db.models.functions import Length
from django.utils import timezone

from apps.exports.export_orders import ExportOrder, ExportRefused, prepare_export
from apps.exports.models import Export
from apps.exports.retention.retention_plan import RetentionRefused, apply_retention, plan_retention
from apps.exports.retention.retention_rule import RetentionRule
from apps.pairs.models import PairSet
from apps.pairs.pair_sets import PairingRefused, PairOrder, queue_pair_set
from apps.reviews.comments.commenting import add_comment
from apps.reviews.models import Queue
from apps.reviews.queues.queue_changes import create_queue
from apps.reviews.queues.queue_items import QueueRefused
from apps.rollouts.metrics.collection_figures import measure_collection
from apps.rollouts.models import Collection, Reverification, Rollout, RolloutWords, TraceEvent
from apps.rollouts.reverification.reverification_jobs import ReverifyRefused, queue_reverification
from apps.rollouts.reverification.reverification_spec import ReverificationOrder
from apps.rollouts.search.word_index import index_all, mark_unindexed
from apps.rollouts.steering.collection_deletion import delete_next_collection
from apps.rollouts.trace_payloads import STORED
from apps.tracking.models import TrackedRun
from tests.api.rows import make_tracked_run
from tests.factories import make_collection, make_dataset, make_rollout, make_user
from tests.reviews.queues import make_rubric

pytestmark = pytest.mark.django_db


def make_finished(*, days: float = 100, rollouts: int = 3, **fields) -> Collection:
    finished = timezone.now() - timedelta(days=days)
    made = make_collection(state="completed", total=rollouts, completed=rollouts, **fields)
    Collection.objects.filter(pk=made.pk).update(finished_at=finished)
    for _ in range(rollouts):
        make_rollout(made)
    mark_unindexed(Rollout.objects.filter(collection=made))
    list(index_all())
    return Collection.objects.get(pk=made.pk)


def planned(**rule) -> set[int]:
    return {each.collection.pk for each in plan_retention(RetentionRule(**rule)).deleted}


def carry_out() -> None:
    while delete_next_collection():
        pass


def stored() -> tuple[int, int, int]:
    """Rollouts, events and bytes of payloads in the database."""
    size = TraceEvent.objects.aggregate(size=Sum(Length(STORED), default=0))["size"]
    return Rollout.objects.count(), TraceEvent.objects.count(), size


def test_a_rule_matches_by_age_archived_state_collection_and_size():
    old, young, running = make_finished(days=91), make_finished(days=89), make_collection()
    archived = make_finished(rollouts=1)
    Collection.objects.filter(pk=archived.pk).update(archived_at=timezone.now())
    assert running.pk not in planned(older_than_days=0)
    assert planned() == {old.pk, archived.pk}
    assert planned(older_than_days=89) == {old.pk, young.pk, archived.pk}
    assert planned(archived="archived") == {archived.pk}
    assert planned(archived="unarchived") == {old.pk}
    assert planned(collections=[archived, young]) == {archived.pk}
    sizes = {each.collection.pk: each.bytes / 1024**2 for each in plan_retention(RetentionRule()).deleted}
    assert planned(min_megabytes=sizes[old.pk]) == {old.pk}
    assert planned(min_megabytes=sizes[archived.pk]) == {old.pk, archived.pk}


@pytest.mark.parametrize("what", ["traces", "collections"])
def test_a_run_deletes_what_the_dry_run_named(what):
    kept = make_finished(days=1)
    deleted = [make_finished(), make_finished(rollouts=2)]
    before = stored()
    kept_size = TraceEvent.objects.filter(rollout__collection=kept).aggregate(size=Sum(Length(STORED)))["size"]
    dry = StringIO()
    call_command("retention", "--what", what, stdout=dry)
    assert stored() == before
    plan = plan_retention(RetentionRule(what=what))
    assert [each.collection.pk for each in plan.deleted] == [each.pk for each in deleted]
    run = StringIO()
    call_command("retention", "--what", what, "--run", stdout=run)
    assert dry.getvalue().splitlines()[-1].removeprefix("Would delete") == run.getvalue().splitlines()[-1][7:]
    rollouts, events, size = stored()
    assert (before[1] - events, size) == (plan.events, kept_size)
    assert before[0] - rollouts == (plan.rollouts if what == "collections" else 0)
    assert plan.rollouts == 5
    # Words of the search index count too.
    assert plan.bytes > before[2] - size > 0
    assert set(RolloutWords.objects.values_list("rollout__collection", flat=True)) == {kept.pk}
    assert planned(what=what) == set()


def test_rows_and_figures_stay_when_traces_are_deleted():
    collection = make_finished()
    rows = list(Rollout.objects.order_by("pk").values())
    figures = measure_collection(collection)
    [deletion] = apply_retention(RetentionRule())
    carry_out()
    deletion.refresh_from_db()
    assert (deletion.state, deletion.deleted, deletion.total) == ("done", 3, 3)
    collection.refresh_from_db()
    assert collection.traces_deleted_at is not None
    assert list(Rollout.objects.order_by("pk").values()) == rows
    after = measure_collection(collection)
    assert replace(after, trainability=figures.trainability) == figures
    assert [(one.reason, one.count) for one in after.trainability.left_out] == [("no_trace", figures.trainability.used)]
    assert TraceEvent.objects.count() == 0


def test_a_failed_deletion_of_traces_can_be_repeated():
    collection = make_finished()
    [deletion] = apply_retention(RetentionRule())
    type(deletion).objects.filter(pk=deletion.pk).update(state="failed")
    assert planned() == {collection.pk}
    assert len(apply_retention(RetentionRule())) == 1
    carry_out()
    assert planned() == set()
    assert TraceEvent.objects.count() == 0


def test_without_traces_no_export_pair_set_queue_or_reverification_can_be_made():
    collection = make_finished()
    rollout = collection.rollouts.first()
    prepare_export(ExportOrder(format="trl_sft", collection=collection))
    apply_retention(RetentionRule())
    collection.refresh_from_db()
    with pytest.raises(ExportRefused, match="traces"):
        prepare_export(ExportOrder(format="trl_sft", collection=collection))
    prepare_export(ExportOrder(format="trl_grpo", collection=collection))  # It has tasks only.
    with pytest.raises(PairingRefused, match="traces"):
        queue_pair_set(PairOrder(collection=collection))
    with pytest.raises(QueueRefused, match="traces"):
        create_queue(queue=Queue(name="q"), items=[(rollout.task_id, (rollout.pk,))], user=None)
    with pytest.raises(ReverifyRefused, match="traces"):
        queue_reverification(ReverificationOrder(collection=collection))


def use_in_export(collection):
    Export.objects.create(format="trl_sft", collection=collection)


def use_in_export_of_pairs(collection):
    other = make_collection(dataset=collection.dataset)
    pair_set = PairSet.objects.create(name="p", collection=other, rule={})
    pair_set.further.add(collection)
    Export.objects.create(format="trl_dpo", collection=other, pair_set=pair_set)


def use_in_pair_set(collection):
    PairSet.objects.create(name="p", collection=collection, rule={})


def use_in_queue(collection):
    rollout = collection.rollouts.first()
    items = [(rollout.task_id, (rollout.pk,))]
    create_queue(queue=Queue(name="q", kind="rubric", rubric=make_rubric()), items=items, user=None)


def use_in_review(collection):
    add_comment(rollout=collection.rollouts.first(), text="Look", author=make_user())


@pytest.mark.parametrize(
    ("use", "options"),
    [
        (use_in_export, {"ignore_exports"}),
        (use_in_export_of_pairs, {"ignore_exports", "ignore_pair_sets"}),
        (use_in_pair_set, {"ignore_pair_sets"}),
        (use_in_queue, {"ignore_queues"}),
        (use_in_review, {"ignore_reviews"}),
    ],
)
def test_a_used_collection_is_kept_unless_its_use_is_named(use, options):
    used, free = make_finished(), make_finished()
    use(used)
    plan = plan_retention(RetentionRule())
    assert [each.collection.pk for each in plan.deleted] == [free.pk]
    assert {each.collection.pk: bool(each.uses) for each in plan.kept} == {used.pk: True}
    others = {"ignore_exports", "ignore_pair_sets", "ignore_queues", "ignore_reviews"} - options
    for left_out in options:
        assert used.pk not in planned(**dict.fromkeys(others | options - {left_out}, True))
    assert used.pk in planned(**dict.fromkeys(options, True))
    apply_retention(RetentionRule(what="collections"))
    carry_out()
    assert set(Collection.objects.filter(pk__in=[used.pk, free.pk])) == {used}


def test_an_unfinished_reverification_protects_in_any_case():
    collection = make_finished()
    Reverification.objects.create(collection=collection, total=1)
    every = dict.fromkeys(["ignore_exports", "ignore_pair_sets", "ignore_queues", "ignore_reviews"], True)
    assert planned(**every) == set()
    Reverification.objects.update(state="failed")
    assert planned(**every) == {collection.pk}


def test_a_collection_used_after_the_plan_is_kept(monkeypatch):
    from apps.exports.retention import retention_plan

    collection = make_finished()
    original = retention_plan.plan_retention

    def plan_then_use(rule):
        plan = original(rule)
        use_in_export(collection)
        return plan

    monkeypatch.setattr(retention_plan, "plan_retention", plan_then_use)
    assert apply_retention(RetentionRule()) == []
    collection.refresh_from_db()
    assert collection.traces_deleted_at is None


def test_a_rule_cannot_delete_collections_with_exports():
    with pytest.raises(RetentionRefused) as refused:
        plan_retention(RetentionRule(what="collections", ignore_exports=True))
    assert refused.value.argument == "ignore_exports"
    with pytest.raises(CommandError, match="exports first"):
        call_command("retention", "--what", "collections", "--ignore-exports")


def test_the_command_takes_collections_and_names_what_is_kept():
    used, free = make_finished(), make_finished()
    use_in_export(used)
    output = StringIO()
    call_command("retention", "--collection", str(used.pk), "--collection", str(free.pk), stdout=output)
    kept, deleted, total = output.getvalue().splitlines()
    assert kept.startswith("kept") and used.label in kept and "exports: 1" in kept
    assert deleted.startswith("delete") and free.label in deleted
    assert re.search(r"3 rollouts: 18 events, [\d,]+ bytes", total)
    with pytest.raises(CommandError, match="collection 999999"):
        call_command("retention", "--collection", "999999")
    with pytest.raises(CommandError, match="at least 0"):
        call_command("retention", "--older-than-days", "-1")


def test_a_dataset_of_deleted_collections_can_be_deleted_afterwards():
    dataset = make_dataset()
    make_finished(dataset=dataset)
    apply_retention(RetentionRule(what="collections"))
    carry_out()
    dataset.delete()
    assert not Collection.objects.exists()


def test_a_tracked_run_that_is_not_sent_protects_in_any_case():
    run = make_tracked_run(collection=make_finished())
    every = dict.fromkeys(["ignore_exports", "ignore_pair_sets", "ignore_queues", "ignore_reviews"], True)
    assert planned(**every) == set()
    TrackedRun.objects.update(state="finished")
    assert planned(**every) == {run.collection_id}
