"""The table of rollouts: a line that filters, counts, columns and views of one's own, rows that are marked."""

import re

import pytest
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import Role, SavedView
from apps.dashboard.tables.neighbours import find_neighbours
from apps.dashboard.tables.rollouts import facets
from apps.dashboard.tables.rollouts.columns import NAMES
from apps.dashboard.tables.rollouts.row_texts import shared_prefix
from apps.exports.models import Export
from apps.gym.traces.events import ModelCall, Prompt, Verification
from apps.gym.traces.items import message
from apps.reviews.reviews.own_verdicts import save_own_verdict
from apps.reviews.reviews.review_answers import Answer
from apps.reviews.reviews.reward_overrides import override_reward
from apps.rollouts.models import CollectionDeletion, Reverification, Rollout
from apps.rollouts.search.filters.filter_keys import FLAGS
from apps.rollouts.search.keyset_pages import SORTS
from apps.rollouts.search.word_index import index_next_rollouts, mark_unindexed
from tests.dashboard.markup import read
from tests.dashboard.pages import queries_with_one_and_three, signed_in, squeezed
from tests.factories import make_collection, make_dataset, make_policy_model, make_rollout, make_row, make_user

pytestmark = pytest.mark.django_db
LIST = "/rollouts/"


def shown(client, **query: str) -> list[int]:
    return [row.pk for row in client.get(LIST, query).context["page"].rows]


def counted(client, **query: str) -> dict[str, dict[str, int]]:
    found = client.get(reverse("dashboard:rollout_facets"), query).context["counted"]
    return {facet.label: {choice.label: choice.rollouts for choice in facet.choices} for facet in found.facets}


def test_the_line_filters_and_stays_in_its_field():
    collection = make_collection(policy_model=make_policy_model(slug="qwen-8b"))
    good, bad = make_rollout(collection, reward=0.9), make_rollout(collection, reward=0.1, stop_reason="max_steps")
    other = make_rollout(make_collection(), reward=0.9)
    client = signed_in(Role.VIEWER)
    assert shown(client, q="reward:>0.5") == [other.pk, good.pk]
    assert shown(client, q="model:qwen* -reward:>0.5") == [bad.pk]
    assert shown(client, q=f"collection:{collection.pk} flag:truncated") == [bad.pk]
    page = client.get(LIST, {"q": "reward:>0.5 model:qwen*"}).text
    assert 'value="reward:&gt;0.5 model:qwen*"' in page


def test_flags_are_listed_by_their_meaning():
    collection = make_collection()
    make_rollout(collection, flagged=True)
    assert counted(signed_in(Role.VIEWER), q="flag:credentials,lost")["Flags"] == {
        FLAGS["credentials"]: 1,
        FLAGS["lost"]: None,
    }


@pytest.mark.parametrize(
    ("q", "wanted"),
    [
        ("steps:>=5", ["b"]),
        ("steps:1..2", ["a"]),
        ("calls:0", ["b"]),
        ("tool_errors:>0", ["a"]),
        ("tokens:>1k", ["b"]),
        ("tokens:15..15", ["a"]),
        ("input:10 output:5", ["a"]),
        ("seconds:>1.5", ["b"]),
        ("cost:<0.5", ["a"]),
        ("tool:search", ["a"]),
        ("-tool:*", ["b"]),
        ("version:step-*", ["b"]),
        ("version:*2*0", ["b"]),
        ("-version:*", ["a"]),
        ("attempt:>1", ["b"]),
        ("flag:tool_error,retried", ["b", "a"]),
        ("flag:credentials", ["b"]),
        ("flag:redacted", ["b"]),
        ("flag:no_usage", ["a"]),
        ("flag:lost", []),
        ("flag:unscored", ["b"]),
        ("-flag:unsolved", ["b", "a"]),
        ("-reward:*", ["b"]),
        ("split:train", ["b"]),
        ("-split:train", ["a"]),
        ("tag:hard", ["b"]),
        ("tag:har", []),
        ("-tag:*", ["a"]),
        ("task:second", ["b"]),
        ("status:completed,failed", ["b", "a"]),
        ("stop:answered -stop:max_steps", ["b", "a"]),
        ("error:*", []),
        ("worker:1", []),
        ("agent:*", None),
        ("dataset:nosuch", []),
        ('tag:"50% _\'; --"', []),
        ("id:>999999999999", []),
    ],
)
def test_every_key_finds_what_it_says(q, wanted):
    collection = make_collection(dataset=make_dataset([make_row("1", id="first"), make_row("2", id="second")]))
    one, two = collection.version.tasks.order_by("index")
    type(two).objects.filter(pk=two.pk).update(split="train", tags_text="\nhard\n", external_id="second")
    a = make_rollout(
        collection, task=one, trace=[], tool_errors=1, input_tokens=10, output_tokens=5, duration=1.0, cost=0.1,
        tools={"search": [1, 1, 0.2]}, calls_without_usage=1,
    )  # fmt: skip
    b = make_rollout(
        collection, task=two, trace=[], turns=5, tool_calls=0, input_tokens=1000, output_tokens=5,
        duration=2.0, cost=0.9, model_version="step-200", attempt=2, flagged=True,
        redactions={"bearer": 1}, reward=None,
    )  # fmt: skip
    client = signed_in(Role.VIEWER)
    if wanted is None:
        assert "takes no" in client.get(LIST, {"q": q}).text or client.get(LIST, {"q": q}).context["there"].refusal
        return
    assert shown(client, q=q) == [{"a": a.pk, "b": b.pk}[name] for name in wanted]


def test_a_version_of_the_policy_model_is_found_within_collections():
    one, two = make_collection(), make_collection()
    # As they come: the weights change while a collection goes on, and two collections go on at once.
    made = [make_rollout(whose, trace=[], model_version=said) for whose in (one, two) for said in ("a", "b", "", "a")]
    client = signed_in(Role.VIEWER)
    both = f"collection:{one.pk},{two.pk}"
    for q, wanted in {
        f"collection:{one.pk} version:a": [3, 0],
        f"collection:{two.pk} version:b": [5],
        f"{both} version:a": [7, 4, 3, 0],
        f"{both} version:a,b": [7, 5, 4, 3, 1, 0],
        f"{both} -version:a": [6, 5, 2, 1],
        f"{both} version:a version:b": [],
        f"{both} version:c": [],
    }.items():
        assert shown(client, q=q) == [made[place].pk for place in wanted], q


def test_an_invalid_filter_is_marked_and_shows_no_rows():
    make_rollout(make_collection())
    page = signed_in(Role.VIEWER).get(LIST, {"q": "status:failed rewrd:1"})
    assert page.context["page"].rows == []
    assert "reward:?" in page.text
    assert "status:failed <mark>rewrd</mark>:1" in page.text
    assert 'aria-invalid="true"' in page.text


def test_links_of_other_pages_become_terms_of_the_line():
    page = signed_in().get(LIST, {"q": "steps:1", "error_kind": "timed_out", "min_reward": "0", "max_reward": "0.5"})
    assert page.context["there"].text == "steps:1 error:timed_out reward:0..0.5"


@pytest.mark.parametrize("key", [*SORTS, "id"])
@pytest.mark.parametrize("sign", ["", "-"])
def test_every_order_meets_every_rollout_once_with_ties_and_those_without_a_value_last(key, sign):
    collection = make_collection(dataset=make_dataset([make_row()] * 120))
    tasks = list(collection.version.tasks.order_by("index"))
    for number, task in enumerate(tasks):
        ended = {"reward": [None, 0.25, 0.5, 1.0][number % 4], "turns": number % 3, "tool_calls": number % 2}
        ended |= {"duration": (number * 7 % 5) / 3, "cost": number % 4 / 7, "input_tokens": number % 3}
        waits = {"status": "queued", "reward": None, "stop_reason": "", "finished_at": None, "attempt": 0}
        make_rollout(collection, task=task, trace=[], **(waits if number % 10 == 9 else ended))
    client, seen, after = signed_in(Role.VIEWER), [], ""
    for _ in range(3):
        page = client.get(LIST, {"sort": f"{sign}{key}", "after": after}).context["page"]
        seen += page.rows
        after = page.after
    assert (after, len(seen), len({row.pk for row in seen})) == ("", 120, 120)
    if key == "id":
        return
    values = dict(Rollout.objects.values_list("pk", SORTS[key].values))
    has = [getattr(row, SORTS[key].marker) is not None for row in seen]
    assert has == sorted(has, reverse=True)
    placed = [(values[row.pk], row.pk) for row, valued in zip(seen, has, strict=True) if valued]
    assert placed == sorted(placed, reverse=sign == "-")


@pytest.mark.parametrize("sort", ["-tokens", "cost", "-seconds"])
def test_the_trace_goes_on_through_the_same_order_and_filter(sort):
    collection = make_collection()
    for number in range(6):
        given = {"status": "cancelled", "stop_reason": "", "reward": None, "finished_at": None} if number > 3 else {}
        make_rollout(
            collection, trace=[], turns=number, input_tokens=number % 2, cost=number % 2, duration=number, **given
        )
    first = Rollout.objects.order_by("pk")[0]
    page = signed_in().get(LIST, {"q": f"-id:{first.pk}", "sort": sort}).context
    order = [row.pk for row in page["page"].rows]
    found = [find_neighbours(page["list_query"], row) for row in page["page"].rows]
    assert len(order) == 5
    assert [each.previous for each in found] == [None, *order[:-1]]
    assert [each.next for each in found] == [*order[1:], None]


def test_headings_say_how_the_table_is_sorted_and_sort_it_the_other_way_round():
    make_rollout(make_collection())
    page = read(signed_in().get(LIST, {"q": "steps:>1", "sort": "-reward"}).text)
    heads = {"".join(each.text.split()[:1]): each for each in page.all("th") if "aria-sort" in each.attributes}
    assert heads["Reward"].attributes["aria-sort"] == "descending"
    assert heads["Duration"].attributes["aria-sort"] == "none"
    links = [each.attributes["href"] for each in page.all("a") if "sort" in each.attributes.get("class", "")]
    assert "?q=steps%3A%3E1&sort=reward" in links
    assert "?q=steps%3A%3E1&sort=-cost" not in links  # no column of the usual ones
    assert "?q=steps%3A%3E1&sort=-seconds" in links


def test_a_row_shows_answer_expected_answer_and_the_reason_of_its_reward():
    prompt = "Answer with one number. What is {} + 2?"
    collection = make_collection(dataset=make_dataset([make_row(prompt.format(n), str(n + 2)) for n in (1, 2)]))
    tasks = list(collection.version.tasks.order_by("index"))
    for task in tasks:
        collection.version.tasks.filter(pk=task.pk).update(prompt_excerpt=prompt.format(task.index + 1))
    explained = [
        Verification(reward=0.0, explanation="7 is not 3"),
        Verification(reward=0.0, explanation="still not 3", details={"extracted_answer": "Seven."}),
    ]
    make_rollout(collection, task=tasks[0], reward=0.0, answer="seven", trace=explained, components={"format": 0.5})
    failure = {"status": "failed", "reward": None, "stop_reason": "", "error_kind": "timed_out"}
    make_rollout(collection, task=tasks[1], trace=[], error_message="no reply within 60 s", **failure)
    page = signed_in().get(LIST, {"columns": "task,answer,expected,why,components,status"})
    failed, wrong = page.context["page"].rows
    assert (wrong.asked, failed.asked) == ("…1 + 2?", "…2 + 2?")
    # The answer as the verifier extracted it, not as it is compared for majority@k.
    assert (wrong.answered, wrong.expected, wrong.why) == ("Seven.", "3", "still not 3")
    assert (failed.answered, failed.expected, failed.why) == ("", "4", "no reply within 60 s")
    cells = [row.text for row in read(page.text).all("tr") if "data-row" in row.attributes]
    assert ("completed" in cells[1], "failed" in cells[0], "format 0.50" in " ".join(cells[1].split())) == (
        False,
        True,
        True,
    )


def test_the_column_status_is_left_out_if_all_rows_completed_with_an_answer():
    collection = make_collection()
    make_rollout(collection)
    client = signed_in()
    assert "status" not in [each.column.name for each in client.get(LIST).context["headings"]]
    make_rollout(collection, stop_reason="max_steps")
    page = client.get(LIST)
    assert "status" in [each.column.name for each in page.context["headings"]]
    assert '<span class="sub">max_steps</span>' in page.text


def test_a_row_shows_what_reviewers_decided():
    collection = make_collection()
    best, middle, worst, alone = (make_rollout(collection, reward=reward) for reward in (1.0, 0.5, 0.0, 1.0))
    lead = make_user(Role.ENGINEER)
    for number, pair in enumerate([(best, middle), (middle, worst), (best, worst)]):
        ids = [each.pk for each in pair]
        save_own_verdict(rollout_ids=ids, user=lead, answer=Answer(choice="a"), token=f"t{number}")
    override_reward(rollout=worst, reward=0.25, reason="partly right", author=lead)
    rows = {row.pk: row for row in signed_in().get(LIST, {"columns": "review"}).context["page"].rows}
    assert rows[best.pk].reviewed == ["preferred in 2 of 2 comparisons"]
    assert rows[middle.pk].reviewed == ["preferred in 1 of 2 comparisons"]
    assert rows[worst.pk].reviewed == ["reward set to 0.25", "preferred in 0 of 2 comparisons"]
    assert rows[alone.pk].reviewed == []


@pytest.mark.parametrize(
    ("texts", "prefix"),
    [
        ([], ""),
        (["You are a careful assistant. Add 1 and 2."], ""),
        (["You are a careful assistant. Add 1 and 2."] * 2, ""),
        (
            ["You are a careful assistant. Add 1", "You are a careful assistant. Add 12"],
            "You are a careful assistant. Add ",
        ),
        (["You are a careful assistant. Add 1", "Add 2"], ""),
        (["Add 1", "Add 2"], ""),
        (["You are a careful assistant.", "You are a careful assistant. More"], "You are a careful "),
    ],
)
def test_words_that_all_tasks_begin_with_are_left_out(texts: list[str], prefix: str):
    assert shared_prefix(texts) == (prefix if len(prefix) >= 24 else "")


def test_the_counts_are_of_what_passes_and_lead_on():
    collection = make_collection(dataset=make_dataset([make_row("1")]))
    collection.version.tasks.update(split="train", tags_text="\nhard\nnew\n")
    for reward in (0.0, 0.4, 1.0, 1.0):
        make_rollout(collection, trace=[], reward=reward, tools={"search": [1, 0, 0.1]})
    failed = {"status": "failed", "error_kind": "timed_out", "reward": None, "stop_reason": ""}
    make_rollout(collection, trace=[], **failed)
    client = signed_in(Role.VIEWER)
    found = counted(client)
    assert found["Status"] == {"completed": 4, "failed": 1}
    assert found["Reward"] == {"0": 1, "above 0, up to 0.5": 1, "1": 2}
    assert found["Error"] == {"timed_out": 1}
    assert found["Tools"] == {"search": 4}
    assert found["Tags"] == {"hard": 5, "new": 5}
    assert found["Model"] == {collection.policy_model.slug: 5}
    assert counted(client, q="reward:1")["Status"] == {"completed": 2}
    page = client.get(reverse("dashboard:rollout_facets"), {"q": "status:failed"})
    (status,) = [facet for facet in page.context["counted"].facets if facet.label == "Status"]
    assert [(one.label, one.is_chosen, one.address) for one in status.choices] == [("failed", True, "q=&sort=-id")]
    of = client.get(reverse("dashboard:rollout_facets"), {"of": str(collection.pk)}, headers={"HX-Request": "true"})
    assert f'href="/collections/{collection.pk}/?q=status%3Afailed&amp;sort=-id#rollout-table"' in of.text
    assert "<html" not in of.text


@pytest.mark.parametrize("q", ["", "reward:>0", "reward:>=0 -status:failed", "tool:we", "status:completed,failed"])
def test_a_count_is_how_many_rollouts_its_link_shows(q):
    collection = make_collection(dataset=make_dataset([make_row()] * 6), policy_model=make_policy_model(slug="qwen"))
    tasks = list(collection.version.tasks.all())
    odd = ['we,ird"', "back\\slash", 'a" b: *']
    for number, task in enumerate(tasks):
        ended = {"reward": [0.0, 0.25, 1.0, 1.0, None, -1.0][number], "attempt": 1 + number % 2}
        ended |= {"status": "failed", "stop_reason": "", "error_kind": "timed_out"} if number == 4 else {}
        tools = {name: {"calls": 1, "errors": 0} for name in ("we", *odd[: number % 4])}
        rollout = make_rollout(collection, task=task, trace=[], **ended)
        Rollout.objects.filter(pk=rollout.pk).update(tools=tools)
    client = signed_in(Role.VIEWER)
    found = client.get(reverse("dashboard:rollout_facets"), {"q": q}).context["counted"]
    choices = [each for facet in found.facets for each in facet.choices if not each.is_chosen]
    links = [each for each in choices if each.rollouts is not None]
    seen = [len(client.get(f"{LIST}?{each.address}").context["page"].rows) for each in links]
    assert len(links) > 5
    assert seen == [each.rollouts for each in links], [each.label for each in links]


@pytest.mark.parametrize("bucket", ["below 0", "0", "above 0, up to 0.5", "above 0.5, below 1", "1", "above 1"])
def test_a_bucket_of_rewards_leads_to_as_many_rollouts_as_it_counts(bucket):
    collection = make_collection()
    for reward in (-1.0, 0.0, 0.0, 0.1, 0.5, 0.5, 0.7, 0.99, 1.0, 1.0, 1.0, 1.0, 2.0):
        make_rollout(collection, trace=[], reward=reward)
    client = signed_in(Role.VIEWER)
    found = client.get(reverse("dashboard:rollout_facets")).context["counted"]
    (rewards,) = [facet for facet in found.facets if facet.label == "Reward"]
    (choice,) = [each for each in rewards.choices if each.label == bucket]
    assert len(client.get(f"{LIST}?{choice.address}").context["page"].rows) == choice.rollouts


def test_counts_of_more_than_are_looked_at_say_so(monkeypatch):
    monkeypatch.setattr(facets, "LOOKED_AT", 3)
    collection = make_collection()
    for _ in range(4):
        make_rollout(collection, trace=[])
    page = squeezed(signed_in().get(reverse("dashboard:rollout_facets")).text)
    assert "<strong>3+</strong>" in page
    assert "newest 3 matches" in page


def test_counts_take_as_many_queries_for_three_rows_as_for_one():
    one, three = queries_with_one_and_three(
        lambda: reverse("dashboard:rollout_facets"), lambda: make_rollout(make_collection())
    )
    assert one == three


def test_a_search_counts_unindexed_rollouts():
    rollout = make_rollout(make_collection())
    mark_unindexed([rollout.pk])
    client = signed_in(Role.VIEWER)
    said = "1 rollout is not indexed yet"
    assert said in squeezed(client.get(LIST, {"q": "anything"}).text)
    assert said not in client.get(LIST).text
    assert index_next_rollouts()
    assert said not in squeezed(client.get(LIST, {"q": "anything"}).text)


def test_columns_and_density_are_ones_own():
    make_rollout(make_collection())
    client, other = signed_in(Role.VIEWER), signed_in(Role.VIEWER)
    sent = {"column": ["cost", "nonsense", "reward"], "density": "compact", "next": "/rollouts/?q=steps%3A%3E1"}
    assert client.post(reverse("dashboard:rollout_columns"), sent)["Location"] == "/rollouts/?q=steps%3A%3E1"
    page = client.get(LIST)
    assert (page.context["shown"], page.context["density"]) == (("reward", "cost"), "compact")
    assert 'class="data stacks compact"' in page.text
    assert other.get(LIST).context["shown"][0:2] == ("reward", "task")
    assert client.get(LIST, {"columns": "task,cost"}).context["shown"] == ("task", "cost")
    client.post(reverse("dashboard:rollout_columns"), {"usual": "1", "next": "https://elsewhere.example/"})
    assert client.get(LIST).context["shown"] == other.get(LIST).context["shown"]


def test_all_columns_at_once_take_as_many_queries_for_three_rows_as_for_one():
    every = ",".join(NAMES)
    one, three = queries_with_one_and_three(lambda: f"{LIST}?columns={every}", lambda: make_rollout(make_collection()))
    assert one == three


def test_a_view_is_saved_shown_to_others_where_shared_and_deleted_by_its_owner_alone():
    client, other = signed_in(Role.VIEWER), signed_in(Role.VIEWER)
    address = reverse("dashboard:rollout_view_save")
    gone = client.post(
        address, {"name": " Cut  short ", "q": "flag:truncated", "sort": "-tokens", "columns": "task,cost"}
    )
    assert gone["Location"] == "/rollouts/?q=flag%3Atruncated&sort=-tokens"
    client.post(address, {"name": "Shared", "q": "turns:>3", "shared": "1"})
    assert (
        client.post(address, {"name": "Broken", "q": "rewrd:1"}, follow=True).text.count("The view was not saved") == 1
    )
    mine = [(each.view.name, each.address) for each in client.get(LIST).context["views"]]
    assert mine == [
        ("Cut short", "q=flag%3Atruncated&sort=-tokens&columns=task%2Ccost"),
        ("Shared", "q=steps%3A%3E3&sort=-id"),
    ]
    assert [each.view.name for each in other.get(LIST).context["views"]] == ["Shared"]
    again = {"name": "Shared", "q": "turns:>9"}
    assert "already have a view “Shared”" in client.post(address, again, follow=True).text
    assert SavedView.objects.get(name="Shared").query == "steps:>3"
    client.post(address, {**again, "replace": "1"})
    assert (SavedView.objects.get(name="Shared").query, SavedView.objects.count()) == ("steps:>9", 2)
    client.post(address, {"name": "Shared", "q": "turns:>3", "shared": "1", "replace": "1"})
    shared = SavedView.objects.get(name="Shared")
    delete = reverse("dashboard:rollout_view_delete", args=[shared.pk])
    assert "This view belongs to" in other.post(delete, follow=True).text
    client.post(delete)
    assert list(SavedView.objects.values_list("name", flat=True)) == ["Cut short"]


def test_a_preview_shows_the_beginning_and_links_to_the_trace():
    rollout = make_rollout(make_collection(), flagged=True)
    client = signed_in(Role.VIEWER)
    address = reverse("dashboard:rollout_peek", args=[rollout.pk])
    part = client.get(address, {"list": "q=&sort=-id"}, headers={"HX-Request": "true"})
    assert "<html" not in part.text
    assert f'href="/rollouts/{rollout.pk}/?list=q%3D%26sort%3D-id"' in part.text
    assert 'id="peek-e0"' in part.text
    assert "redactions not reviewed" in part.text
    assert client.get(address)["Location"] == f"/rollouts/{rollout.pk}/"


def test_a_glance_at_a_long_trace_brings_the_rest_part_by_part():
    call = ModelCall(seen=1, items=[message("assistant", "On we go.")])
    rollout = make_rollout(make_collection(), trace=[Prompt(items=[message("user", "Go.")]), *[call] * 120])
    client, address = signed_in(Role.VIEWER), reverse("dashboard:rollout_peek", args=[rollout.pk])
    shown, parts, query = [], 0, {}
    while query is not None:
        part = client.get(address, query, headers={"HX-Request": "true"}).text
        ids = [each.attributes.get("id", "") for each in read(part).all("article")]
        shown += [int(each.removeprefix("peek-e")) for each in ids]
        more = re.search(r"from=(\d+)", part)
        query, parts = ({"from": more[1]} if more else None), parts + 1
        if more:
            assert f'href="/rollouts/{rollout.pk}/?step={more[1]}#e{more[1]}"' in part
    assert (shown, parts) == (list(range(121)), 2)
    assert client.get(address, {"from": "999"}, headers={"HX-Request": "true"}).status_code == 404


def test_selected_rollouts_are_compared_reverified_and_deleted():
    collection = make_collection(state="completed", finished_at=timezone.now())
    one, two = make_rollout(collection), make_rollout(collection, flagged=True)
    other = make_rollout(make_collection(state="completed", finished_at=timezone.now()))
    client = signed_in()

    def send(action: str, *rollouts: Rollout):
        return client.post(reverse(f"dashboard:selected_{action}"), {"r": [row.pk for row in rollouts], "next": LIST})

    assert send("compare", one, two)["Location"] == f"/rollouts/compare/?r={one.pk},{two.pk}"
    assert send("resolve_flags", one, two)["Location"] == LIST
    assert not Rollout.objects.filter(flagged=True).exists()
    send("verify_again", one)
    assert [(each.filters, each.total) for each in Reverification.objects.all()] == [({"ids": [one.pk]}, 1)]
    assert "These rollouts are of 2 collections" in client.get(send("delete", one, other)["Location"]).text
    assert "Select rollouts first." in client.get(send("delete")["Location"]).text
    asked = send("delete", one)
    assert "Delete 1 rollout<" in asked.text
    assert not CollectionDeletion.objects.exists()
    client.post(reverse("dashboard:selected_delete"), {"r": one.pk, "next": LIST, "confirmed": "1"})
    assert [each.chosen for each in CollectionDeletion.objects.all()] == [{"ids": [one.pk]}]


def test_a_viewer_marks_to_compare_and_nothing_else():
    rollout = make_rollout(make_collection())
    client = signed_in(Role.VIEWER)
    page = client.get(LIST).text
    assert "Compare</button>" in page
    assert "Re-verify" not in page
    assert client.post(reverse("dashboard:selected_delete"), {"r": rollout.pk}).status_code == 403


def test_selected_and_matching_rollouts_prefill_an_export(settings, tmp_path):
    settings.EXPORTS_DIR = tmp_path
    collection, client = make_collection(state="completed"), signed_in()
    rollouts = [make_rollout(collection, reward=reward) for reward in (0.9, 0.8, 0.1)]
    marked = client.post(reverse("dashboard:selected_export"), {"r": [row.pk for row in rollouts[:2]], "next": LIST})
    formats = client.get(marked["Location"])
    assert "&amp;rollouts=" in formats.text
    form = client.get(f"{marked['Location']}&format=trl_sft").context["form"]
    assert [form[name].value() for name in ("collection", "rollouts", "q")] == [
        str(collection.pk),
        f"{rollouts[0].pk} {rollouts[1].pk}",
        "",
    ]
    page = read(client.get(LIST, {"q": f"collection:{collection.pk} reward:>0.5"}).text)
    links = [each.attributes.get("href", "") for each in page.all("a")]
    [link] = [each for each in links if each.startswith("/exports/new/")]
    form = client.get(f"{link}&format=trl_sft").context["form"]
    assert (form["collection"].value(), form["q"].value()) == (
        str(collection.pk),
        f"collection:{collection.pk} reward:>0.5",
    )
    given = {"format": "trl_sft", "collection": collection.pk, "q": "reward:>0.5"}
    numbers = f"#{rollouts[0].pk}, {rollouts[2].pk}"
    ordered = client.post("/exports/new/", {**given, "rollouts": numbers})
    assert ordered["Location"].startswith("/exports/")
    chosen = {"q": "reward:>0.5", "rollouts": [rollouts[0].pk, rollouts[2].pk]}
    assert Export.objects.get().filters == {**chosen, "reward_from": "override"}
    assert "is not a rollout number" in client.post("/exports/new/", {**given, "rollouts": "all"}).text
    several = [rollouts[0].pk, make_rollout(make_collection()).pk]
    assert client.post(reverse("dashboard:selected_export"), {"r": several, "next": LIST})["Location"] == LIST
