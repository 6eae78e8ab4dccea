"""The smallest reward that solves a task: set on the environment, kept by each collection, used by every figure."""

import pytest

from apps.accounts.models import Role
from apps.environments.models import Environment
from apps.rollouts.metrics.collection_comparison import contrast_collections
from apps.rollouts.metrics.collection_figures import measure_collection
from apps.rollouts.metrics.label_figures import break_down
from apps.rollouts.metrics.model_versions import track_versions
from apps.rollouts.metrics.task_profiles import profile_tasks
from apps.rollouts.plans.plan_spec import Plan
from apps.rollouts.plans.planning import plan_collection
from tests.dashboard.pages import signed_in
from tests.factories import make_agent, make_collection, make_dataset, make_policy_model, make_rollout, make_row
from tests.rollouts.work import plan

pytestmark = pytest.mark.django_db


@pytest.fixture
def collection():
    """Three tasks with rewards 0.8 and 0.2, 0.5 and 0.5, 1 and 1; solved from 0.8."""
    collection = make_collection(
        dataset=make_dataset([make_row(str(number)) for number in range(3)]), solve_threshold=0.8
    )
    for task, rewards in zip(
        collection.version.tasks.order_by("index"), ((0.8, 0.2), (0.5, 0.5), (1.0, 1.0)), strict=True
    ):
        for reward in rewards:
            make_rollout(collection, task=task, reward=reward, answer=str(reward), trace=[])
    return collection


def test_every_figure_uses_the_threshold_of_the_collection(collection):
    figures = measure_collection(collection)
    assert figures.pass_at_k == {1: pytest.approx(0.5), 2: pytest.approx(2 / 3)}
    assert figures.groups == {"never": 1, "sometimes": 1, "always": 1}
    # The two answers of the first task are tied.
    assert figures.majority_at_k[2] == pytest.approx(0.5)
    (share,) = break_down(collection, "split").shares
    assert share.pass_at_k == figures.pass_at_k
    assert [each.solved for each in profile_tasks(collection)] == [1, 0, 2]
    for bucket, task in (("sometimes", 0), ("never", 1), ("always", 2)):
        assert [each.index for each in profile_tasks(collection, bucket=bucket)] == [task]
    (version,) = track_versions(policy_model=collection.policy_model)
    assert version.solved == 3


def test_two_collections_are_compared_by_their_own_thresholds(collection):
    other = make_collection(dataset=collection.dataset)
    for task in collection.version.tasks.all():
        make_rollout(other, task=task, reward=0.9, trace=[])
    found = contrast_collections(collection, other)
    assert (found.newly_solved, found.no_longer_solved) == (0, 2)
    found = contrast_collections(other, collection)
    assert (found.newly_solved, found.no_longer_solved) == (2, 0)


def test_a_collection_keeps_the_threshold_of_its_plan():
    Environment.objects.filter(slug="calculator").update(solve_threshold=0.6)
    planned = plan()
    Environment.objects.filter(slug="calculator").update(solve_threshold=0.9)
    planned.refresh_from_db()
    assert planned.solve_threshold == 0.6


def test_only_tasks_below_the_threshold_are_unsolved(collection):
    chosen = {"dataset": collection.dataset, "agent": make_agent(), "policy_model": make_policy_model()}
    planned = plan_collection(Plan(**chosen, unsolved_in=collection))
    assert [rollout.task.index for rollout in planned.rollouts.select_related("task")] == [1]


def test_the_threshold_is_set_on_the_form_and_over_the_api(collection):
    client = signed_in(Role.ADMIN)
    slug = collection.environment.slug
    page = client.get(f"/environments/{slug}/edit/").text
    assert 'name="solve_threshold"' in page
    changed = client.patch(f"/api/v1/environments/{slug}/", {"solve_threshold": 0.25}, content_type="application/json")
    assert changed.json()["solve_threshold"] == 0.25
    assert "reward ≥ 0.25" in client.get(f"/environments/{slug}/").text
    refused = client.patch(f"/api/v1/environments/{slug}/", {"solve_threshold": 1e200}, content_type="application/json")
    assert refused.status_code == 400
