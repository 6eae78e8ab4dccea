"""Comments say something, about an event that is there."""

import pytest

from apps.reviews.comments.commenting import MAX_CHARACTERS, CommentRefused, add_comment
from apps.reviews.models import Comment
from tests.factories import make_collection, make_rollout, make_user

pytestmark = pytest.mark.django_db


def test_a_comment_is_kept_with_its_author_and_its_event() -> None:
    rollout, author = make_rollout(make_collection()), make_user("annotator")
    comment = add_comment(rollout=rollout, text="  The call was not needed.\n", author=author, seq=2)
    assert (comment.text, comment.author, comment.seq) == ("The call was not needed.", author, 2)
    assert list(rollout.comments.all()) == [comment]


def test_comments_are_read_in_the_order_they_were_made() -> None:
    rollout, author = make_rollout(make_collection()), make_user("annotator")
    for text in ("first", "second", "third"):
        add_comment(rollout=rollout, text=text, author=author)
    assert list(rollout.comments.values_list("text", "seq")) == [("first", None), ("second", None), ("third", None)]


def test_the_longest_comment_is_kept_whole() -> None:
    comment = add_comment(rollout=make_rollout(make_collection()), text="x" * MAX_CHARACTERS, author=make_user())
    assert len(Comment.objects.get(pk=comment.pk).text) == 10_000


@pytest.mark.parametrize(
    ("text", "seq", "why"),
    [
        ("", None, "needs a text"),
        (" \n\t", None, "needs a text"),
        ("x" * (MAX_CHARACTERS + 1), None, "at most 10,000 characters"),
        ("nice", 6, "has no event 6"),
    ],
)
def test_what_says_nothing_or_points_nowhere_is_refused_and_not_kept(text: str, seq: int | None, why: str) -> None:
    rollout = make_rollout(make_collection())
    with pytest.raises(CommentRefused) as refused:
        add_comment(rollout=rollout, text=text, author=make_user(), seq=seq)
    assert why in str(refused.value)
    assert rollout.comments.count() == 0


def test_an_event_of_an_earlier_attempt_cannot_be_commented_on() -> None:
    rollout = make_rollout(make_collection())
    rollout.attempt = 2
    rollout.save()
    with pytest.raises(CommentRefused):
        add_comment(rollout=rollout, text="of the first attempt", author=make_user(), seq=0)
