"""The provenance of a pair is the same on its page, in the API and in the command."""

import pytest

from apps.accounts.models import Role, User
from apps.pairs.models import PreferencePair
from apps.pairs.pair_sets import PairOrder, build_pairs
from apps.pairs.provenance import describe_verdict
from apps.reviews.agreement.adjudication import adjudicate_item
from apps.reviews.models import Queue, QueueItem, Review
from apps.reviews.queues.queue_changes import create_queue
from apps.reviews.queues.queue_items import fill_from_sets
from apps.reviews.reviews.review_answers import Answer
from apps.reviews.reviews.undo import undo_review
from tests.dashboard.pages import signed_in, squeezed
from tests.factories import make_user
from tests.pairs.test_pairing import make_groups
from tests.reviews.queues import annotator, claim, say

pytestmark = pytest.mark.django_db


class Bench:
    """Two attempts, and people who judge them: `good` has the higher reward."""

    def __init__(self) -> None:
        self.collection = make_groups([(1.0, "4"), (0.0, "5")])
        self.good, self.bad = self.collection.rollouts.order_by("-reward").values_list("pk", flat=True)
        items = fill_from_sets([[self.good, self.bad]], kind="pairwise")
        self.queue = create_queue(queue=Queue(name="By hand", kind="pairwise", overlap=5), items=items, user=None)
        self.item: QueueItem = self.queue.items.get()

    def say(self, person: User, better: int | None, *, much: bool = False) -> Review:
        review = claim(self.queue, person)
        return say(review, self._choice(review.arrangement, better, much))

    def settle(self, person: User, better: int | None, *, much: bool = False) -> Review:
        kept = list(self.item.entries.order_by("place").values_list("rollout_id", flat=True))
        return adjudicate_item(item=self.item, user=person, answer=Answer(choice=self._choice(kept, better, much)))

    def make(self) -> PreferencePair:
        return build_pairs(PairOrder(collection=self.collection)).pairs.get()

    def _choice(self, shown: list[int], better: int | None, much: bool) -> str:
        return "equal" if better is None else "ab"[shown.index(better)] + ("_much" if much else "")


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize(
    ("votes", "settled", "words"),
    [
        ("g", False, "better according to 1 reviewer"),
        ("ggg", False, "better according to 3 reviewers"),
        ("gge", False, "better according to 2 of 3 reviewers"),
        ("be", True, "much better according to the adjudicator; 0 of 2 reviewers agree"),
        ("gb", True, "much better according to the adjudicator; 1 of 2 reviewers agree"),
        ("b", True, "much better according to the adjudicator; 0 of 1 reviewer agrees"),
        ("g", True, "much better according to the adjudicator; 1 reviewer agrees"),
    ],
)
def test_a_pair_has_its_votes_and_adjudication(bench, votes, settled, words):
    for vote in votes:
        bench.say(annotator(), {"g": bench.good, "b": bench.bad, "e": None}[vote])
    if settled:
        bench.settle(make_user(), bench.good, much=True)
    assert describe_verdict(bench.make()) == words


def test_a_pair_by_reward_has_no_reviewers(bench):
    pair = bench.make()
    assert (describe_verdict(pair), pair.agreeing) == ("", None)
    assert 'id="said-title"' not in signed_in().get(f"/pairs/{pair.pk}/").text


def test_who_settled_it_over_which_votes_is_told_with_names(bench):
    ann, ben, erika = annotator(username="ann"), annotator(username="ben"), make_user(username="erika")
    votes = [bench.say(ben, bench.bad), bench.say(ann, None)]
    reviews = [*votes, bench.settle(erika, bench.good, much=True)]
    pair = bench.make()
    told = "much better according to the adjudicator; 0 of 2 reviewers agree"

    page = squeezed(signed_in().get(f"/pairs/{pair.pk}/").text)
    assert f"human verdict: {told}" in page
    said = page[page.index("Reviews") :]
    people = [
        said.index(words) for words in ("Rejected is better", "· ben,", "Equal", "· ann,", "Chosen is much", "· erika,")
    ]
    assert people == sorted(people)
    assert said.count(f'<a href="/queue-items/{bench.item.pk}/">Review #') == 3
    assert told in squeezed(signed_in().get(f"/pair-sets/{pair.pair_set_id}/").text)

    rows = signed_in().get(f"/api/v1/pairs/{pair.pk}/reviews/").json()
    assert [(row["review"], row["reviewer"], row["said"], row["strength"], row["is_adjudication"]) for row in rows] == [
        (reviews[0].pk, "ben", "rejected", 1, False),
        (reviews[1].pk, "ann", "equal", 0, False),
        (reviews[2].pk, "erika", "chosen", 2, True),
    ]
    row = signed_in().get(f"/api/v1/pairs/{pair.pk}/").json()
    assert (row["reviewers"], row["agreeing"], row["adjudicated"], row["reviews"]) == (
        2,
        0,
        True,
        [each.pk for each in reviews],
    )

    viewer = signed_in(Role.VIEWER)
    assert viewer.get(f"/api/v1/pairs/{pair.pk}/reviews/").json() == rows
    page = viewer.get(f"/pairs/{pair.pk}/").text
    assert [name in page for name in ("ben", "ann,", "erika", "/queue-items/")] == [True] * 4


def test_later_verdicts_are_marked(bench):
    ann, erika = annotator(), make_user()
    bench.say(ann, bench.bad)
    pair = bench.make()
    address = f"/api/v1/pairs/{pair.pk}/reviews/"
    undo_review(queue=bench.queue, user=ann)
    (row,) = signed_in().get(address).json()
    assert (row["said"], row["status"], row["is_later"]) == (None, "open", False)
    assert "Withdrawn" in signed_in().get(f"/pairs/{pair.pk}/").text
    bench.say(ann, bench.good)
    (row,) = signed_in().get(address).json()
    assert (row["said"], row["is_later"]) == ("rejected", True)
    assert "Rejected is better (reviewed after the pair was built)" in signed_in().get(f"/pairs/{pair.pk}/").text
    bench.settle(erika, bench.bad)
    settled = bench.make()
    bench.settle(erika, bench.good)
    assert "Chosen is better, replaced by a later adjudication" in signed_in().get(f"/pairs/{settled.pk}/").text
    Review.objects.filter(pk=settled.reviews[1]).delete()
    assert "1 deleted review" in signed_in().get(f"/pairs/{settled.pk}/").text
