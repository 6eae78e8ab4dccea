"""Reviews by people whose role shows them results: recorded, marked, counted, and left out of agreement on request."""

import csv
import io

import pytest
from django.test import Client

from apps.accounts.models import Role
from apps.reviews.agreement.adjudication import adjudicate_item
from apps.reviews.agreement.queue_figures import read_figures
from apps.reviews.queues.item_leases import claim_item
from apps.reviews.reviews.review_answers import Answer
from apps.reviews.reviews.submission import score_rollout
from apps.reviews.reviews.undo import undo_review
from tests.dashboard.pages import streamed
from tests.factories import make_collection, make_rollout, make_user
from tests.reviews.queues import annotator, claim, judge, make_queue, make_rubric, say


@pytest.mark.django_db
@pytest.mark.parametrize(("role", "could"), [(Role.ANNOTATOR, False), (Role.ENGINEER, True), (Role.ADMIN, True)])
def test_a_submission_records_whether_the_role_showed_results(role, could):
    review = claim(make_queue(pairs=1), make_user(role))
    assert not review.could_see_results
    assert say(review).could_see_results is could


@pytest.mark.django_db
def test_a_change_of_role_does_not_unmark_earlier_reviews():
    queue, erika = make_queue(pairs=1), make_user(Role.ENGINEER)
    judge(queue, erika)
    undone = undo_review(queue=queue, user=erika)
    erika.role = Role.ANNOTATOR
    erika.save()
    assert say(undone).could_see_results


@pytest.mark.django_db
def test_adjudications_and_scores_outside_of_queues_are_by_people_who_see_results():
    queue, erika = make_queue(pairs=1), make_user(Role.ENGINEER)
    review = judge(queue, annotator())
    settled = adjudicate_item(item=review.item, user=erika, answer=Answer(choice="b"), saw_votes=False)
    rubric = make_rubric()
    scores = {"right": True, "clear": 3, "why": "so"}
    scored = score_rollout(rollout=make_rollout(make_collection()), rubric=rubric, scores=scores, reviewer=erika)
    assert (settled.could_see_results, scored.could_see_results, review.could_see_results) == (True, True, False)


@pytest.fixture
def disputed(db):
    """Two annotators agree on every item; an engineer always says the opposite."""
    queue = make_queue(pairs=4, overlap=3)
    people = [annotator(username="ann"), annotator(username="ben"), make_user(Role.ENGINEER, username="erika")]
    for person in people:
        for _ in range(4):
            review = claim_item(queue=queue, user=person)
            first = review.arrangement[0] == min(review.arrangement)
            say(review, "a" if first == (person.username != "erika") else "b")
    return queue


def test_agreement_includes_them_unless_told_otherwise(disputed):
    every, blind = read_figures(disputed), read_figures(disputed, could_see_results=False)
    seeing = read_figures(disputed, could_see_results=True)
    shares = [figures.agreement[0].percent for figures in (every, blind, seeing)]
    assert shares == [pytest.approx(1 / 3), 1.0, None]
    assert [figures.against_rewards[0].compared for figures in (every, blind, seeing)] == [12, 8, 4]
    # Who did how much, and how far the queue is, leaves nobody out.
    assert every.reviewers == blind.reviewers and every.progress == blind.progress
    marked = {each.username: (each.submitted, each.could_see_results) for each in blind.reviewers}
    assert marked == {"ann": (4, 0), "ben": (4, 0), "erika": (4, 4)}


def test_the_api_marks_filters_and_leaves_them_out(disputed, client):
    client.force_login(make_user(Role.ENGINEER))
    figures = f"/api/v1/queues/{disputed.pk}/figures/"
    told = [client.get(figures + query).json() for query in ("", "?could_see_results=false")]
    assert [round(each["agreement"][0]["percent"], 2) for each in told] == [0.33, 1.0]
    assert [each["could_see_results"] for each in told[0]["reviewers"]] == [0, 0, 4]
    refused = client.get(f"{figures}?could_see_results=no")
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (400, "?could_see_results")
    listed = {
        wanted: client.get("/api/v1/reviews/", {"could_see_results": wanted}).json()["results"]
        for wanted in ("true", "false")
    }
    assert {each["reviewer"] for each in listed["true"]} == {"erika"}
    assert {(each["reviewer"], each["could_see_results"]) for each in listed["false"]} == {
        ("ann", False),
        ("ben", False),
    }
    file = streamed(client.get(f"/api/v1/queues/{disputed.pk}/export/?format=csv"))
    rows = csv.DictReader(io.StringIO(file))
    assert {(row["reviewer"], row["could_see_results"]) for row in rows} == {
        ("ann", "False"),
        ("ben", "False"),
        ("erika", "True"),
    }


def test_pages_mark_them_and_offer_to_leave_them_out(disputed):
    client = Client()
    client.force_login(make_user(Role.ENGINEER))
    path = f"/queues/{disputed.pk}/"
    page, narrowed = (client.get(path + query).content.decode() for query in ("", "?could_see_results=false"))
    assert "4 of the submitted reviews are by reviewers who could see results" in page
    assert (">Exclude them<" in page, ">Include them<" in page) == (True, False)
    assert (">Exclude them<" in narrowed, ">Include them<" in narrowed) == (False, True)
    mark = ">could see results</span>"
    assert page.count(mark) == 1
    assert client.get(f"{path}items/").content.decode().count(mark) == 4
    assert client.get("/reviews/").content.decode().count(mark) == 4
    assert client.get("/reviews/?could_see_results=false").content.decode().count(mark) == 0


@pytest.mark.django_db
def test_the_work_page_tells_an_engineer_and_no_annotator():
    queue, open_queue = make_queue(), make_queue(shows_expected=True, shows_reward=True, shows_model=True)
    told = []
    for queue_of, role in ((queue, Role.ENGINEER), (queue, Role.ANNOTATOR), (open_queue, Role.ENGINEER)):
        user, client = make_user(role), Client()
        client.force_login(user)
        claim(queue_of, user)
        told.append(
            "reviews are marked “could see results”" in client.get(f"/queues/{queue_of.pk}/review/").content.decode()
        )
    assert told == [True, False, False]
