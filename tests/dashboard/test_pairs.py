import re

import pytest
from django.urls import reverse

from apps.accounts.models import Role
from apps.pairs.models import PairSet, PreferencePair
from apps.reviews.models import Queue
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


@pytest.mark.parametrize("margin", ["-1", "x", "nan"])
def test_a_margin_that_prefers_nothing_is_refused(margin):
    data = {"collection": mixed_collection().pk, "margin": margin}
    assert signed_in().post(reverse("dashboard:pair_set_create"), data).status_code == 422
    assert PairSet.objects.count() == 0


def test_a_margin_of_nothing_pairs_what_differs_at_all():
    collection = mixed_collection()
    signed_in().post(reverse("dashboard:pair_set_create"), {"collection": collection.pk, "margin": "0"})
    assert (PairSet.objects.get().margin, PairSet.objects.get().state) == (0.0, "ready")


def test_a_set_shows_its_pairs_and_what_became_of_the_groups():
    pair_set = make_pair_set(tasks=2)
    page = squeezed(signed_in(Role.VIEWER).get(reverse("dashboard:pair_set_detail", args=[pair_set.pk])).text)
    assert "<dt>items</dt><dd>7</dd>" in page
    assert "<dt>paired</dt><dd>2</dd>" in page
    assert page.count('<th scope="row"><a href="/pairs/') == 2
    assert "Export as DPO" not in page


def test_an_export_is_offered_of_a_set_that_holds_pairs():
    client = signed_in()
    full, empty = make_pair_set(), PairSet.objects.create(collection=make_collection())
    pages = [squeezed(client.get(reverse("dashboard:pair_set_detail", args=[one.pk])).text) for one in (full, empty)]
    assert ["Export as DPO" in page for page in pages] == [True, False]
    assert "DPO exports include accepted and proposed pairs" in pages[0]
    assert "Try a smaller margin" in pages[1]


def test_a_pair_shows_the_prompt_once_and_both_attempts():
    pair = make_pair_set().pairs.get()
    page = signed_in().get(reverse("dashboard:pair_detail", args=[pair.pk])).text
    assert page.count("What is 2 + 2?") == 1
    assert page.index('id="shared-e1"') < page.index('id="chosen-e2"') < page.index('id="rejected-e2"')
    assert "five" in page
    assert "Session started" not in page


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


def builder(collection: Collection, **fields: object) -> dict[str, object]:
    return {"collection": collection.pk, "margin": "0.1", "mode": "best_worst", "level": "trajectory", **fields}


def test_counts_come_before_anything_is_made_without_javascript_too():
    collection, client = mixed_collection(tasks=2), signed_in()
    page = squeezed(client.post(reverse("dashboard:pair_set_create"), builder(collection, count="1")).text)
    assert "<dt>Pairs</dt><dd>2</dd>" in page
    assert '<th scope="row">paired</th><td class="num">2</td>' in page
    assert "<!doctype html>" in page.lower()
    part = client.post(reverse("dashboard:pair_set_create"), builder(collection), headers={"HX-Request": "true"}).text
    assert part.strip().startswith('<div id="counts"')
    assert "<dt>Pairs</dt><dd>2</dd>" in squeezed(part)
    assert PairSet.objects.count() == 0


def test_counts_explain_an_invalid_rule():
    data = builder(mixed_collection(), max_length_ratio="0.5", count="1")
    answer = signed_in().post(reverse("dashboard:pair_set_create"), data, headers={"HX-Request": "true"})
    assert answer.status_code == 422
    assert "Maximum length ratio: " in squeezed(answer.text)


def test_a_preview_shows_where_the_sides_of_the_first_pairs_part():
    collection = mixed_collection(tasks=2)
    page = squeezed(signed_in().post(reverse("dashboard:pair_set_create"), builder(collection, preview="1")).text)
    assert "The first 2 pairs" in page
    assert page.count("<summary><span") == 2
    good, bad = collection.rollouts.order_by("id")[:2]
    assert f"/rollouts/compare/?r={good.pk},{bad.pk}" in page
    assert f"/rollouts/compare/?pairs={good.pk}-{bad.pk}," in page.replace("%2C", ",")
    assert PairSet.objects.count() == 0


def test_every_part_of_the_rule_is_made_as_the_form_says_and_offered_again():
    collection, other, client = mixed_collection(), mixed_collection(), signed_in()
    fields = {
        "further": [other.pk],
        "name": "sums",
        "mode": "all",
        "level": "step",
        "per_task": "3",
        "max_length_ratio": "4",
        "same": "completions",
        "include_truncated": "on",
        "reward_from": "override",
    }
    client.post(reverse("dashboard:pair_set_create"), builder(collection, **fields))
    pair_set = PairSet.objects.get()
    assert (pair_set.name, list(pair_set.further.all()), pair_set.keeps_decisions) == ("sums", [other], False)
    assert pair_set.rule == {
        "mode": "all",
        "level": "step",
        "margin": 0.1,
        "min_chosen_reward": None,
        "per_task": 3,
        "max_length_ratio": 4.0,
        "same": "completions",
        "include_truncated": True,
        "include_ambiguous": False,
        "include_noticed": False,
        "include_redacted": False,
        "reward_from": "override",
    }
    again = client.get(reverse("dashboard:pair_set_create"), {"again": pair_set.pk}).text
    assert '<option value="all" selected>' in again
    assert f'<option value="{other.pk}" selected>' in again
    assert 'value="sums"' in again


def test_a_pair_is_accepted_or_rejected_with_a_reason_and_the_next_one_comes():
    pair_set, client = make_pair_set(tasks=2), signed_in()
    one, other = pair_set.pairs.order_by("id")
    decide = reverse("dashboard:pair_decide", args=[one.pk])
    refused = client.post(decide, {"status": "rejected", "next": "1"}, follow=True)
    assert "Give a reason" in refused.text
    done = client.post(decide, {"status": "rejected", "reason": "A guess.", "next": "1"})
    assert done["Location"] == reverse("dashboard:pair_detail", args=[other.pk])
    page = client.get(reverse("dashboard:pair_detail", args=[one.pk])).text
    assert "A guess." in page
    assert "Reset to proposed" in page
    # What is taken back is looked at again.
    assert client.post(decide, {"status": "proposed", "next": "1"})["Location"].endswith(f"/pairs/{one.pk}/")
    client.post(decide, {"status": "rejected", "reason": "A guess.", "next": "1"})
    table = client.get(reverse("dashboard:pair_set_detail", args=[pair_set.pk]), {"status": "rejected"}).text
    assert table.count('<th scope="row"><a href="/pairs/') == 1


def test_a_set_that_is_being_made_tells_how_far_it_is_and_can_be_cancelled():
    pair_set, client = make_pair_set(), signed_in()
    PairSet.objects.filter(pk=pair_set.pk).update(state="making", total=10, considered=4)
    page = squeezed(client.get(reverse("dashboard:pair_set_detail", args=[pair_set.pk])).text)
    assert "checked 4 of 10 rollouts" in page
    assert 'hx-trigger="every 2s"' in page
    client.post(reverse("dashboard:pair_set_cancel", args=[pair_set.pk]))
    assert PairSet.objects.get().state == "cancelled"
    polled = client.get(
        reverse("dashboard:pair_set_detail", args=[pair_set.pk]), {"live": "1"}, headers={"HX-Request": "true"}
    )
    assert polled.status_code == 286
    assert client.post(reverse("dashboard:pair_set_delete", args=[pair_set.pk])).status_code == 302
    assert PairSet.objects.count() == 0


def test_people_are_asked_from_the_page_of_the_set():
    pair_set, client = make_pair_set(tasks=2), signed_in()
    ask = reverse("dashboard:pair_set_ask", args=[pair_set.pk])
    assert "Maximum pairs: " in client.post(ask, {"limit": "0"}, follow=True).text
    assert Queue.objects.count() == 0
    page = client.post(ask, {"limit": "1", "overlap": "3", "name": "Close ones"}, follow=True).text
    assert "holds 1 pair" in page
    queue = Queue.objects.get()
    assert (queue.name, queue.overlap, queue.item_count) == ("Close ones", 3, 1)
    page = client.post(ask, follow=True).text
    assert "holds 1 pair" in page
    pair_set.pairs.update(status="accepted")
    again = client.post(reverse("dashboard:pair_set_ask", args=[pair_set.pk]), follow=True).text
    assert "All proposed pairs of" in again
    assert Queue.objects.count() == 2


@pytest.mark.parametrize("sort", ["", "margin", "length"])
def test_the_table_and_the_page_of_a_pair_have_the_same_order(sort):
    pair_set = make_pair_set()
    pairs = [pair_set.pairs.get()]
    for _ in range(4):
        rejected = make_rollout(pair_set.collection, task=pairs[0].task, reward=0.0)
        given = {"task": pairs[0].task, "chosen": pairs[0].chosen, "rejected": rejected}
        pairs.append(PreferencePair.objects.create(pair_set=pair_set, margin=1.0, **given))
    values = [(0.5, 9), (0.25, 4), (0.5, 8), (None, 0), (None, 0)]
    for pair, (margin, length) in zip(pairs, values, strict=True):
        pair.margin, pair.source = margin, "reward" if margin else "verdict"
        pair.chosen_length, pair.rejected_length = 2, length
        pair.save()
    order = [pairs[at].pk for at in {"": (0, 1, 2, 3, 4), "margin": (1, 0, 2, 3, 4), "length": (0, 2, 1, 3, 4)}[sort]]
    client, query = signed_in(), {"sort": sort}
    table = client.get(reverse("dashboard:pair_set_detail", args=[pair_set.pk]), query)
    assert [pair.pk for pair, *_ in table.context["rows"]] == order
    places = [client.get(reverse("dashboard:pair_detail", args=[pk]), query).context["place"] for pk in order]
    assert [each.number for each in places] == [1, 2, 3, 4, 5]
    assert [each.next for each in places] == [each.next_proposed for each in places] == [*order[1:], None]
    assert [each.previous for each in places] == [None, *order[:-1]]
    assert "filtered pairs" not in client.get(reverse("dashboard:pair_detail", args=[order[0]]), query).text


def test_marked_pairs_are_decided_together_and_the_table_stays_filtered():
    pair_set, other, client = make_pair_set(tasks=3), make_pair_set(tasks=1), signed_in()
    path = reverse("dashboard:pair_set_decide", args=[pair_set.pk])
    first, second, third = pair_set.pairs.order_by("pk")
    answer = client.post(f"{path}?status=proposed", {"pair": [first.pk, third.pk], "status": "accepted"})
    assert answer.url == f"{reverse('dashboard:pair_set_detail', args=[pair_set.pk])}?status=proposed"
    assert list(pair_set.pairs.order_by("pk").values_list("status", flat=True)) == ["accepted", "proposed", "accepted"]
    for wrong in ({"pair": [second.pk], "status": "rejected"}, {"status": "accepted"}):
        client.post(path, wrong)
    client.post(path, {"pair": [second.pk, other.pairs.get().pk], "status": "accepted"})
    assert (PreferencePair.objects.get(pk=second.pk).status, other.pairs.get().status) == ("proposed", "proposed")
    page = client.post(path, {"pair": [second.pk], "status": "rejected", "reason": "Both guess."}, follow=True).text
    assert "1 of 1 selected pairs" in page
    assert [one.reason for one in second.decisions.all()] == ["Both guess."]
    assert f'form="decide-marked" aria-label="Select pair {second.pk}"' in page
    table = squeezed(page).partition('<section id="pair-table"')[2]
    head, body = (re.findall(r"<t[hd]\b[^>]*>", part) for part in table.partition("</thead>")[::2])
    assert len(body) == 3 * len(head)
    assert f'<td class="mark"><input type="checkbox" name="pair" value="{second.pk}"' in table
    # In place, with what became of it.
    part = client.post(path, {"pair": [second.pk], "status": "proposed"}, headers={"HX-Request": "true"}, follow=True)
    assert part.text.lstrip().startswith('<section id="pair-table"')
    assert "1 of 1 selected pairs" in part.text
    viewer = signed_in(Role.VIEWER)
    assert viewer.post(path, {"pair": [first.pk], "status": "proposed"}).status_code == 403
    assert "decide-marked" not in viewer.get(reverse("dashboard:pair_set_detail", args=[pair_set.pk])).text


def test_the_filters_of_the_table_stay_while_pairs_are_decided():
    pair_set, client = make_pair_set(tasks=3), signed_in()
    first, second, third = pair_set.pairs.order_by("pk")
    pair_set.pairs.exclude(pk=second.pk).update(same_answer=True)
    table = client.get(reverse("dashboard:pair_set_detail", args=[pair_set.pk]), {"flag": "same_answer"}).text
    assert f'href="/pairs/{first.pk}/?flag=same_answer"' in table
    assert "same answer (2)" in table
    page = client.get(f"/pairs/{first.pk}/?flag=same_answer").text
    assert f'rel="next" href="/pairs/{third.pk}/?flag=same_answer"' in page
    assert "1 of 2 filtered pairs, 2 still proposed" in page
    assert f'data-next="/pairs/{third.pk}/?flag=same_answer"' in page
    done = client.post(f"/pairs/{first.pk}/decide/?flag=same_answer", {"status": "accepted", "next": "1"})
    assert done["Location"] == f"/pairs/{third.pk}/?flag=same_answer"
    assert "2 of 2 filtered pairs, 1 still proposed" in client.get(done["Location"]).text
    # The status filter does not hide the pairs that are left to decide.
    done = client.post(f"/pairs/{first.pk}/decide/?status=accepted", {"status": "accepted", "next": "1"})
    assert done["Location"] == f"/pairs/{second.pk}/?status=accepted"


def test_the_table_and_the_list_count_the_decisions():
    pair_set, client = make_pair_set(tasks=3), signed_in()
    pair_set.pairs.filter(pk=pair_set.pairs.order_by("pk")[0].pk).update(status="rejected")
    page = squeezed(client.get(reverse("dashboard:pair_set_detail", args=[pair_set.pk])).text)
    counts = re.findall(r"<dt>(\w+)</dt><dd><a href=\"[^\"]*status=(\w+)#pair-table\">(\d+)</a>", page)
    assert counts == [("Proposed", "proposed", "2"), ("Accepted", "accepted", "0"), ("Rejected", "rejected", "1")]
    assert "1 rejected, 2 proposed" in client.get(reverse("dashboard:pair_set_list")).text


def test_a_pair_links_to_the_comparison_of_its_steps():
    pair = make_pair_set().pairs.get()
    page = signed_in().get(reverse("dashboard:pair_detail", args=[pair.pk])).text
    assert f"/rollouts/compare/?r={pair.chosen_id},{pair.rejected_id}" in page
    assert '<table class="compare of-2">' in page
