import pytest
from django.urls import reverse

from apps.dashboard.tables import task_rollouts
from apps.gym.traces.events import Verification
from apps.reviews.reviews.reward_overrides import override_reward
from apps.tasks.models import Task
from tests.dashboard.markup import read
from tests.dashboard.pages import queries_with_one_and_three, signed_in, squeezed
from tests.factories import make_collection, make_dataset, make_rollout, make_user

pytestmark = pytest.mark.django_db


def page_of(task: Task, query: str = "") -> str:
    return reverse("dashboard:task_detail", args=[task.pk]) + query


def marked(html: str) -> list[int]:
    boxes = [each for each in read(html).all("input") if each.attributes.get("type") == "checkbox"]
    return [int(each.attributes["value"]) for each in boxes]


def test_all_rollouts_of_a_task_are_tiles_by_collection_that_can_be_marked():
    dataset = make_dataset()
    task = dataset.tasks.first()
    older, newer = make_collection(name="Older", dataset=dataset), make_collection(name="Newer", dataset=dataset)
    first = make_rollout(older, reward=1.0, output_tokens=120, turns=3)
    second = make_rollout(newer, reward=0.25)
    failed = make_rollout(newer, reward=None, status="failed", stop_reason="", error_kind="timed_out", trace=[])
    make_rollout(newer, task=dataset.tasks.last())
    page = signed_in().get(page_of(task))
    assert marked(page.text) == [second.pk, failed.pk, first.pk]
    assert [(group.collection.name, group.solved, group.mean_reward) for group in page.context["found"].groups] == [
        ("Newer", 0, 0.25),
        ("Older", 1, 1.0),
    ]
    override_reward(rollout=second, reward=0.5, reason="Half of it.", author=make_user())
    page = signed_in().get(page_of(task))
    text = squeezed(page.text)
    assert "reward set to 0.5" in text
    assert "answered · 3 turns · 120 tok" in text
    assert "1 of 1 solved · mean 1" in text
    assert f'action="{reverse("dashboard:rollout_compare")}"' in text


def test_rollouts_are_filtered_by_collection_and_outcome():
    dataset = make_dataset()
    task = dataset.tasks.first()
    one, other = make_collection(dataset=dataset), make_collection(dataset=dataset)
    solved, partly, unsolved = (make_rollout(one, reward=reward) for reward in (1.0, 0.5, 0.0))
    failed = make_rollout(other, reward=None, status="failed", stop_reason="", error_kind="timed_out", trace=[])
    client = signed_in()

    def shown(query: str) -> list[int]:
        return marked(client.get(page_of(task, query)).text)

    assert shown(f"?collection={one.pk}") == [solved.pk, partly.pk, unsolved.pk]
    assert shown("?outcome=solved") == [solved.pk]
    assert shown("?outcome=partly") == [partly.pk]
    assert shown("?outcome=unsolved") == [unsolved.pk]
    assert shown("?outcome=unfinished") == [failed.pk]
    assert shown(f"?collection={other.pk}&outcome=solved") == []
    assert "No rollouts match" in client.get(page_of(task, "?collection=999")).text
    assert len(shown("?collection=x&outcome=password")) == 4


def test_the_rewards_that_are_shown_are_drawn():
    collection = make_collection()
    for reward in (0.0, 1.0, 1.0):
        make_rollout(collection, reward=reward)
    task = collection.version.tasks.first()
    drawn = signed_in().get(page_of(task)).context["found"].histogram
    assert [bar.count for bar in drawn.bars if bar.count] == [1, 2]
    assert signed_in().get(page_of(task, "?outcome=solved")).context["found"].rewarded == 2


def test_more_than_can_be_shown_are_counted(monkeypatch):
    monkeypatch.setattr(task_rollouts, "SHOWN", 2)
    collection = make_collection()
    for _ in range(5):
        make_rollout(collection, trace=[])
    page = signed_in().get(page_of(collection.version.tasks.first())).text
    assert (len(marked(page)), "3 older rollouts are not shown" in page) == (2, True)


def test_a_group_takes_as_many_queries_for_three_rollouts_as_for_one():
    dataset = make_dataset()
    task = dataset.tasks.first()
    one, three = queries_with_one_and_three(
        lambda: page_of(task), lambda: make_rollout(make_collection(dataset=dataset), trace=[])
    )
    assert one == three


def test_htmx_gets_the_group_alone():
    task = make_dataset().tasks.first()
    reply = signed_in().get(page_of(task), headers={"HX-Request": "true"})
    assert ("<html" in reply.text, 'id="task"' in reply.text) == (False, True)
    assert "No rollouts yet" in reply.text


def test_a_tile_shows_answer_and_reason_and_is_compared_in_one_click():
    dataset = make_dataset()
    task, collection = dataset.tasks.first(), make_collection(dataset=dataset)
    right = make_rollout(collection, reward=1.0, answer="4")
    wrong = make_rollout(
        collection, reward=0.0, answer="5", trace=[Verification(reward=0.0, explanation="5 is not the expected 4")]
    )
    failure = {"reward": None, "status": "failed", "stop_reason": "", "error_kind": "timed_out", "trace": []}
    failed = make_rollout(collection, error_message="no reply", **failure)
    page = signed_in().get(page_of(task))
    tiles = [squeezed(each.text) for each in read(page.text).all("li") if "tok" in each.text]
    assert "5 is not the expected 4" in tiles[1]
    assert "no reply" in tiles[2]
    (group,) = page.context["found"].groups
    assert [(one.pk, other.pk) for one, other in group.compared] == [
        (right.pk, wrong.pk),
        (wrong.pk, right.pk),
        (failed.pk, right.pk),
    ]
    assert f"?r={wrong.pk}&amp;r={right.pk}" in page.text
