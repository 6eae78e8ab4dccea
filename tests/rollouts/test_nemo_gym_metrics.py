"""Figures of stored rollouts against those that NeMo Gym's own code computed for the same rewards and answers."""

import json
from collections import defaultdict

import pytest

from apps.gym.serving.aggregating import aggregate_metrics
from apps.rollouts.metrics.collection_figures import measure_collection
from apps.rollouts.metrics.task_profiles import profile_tasks
from tests.rollouts.stored import SHARED
from tests.rollouts.test_figures_by_brute_force import store

pytestmark = pytest.mark.django_db

FILE = SHARED.parent / "metrics_golden.jsonl"
needs_golden = pytest.mark.skipif(not FILE.exists(), reason="NeMo Gym's figures are not on this machine")
CASES = [json.loads(line) for line in FILE.read_text().splitlines()] if FILE.exists() else []


def groups_of(case):
    """The (answer, reward) of each task, in order."""
    groups = defaultdict(list)
    for row in sorted(case["verify_responses"], key=lambda row: (row["_ng_task_index"], row["_ng_rollout_index"])):
        groups[row["_ng_task_index"]].append((row.get("extracted_answer") or "", row["reward"]))
    return list(groups.values())


def ours(case, figures):
    """Our figures by NeMo Gym's names. NeMo Gym's are of 100, except for the mean deviation within tasks."""
    found = {}
    for first in figures.first_k:
        average = f"pass@1[avg-of-{first.k}]"
        found[f"pass@{first.k}/accuracy"] = 100 * first.best
        found[f"{average}/accuracy"] = 100 * first.average
        if "no_answer" in case["score_names"]:
            found[f"majority@{first.k}/accuracy"] = 100 * first.majority
            found[f"{average}/no_answer"] = 100 * first.no_answer
        if first.k > 1:
            found[f"{average}/accuracy/std_dev_across_runs"] = 100 * first.std_across_runs
            found[f"{average}/accuracy/std_err_across_runs"] = 100 * first.error_across_runs
        if first.mean_std is not None:
            found[f"{average}/accuracy/avg_sample_std_dev"] = first.mean_std
    return found


def is_ours(name):
    """Whether there is such a figure: not of attempts without an answer, except for their share."""
    return "no_answer" not in name or name.endswith("]/no_answer")


@needs_golden
@pytest.mark.parametrize("case", CASES, ids=[f"{number}-{case['kind']}" for number, case in enumerate(CASES)])
def test_the_figures_equal_nemo_gyms(case):
    groups = groups_of(case)
    collection = store(groups)
    figures = measure_collection(collection)
    theirs = {
        name: value for name, value in case["pass_majority"].items() if is_ours(name) and name != "per_sample_aggregate"
    }
    assert ours(case, figures) == pytest.approx(theirs, abs=1e-9)
    whole = case["aggregate_metrics"]["agent_metrics"]
    assert {
        "mean/reward": figures.mean_reward,
        "max/reward": figures.max_reward,
        "min/reward": figures.min_reward,
        "median/reward": figures.median,
        "std/reward": figures.std or 0.0,
    } == pytest.approx({name: whole[name] for name in whole if name.endswith("/reward")}, abs=1e-9)
    for profile, task in zip(profile_tasks(collection), case["aggregate_metrics"]["group_level_metrics"], strict=True):
        # NeMo Gym compares with the largest group; here all planned rollouts have a reward.
        assert (profile.rollouts, profile.missing) == (task["num_rollouts"], 0)
        assert (profile.mean_reward, profile.min_reward, profile.max_reward) == pytest.approx(
            (task["mean/reward"], task["min/reward"], task["max/reward"]), abs=1e-9
        )
        if profile.std is not None:
            assert profile.std == pytest.approx(task["std/reward"], abs=1e-9)


@needs_golden
def test_the_figures_over_all_draws_equal_all_attempts():
    """With all attempts there is one draw, so the order does not matter."""
    compared = 0
    for case in CASES:
        groups = groups_of(case)
        if len({len(group) for group in groups}) > 1:
            continue
        figures = measure_collection(store(groups))
        k, last = case["max_k"], figures.first_k[-1]
        assert figures.average_of_k[k] == pytest.approx(last.average, abs=1e-9)
        assert figures.best_of_k[k] == pytest.approx(last.best, abs=1e-9)
        compared += 1
    assert compared >= 10


@needs_golden
@pytest.mark.parametrize("case", CASES, ids=[f"{number}-{case['kind']}" for number, case in enumerate(CASES)])
def test_a_served_environment_aggregates_as_nemo_gym_does(case):
    found = aggregate_metrics({"verify_responses": case["verify_responses"]})
    assert flat(found) == pytest.approx(flat(case["aggregate_metrics"]), abs=1e-9)


def flat(value, path=""):
    """The numbers of nested JSON by path; a text is a part of its path."""
    if isinstance(value, dict):
        return {k: v for name, each in value.items() for k, v in flat(each, f"{path}/{name}").items()}
    if isinstance(value, list):
        return {k: v for number, each in enumerate(value) for k, v in flat(each, f"{path}/{number}").items()}
    return {path: float(value)} if isinstance(value, int | float) else {f"{path}={value}": 1.0}
