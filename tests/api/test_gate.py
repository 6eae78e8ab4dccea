"""The check of a candidate against a baseline over the API."""

import pytest

from apps.rollouts.models import Collection
from tests.factories import make_collection, make_dataset, make_rollout, make_row

pytestmark = pytest.mark.django_db


@pytest.fixture
def dataset():
    return make_dataset([make_row(str(number)) for number in range(10)])


def collected(dataset, rewards: list[float | None], **fields) -> Collection:
    """One rollout for each task; None failed."""
    collection = make_collection(dataset=dataset, state="completed", **fields)
    for task, reward in zip(collection.version.tasks.order_by("index"), rewards, strict=True):
        failed = {} if reward is not None else {"status": "failed", "stop_reason": "", "error_kind": "timed_out"}
        make_rollout(collection, task=task, reward=reward, trace=[], **failed)
    return collection


def check(client, candidate, baseline, **query):
    return client.get(f"/api/v1/collections/{candidate.pk}/gate/", {"baseline": baseline.pk, **query})


def test_a_worse_candidate_fails(viewer, dataset):
    baseline = collected(dataset, [1.0] * 10)
    candidate = collected(dataset, [0.0, 0.5] * 5)
    found = check(viewer, candidate, baseline).json()
    assert (found["verdict"], found["tasks"], found["mean_reward"], found["baseline_mean_reward"]) == (
        "fail",
        10,
        0.25,
        1.0,
    )
    assert found["interval"]["mean"] == -0.75
    assert found["p_value"] < 0.001
    assert check(viewer, candidate, baseline, max_drop="0.8").json()["verdict"] == "pass"
    assert check(viewer, baseline, candidate).json()["verdict"] == "pass"


def test_alpha_decides(viewer, dataset):
    baseline = collected(dataset, [0.5] * 10)
    # The p-value is 0.025, as scipy.stats.ttest_1samp says.
    candidate = collected(dataset, [0.0, 0.25, 0.5, 0.75, 0.0, -0.25, 0.5, 0.6, 0.3, 0.1])
    assert check(viewer, candidate, baseline).json()["verdict"] == "fail"
    assert check(viewer, candidate, baseline, alpha="0.02").json()["verdict"] == "pass"


def test_there_is_no_verdict_without_enough_rewards(viewer, dataset):
    baseline = collected(dataset, [1.0] * 10)
    few = collected(dataset, [1.0] * 4 + [None] * 6)
    found = check(viewer, few, baseline).json()
    assert (found["verdict"], found["p_value"], found["missing_tasks"]) == ("undecided", None, 6)
    some = collected(dataset, [1.0] * 8 + [None] * 2)
    assert check(viewer, some, baseline).json()["verdict"] == "undecided"
    most = collected(dataset, [1.0] * 9 + [None])
    assert check(viewer, most, baseline).json()["verdict"] == "pass"


def test_there_is_no_verdict_on_an_unfinished_collection(viewer, dataset):
    baseline = collected(dataset, [1.0] * 10)
    running = collected(dataset, [1.0] * 10)
    Collection.objects.filter(pk=running.pk).update(state="running", finished_at=None)
    found = check(viewer, running, baseline).json()
    assert (found["verdict"], "running" in found["reason"]) == ("undecided", True)


@pytest.mark.parametrize(
    ("query", "pointer"),
    [({"max_drop": "-1"}, "?max_drop"), ({"alpha": "nan"}, "?alpha"), ({"alpha": "0.6"}, "?alpha")],
)
def test_values_out_of_range_are_refused(viewer, dataset, query, pointer):
    baseline = collected(dataset, [1.0] * 10)
    answer = check(viewer, baseline, baseline, **query)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, pointer)


def test_another_dataset_is_refused(viewer, dataset):
    assert check(viewer, collected(dataset, [1.0] * 10), make_collection()).status_code == 409
