"""A zero byte in a form is refused by name, on whatever page: PostgreSQL could not store it, SQLite would."""

import pytest

from apps.accounts.models import Role
from apps.reviews.models import Review
from tests.dashboard.markup import faults
from tests.factories import make_collection, make_rollout, make_user
from tests.reviews.queues import annotator, claim, make_queue, make_rubric


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("path", "form", "field"),
    [
        ("/reviews/{review}/submit/", {"token": "\x00", "choice": "a"}, "token"),
        ("/reviews/{review}/skip/", {"reason": "\x00"}, "reason"),
        ("/rollouts/{rollout}/scores/", {"rubric": "\x00"}, "rubric"),
        ("/rollouts/{rollout}/scores/", {"rubric": "{rubric}", "token": "a\x00"}, "token"),
        ("/rollouts/{rollout}/scores/", {"rubric": "{rubric}", "no\x00": "a"}, "no "),
        ("/queue-items/{item}/", {"token": "\x00", "choice": "a"}, "token"),
    ],
)
def test_a_form_with_a_zero_byte_is_refused_by_its_field_and_changes_nothing(client, path, form, field):
    review = claim(make_queue(pairs=1), annotator())
    rollout, rubric = make_rollout(make_collection()), make_rubric()
    client.force_login(review.reviewer if path.startswith("/reviews/") else make_user(Role.ENGINEER))
    before = Review.objects.values().get()
    filled = {name: value.format(rubric=rubric.slug) for name, value in form.items()}
    reply = client.post(path.format(review=review.pk, rollout=rollout.pk, item=review.item_id), filled)
    assert (reply.status_code, f"The field “{field}” contains a NUL character" in reply.content.decode()) == (400, True)
    assert (faults(reply.content.decode()), Review.objects.values().get()) == ([], before)
