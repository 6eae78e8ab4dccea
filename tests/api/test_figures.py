"""Breakdowns, profiles and contrasts over the API."""

from datetime import datetime

import pytest
from django.utils import timezone

from apps.rollouts.metrics.labels import FACETS
from apps.rollouts.models import Collection, TraceEvent
from apps.rollouts.search.word_index import index_next_rollouts, mark_unindexed
from tests.factories import make_collection, make_dataset, make_rollout, make_row

pytestmark = pytest.mark.django_db


@pytest.fixture
def collection():
    made = make_collection(dataset=make_dataset([make_row(str(n)) for n in range(3)]))
    for number, task in enumerate(made.version.tasks.order_by("index")):
        for reward in (float(number > 0), float(number > 1)):
            make_rollout(made, task=task, reward=reward, trace=[], model_version="v1")
    Collection.objects.filter(pk=made.pk).update(rewarded=6, reward_sum=3.0)
    return made


def get(client, collection, path):
    return client.get(f"/api/v1/collections/{collection.pk}/{path}")


def test_a_breakdown_names_its_labels(viewer, collection):
    found = get(viewer, collection, "breakdown/?by=model_version").json()
    (share,) = found["results"]
    assert (share["label"], share["rollouts"], share["tasks"], share["mean_reward"]) == ("v1", 6, 3, 0.5)
    assert found["left_out"] == 0
    assert get(viewer, collection, "breakdown/").json()["results"][0]["label"] == ""


@pytest.mark.parametrize("by", FACETS)
def test_the_only_share_of_a_collection_has_all_figures_of_the_collection(viewer, collection, by):
    (share,) = get(viewer, collection, f"breakdown/?by={by}").json()["results"]
    metrics = get(viewer, collection, "metrics/").json()
    of_all = {"as_of", "best_of_k", "first_k", "histogram", "tools", "judge", "by_length", "trainability", "notices"}
    of_all.add("blind_reviews")
    assert share == {"label": share["label"], **{name: metrics[name] for name in metrics.keys() - of_all}}


@pytest.mark.parametrize("path", ["metrics/", "breakdown/"])
def test_figures_name_the_time_that_they_are_of(viewer, collection, path):
    before = timezone.now()
    as_of = datetime.fromisoformat(get(viewer, collection, path).json()["as_of"])
    assert before <= as_of <= timezone.now()


def test_profiles_are_read_page_by_page(viewer, collection):
    first = get(viewer, collection, "profile/?limit=2").json()
    second = get(viewer, collection, f"profile/?limit=2&after={first['next_after']}").json()
    assert [each["solved"] for each in [*first["results"], *second["results"]]] == [0, 1, 2]
    assert second["next_after"] is None
    (sometimes,) = get(viewer, collection, "profile/?bucket=sometimes").json()["results"]
    assert (sometimes["mean_reward"], sometimes["min_reward"], sometimes["max_reward"]) == (0.5, 0.0, 1.0)


def test_two_collections_are_contrasted(viewer, collection):
    other = make_collection(dataset=collection.dataset)
    for task in collection.version.tasks.all():
        make_rollout(other, task=task, reward=1.0, trace=[])
    found = get(viewer, collection, f"contrast/?with={other.pk}").json()
    assert (found["tasks"], found["improved"], found["regressed"], found["newly_solved"]) == (3, 2, 0, 1)
    assert (found["interval"], found["permutation_p_value"]) == (None, 0.5)


def test_failures_are_grouped_by_cause(viewer, collection):
    rollout = collection.rollouts.filter(reward=0.0).first()
    TraceEvent.objects.create(
        rollout=rollout,
        attempt=1,
        seq=0,
        kind="verification",
        payload='{"type":"verification","reward":0,"explanation":"3 of 4"}',
    )
    mark_unindexed(collection.rollouts.all())
    while index_next_rollouts():
        pass
    found = get(viewer, collection, "failures/").json()
    (group,) = found["groups"]
    assert (group["text"], group["rollouts"], group["versions"]) == ("N of N", 1, [{"label": "v1", "rollouts": 1}])
    assert (group["examples"][0]["rollout"], group["examples"][0]["text"]) == (rollout.pk, "3 of 4")
    assert (found["unsolved"], found["source"], found["waiting"]) == (3, "verifier", 0)


@pytest.mark.parametrize(
    ("path", "pointer", "message"),
    [
        ("breakdown/?by=colour", "?by", "split, tag, model_version"),
        ("profile/?bucket=often", "?bucket", "never, sometimes, always"),
        ("profile/?limit=0", "?limit", "from 1 to 1000"),
        ("profile/?limit=1001", "?limit", "from 1 to 1000"),
        ("profile/?after=-1", "?after", "from 0 to 9223372036854775807"),
        ("profile/?after=９", "?after", "from 0 to 9223372036854775807"),
        ("failures/?by=judge", "?by", "verifier, tool, error"),
        ("failures/?limit=101", "?limit", "from 1 to 100"),
        ("contrast/", "?with", "from 1 to 9223372036854775807"),
        ("contrast/?with=999999", "?with", "Collection 999999"),
    ],
)
def test_invalid_parameters_are_named(viewer, collection, path, pointer, message):
    answer = get(viewer, collection, path)
    [error] = answer.json()["errors"]
    assert (answer.status_code, error["pointer"], error["code"]) == (400, pointer, "invalid")
    assert message in error["message"]


def test_an_unknown_parameter_is_refused_and_another_dataset_too(viewer, collection):
    assert get(viewer, collection, "profile/?bucke=never").status_code == 400
    answer = get(viewer, collection, f"contrast/?with={make_collection().pk}")
    assert (answer.status_code, "Choose two collections of the same dataset" in answer.json()["detail"]) == (409, True)


def test_a_matrix_compares_models(viewer, collection):
    Collection.objects.filter(pk=collection.pk).update(state="completed", finished_at=timezone.now())
    slug = collection.policy_model.slug
    found = viewer.get("/api/v1/collections/matrix/", {"rows": "version", "baseline": f"{slug}@v1"}).json()
    (row,) = found["rows"]
    assert (row["name"], row["cells"][0]["value"], row["cells"][0]["tasks"]) == (f"{slug}@v1", 0.5, 3)
    assert (row["cells"][0]["value_low"], row["cells"][0]["value_high"]) == (None, None)
    for query, pointer in (({"columns": "tag"}, "?dataset"), ({"k": "0"}, "?k"), ({"baseline": "x"}, "?baseline")):
        answer = viewer.get("/api/v1/collections/matrix/", query)
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, pointer)
