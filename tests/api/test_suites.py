"""Suites over REST."""

import json

import pytest

from apps.rollouts.models import Collection
from tests.api.rows import make_suite
from tests.factories import make_agent, make_dataset, make_policy_model

pytestmark = pytest.mark.django_db


def send(client, method, path, body, **headers):
    return client.generic(
        method, f"/api/v1/suites/{path}", json.dumps(body), content_type="application/json", headers=headers
    )


def test_a_suite_is_created_and_changed(engineer, viewer):
    make_dataset(slug="sums"), make_dataset(slug="words")
    made = send(engineer, "POST", "", {"slug": "math", "name": "Math", "datasets": ["words", "sums"]})
    assert (made.status_code, made.json()["datasets"]) == (201, ["words", "sums"])
    renamed = send(engineer, "PATCH", "math/", {"name": "Mathematics"})
    assert (renamed.json()["name"], renamed.json()["datasets"]) == ("Mathematics", ["words", "sums"])
    assert send(engineer, "PATCH", "math/", {"datasets": ["sums"]}).json()["datasets"] == ["sums"]
    assert viewer.get("/api/v1/suites/").json()["results"][0]["datasets"] == ["sums"]


@pytest.mark.parametrize(
    ("datasets", "pointer"), [([], "/datasets"), (["sums", "sums"], "/datasets"), (["none"], "/datasets")]
)
def test_a_list_of_datasets_that_cannot_be_is_refused(engineer, datasets, pointer):
    make_dataset(slug="sums")
    refused = send(engineer, "POST", "", {"slug": "math", "name": "Math", "datasets": datasets})
    assert (refused.status_code, [error["pointer"] for error in refused.json()["errors"]]) == (400, [pointer])


def test_collecting_plans_all_datasets_once_for_a_key(engineer):
    suite = make_suite()
    body = {"agent": make_agent().slug, "policy_model": make_policy_model().slug, "repeats": 2}
    answers = [send(engineer, "POST", f"{suite.slug}/collect/", body, **{"Idempotency-Key": "k"}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 201]
    first, again = (answer.json() for answer in answers)
    assert [one["id"] for one in first] == [one["id"] for one in again]
    assert [one["dataset"] for one in first] == [dataset.slug for dataset in suite.datasets]
    assert Collection.objects.count() == 2


def test_the_matrix_shows_the_datasets_of_a_suite(viewer):
    suite = make_suite()
    answer = viewer.get(f"/api/v1/collections/matrix/?suite={suite.slug}").json()
    assert answer["columns"] == [dataset.slug for dataset in suite.datasets]
    refused = viewer.get("/api/v1/collections/matrix/?suite=none")
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (400, "?suite")
