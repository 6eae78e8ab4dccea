"""Groups become pairs in the database, with what became of every group."""

import pytest

from apps.accounts.models import AuditEntry
from apps.gym.pairs.pair_rule import OUTCOMES, Rule
from apps.gym.traces.events import ErrorRaised, encode_event
from apps.pairs.models import PairSet, PreferencePair
from apps.pairs.pair_sets import PairingRefused, PairOrder, build_pairs
from apps.rollouts.models import TraceEvent
from tests.factories import make_collection, make_dataset, make_rollout, make_row, make_trace, make_user

pytestmark = pytest.mark.django_db


def make_groups(*groups):
    """A collection with one task a group; a group is a list of (reward, answer) or rollout fields."""
    collection = make_collection(dataset=make_dataset([make_row(str(number)) for number in range(len(groups))]))
    for task, group in zip(collection.version.tasks.order_by("index"), groups, strict=True):
        for reward, answer, *fields in group:
            extra = fields[0] if fields else {}
            make_rollout(collection, task=task, reward=reward, trace=make_trace(answer, reward), **extra)
    return collection


def test_every_group_gives_its_widest_pair_or_says_why_not():
    collection = make_groups(
        [(0.0, "3"), (1.0, "4"), (0.5, "5")],
        [(1.0, "4"), (1.0, "5")],
        [(0.5, "4"), (0.45, "5")],
        [(1.0, "4"), (0.0, "4")],
        [(1.0, "4")],
    )
    pair_set = build_pairs(PairOrder(collection=collection))
    pair = pair_set.pairs.get()
    assert (pair.task.index, pair.chosen.reward, pair.rejected.reward, pair.margin) == (0, 1.0, 0.0, 1.0)
    assert pair_set.pair_count == 1
    counted = {"paired": 1, "tie": 1, "below_margin": 1, "identical_completions": 1, "too_few_attempts": 1}
    assert pair_set.counts == dict.fromkeys(OUTCOMES, 0) | counted


def test_the_rule_is_kept_with_the_pairs_and_said_in_the_audit_log():
    user = make_user()
    collection = make_groups([(0.4, "3"), (0.0, "4")])
    pair_set = build_pairs(PairOrder(collection=collection, rule=Rule(margin=0.2, min_chosen_reward=0.5)), user=user)
    assert (pair_set.margin, pair_set.min_chosen_reward, pair_set.created_by) == (0.2, 0.5, user)
    assert pair_set.counts["chosen_too_weak"] == 1
    assert AuditEntry.objects.filter(user=user, action="pair_set.create", target=str(pair_set)).count() == 1


def test_rollouts_that_failed_or_were_cut_are_not_paired():
    failed = {"status": "failed", "error_kind": "policy_error", "stop_reason": ""}
    collection = make_groups([(1.0, "4"), (None, "3", failed), (0.0, "5", {"stop_reason": "max_steps"})])
    assert build_pairs(PairOrder(collection=collection)).counts["too_few_attempts"] == 1


def test_other_prompts_under_the_same_task_are_not_compared():
    collection = make_groups([(1.0, "4"), (0.0, "5")])
    prompt = TraceEvent.objects.filter(kind="prompt", rollout__reward=0.0).get()
    TraceEvent.objects.filter(pk=prompt.pk).update(payload=prompt.payload.replace("What is", "Guess"))
    assert build_pairs(PairOrder(collection=collection)).counts["different_prompts"] == 1


def test_only_the_attempt_that_ended_is_compared():
    collection = make_groups([(1.0, "4", {"attempt": 2}), (0.0, "4", {"attempt": 2})])
    crashed = collection.rollouts.get(reward=1.0)
    payload = encode_event(ErrorRaised(kind="worker_lost", message="gone"))
    TraceEvent.objects.create(rollout=crashed, attempt=1, seq=0, kind="error", payload=payload)
    assert build_pairs(PairOrder(collection=collection)).counts["identical_completions"] == 1


def test_the_next_worst_is_read_when_the_worst_did_the_same():
    collection = make_groups([(1.0, "4"), (0.0, "4"), (0.2, "5")])
    assert build_pairs(PairOrder(collection=collection)).pairs.get().rejected.reward == 0.2


def test_groups_beyond_one_chunk_are_all_paired_in_few_queries(django_assert_max_num_queries):
    collection = make_groups(*[[(1.0, "4"), (0.0, "5")]] * 120)
    with django_assert_max_num_queries(44):
        pair_set = build_pairs(PairOrder(collection=collection))
    assert (pair_set.pair_count, pair_set.counts["paired"], pair_set.pairs.count()) == (120, 120, 120)


def test_pairing_again_gives_the_same_pairs_in_a_set_of_its_own():
    collection = make_groups([(1.0, "4"), (1.0, "6"), (0.0, "5")], [(1.0, "4"), (0.0, "5")])
    first, second = build_pairs(PairOrder(collection=collection)), build_pairs(PairOrder(collection=collection))
    sides = [list(one.pairs.values_list("chosen", "rejected")) for one in (first, second)]
    assert sides[0] == sides[1]
    assert PairSet.objects.count() == 2


def test_an_empty_collection_has_no_pairs():
    pair_set = build_pairs(PairOrder(collection=make_collection()))
    assert (pair_set.pair_count, sum(pair_set.counts.values()), set(pair_set.counts)) == (0, 0, set(OUTCOMES))


@pytest.mark.parametrize("margin", [-0.1, float("nan")])
def test_a_margin_that_means_nothing_is_refused(margin):
    with pytest.raises(PairingRefused):
        build_pairs(PairOrder(collection=make_groups([(1.0, "4"), (0.0, "5")]), rule=Rule(margin=margin)))
    assert PreferencePair.objects.count() == 0
