import pytest

from apps.rollouts.imports.import_spec import ImportOrder
from apps.rollouts.imports.rollout_import import import_rollouts
from apps.rollouts.models import Reverification
from apps.rollouts.reverification.reverification_jobs import continue_reverification
from tests.factories import make_agent, make_dataset
from tests.rollouts.stored import as_file, stored_row

pytestmark = pytest.mark.django_db
URL = "/api/v1/reverifications/"


@pytest.fixture
def collection():
    files = [as_file(stored_row("a"), stored_row("b", reward=0.0))]
    return import_rollouts(ImportOrder(dataset=make_dataset(rows=[]), agent=make_agent()), files=files).collection


def test_a_wish_is_queued_verified_compared_and_applied(engineer, collection):
    queued = engineer.post(URL, {"collection": collection.pk}, content_type="application/json")
    assert (queued.status_code, queued.json()["state"], queued.json()["total"]) == (201, "queued", 2)
    at = f"{URL}{queued.json()['id']}/"
    early = engineer.post(f"{at}apply/")
    assert (early.status_code, early.json()["type"]) == (409, "urn:gymweb:problem:cannot-apply")
    continue_reverification()
    comparison = engineer.get(f"{at}comparison/").json()
    assert (comparison["changed"], comparison["old_mean"], comparison["new_mean"]) == (1, 0.5, 1.0)
    rewards = engineer.get(f"{at}rewards/").json()["results"]
    assert sorted((reward["old_reward"], reward["new_reward"]) for reward in rewards) == [(0.0, 1.0), (1.0, 1.0)]
    assert engineer.post(f"{at}apply/").json()["state"] == "applying"
    continue_reverification()
    assert (engineer.get(at).json()["state"], engineer.get(at).json()["applied"]) == ("applied", 1)


def test_what_cannot_be_is_refused_with_its_reason(engineer, collection):
    body = {"collection": collection.pk, "filters": {"reward": 1}}
    refused = engineer.post(URL, body, content_type="application/json")
    assert (refused.status_code, refused.json()["type"]) == (400, "urn:gymweb:problem:reverify-refused")
    unknown = engineer.post(URL, {"collection": collection.pk, "forced": True}, content_type="application/json")
    assert unknown.json()["errors"][0]["pointer"] == "/forced"


def test_a_wish_can_be_dropped_before_it_is_applied(engineer, collection):
    queued = engineer.post(URL, {"collection": collection.pk}, content_type="application/json").json()
    assert engineer.post(f"{URL}{queued['id']}/cancel/").json()["state"] == "cancelled"
    assert not continue_reverification()
    assert engineer.get(URL, {"state": "cancelled"}).json()["results"][0]["id"] == Reverification.objects.get().pk
