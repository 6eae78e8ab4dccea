"""Models and versions against datasets, splits and tags, with paired differences to a baseline."""

import statistics

import pytest

from apps.policies.models import PolicyModel
from apps.rollouts.metrics.mean_intervals import measure_intervals
from apps.rollouts.metrics.model_matrix import Matrix, MatrixRefused, MatrixSpec, build_matrix
from apps.rollouts.models import Collection
from apps.tasks.models import Dataset, Suite
from apps.tasks.suite_changes import save_suite
from tests.factories import make_collection, make_dataset, make_policy_model, make_rollout, make_row

pytestmark = pytest.mark.django_db


def collect(dataset: Dataset, model: PolicyModel, rewards: list[float], version: str = "", **fields) -> Collection:
    """One rollout for each task."""
    collection = make_collection(
        dataset=dataset,
        policy_model=model,
        state="completed",
        total=len(rewards),
        completed=len(rewards),
        rewarded=len(rewards),
        reward_sum=sum(rewards),
    )
    for task, reward in zip(collection.version.tasks.order_by("index"), rewards, strict=True):
        make_rollout(collection, task=task, reward=reward, trace=[], model_version=version, **fields)
    return collection


@pytest.fixture
def sums() -> Dataset:
    dataset = make_dataset([make_row(str(number)) for number in range(6)], slug="sums")
    for number, task in enumerate(dataset.tasks.order_by("index")):
        task.split, task.tags_text = ("train", "\neasy\n") if number < 5 else ("test", "\neasy\nhard\n")
        task.save()
    return dataset


@pytest.fixture
def models() -> tuple[PolicyModel, PolicyModel]:
    return make_policy_model(slug="old"), make_policy_model(slug="new")


def cells(matrix: Matrix) -> dict[str, list[tuple[float, int] | None]]:
    return {
        row.name: [(cell.value, cell.tasks) if cell.collection else None for cell in row.cells] for row in matrix.rows
    }


def test_the_latest_collection_of_each_model_and_dataset_counts(sums, models):
    old, new = models
    words = make_dataset([make_row("a"), make_row("b")], slug="words")
    collect(sums, old, [0.0] * 6)
    latest = collect(sums, old, [1.0, 1.0, 1.0, 0.0, 0.0, 0.0])
    collect(words, new, [1.0, 0.5])
    matrix = build_matrix(MatrixSpec())
    assert matrix.columns == ["sums", "words"]
    assert cells(matrix) == {"new": [None, (0.75, 2)], "old": [(0.5, 6), None]}
    assert matrix.rows[1].cells[0].collection == latest.pk
    assert (matrix.rows[1].trend, matrix.rows[1].trend_dataset) == ([0.0, 0.5], "sums")


def test_differences_are_paired_with_the_baseline(sums, models):
    one, other = [0.0, 0.5, 0.0, 1.0, 0.0, 0.5], [1.0, 0.5, 0.5, 1.0, 1.0, 0.5]
    collect(sums, models[0], one)
    collect(sums, models[1], other)
    matrix = build_matrix(MatrixSpec(baseline="old"))
    baseline, compared = matrix.rows
    assert (baseline.name, baseline.cells[0].difference) == ("old", None)
    steps = [b - a for a, b in zip(one, other, strict=True)]
    difference = compared.cells[0].difference
    assert difference.mean == pytest.approx(statistics.fmean(steps))
    # The 97.5 % quantile of t with five degrees of freedom, as scipy.stats.t.ppf gives it.
    half = 2.570581835636314 * statistics.stdev(steps) / 6**0.5
    assert difference.high - difference.mean == pytest.approx(half, rel=1e-3)


def interval(matrix: Matrix, column: int = 0) -> tuple[float | None, float | None]:
    return matrix.rows[0].cells[column].value_low, matrix.rows[0].cells[column].value_high


@pytest.mark.parametrize(
    "attempts",
    [
        [[1.0, 1.0, 0.0, 0.0, 1.0, 1.0]],
        [[1.0, 1.0, 0.0, 0.0, 1.0, 1.0], [1.0, 0.0, 0.0, 1.0, 1.0, 1.0]],
        [[1.0] * 6, [1.0] * 6],
        [[0.1, 0.7, 0.25, 1.0, 0.5, 0.5], [0.0, 0.3, 0.5, 1.0, 0.5, 0.9]],
        [[-1.0, 0.5, 1.0, 1.0, 0.0, 0.25]],
        [[3.0, 0.5, -2.0, 1.0, 0.0, 0.25], [1.0, 2.0, 0.0, 0.0, 0.0, 7.0]],
    ],
)
def test_a_value_has_the_interval_of_the_list_of_collections(sums, models, attempts):
    collection = collect(sums, models[0], attempts[0])
    for further in attempts[1:]:
        for task, reward in zip(sums.tasks.order_by("index"), further, strict=True):
            make_rollout(collection, task=task, reward=reward, trace=[], repeat=1)
    collection.rewarded, collection.reward_sum = 6 * len(attempts), sum(map(sum, attempts))
    collection.save()
    assert interval(build_matrix(MatrixSpec())) == pytest.approx(measure_intervals([collection])[collection.pk])


def test_pass_at_k_has_an_interval(sums, models):
    collection = collect(sums, models[0], [1.0] * 3 + [0.0] * 3)
    # Six tasks, half of them solved: scipy.stats.binomtest(3, 6).proportion_ci(method="wilson")
    wilson = pytest.approx((0.187617, 0.812383), abs=1e-6)
    assert interval(build_matrix(MatrixSpec(k=1))) == wilson
    for task in sums.tasks.all():
        make_rollout(collection, task=task, reward=0.0, trace=[], repeat=1)
    assert interval(build_matrix(MatrixSpec(k=2))) == wilson
    low, high = interval(build_matrix(MatrixSpec(k=1)))
    assert 0 < low < 0.25 < high < 0.8


def test_few_tasks_have_no_interval(sums, models):
    collect(sums, models[0], [1.0, 1.0, 0.0, 0.0, 0.5, 1.0])
    matrix = build_matrix(MatrixSpec(columns="split", dataset="sums"))
    low, high = interval(matrix)
    assert 0 < low < 0.5 < high < 1
    assert interval(matrix, 1) == (None, None)


def test_splits_and_tags_are_columns(sums, models):
    collect(sums, models[0], [1.0, 1.0, 0.0, 0.0, 0.5, 1.0])
    by_split = build_matrix(MatrixSpec(columns="split", dataset="sums"))
    assert (by_split.columns, cells(by_split)) == (["train", "test"], {"old": [(0.5, 5), (1.0, 1)]})
    by_tag = build_matrix(MatrixSpec(columns="tag", dataset="sums"))
    assert (by_tag.columns, cells(by_tag)["old"][1]) == (["easy", "hard"], (1.0, 1))


def test_versions_are_rows_and_mixed_collections_are_counted(sums, models):
    collect(sums, models[0], [0.0] * 6, "step-1")
    collect(sums, models[0], [1.0] * 6, "step-2")
    mixed = collect(sums, models[0], [1.0] * 6, "step-3")
    mixed.rollouts.filter(task__index=0).update(model_version="step-4")
    matrix = build_matrix(MatrixSpec(rows="version", baseline="old@step-1"))
    assert ([row.name for row in matrix.rows], matrix.mixed) == (["old@step-1", "old@step-2"], 1)
    assert [row.version for row in matrix.rows] == ["step-1", "step-2"]


def test_pass_at_k_can_be_shown(sums, models):
    collection = collect(sums, models[0], [1.0] * 3 + [0.0] * 3)
    for task in collection.version.tasks.all():
        make_rollout(collection, task=task, reward=0.0, trace=[])
    assert cells(build_matrix(MatrixSpec(k=1))) == {"old": [(0.25, 6)]}
    assert cells(build_matrix(MatrixSpec(k=2))) == {"old": [(0.5, 6)]}


def test_cost_and_time_are_means_of_rollouts(sums, models):
    collect(sums, models[0], [1.0] * 6, cost=0.25, duration=2.0)
    [row] = build_matrix(MatrixSpec()).rows
    assert (row.cost, row.duration) == (0.25, 2.0)


def test_unfinished_and_archived_collections_do_not_count(sums, models):
    collection = collect(sums, models[0], [1.0] * 6)
    Collection.objects.filter(pk=collection.pk).update(state="running", finished_at=None)
    assert build_matrix(MatrixSpec()).rows == []


@pytest.mark.parametrize(
    ("spec", "argument"),
    [
        (MatrixSpec(columns="tag"), "dataset"),
        (MatrixSpec(dataset="nothing"), "dataset"),
        (MatrixSpec(baseline="nothing"), "baseline"),
    ],
)
def test_an_invalid_option_is_named(sums, spec, argument):
    with pytest.raises(MatrixRefused) as refusal:
        build_matrix(spec)
    assert refusal.value.argument == argument


def test_a_suite_has_its_datasets_as_columns_and_their_mean(sums, models):
    old, new = models
    words, empty = make_dataset([make_row("a"), make_row("b")], slug="words"), make_dataset(slug="empty")
    other = make_dataset([make_row("c")], slug="other")
    save_suite(suite=Suite(slug="math", name="Math", datasets=[words, sums]), user=None)
    save_suite(suite=Suite(slug="all", name="All", datasets=[sums, empty]), user=None)
    collect(sums, old, [1.0, 1.0, 1.0, 0.0, 0.0, 0.0])
    collect(words, old, [1.0, 0.5])
    collect(words, new, [1.0, 1.0])
    collect(other, new, [0.0])
    matrix = build_matrix(MatrixSpec(suite="math"))
    assert matrix.columns == ["words", "sums"]
    assert cells(matrix) == {"new": [(1.0, 2), None], "old": [(0.75, 2), (0.5, 6)]}
    assert [row.mean for row in matrix.rows] == [None, 0.625]
    assert build_matrix(MatrixSpec(suite="all")).columns == ["sums", "empty"]
    assert {row.mean for row in build_matrix(MatrixSpec()).rows} == {None}


@pytest.mark.parametrize("given", [{"suite": "none"}, {"suite": "math", "columns": "split", "dataset": "sums"}])
def test_a_suite_that_cannot_be_shown_is_refused(sums, given):
    save_suite(suite=Suite(slug="math", name="Math", datasets=[sums]), user=None)
    with pytest.raises(MatrixRefused) as refused:
        build_matrix(MatrixSpec(**given))
    assert refused.value.argument == "suite"


def test_a_suite_without_datasets_has_no_columns_and_takes_no_dataset(sums, models):
    collect(sums, models[0], [1.0] * 6)
    save_suite(suite=Suite(slug="empty", name="Empty", datasets=[make_dataset(slug="gone")]), user=None)
    Dataset.objects.get(slug="gone").delete()
    matrix = build_matrix(MatrixSpec(suite="empty"))
    assert (matrix.columns, matrix.rows) == ([], [])
    with pytest.raises(MatrixRefused, match="own datasets"):
        build_matrix(MatrixSpec(suite="empty", dataset="sums"))
