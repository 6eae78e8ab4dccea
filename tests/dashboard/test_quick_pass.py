"""The quick pass: several items of a queue on one page."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import User
from apps.dashboard.views.reviews.quick_pass_views import ITEMS
from apps.gym.image_data import SCHEME, read_image
from apps.gym.traces.items import dump_json
from apps.reviews.models import Queue, Review
from apps.tasks.models import Task
from apps.tasks.stored_images import store_images
from tests.dashboard.markup import faults
from tests.images import make_png
from tests.reviews.queues import annotator, claim, judge, make_queue, make_rubric

BOOLEAN = [{"key": "right", "label": "Is it right?", "kind": "boolean"}]


@pytest.fixture
def ann(db: None) -> User:
    return annotator()


def browser(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def answers(page: Any, given: dict[int, dict[str, str]]) -> dict[str, Any]:
    """Return the posted fields: those of the page, and `given` by place of the item."""
    items = page.context["items"]
    fields: dict[str, Any] = {"review": [item.review.pk for item in items]}
    for item in items:
        fields[f"{item.prefix}token"] = item.token
    for place, values in given.items():
        fields |= {f"{items[place].prefix}{name}": value for name, value in values.items()}
    return fields


def address(queue: Queue) -> str:
    return f"/queues/{queue.pk}/quick-pass/"


def start(client: Client, queue: Queue) -> Any:
    """Reserve items and return the page with them."""
    client.post(address(queue))
    return client.get(address(queue))


def test_images_of_the_prompt_are_shown(ann: User):
    queue, client = make_queue(pairs=1), browser(ann)
    image = read_image(make_png())
    store_images({"ab": image})
    parts = [{"type": "input_text", "text": "Which?"}, {"type": "input_image", "image_url": f"{SCHEME}ab"}]
    row = {"responses_create_params": {"input": [{"role": "user", "content": parts}]}}
    Task.objects.update(row_json=dump_json(row))
    page = start(client, queue)
    assert [shown.sha256 for shown in page.context["items"][0].images] == ["ab"]
    assert reverse("dashboard:stored_image", args=["ab"]) in page.text


def test_answered_items_are_submitted_and_the_others_stay_reserved(ann: User):
    queue, client = make_queue(pairs=ITEMS + 2), browser(ann)
    page = start(client, queue)
    assert (len(page.context["items"]), faults(page.text)) == (ITEMS, [])
    assert (
        client.post(address(queue), answers(page, {0: {"choice": "a"}, 2: {"choice": "both_bad"}})).status_code == 302
    )
    said = Review.objects.submitted().order_by("pk")
    assert [review.choice for review in said] == ["a", "both_bad"]
    again = start(client, queue).context["items"]
    shown = [item.review.pk for item in page.context["items"]]
    assert [item.review.pk for item in again][: ITEMS - 2] == [shown[1], *shown[3:]]
    assert len(again) == ITEMS


def test_a_repeated_request_submits_once(ann: User):
    queue, client = make_queue(pairs=2), browser(ann)
    fields = answers(start(client, queue), {0: {"choice": "b"}})
    for _ in range(2):
        assert client.post(address(queue), fields).status_code == 302
    assert Review.objects.submitted().count() == 1


def test_two_reviewers_never_get_the_same_item(ann: User):
    queue, ben = make_queue(pairs=ITEMS + 3), annotator()
    one, other = (start(browser(user), queue).context["items"] for user in (ann, ben))
    assert (len(one), len(other)) == (ITEMS, 3)
    assert not {item.review.item_id for item in one} & {item.review.item_id for item in other}


def test_the_time_of_a_page_is_shared_by_its_answers(ann: User):
    queue, client = make_queue(pairs=4), browser(ann)
    page = start(client, queue)
    Review.objects.update(started_at=timezone.now() - timedelta(seconds=40))
    client.post(address(queue), answers(page, {place: {"choice": "a"} for place in range(4)}))
    assert [round(seconds) for seconds in Review.objects.values_list("seconds", flat=True)] == [10] * 4


def test_false_is_an_answer_to_a_rubric_and_missing_scores_are_named(ann: User):
    queue, client = make_queue(pairs=1, size=1, rubric=make_rubric(criteria=BOOLEAN)), browser(ann)
    client.post(address(queue), answers(start(client, queue), {0: {"score-right": "false"}}))
    assert Review.objects.submitted().get().scores == {"right": False}
    queue = make_queue(pairs=2, size=1)
    page = client.post(address(queue), answers(start(client, queue), {1: {"score-right": "true"}}))
    assert page.status_code == 422
    first, second = page.context["items"]
    assert (first.problem, bool(second.problem)) == ("", True)
    assert second.fields["criteria"][0]["value"] is True
    assert Review.objects.filter(queue=queue).submitted().count() == 0


@pytest.mark.parametrize(
    ("scale", "values"),
    [
        ({"minimum": 0, "maximum": 9.5, "step": 1}, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ({"minimum": -2, "maximum": 2, "step": 2.0}, [-2, 0, 2]),
        ({"minimum": 1, "maximum": 5}, []),
        ({"minimum": 1, "maximum": 5, "step": 0.5}, []),
        ({"minimum": 0, "maximum": 10, "step": 1}, []),
    ],
)
def test_a_short_scale_of_whole_numbers_is_shown_as_options(ann: User, scale: dict[str, float], values: list[int]):
    rubric = make_rubric(criteria=[{"key": "clear", "label": "How clear is it?", "kind": "numeric", **scale}])
    queue, client = make_queue(pairs=1, size=1, rubric=rubric), browser(ann)
    page = start(client, queue)
    (field,) = page.context["items"][0].fields["criteria"]
    assert [value for value, *_ in field["options"]] == [str(each) for each in values]
    assert [key for _, _, key, _ in field["options"]] == [str(each) if each > 0 else "" for each in values]
    client.post(address(queue), answers(page, {0: {"score-clear": "2"}}))
    assert Review.objects.submitted().get().scores == {"clear": 2}


def test_an_item_taken_after_the_reservation_expired_still_takes_the_answer(ann: User):
    queue, client, ben = make_queue(pairs=1), browser(ann), annotator()
    page = start(client, queue)
    Review.objects.update(leased_until=timezone.now() - timedelta(minutes=1))
    judge(queue, ben, "b")
    assert client.post(address(queue), answers(page, {0: {"choice": "a"}})).status_code == 302
    assert sorted(Review.objects.submitted().values_list("choice", flat=True)) == ["a", "b"]


def test_the_whole_item_is_one_click_away(ann: User):
    queue, client = make_queue(pairs=3), browser(ann)
    items = start(client, queue).context["items"]
    for item in items:
        page = client.get(f"/queues/{queue.pk}/review/?review={item.review.pk}")
        assert page.context["review"] == item.review
    stranger = claim(queue=make_queue(), user=annotator())
    assert client.get(f"/queues/{queue.pk}/review/?review={stranger.pk}").context["review"] in [i.review for i in items]


def test_reviews_of_others_rankings_and_closed_queues_are_refused(ann: User):
    queue, client = make_queue(pairs=1), browser(annotator())
    fields = answers(start(browser(ann), queue), {0: {"choice": "a"}})
    client.post(address(queue), fields)
    assert Review.objects.submitted().count() == 0
    for text in ("abc", "-1", "9" * 30):
        assert client.post(address(queue), {"review": text}).status_code == 302
    assert client.get(address(make_queue(pairs=1, size=3))).status_code == 404
    Queue.objects.filter(pk=queue.pk).update(closed_at=timezone.now())
    assert browser(ann).post(address(queue))["Location"] == f"/queues/{queue.pk}/review/"


def test_a_blind_queue_hides_reward_and_model(ann: User):
    queue = make_queue(pairs=1)
    page = start(browser(ann), queue).text
    model = queue.items.get().entries.first().rollout.collection.policy_model
    assert (model.slug in page, model.name in page, "reward" in page.casefold()) == (False, False, False)


def test_reading_the_page_reserves_nothing(ann: User):
    queue = make_queue(pairs=1)
    page = browser(ann).get(address(queue))
    assert (page.context["items"], page.context["mine"]["left"], "1 item left" in page.text) == ([], 1, True)
    assert not Review.objects.exists()
