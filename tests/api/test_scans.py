import pytest

from apps.rollouts.models import Scan
from apps.rollouts.scans.scan_jobs import continue_scans
from tests.factories import make_collection, make_policy_model, make_rollout
from tests.reviews.queues import make_rubric

pytestmark = pytest.mark.django_db
URL = "/api/v1/scans/"


@pytest.fixture
def collection():
    made = make_collection()
    for _ in range(3):
        make_rollout(made)
    return made


def body(collection, **fields):
    judge = make_policy_model(input_price=1.0, output_price=2.0)
    question = 'Does it contain "calculator"?'
    return {
        "name": "Tools",
        "question": question,
        "judge_model": judge.slug,
        "filter": f"collection:{collection.pk}",
    } | fields


def post(client, path, given=None):
    return client.post(f"{URL}{path}", given or {}, content_type="application/json")


def test_a_scan_is_estimated_created_started_and_answered(engineer, collection):
    given = body(collection)
    estimate = post(engineer, "estimate/", given).json()
    assert (estimate["rollouts"], estimate["sampled"], estimate["output_tokens"]) == (3, 3, 600)
    assert estimate["cost"] == pytest.approx((estimate["input_tokens"] + 2 * 600) / 1e6)
    assert not Scan.objects.exists()
    created = post(engineer, "", given)
    assert (created.status_code, created.json()["state"], created.json()["total"]) == (201, "draft", 3)
    assert created.json()["estimated_cost"] == estimate["cost"]
    assert not continue_scans()
    at = f"{created.json()['id']}/"
    assert post(engineer, f"{at}start/").json()["state"] == "running"
    waiting = engineer.get(f"{URL}{at}answers/", {"state": "pending"}).json()["results"]
    assert len(waiting) == 3
    continue_scans()
    done = engineer.get(f"{URL}{at}").json()
    assert (done["state"], done["answered"], done["failed"]) == ("completed", 3, 0)
    answers = engineer.get(f"{URL}{at}answers/", {"answer": "yes"}).json()["results"]
    assert {answer["rollout"] for answer in answers} == set(collection.rollouts.values_list("pk", flat=True))
    assert answers[0]["citations"][0] == {"event": 2, "quote": "calculator"}
    assert engineer.get(f"{URL}{at}answers/", {"answer": "no"}).json()["results"] == []
    q = {"q": f"scan:{done['id']}=yes"}
    assert len(engineer.get("/api/v1/rollouts/", q).json()["results"]) == 3


def test_a_refusal_names_the_field(engineer, collection):
    refused = post(engineer, "", body(collection, kind="label", labels=["one"]))
    assert (refused.status_code, refused.json()["type"]) == (400, "urn:gymweb:problem:invalid")
    assert refused.json()["errors"][0]["pointer"] == "/labels"
    nothing = post(engineer, "", body(collection, filter="reward:>5"))
    assert nothing.json()["errors"][0]["pointer"] == "/filter"
    free = post(engineer, "", body(collection, budget=0))
    assert free.json()["errors"][0]["pointer"] == "/budget"


def test_a_paused_scan_resumes_with_a_higher_budget_and_can_be_cancelled(engineer, collection):
    at = f"{post(engineer, '', body(collection)).json()['id']}/"
    early = post(engineer, f"{at}resume/")
    assert (early.status_code, early.json()["type"]) == (409, "urn:gymweb:problem:cannot-scan")
    post(engineer, f"{at}start/")
    Scan.objects.update(state=Scan.State.PAUSED, cost=10.0)
    assert post(engineer, f"{at}resume/").status_code == 409
    resumed = post(engineer, f"{at}resume/", {"budget": 12.5}).json()
    assert (resumed["state"], resumed["budget"]) == ("running", 12.5)
    assert post(engineer, f"{at}cancel/").json()["state"] == "cancelled"
    assert not continue_scans()
    assert [one["id"] for one in engineer.get(URL, {"state": "cancelled"}).json()["results"]] == [resumed["id"]]


def test_accuracy_is_empty_without_blind_reviews(engineer, collection):
    make_rubric()
    at = f"{post(engineer, '', body(collection)).json()['id']}/"
    assert engineer.get(f"{URL}{at}accuracy/").json() == {"criteria": []}
