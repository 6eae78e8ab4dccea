import pytest
from django.urls import reverse

from apps.accounts.models import Role
from apps.exports.models import PairSet, PreferencePair
from apps.rollouts.models import Collection
from tests.dashboard.pages import queries_with_one_and_three, signed_in, squeezed
from tests.factories import make_collection, make_rollout, make_trace

pytestmark = pytest.mark.django_db


def mixed_collection(tasks: int = 1) -> Collection:
    """Each of the first `tasks` groups has a good and a bad attempt."""
    collection = make_collection(state="completed")
    for task in collection.version.tasks.order_by("index")[:tasks]:
        make_rollout(collection, task=task, reward=1.0)
        make_rollout(collection, task=task, reward=0.0, trace=make_trace("five", 0.0, tool_call=False))
    return collection


def make_pair_set(tasks: int = 1) -> PairSet:
    collection = mixed_collection(tasks)
    pair_set = PairSet.objects.create(collection=collection, pair_count=tasks, counts={"paired": tasks, "items": 7})
    for task in collection.version.tasks.order_by("index")[:tasks]:
        chosen, rejected = collection.rollouts.filter(task=task).order_by("repeat")
        PreferencePair.objects.create(pair_set=pair_set, task=task, chosen=chosen, rejected=rejected, margin=1.0)
    return pair_set


def test_building_pairs_from_a_collection_shows_the_set():
    collection = mixed_collection(tasks=2)
    client = signed_in()
    form = client.get(reverse("dashboard:pair_set_create"), {"collection": collection.pk}).text
    assert f'<option value="{collection.pk}" selected>' in form
    done = client.post(reverse("dashboard:pair_set_create"), {"collection": collection.pk, "margin": "0.5"})
    pair_set = PairSet.objects.get()
    assert done["Location"] == reverse("dashboard:pair_set_detail", args=[pair_set.pk])
    assert (pair_set.pair_count, pair_set.margin, pair_set.min_chosen_reward) == (2, 0.5, None)
    assert "2 pairs built." in client.get(done["Location"]).text


@pytest.mark.parametrize("margin", ["0", "-1", "x", "nan"])
def test_a_margin_that_prefers_nothing_is_refused(margin):
    data = {"collection": mixed_collection().pk, "margin": margin}
    assert signed_in().post(reverse("dashboard:pair_set_create"), data).status_code == 422
    assert PairSet.objects.count() == 0


def test_a_set_shows_its_pairs_and_what_became_of_the_groups():
    pair_set = make_pair_set(tasks=2)
    page = squeezed(signed_in(Role.VIEWER).get(reverse("dashboard:pair_set_detail", args=[pair_set.pk])).text)
    assert "<dt>items</dt><dd>7</dd>" in page
    assert page.count('<th scope="row"><a href="/pairs/') == 2
    assert "Export as DPO" not in page


def test_an_export_is_offered_of_a_set_that_holds_pairs():
    client = signed_in()
    full, empty = make_pair_set(), PairSet.objects.create(collection=make_collection())
    pages = [squeezed(client.get(reverse("dashboard:pair_set_detail", args=[one.pk])).text) for one in (full, empty)]
    assert ["Export as DPO" in page for page in pages] == [True, False]
    assert "tool calls have malformed arguments; its manifest counts them by reason." in pages[0]
    assert "There is nothing to export: this set holds no pairs." in pages[1]


def test_a_pair_shows_the_prompt_once_and_both_attempts():
    pair = make_pair_set().pairs.get()
    page = signed_in().get(reverse("dashboard:pair_detail", args=[pair.pk])).text
    assert page.count("What is 2 + 2?") == 1
    assert page.index('id="shared-e1"') < page.index('id="chosen-e2"') < page.index('id="rejected-e2"')
    assert "five" in page
    assert "Session opened" not in page


def test_lists_take_as_many_queries_for_three_rows_as_for_one():
    one, three = queries_with_one_and_three(lambda: reverse("dashboard:pair_set_list"), make_pair_set)
    assert one == three
    counts = []
    for tasks in (1, 3):
        pair_set = make_pair_set(tasks)
        counts.append(pair_set.pk)
    client = signed_in()
    pages = [client.get(reverse("dashboard:pair_set_detail", args=[pk])).text for pk in counts]
    assert [page.count('<th scope="row">') for page in pages] == [1, 3]


def test_a_viewer_builds_no_pairs():
    client = signed_in(Role.VIEWER)
    assert client.post(reverse("dashboard:pair_set_create"), {}).status_code == 403
    assert "Build pairs" not in client.get(reverse("dashboard:pair_set_list")).text
