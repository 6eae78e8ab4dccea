"""Some rollouts of a collection are deleted for ever, as visible work that ends; the collection counts what is left."""

import pytest

from apps.accounts.models import AuditEntry, Role
from apps.gym import process_exit
from apps.pairs.pair_sets import PairOrder, build_pairs
from apps.reviews.comments.commenting import add_comment
from apps.reviews.models import Comment
from apps.rollouts.metrics.collection_figures import measure_collection
from apps.rollouts.models import Collection, CollectionDeletion, Rollout, TraceEvent
from apps.rollouts.search.word_index import mark_unindexed
from apps.rollouts.steering.collection_deletion import delete_next_collection
from apps.rollouts.steering.controls import CannotSteer
from apps.rollouts.steering.rollout_deletion import RemovalRefused, queue_rollout_deletion
from apps.tasks.deletion_jobs import AlreadyBeingDeleted, StillInUse
from tests.factories import make_collection, make_rollout, make_trace, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def collection():
    made = make_collection(state="completed", total=4, completed=3, failed=1, rewarded=3, reward_sum=1.75)
    for repeat, reward in enumerate((1.0, 0.5, 0.25)):
        make_rollout(made, reward=reward, repeat=repeat, trace=make_trace("4", reward))
    make_rollout(made, repeat=3, status="failed", error_kind="timed_out", stop_reason="", reward=None, trace=[])
    return made


def figures(collection):
    collection.refresh_from_db()
    counts = (collection.total, collection.completed, collection.failed, collection.rewarded, collection.reward_sum)
    measured = measure_collection(collection)
    assert counts == (
        measured.rollouts,
        measured.completed,
        measured.failed,
        measured.rewarded,
        pytest.approx((measured.mean_reward or 0) * measured.rewarded),
    )
    return counts


def test_matching_rollouts_are_deleted_and_figures_updated(collection):
    first = collection.rollouts.get(reward=1.0)
    kept, gone = collection.rollouts.get(reward=0.5), collection.rollouts.get(reward=0.25)
    for rollout in (kept, gone):
        add_comment(rollout=rollout, text="Look", author=make_user())
    deletion = queue_rollout_deletion(collection=collection, chosen={"max_reward": 0.3})
    assert (deletion.state, deletion.total, deletion.name) == ("queued", 1, f"1 rollout of {collection.label}")
    with pytest.raises(AlreadyBeingDeleted):
        queue_rollout_deletion(collection=collection, chosen={"status": "failed"})
    assert (delete_next_collection(), delete_next_collection()) == (True, False)
    deletion.refresh_from_db()
    assert (deletion.state, deletion.deleted, deletion.collection) == ("done", 1, collection)
    assert list(collection.rollouts.filter(status="completed")) == [first, kept]
    assert set(TraceEvent.objects.values_list("rollout", flat=True)) == {first.pk, kept.pk}
    assert [comment.rollout for comment in Comment.objects.all()] == [kept]
    assert figures(collection) == (3, 2, 1, 2, 1.5)


@pytest.mark.parametrize(
    ("chosen", "left"),
    [
        ({"status": "failed"}, (3, 3, 0, 3, 1.75)),
        ({"error_kind": "timed_out"}, (3, 3, 0, 3, 1.75)),
        ({"min_reward": 0.5}, (2, 1, 1, 1, 0.25)),
        ({"min_reward": 0.5, "max_reward": 0.75}, (3, 2, 1, 2, 1.25)),
        ({"stop_reason": "answered"}, (1, 0, 1, 0, 0.0)),
        ({"flagged": False}, (0, 0, 0, 0, 0.0)),
    ],
)
def test_rollouts_are_chosen_by_how_they_ended(collection, chosen, left):
    queue_rollout_deletion(collection=collection, chosen=chosen)
    delete_next_collection()
    assert figures(collection) == left


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ({}, "To delete all of them, delete the collection"),
        ({"text": "x"}, "Unknown selection: text: by ids, status"),
        ({"status": "queued"}, "status is one of completed, failed, cancelled"),
        ({"min_reward": "much"}, "min_reward must be a finite number"),
        ({"min_reward": float("nan")}, "min_reward must be a finite number"),
        ({"flagged": 1}, "flagged must be true or false"),
        ({"ids": []}, "ids must be a list of 1 to"),
        ({"ids": ["1"]}, "ids must be rollout numbers"),
        ({"ids": [2**62]}, "No finished rollouts of this collection"),
        ({"min_reward": 7.0}, "No finished rollouts of this collection"),
    ],
)
def test_a_choice_that_cannot_be_is_refused(collection, chosen, said):
    with pytest.raises(RemovalRefused, match=said):
        queue_rollout_deletion(collection=collection, chosen=chosen)
    assert CollectionDeletion.objects.count() == 0


def test_rollouts_of_another_collection_stay(collection):
    other = make_rollout(make_collection(state="completed", total=1, completed=1))
    with pytest.raises(RemovalRefused, match="No finished rollouts of this collection"):
        queue_rollout_deletion(collection=collection, chosen={"ids": [other.pk]})


def test_a_collection_that_goes_on_keeps_its_rollouts(collection):
    Collection.objects.filter(pk=collection.pk).update(state="running", finished_at=None)
    with pytest.raises(CannotSteer, match="Cancel it first"):
        queue_rollout_deletion(collection=collection, chosen={"status": "failed"})


def test_pairs_keep_both_of_their_rollouts(collection):
    build_pairs(PairOrder(collection=collection))
    with pytest.raises(StillInUse, match=r"is used by 1 pair set"):
        queue_rollout_deletion(collection=collection, chosen={"status": "failed"})


def test_pairs_that_were_built_in_the_moment_before_stop_the_deletion(collection):
    deletion = queue_rollout_deletion(collection=collection, chosen={"max_reward": 0.3})
    build_pairs(PairOrder(collection=collection))
    delete_next_collection()
    deletion.refresh_from_db()
    assert (deletion.state, deletion.deleted, collection.rollouts.count()) == ("failed", 0, 4)


def test_one_rollout_is_deleted_from_its_page(collection, client):
    client.force_login(make_user())
    rollout = collection.rollouts.get(reward=0.5)
    assert f"/rollouts/{rollout.pk}/delete/" in client.get(f"/rollouts/{rollout.pk}/").text
    going = client.post(f"/rollouts/{rollout.pk}/delete/")["Location"]
    assert "A worker deletes" in client.get(going).text
    delete_next_collection()
    assert "Deletion complete." in client.get(going).text
    assert client.get(f"/rollouts/{rollout.pk}/").status_code == 404
    assert client.get(f"/collections/{collection.pk}/").status_code == 200
    client.force_login(make_user(Role.ANNOTATOR))
    assert client.post(f"/rollouts/{rollout.pk}/delete/").status_code == 403


def test_what_passes_the_filter_of_the_table_is_deleted_from_the_page_of_the_collection(collection, client):
    client.force_login(make_user())
    address = f"/collections/{collection.pk}/"
    assert "Delete all matching rollouts" not in client.get(address).text
    page = client.get(f"{address}?status=completed&max_reward=0.5").text
    assert '<input type="hidden" name="q" value="status:completed reward:&lt;=0.5">' in page
    assert client.post(f"{address}delete-rollouts/", {"status": "completed", "max_reward": "0.5"}).status_code == 302
    delete_next_collection()
    assert figures(collection) == (2, 1, 1, 1, 1.0)
    nothing = client.post(f"{address}delete-rollouts/", {"status": "nonsense"}, follow=True).text
    assert "Invalid filter" in nothing
    assert collection.rollouts.count() == 2
    without = client.post(f"{address}delete-rollouts/", {}, follow=True).text
    assert "To delete all of them, delete the collection" in without
    assert collection.rollouts.count() == 2


def test_rollouts_are_deleted_by_the_api(collection, client):
    user = make_user()
    client.force_login(user)
    rollout = collection.rollouts.get(reward=0.5)
    going = client.delete(f"/api/v1/rollouts/{rollout.pk}/")
    assert (going.status_code, going.json()["chosen"], going.json()["state"]) == (202, {"ids": [rollout.pk]}, "queued")
    delete_next_collection()
    done = client.get(going["Location"]).json()
    assert (done["state"], done["deleted"], done["collection"]) == ("done", 1, collection.pk)
    url = f"/api/v1/collections/{collection.pk}/delete_rollouts/"
    going = client.post(url, {"status": "failed"}, content_type="application/json")
    assert (going.status_code, going.json()["total"]) == (202, 1)
    delete_next_collection()
    assert figures(collection) == (2, 2, 0, 2, 1.25)
    refused = client.post(url, {}, content_type="application/json")
    assert (refused.status_code, "To delete all of them, delete the collection" in refused.text) == (400, True)
    huge = client.post(url, '{"min_reward": 1' + "0" * 400 + "}", content_type="application/json")
    assert huge.status_code == 400
    entries = AuditEntry.objects.filter(user=user, action="collection.rollouts_deleted").order_by("pk")
    assert [entry.detail for entry in entries] == [
        {"rollouts": 1, "chosen": {"ids": [rollout.pk]}},
        {"rollouts": 1, "chosen": {"status": "failed"}},
    ]


def test_a_deletion_that_was_cut_off_goes_on_where_it_was(collection, monkeypatch):
    monkeypatch.setattr("apps.rollouts.steering.deletion_steps.CHUNK", 1)
    calls = iter([None, process_exit.Leaving()])

    def check():
        if (raised := next(calls, None)) is not None:
            raise raised

    monkeypatch.setattr("apps.rollouts.steering.deletion_steps.process_exit.check", check)
    deletion = queue_rollout_deletion(collection=collection, chosen={"status": "completed"})
    with pytest.raises(process_exit.Leaving):
        delete_next_collection()
    assert figures(collection) == (2, 1, 1, 1, 0.25)
    assert delete_next_collection()
    deletion.refresh_from_db()
    assert (deletion.state, deletion.deleted, Rollout.objects.count()) == ("done", 3, 1)


def test_rollouts_are_deleted_by_a_filter_in_words(collection, client):
    client.force_login(make_user())
    url = f"/api/v1/collections/{collection.pk}/delete_rollouts/"
    wrong = client.post(url, {"q": "rewrd:1"}, content_type="application/json")
    assert (wrong.status_code, "Did you mean reward:?" in wrong.text) == (400, True)
    assert client.post(url, {"q": " "}, content_type="application/json").status_code == 400
    going = client.post(url, {"q": "reward:<0.3 status:completed"}, content_type="application/json")
    assert (going.status_code, going.json()["total"]) == (202, 1)
    delete_next_collection()
    assert figures(collection) == (3, 2, 1, 2, 1.5)


def test_nothing_is_deleted_by_words_that_are_not_indexed_yet(collection):
    mark_unindexed(collection.rollouts.all())
    with pytest.raises(RemovalRefused, match="The text index of this collection is not complete"):
        queue_rollout_deletion(collection=collection, chosen={"q": "-text:anything"})
    assert queue_rollout_deletion(collection=collection, chosen={"q": "reward:<0.3"}).total == 1
