"""Pairs by programs: counted, made, decided of, compared, deleted."""

import pytest

from apps.pairs.models import PairSet, PreferencePair
from tests.api.test_collections import post
from tests.pairs.test_pairing import make_groups

pytestmark = pytest.mark.django_db


@pytest.fixture
def collection():
    return make_groups([(1.0, "4"), (0.0, "5"), (0.5, "6")], [(1.0, "4"), (0.0, "5")], [(1.0, "4")])


def test_pairs_of_a_rule_are_counted_without_storing(engineer, collection):
    asked = {"collection": collection.pk, "mode": "all", "limit": 3}
    found = post(engineer, "pair-sets/count/", asked).json()
    counts = found["counts"]
    assert (counts["pairs"], counts["considered"], counts["whole"], counts["sources"]) == (4, 6, True, {"reward": 4})
    assert (counts["groups"]["paired"], counts["groups"]["too_few_attempts"]) == (2, 1)
    assert [pair["margin"] for pair in found["pairs"]] == [1.0, 0.5, 0.5]
    assert PairSet.objects.count() == 0


def test_a_set_is_made_by_its_rule_and_tells_what_changed_since_the_version_before(engineer, collection):
    post(engineer, "pair-sets/", {"collection": collection.pk, "name": "sums"})
    made = post(engineer, "pair-sets/", {"collection": collection.pk, "name": "sums", "mode": "all"}).json()
    assert (made["version"], made["state"], made["pair_count"], made["rule"]["mode"]) == (2, "ready", 4, "all")
    assert len(made["rule_digest"]) == 64
    changes = engineer.get(f"/api/v1/pair-sets/{made['id']}/changes/").json()
    assert (changes["kept"], changes["added"], changes["removed"], changes["turned"]) == (2, 2, 0, 0)
    assert changes["settings"] == {"mode": ["best_worst", "all"]}
    assert engineer.get(f"/api/v1/pair-sets/{made['id']}/changes/?since=1").json() == changes
    assert engineer.get(f"/api/v1/pair-sets/{made['id']}/changes/?since=2").status_code == 409
    assert engineer.get(f"/api/v1/pair-sets/{made['id']}/changes/?since=first").status_code == 400
    versions = engineer.get("/api/v1/pair-sets/?name=sums").json()["results"]
    assert [one["version"] for one in versions] == [2, 1]
    alone = engineer.get(f"/api/v1/pair-sets/{versions[1]['id']}/changes/")
    assert (alone.status_code, alone.json()["type"].rsplit(":", 1)[-1]) == (409, "nothing-to-compare")


@pytest.mark.parametrize(
    ("field", "value"),
    [("mode", "worst"), ("margin", -1), ("per_task", 0), ("max_length_ratio", 0.5), ("further", [0]), ("modus", "all")],
)
def test_a_rule_that_means_nothing_is_refused_by_its_field(engineer, collection, field, value):
    for address in ("pair-sets/", "pair-sets/count/"):
        answer = post(engineer, address, {"collection": collection.pk, field: value})
        assert answer.status_code == 400
        assert f"/{field}" in answer.json()["errors"][0]["pointer"]
    assert PairSet.objects.count() == 0


def test_pairs_are_decided_of_with_their_history(engineer, viewer, collection):
    made = post(engineer, "pair-sets/", {"collection": collection.pk}).json()
    one, other = [pair["id"] for pair in engineer.get(f"/api/v1/pairs/?pair_set={made['id']}").json()["results"]]
    assert post(engineer, f"pairs/{one}/decide/", {"status": "rejected"}).status_code == 400
    done = post(engineer, f"pairs/{one}/decide/", {"status": "rejected", "reason": "A guess."})
    assert (done.status_code, done.json()["status"]) == (200, "rejected")
    assert post(engineer, "pairs/decide/", {"pairs": [one, other], "status": "accepted"}).json() == {"changed": 2}
    history = engineer.get(f"/api/v1/pairs/{one}/decisions/").json()["results"]
    assert [(each["status"], each["reason"]) for each in history] == [("rejected", "A guess."), ("accepted", "")]
    assert post(viewer, f"pairs/{one}/decide/", {"status": "proposed"}).status_code == 403
    found = engineer.get("/api/v1/pairs/?status=accepted&source=reward&long=false&against_reward=false").json()
    assert [pair["id"] for pair in found["results"]] == [one, other]
    assert engineer.get("/api/v1/pairs/?against_reward=true").json()["results"] == []
    PreferencePair.objects.filter(pk=one).update(source="verdict", margin=None)
    found = engineer.get("/api/v1/pairs/?margin_min=9").json()["results"]
    assert [(pair["id"], pair["margin"]) for pair in found] == [(one, None)]


def test_a_set_is_cancelled_while_it_is_made_and_deleted_after(engineer, collection):
    made = post(engineer, "pair-sets/", {"collection": collection.pk}).json()
    assert post(engineer, f"pair-sets/{made['id']}/cancel/", {}).status_code == 409
    PairSet.objects.update(state="making")
    assert engineer.delete(f"/api/v1/pair-sets/{made['id']}/").status_code == 409
    assert post(engineer, f"pair-sets/{made['id']}/cancel/", {}).json()["state"] == "cancelled"
    assert engineer.delete(f"/api/v1/pair-sets/{made['id']}/").status_code == 204
    assert PreferencePair.objects.count() == 0


def test_people_are_asked_about_the_pairs_of_the_smallest_margin_first(engineer, viewer, collection):
    made = post(engineer, "pair-sets/", {"collection": collection.pk, "mode": "all"}).json()
    close = engineer.get(f"/api/v1/pairs/?pair_set={made['id']}").json()["results"][1]
    asked = post(engineer, f"pair-sets/{made['id']}/ask/", {"limit": 1, "overlap": 2})
    queue = asked.json()
    assert (asked.status_code, queue["kind"], queue["overlap"], queue["item_count"]) == (201, "pairwise", 2, 1)
    items = engineer.get(f"/api/v1/queue-items/?queue={queue['id']}").json()["results"]
    assert {*items[0]["rollouts"]} == {close["chosen"], close["rejected"]}
    # Asked again while that queue is open, people are asked about others, and about none twice.
    rest = post(engineer, f"pair-sets/{made['id']}/ask/", {"limit": 1_000}).json()
    others = engineer.get(f"/api/v1/queue-items/?queue={rest['id']}&limit=200").json()["results"]
    assert len(others) == made["pair_count"] - 1 > 0
    assert {close["chosen"], close["rejected"]} not in [set(item["rollouts"]) for item in others]
    assert post(engineer, f"pair-sets/{made['id']}/ask/", {}).status_code == 400
    post(engineer, f"queues/{queue['id']}/close/", {})
    again = post(engineer, f"pair-sets/{made['id']}/ask/", {})
    assert (again.status_code, again.json()["item_count"]) == (201, 1)
    assert post(viewer, f"pair-sets/{made['id']}/ask/", {}).status_code == 403
    post(engineer, f"queues/{rest['id']}/close/", {})
    PreferencePair.objects.update(status="accepted")
    assert post(engineer, f"pair-sets/{made['id']}/ask/", {}).status_code == 400
