"""Pair sets: counted before they are made, by rewards and by people, in versions, over collections, by workers."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone
from hypothesis import given, settings

from apps.exports.export_jobs import write_export
from apps.exports.export_orders import ExportOrder, ExportRefused, queue_export
from apps.exports.models import Export
from apps.gym import process_exit
from apps.gym.pairs import pair_making
from apps.gym.pairs.pair_rule import Rule
from apps.pairs import pair_set_jobs
from apps.pairs.models import PairSet, PreferencePair
from apps.pairs.pair_counts import PairMaker, count_pairs
from apps.pairs.pair_decisions import DecisionRefused, decide_pairs
from apps.pairs.pair_search import FLAGS, flag_pairs, flags_of, with_minimum_margin
from apps.pairs.pair_set_jobs import make_queued_pair_set
from apps.pairs.pair_sets import (
    CannotCancel,
    PairingRefused,
    PairOrder,
    PairSetInUse,
    build_pairs,
    cancel_pair_set,
    delete_pair_set,
    order_pairs,
    queue_pair_set,
)
from apps.pairs.set_differences import NothingToCompare, compare_pair_sets
from apps.reviews.models import Queue
from apps.reviews.queues.queue_changes import create_queue
from apps.reviews.queues.queue_items import fill_from_sets
from apps.reviews.reviews.reward_overrides import override_reward
from apps.rollouts.models import Collection, Rollout
from apps.rollouts.steering.collection_deletion import queue_collection_deletion
from apps.tasks.deletion_jobs import StillInUse
from apps.tasks.models import Dataset, DatasetVersion, Task
from tests.exports.test_exporting import read
from tests.factories import make_collection, make_rollout, make_trace, make_user
from tests.gym.test_pairs import rules
from tests.gym.traces import call, said, trace, turn
from tests.pairs.test_pairing import make_groups
from tests.reviews.queues import annotator, claim, say

pytestmark = pytest.mark.django_db
PROVENANCE = {f"pair_{name}" for name in ("strength", "reviewers", "agreeing", "adjudicated")} | {
    "chosen_length",
    "rejected_length",
}
CUT = {"stop_reason": "max_steps"}


def judge(better: Rollout, worse: Rollout, *, much: bool = False) -> None:
    """A reviewer says it on the page of a queue, on whatever side the better one is shown."""
    items = fill_from_sets([[better.pk, worse.pk]], kind="pairwise")
    queue = create_queue(queue=Queue(name="Queue", kind="pairwise", seed=7), items=items, reviewers=[], user=None)
    review = claim(queue, annotator())
    side = "ab"[review.arrangement.index(better.pk)]
    say(review, f"{side}_much" if much else side)


def sides(pair_set: PairSet) -> list[tuple[int, int]]:
    return list(pair_set.pairs.order_by("id").values_list("chosen_id", "rejected_id"))


@pytest.fixture
def mixed() -> Collection:
    """Groups of every kind, with what people said of some."""
    redacted = {"redactions": {"jwt": 1}}
    failed = {"status": "failed", "error_kind": "judge_error", "stop_reason": ""}
    collection = make_groups(
        [
            (0.0, "3"),
            (1.0, "4"),
            (0.5, "an answer that is much longer than any of the others"),
            (0.75, "4"),
            (0.25, "3"),
        ],
        [(1.0, "4"), (1.0, "5"), (0.0, "6", CUT)],
        [(0.5, "4"), (0.45, "5"), (None, "6", failed)],
        [(1.0, "4"), (0.0, "4"), (0.0, "5", redacted)],
        [(1.0, "4")],
        [(1.0, "4"), (0.0, "5"), (0.5, "6")],
    )
    groups = [list(collection.rollouts.filter(task=task).order_by("id")) for task in collection.version.tasks.all()]
    judge(groups[5][1], groups[5][0])
    judge(groups[0][2], groups[0][1])
    judge(groups[0][0], groups[0][2])
    override_reward(rollout=groups[1][1], reward=0.0, reason="It guessed.", author=make_user())
    return collection


def test_live_counts_equal_the_built_pairs(mixed):
    @settings(max_examples=40)
    @given(rules)
    def check(rule: Rule) -> None:
        counted = count_pairs([mixed], rule, seconds=None, max_pairs=1000)
        with transaction.atomic():
            made = build_pairs(PairOrder(collection=mixed, rule=rule))
            assert (made.state, made.pair_count) == ("ready", counted.counts.pairs)
            assert made.pairs.count() == counted.counts.pairs
            assert (made.counts, made.excluded, made.sources) == (
                counted.counts.groups,
                counted.counts.excluded,
                counted.counts.sources,
            )
            assert sides(made) == [(one.pair.chosen, one.pair.rejected) for one in counted.pairs]
            assert (counted.counts.whole, counted.counts.considered) == (True, made.considered)
            transaction.set_rollback(True)

    check()


def test_a_live_count_stops_within_a_group_and_counts_whole_groups_alone(mixed, monkeypatch):
    monkeypatch.setattr(pair_making, "COMPARISONS_PER_STEP", 1)
    counts = count_pairs([mixed], Rule(mode="all"), seconds=0.0, max_pairs=20).counts
    assert (counts.whole, counts.pairs, counts.considered, sum(counts.groups.values())) == (False, 0, 0, 0)
    monkeypatch.setattr(pair_making, "COMPARISONS_PER_STEP", 10**9)
    assert count_pairs([mixed], Rule(mode="all"), seconds=0.0).counts.considered == 18


def test_a_human_verdict_beats_the_reward_in_the_set_that_is_made_next_and_provenance_says_so():
    collection = make_groups([(1.0, "4"), (0.0, "5")])
    good, bad = collection.rollouts.order_by("-reward")
    first = build_pairs(PairOrder(collection=collection))
    judge(bad, good, much=True)
    second = build_pairs(PairOrder(collection=collection))
    assert (sides(first), sides(second)) == ([(good.pk, bad.pk)], [(bad.pk, good.pk)])
    pair = second.pairs.get()
    assert (pair.source, pair.strength, pair.reviewers, pair.agreement, pair.margin) == ("verdict", 2, 1, 1.0, None)
    assert (pair.chosen_reward, pair.rejected_reward, len(pair.reviews), flags_of(pair)) == (
        0.0,
        1.0,
        1,
        ["against_reward"],
    )
    assert (second.sources, second.version) == ({"verdict": 1}, 2)
    changes = compare_pair_sets(second)
    assert (changes.turned, changes.kept, changes.added, changes.removed) == (1, 0, 0, 0)
    export = write_export(export=queue_export(ExportOrder(format="trl_dpo", collection=collection, pair_set=second)))
    assert [(row["pair_source"], row["chosen"][-1]["content"]) for row in read(export)] == [("verdict", "5")]
    assert export.manifest["counts"]["pairs_by_source"] == {"verdict": 1}
    assert provenance_of(export) == {
        "pair_strength": 2,
        "pair_reviewers": 1,
        "pair_agreeing": 1,
        "pair_adjudicated": False,
        "chosen_length": 22,
        "rejected_length": 22,
    }
    by_reward = write_export(
        export=queue_export(ExportOrder(format="nemo_rl_dpo", collection=collection, pair_set=first))
    )
    assert provenance_of(by_reward) == {
        "pair_strength": 0,
        "pair_reviewers": 0,
        "pair_agreeing": 0,
        "pair_adjudicated": False,
        "chosen_length": 22,
        "rejected_length": 22,
    }


def provenance_of(export: Export) -> dict[str, Any]:
    (row,) = read(export)
    return {name: value for name, value in row.items() if name in PROVENANCE}


def test_reviewed_pairs_without_rewards_are_exported():
    collection = make_groups([(None, "4"), (None, "5")])
    one, other = collection.rollouts.order_by("id")
    judge(one, other)
    pair_set = build_pairs(PairOrder(collection=collection))
    export = write_export(export=queue_export(ExportOrder(format="trl_dpo", collection=collection, pair_set=pair_set)))
    (row,) = read(export)
    assert row["pair_source"] == "verdict"
    assert row.keys().isdisjoint({"margin", "reward_margin", "chosen_reward", "rejected_reward"})
    # Both are used, so neither is counted among those that are not.
    assert (pair_set.excluded, count_pairs([collection], Rule()).counts.excluded) == ({}, {})


def test_no_filter_by_margin_catches_what_people_chose():
    collection = make_groups([(1.0, "4"), (0.5, "5")], [(0.0, "4"), (1.0, "5")], [(None, "4"), (None, "5")])
    for task in collection.version.tasks.order_by("index")[1:]:
        judge(*task.rollouts.order_by("id"))
    pair_set = build_pairs(PairOrder(collection=collection))
    close, *chosen = pair_set.pairs.order_by("task__index")
    assert [(pair.source, pair.margin) for pair in (close, *chosen)] == [
        ("reward", 0.5),
        ("verdict", None),
        ("verdict", None),
    ]
    assert list(with_minimum_margin(pair_set.pairs.order_by("id"), 0.6)) == chosen
    assert with_minimum_margin(pair_set.pairs.all(), 0.5).count() == 3


@pytest.mark.parametrize(
    ("source", "margin"), [("verdict", -0.5), ("verdict", 1.0), ("reward", None), ("override", 0.0)]
)
def test_the_database_has_margins_of_rewards_alone(source, margin):
    pair_set = build_pairs(PairOrder(collection=make_groups([(1.0, "4"), (0.0, "5")])))
    with pytest.raises(IntegrityError), transaction.atomic():
        pair_set.pairs.update(source=source, margin=margin)


def test_an_overridden_reward_counts_unless_the_verifiers_is_asked_for():
    collection = make_groups([(1.0, "4"), (0.0, "5")])
    good, bad = collection.rollouts.order_by("-reward")
    override_reward(rollout=good, reward=-1.0, reason="It guessed.", author=make_user())
    verified = build_pairs(PairOrder(collection=collection, rule=Rule(reward_from="verifier")))
    assert sides(verified) == [(good.pk, bad.pk)]
    pair = build_pairs(PairOrder(collection=collection)).pairs.get()
    assert (pair.chosen_id, pair.source, pair.rejected_reward, pair.margin) == (bad.pk, "override", -1.0, 1.0)
    assert pair.verifier_rewards == {"rejected": 1.0}


def test_pairs_of_the_level_step_know_their_turn_and_are_exported_so():
    collection = make_collection()
    for number, (ending, reward) in enumerate([("4", 1.0), ("5", 0.0)]):
        events = trace(turn(call(call_id=f"c{number}")), turn(said(ending)))
        make_rollout(collection, reward=reward, trace=events)
    pair_set = build_pairs(PairOrder(collection=collection, rule=Rule(level="step")))
    assert (pair_set.pairs.get().turn, pair_set.level) == (1, "step")
    export = write_export(export=queue_export(ExportOrder(format="trl_dpo", collection=collection, pair_set=pair_set)))
    (row,) = read(export)
    assert export.options["level"] == "step"
    assert [row[side] for side in ("chosen", "rejected")] == [
        [{"role": "assistant", "content": text}] for text in ("4", "5")
    ]
    with pytest.raises(ExportRefused, match="has pairs of level step"):
        queue_export(
            ExportOrder(format="trl_dpo", collection=collection, pair_set=pair_set, options={"level": "trajectory"})
        )


def test_several_collections_of_a_dataset_are_one_set():
    first = make_groups([(1.0, "4")], [(0.0, "5"), (1.0, "6")])
    second = make_collection(dataset=first.dataset)
    for task, answer in zip(first.version.tasks.order_by("index"), ("7", "8"), strict=True):
        make_rollout(second, task=task, reward=0.0, trace=make_trace(answer, 0.0))
    alone = build_pairs(PairOrder(collection=first))
    both = build_pairs(PairOrder(collection=first, further=[second, first], rule=Rule(mode="all")))
    assert (alone.pair_count, both.pair_count, list(both.further.all())) == (1, 3, [second])
    export = write_export(export=queue_export(ExportOrder(format="trl_dpo", collection=second, pair_set=both)))
    assert export.rows == 3
    assert export.manifest["source"]["pair_set"]["collections"] == [first.pk, second.pk]
    Collection.objects.filter(pk=second.pk).update(state="completed", finished_at=timezone.now())
    second.refresh_from_db()
    with pytest.raises(StillInUse, match="1 pair set"):
        queue_collection_deletion(collection=second)


def add_version(dataset: Dataset, keys: list[str]) -> DatasetVersion:
    version = DatasetVersion.objects.create(dataset=dataset, number=2, state="ready", task_count=len(keys))
    row = dataset.tasks.first().row_json
    for index, key in enumerate(keys):
        Task.objects.create(dataset=dataset, version=version, index=index, key=key, row_json=row)
    return version


def test_tasks_of_other_versions_are_the_same_by_their_key_and_twins_are_not_paired_twice():
    first = make_groups([(1.0, "4")], [(1.0, "4")], [(1.0, "4")])
    for task, key in zip(first.version.tasks.order_by("index"), ("a", "a", ""), strict=True):
        Task.objects.filter(pk=task.pk).update(key=key)
    version = add_version(first.dataset, ["b", "a", ""])
    second = make_collection(dataset=first.dataset)
    assert second.version == version
    for task in version.tasks.order_by("index"):
        make_rollout(second, task=task, reward=0.0, trace=make_trace("5", 0.0))
    for order, groups in (([first, second], 5), ([second, first], 4)):
        pair_set = build_pairs(PairOrder(collection=order[0], further=order[1:]))
        pair = pair_set.pairs.get()
        assert {pair.chosen.task.key, pair.rejected.task.key} == {"a"}
        assert pair.task.version == order[0].version
        assert sum(pair_set.counts.values()) == groups


def test_other_prompts_over_collections_are_not_paired():
    first = make_groups([(1.0, "4")])
    second = make_collection(dataset=first.dataset)
    events: list[Any] = list(make_trace("5", 0.0))
    events[1].items[0]["content"] = "Something else"
    make_rollout(second, task=first.version.tasks.first(), reward=0.0, trace=events)
    assert build_pairs(PairOrder(collection=first, further=[second])).counts["different_prompts"] == 1


def test_made_again_it_is_a_new_version_that_tells_what_changed():
    collection = make_groups([(1.0, "4"), (0.0, "5"), (0.5, "6")], [(0.4, "4"), (0.0, "5")])
    first = build_pairs(PairOrder(collection=collection, name="sums"))
    second = build_pairs(PairOrder(collection=collection, name="sums", rule=Rule(mode="all", margin=0.5)))
    assert [(one.name, one.version) for one in (first, second)] == [("sums", 1), ("sums", 2)]
    assert first.rule_digest != second.rule_digest
    changes = compare_pair_sets(second)
    assert (changes.one, changes.kept, changes.added, changes.removed) == (first, 1, 2, 1)
    assert changes.settings == {"margin": (0.1, 0.5), "mode": ("best_worst", "all")}
    with pytest.raises(NothingToCompare):
        compare_pair_sets(first)
    with pytest.raises(IntegrityError), transaction.atomic():
        PairSet.objects.create(name="sums", version=2, collection=collection)


def test_the_same_two_rollouts_at_another_turn_are_another_pair():
    collection = make_groups([(1.0, "4"), (0.0, "5")])
    for rule in (Rule(), Rule(level="step"), Rule(level="step", margin=0.2)):
        made = build_pairs(PairOrder(collection=collection, name="sums", rule=rule))
    assert list(made.pairs.values_list("turn", flat=True)) != [None]
    at_the_same = compare_pair_sets(made)
    since_whole = compare_pair_sets(made, since=1)
    assert (at_the_same.kept, at_the_same.added, at_the_same.removed) == (1, 0, 0)
    assert (since_whole.kept, since_whole.added, since_whole.removed) == (0, 1, 1)


def test_decisions_carry_over_to_the_next_version():
    collection = make_groups([(1.0, "4"), (0.0, "5")], [(1.0, "4"), (0.0, "5")])
    first, user = build_pairs(PairOrder(collection=collection, name="sums")), make_user()
    pair = first.pairs.order_by("id").first()
    assert decide_pairs(pairs=[pair], status="rejected", reason="A guess.", user=user) == 1
    assert decide_pairs(pairs=[pair], status="rejected", reason="A guess.", user=user) == 0
    second = build_pairs(PairOrder(collection=collection, name="sums"))
    kept = second.pairs.get(status="rejected")
    assert (kept.chosen_id, kept.rejected_id) == (pair.chosen_id, pair.rejected_id)
    decision = kept.decisions.get()
    assert (decision.status, decision.reason, decision.user, decision.carried) == ("rejected", "A guess.", user, True)
    third = build_pairs(PairOrder(collection=collection, name="sums", keeps_decisions=False))
    assert third.pairs.filter(status="proposed").count() == 2


def test_a_decision_outlasts_a_version_that_did_not_make_the_pair_until_it_is_taken_back_or_forgotten():
    collection = make_groups([(1.0, "4"), (0.5, "5")], [(1.0, "4"), (0.0, "5")])

    def make(margin: float, **fields: Any) -> list[str]:
        made = build_pairs(PairOrder(collection=collection, name="sums", rule=Rule(margin=margin), **fields))
        return list(made.pairs.order_by("-margin").values_list("status", flat=True))

    def decide(status: str) -> None:
        decide_pairs(pairs=[PreferencePair.objects.filter(margin=0.5).latest("id")], status=status, reason="A guess.")

    assert make(0.1) == ["proposed", "proposed"]
    decide("rejected")
    assert [make(0.6), make(0.6), make(0.1)] == [["proposed"], ["proposed"], ["proposed", "rejected"]]
    decide("proposed")
    assert [make(0.6), make(0.1)] == [["proposed"], ["proposed", "proposed"]]
    decide("accepted")
    assert [make(0.6, keeps_decisions=False), make(0.1)] == [["proposed"], ["proposed", "proposed"]]


def test_a_rejection_says_why():
    pair_set = build_pairs(PairOrder(collection=make_groups([(1.0, "4"), (0.0, "5")])))
    with pytest.raises(DecisionRefused, match="Give a reason"):
        decide_pairs(pairs=list(pair_set.pairs.all()), status="rejected")
    assert pair_set.pairs.get().status == "proposed"


def test_rejected_pairs_leave_exports_unless_asked_and_accepted_ones_can_be_asked_for_alone():
    collection = make_groups(*[[(1.0, "4"), (0.0, "5")]] * 3)
    pair_set = build_pairs(PairOrder(collection=collection))
    accepted, rejected, _ = pair_set.pairs.order_by("id")
    decide_pairs(pairs=[accepted], status="accepted")
    decide_pairs(pairs=[rejected], status="rejected", reason="A guess.")

    def written(**filters: Any) -> tuple[list[int], dict[str, int]]:
        order = {"format": "trl_dpo", "collection": collection, "pair_set": pair_set, "filters": filters}
        export = write_export(export=queue_export(ExportOrder(**order)))
        return [row["pair_id"] for row in (read(export) if export.rows else [])], export.manifest["counts"]["dropped"]

    everything = [pair.pk for pair in pair_set.pairs.order_by("id")]
    assert written() == ([accepted.pk, everything[2]], {"rejected": 1})
    assert written(include_rejected=True) == (everything, {})
    assert written(only_accepted=True) == ([accepted.pk], {"rejected": 1, "not_accepted": 1})
    assert written(sources=["verdict"]) == ([], {"rejected": 1, "other_source": 2})
    with pytest.raises(ExportRefused, match="not both"):
        written(only_accepted=True, include_rejected=True)


def test_flags_of_the_table_and_of_the_database_agree(mixed):
    pair_set = build_pairs(PairOrder(collection=mixed, rule=Rule(mode="all")))
    pair_set.pairs.filter(pk=pair_set.pairs.first().pk).update(same_answer=True)
    found = {flag: set(flag_pairs(pair_set.pairs.all(), flag)) for flag in FLAGS}
    assert all(found.values())
    for pair in pair_set.pairs.all():
        assert set(flags_of(pair)) == {flag for flag, pairs in found.items() if pair in pairs}
    for flag, pairs in found.items():
        assert set(flag_pairs(pair_set.pairs.all(), flag, value=False)) == set(pair_set.pairs.all()) - pairs


def test_large_collections_wait_for_a_worker(monkeypatch):
    monkeypatch.setattr("apps.pairs.pair_sets.AT_ONCE", 1)
    collection = make_groups([(1.0, "4"), (0.0, "5")])
    Collection.objects.filter(pk=collection.pk).update(total=2)
    collection.refresh_from_db()
    pair_set = order_pairs(PairOrder(collection=collection))
    assert (pair_set.state, pair_set.total, pair_set.pair_count) == ("queued", 2, 0)
    with pytest.raises(ExportRefused, match="Only a ready pair set"):
        PairSet.objects.filter(pk=pair_set.pk).update(pair_count=1)
        pair_set.refresh_from_db()
        queue_export(ExportOrder(format="trl_dpo", collection=collection, pair_set=pair_set))
    assert make_queued_pair_set() is True
    pair_set.refresh_from_db()
    assert (pair_set.state, pair_set.pair_count, pair_set.considered) == ("ready", 1, 2)
    assert make_queued_pair_set() is False


def test_a_set_that_lost_its_maker_is_made_anew_and_given_up_after_three():
    pair_set = queue_pair_set(PairOrder(collection=make_groups([(1.0, "4"), (0.0, "5")])))
    build_pairs(PairOrder(collection=pair_set.collection))
    rows = PairSet.objects.filter(pk=pair_set.pk)
    rows.update(state="making", attempt=1, touched_at=timezone.now() - timedelta(minutes=6))
    left = PreferencePair.objects.last()
    left.pk, left.pair_set = None, pair_set
    left.save()
    assert make_queued_pair_set() is True
    pair_set.refresh_from_db()
    assert (pair_set.state, pair_set.pair_count, pair_set.pairs.count()) == ("ready", 1, 1)
    rows.update(state="making", attempt=3, touched_at=timezone.now() - timedelta(minutes=6))
    assert make_queued_pair_set() is False
    pair_set.refresh_from_db()
    assert (pair_set.state, "lost 3 times" in pair_set.message) == ("failed", True)


def test_a_cancelled_set_is_made_no_further(monkeypatch):
    collection = make_groups(*[[(1.0, "4"), (0.0, "5")]] * 3)
    pair_set = queue_pair_set(PairOrder(collection=collection))
    chunks = PairMaker.chunks

    def cancelled(self: PairMaker) -> Any:
        for chunk in chunks(self):
            cancel_pair_set(pair_set=pair_set)
            yield chunk

    monkeypatch.setattr(PairMaker, "chunks", cancelled)
    assert make_queued_pair_set() is True
    pair_set.refresh_from_db()
    assert (pair_set.state, pair_set.pairs.count()) == ("cancelled", 0)
    assert cancel_pair_set(pair_set=pair_set).state == "cancelled"
    PairSet.objects.filter(pk=pair_set.pk).update(state="ready")
    with pytest.raises(CannotCancel):
        cancel_pair_set(pair_set=pair_set)


def test_a_worker_that_leaves_hands_it_on_and_a_bug_is_said_on_the_row(monkeypatch):
    pair_set = queue_pair_set(PairOrder(collection=make_groups([(1.0, "4"), (0.0, "5")])))

    def leave() -> None:
        raise process_exit.Leaving

    with monkeypatch.context() as patch:
        patch.setattr(pair_set_jobs.process_exit, "check", leave)
        make_queued_pair_set()
    pair_set.refresh_from_db()
    assert (pair_set.state, pair_set.attempt) == ("queued", 0)
    PairSet.objects.filter(pk=pair_set.pk).update(rule={"mode": "none"})
    make_queued_pair_set()
    pair_set.refresh_from_db()
    assert pair_set.state == "failed"
    assert pair_set.message.startswith("RuleRefused")


def test_a_pair_set_waits_while_the_disk_is_full_and_is_made_when_there_is_space(disk):
    pair_set = queue_pair_set(PairOrder(collection=make_groups([(1.0, "4"), (0.0, "5")])))
    disk.fill()
    make_queued_pair_set()
    pair_set.refresh_from_db()
    assert (pair_set.state, pair_set.attempt, pair_set.pairs.count()) == ("queued", 0, 0)
    assert "is full" in pair_set.message
    disk.free()
    PairSet.objects.update(retry_at=timezone.now())
    make_queued_pair_set()
    pair_set.refresh_from_db()
    assert (pair_set.state, pair_set.attempt, pair_set.message) == ("ready", 1, "")


def test_counting_stops_when_its_time_is_up_and_says_so(monkeypatch):
    monkeypatch.setattr("apps.pairs.task_attempts.TASKS", 1)
    collection = make_groups(*[[(1.0, "4"), (0.0, "5")]] * 3)
    Collection.objects.filter(pk=collection.pk).update(total=6)
    collection.refresh_from_db()
    counts = count_pairs([collection], Rule(), seconds=0.0).counts
    assert (counts.whole, counts.considered, counts.total, counts.pairs) == (False, 2, 6, 1)


def test_a_set_is_deleted_with_its_pairs_unless_exported():
    collection = make_groups([(1.0, "4"), (0.0, "5")])
    kept, gone = (build_pairs(PairOrder(collection=collection)) for _ in range(2))
    queue_export(ExportOrder(format="trl_dpo", collection=collection, pair_set=kept))
    with pytest.raises(PairSetInUse, match="1 export was made"):
        delete_pair_set(pair_set=kept)
    delete_pair_set(pair_set=gone, user=make_user())
    assert list(PairSet.objects.all()) == [kept]
    assert set(PreferencePair.objects.values_list("pair_set", flat=True)) == {kept.pk}
    with pytest.raises(PairSetInUse, match="Cancel it first"):
        delete_pair_set(pair_set=queue_pair_set(PairOrder(collection=collection)))


def test_what_cannot_be_ordered_is_refused_by_its_argument():
    collection = make_groups([(1.0, "4")])
    for asked, argument in (({"rule": Rule(per_task=0)}, "per_task"), ({"name": "n" * 121}, "name")):
        with pytest.raises(PairingRefused) as refusal:
            queue_pair_set(PairOrder(collection=collection, **asked))
        assert refusal.value.argument == argument
    assert PairSet.objects.count() == 0


def test_credentials_in_names_and_reasons_are_not_stored_and_versions_still_count():
    token = "ghp_AbCdEf0123456789AbCdEf0123456789ZZZZ"
    collection = make_groups([(1.0, "4"), (0.0, "5")])
    sets = [build_pairs(PairOrder(collection=collection, name=f"sums of {token}")) for _ in range(2)]
    assert [(one.name, one.version) for one in sets] == [("sums of [REDACTED:github_token]", n) for n in (1, 2)]
    decide_pairs(pairs=[sets[0].pairs.get()], status="rejected", reason=f"It told {token}.")
    assert sets[0].pairs.get().decisions.get().reason == "It told [REDACTED:github_token]."
