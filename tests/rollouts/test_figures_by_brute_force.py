"""pass@k, the average of k and majority@k of stored rollouts, against every draw of k from every generated group."""

import random
import statistics
from collections import Counter, defaultdict
from fractions import Fraction
from itertools import combinations
from math import comb

import pytest

from apps.gym.metrics.clustered_intervals import MIN_TASKS
from apps.gym.metrics.paired_comparison import mcnemar, permutation_test
from apps.rollouts.metrics.collection_comparison import contrast_collections
from apps.rollouts.metrics.collection_figures import measure_collection
from apps.rollouts.metrics.label_figures import break_down
from apps.rollouts.metrics.labels import FACETS
from apps.rollouts.models import Rollout
from tests.factories import make_collection, make_dataset, make_row
from tests.interval_of import interval_of

pytestmark = pytest.mark.django_db


def generate(seed):
    """Groups of (answer, reward): sizes from 1 to 9, answers that are right or wrong, partial rewards, failures."""
    draw = random.Random(seed)
    groups = []
    for _ in range(draw.randint(1, 12)):
        worth = {answer: draw.choice([1.0, 1.0, 0.0, 0.25, -0.5]) for answer in ("a", "b", "c")}
        said = [draw.choice(["a", "a", "b", "c", ""]) for _ in range(draw.randint(1, 9))]
        groups.append([(answer, worth.get(answer, 0.0)) for answer in said] + [None] * draw.choice([0, 0, 1]))
    return groups


def store(groups, dataset=None):
    """A collection with a task for each group; None is an attempt that failed and counts for nothing."""
    collection = make_collection(dataset=dataset or make_dataset([make_row(str(n)) for n in range(len(groups))]))
    rollouts = []
    for task, group in zip(collection.version.tasks.order_by("index"), groups, strict=True):
        for repeat, attempt in enumerate(group):
            ended = {"status": "completed", "stop_reason": "answered"}
            if attempt is None:
                ended = {"status": "failed", "error_kind": "timed_out"}
            answer, reward = attempt or ("", None)
            given = {"answer": answer, "reward": reward, "attempt": 1, "finished_at": collection.created_at, **ended}
            rollouts.append(Rollout(collection=collection, task=task, repeat=repeat, **given))
    Rollout.objects.bulk_create(rollouts)
    known = [rollout.reward for rollout in rollouts if rollout.reward is not None]
    collection.rewarded, collection.reward_sum, collection.total = len(known), sum(known), len(rollouts)
    collection.save()
    return collection


def in_every_draw(groups, score):
    """The mean of `score` over all draws of k from each group that is large enough, then over these groups."""
    rewarded = [[attempt for attempt in group if attempt is not None] for group in groups]
    found, k = {}, 1
    while k <= max(map(len, rewarded)):
        means = [statistics.fmean(map(score, combinations(group, k))) for group in rewarded if len(group) >= k]
        found[k] = pytest.approx(statistics.fmean(means), abs=1e-9)
        k += 1
    return found


def is_solved(draw):
    return float(any(reward >= 1.0 for _, reward in draw))


def best(draw):
    return max(reward for _, reward in draw)


def average(draw):
    return statistics.fmean(reward for _, reward in draw)


def vote(draw):
    """Whether the most frequent answer is right, a tie broken at random; an attempt without an answer has no vote."""
    votes = Counter(answer for answer, _ in draw if answer)
    if not votes:
        return 0.0
    right = {answer: reward >= 1.0 for answer, reward in draw}
    winners = [answer for answer, count in votes.items() if count == max(votes.values())]
    return statistics.fmean(right[answer] for answer in winners)


@pytest.mark.parametrize("seed", range(12))
def test_the_figures_of_a_collection_equal_all_draws(seed):
    groups = generate(seed)
    measured = measure_collection(store(groups))
    assert measured.pass_at_k == in_every_draw(groups, is_solved)
    assert measured.best_of_k == in_every_draw(groups, best)
    assert measured.average_of_k == in_every_draw(groups, average)
    assert measured.majority_at_k == in_every_draw(groups, vote)


TAGS = ["easy", "hard", 'say "no"', "back\\nslash\\\\", "größer"]


def mark(collection, seed):
    """Return the remaining limits. `elsewhere` is the number of rollouts per collection on other workers."""
    draw = random.Random(seed)
    for task in collection.version.tasks.all():
        task.split, task.tags = draw.choice(["", "train", "test"]), draw.sample(TAGS, draw.randint(0, 3))
        task.save()
    rollouts = list(collection.rollouts.all())
    for rollout in rollouts:
        rollout.model_version = draw.choice(["", "v1", "v2"])
        rollout.output_tokens, rollout.cost = draw.randint(0, 50), draw.random()
        rollout.duration, rollout.model_time, rollout.tool_time, rollout.verify_time = (draw.random() for _ in range(4))
        if rollout.reward is not None:
            named = draw.sample(["correct", 'for"mat', "speed"], draw.randint(0, 3))
            rollout.components = {name: draw.choice([0.0, 1.0, draw.random()]) for name in named}
    Rollout.objects.bulk_update(
        rollouts,
        ["model_version", "output_tokens", "cost", "duration", "model_time", "tool_time", "verify_time", "components"],
    )


def labels_of(rollout, facet):
    if facet == "tag":
        return rollout.task.tags or [""]
    return [rollout.task.split if facet == "split" else rollout.model_version]


def clustered(values):
    """The interval of the mean of (task, value), from the values of each task."""
    found = interval_of([[value for at, value in values if at == task] for task in {task for task, _ in values}])
    return found and pytest.approx(found)


def spread_of(values):
    """Count, mean, std, median and interval of (task, value)."""
    plain = [value for _, value in values]
    return (
        len(plain),
        pytest.approx(statistics.fmean(plain)),
        pytest.approx(statistics.stdev(plain)) if len(plain) > 1 else None,
        pytest.approx(statistics.median(plain)),
        clustered(values),
    )


@pytest.mark.parametrize("facet", FACETS)
@pytest.mark.parametrize("seed", range(4))
def test_the_figures_of_each_share_equal_its_own_rollouts(seed, facet):
    collection = store(generate(seed))
    mark(collection, seed)
    under = defaultdict(list)
    for rollout in collection.rollouts.select_related("task"):
        for label in labels_of(rollout, facet):
            under[label].append(rollout)
    shares = break_down(collection, facet).shares
    assert [share.label for share in shares] == sorted(under, key=lambda label: (-len(under[label]), label))
    for share in shares:
        rollouts = under[share.label]
        rewarded = [each for each in rollouts if each.reward is not None]
        assert (share.rollouts, share.completed, share.failed) == (
            len(rollouts),
            len(rewarded),
            len(rollouts) - len(rewarded),
        )
        assert share.tokens["output"] == sum(each.output_tokens for each in rollouts)
        assert share.cost == pytest.approx(sum(each.cost for each in rollouts))
        if not rewarded:
            assert (share.rewarded, share.mean_reward, share.median, share.pass_at_k) == (0, None, None, {})
            continue
        given = [(each.task_id, each.reward) for each in rewarded]
        assert (share.rewarded, share.mean_reward, share.std, share.median, share.confidence) == spread_of(given)
        assert (share.min_reward, share.max_reward) == (min(given, key=lambda one: one[1])[1], max(r for _, r in given))
        assert share.mean_duration == pytest.approx(statistics.fmean(each.duration for each in rewarded))
        assert share.latency == {
            "model": pytest.approx(statistics.fmean(each.model_time for each in rewarded)),
            "tools": pytest.approx(statistics.fmean(each.tool_time for each in rewarded)),
            "verify": pytest.approx(statistics.fmean(each.verify_time for each in rewarded)),
        }
        groups = [
            [(each.answer, each.reward) for each in rewarded if each.task_id == task] for task in {t for t, _ in given}
        ]
        assert share.tasks == len(groups)
        assert share.pass_at_k == in_every_draw(groups, is_solved)
        assert share.average_of_k == in_every_draw(groups, average)
        assert share.majority_at_k == in_every_draw(groups, vote)
        having = defaultdict(list)
        for each in rewarded:
            for name, value in each.components.items():
                having[name].append((each.task_id, value))
        assert {
            each.name: (each.count, each.mean, each.std, each.median, each.confidence)
            for each in share.component_figures
        } == {name: spread_of(values) for name, values in having.items()}


@pytest.mark.parametrize("seed", range(12, 15))
def test_pass_at_k_of_a_collection_is_the_closed_form(seed):
    groups = [[each for each in group if each is not None] for group in generate(seed)]
    measured = measure_collection(store(groups))
    for k, found in measured.pass_at_k.items():
        shapes = [(len(group), sum(reward >= 1.0 for _, reward in group)) for group in groups if len(group) >= k]
        exact = sum(1 - Fraction(comb(n - c, k), comb(n, k)) for n, c in shapes) / len(shapes)
        assert found == pytest.approx(float(exact), abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_two_collections_are_contrasted_as_their_groups_are(seed):
    """McNemar over tasks whose solving changed, and the permutation test of tasks' means, from the raw attempts."""
    tasks = 4 + 3 * seed
    dataset = make_dataset([make_row(str(n)) for n in range(tasks)])
    draw = random.Random(seed)
    attempts = [[[("a", draw.choice([0.0, 1.0])) for _ in range(4)] for _ in range(tasks)] for _ in range(2)]
    one, other = (store(groups, dataset) for groups in attempts)
    found = contrast_collections(one, other)
    means = [[statistics.fmean(reward for _, reward in group) for group in groups] for groups in attempts]
    differences = [right - left for left, right in zip(*means, strict=True)]
    gained = sum(left < 0.5 <= right for left, right in zip(*means, strict=True))
    lost = sum(right < 0.5 <= left for left, right in zip(*means, strict=True))
    assert (found.tasks, found.newly_solved, found.no_longer_solved) == (tasks, gained, lost)
    assert found.p_value == mcnemar(gained, lost)
    assert found.permutation_p_value == pytest.approx(permutation_test(differences))
    if tasks < MIN_TASKS:
        assert found.interval is None
    else:
        assert found.interval.mean == pytest.approx(statistics.fmean(differences))
        assert found.interval.low <= found.interval.mean <= found.interval.high
