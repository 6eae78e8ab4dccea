import csv
import io

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from apps.accounts.models import Role
from apps.dashboard.overview.comparison_verdict import describe_difference
from apps.gym.metrics.paired_comparison import Interval
from apps.rollouts.metrics.paired_labels import LabelContrast, PairedMean
from apps.rollouts.models import Collection
from tests.dashboard.markup import read
from tests.dashboard.pages import signed_in, squeezed
from tests.factories import make_agent, make_collection, make_dataset, make_policy_model, make_rollout, make_row

pytestmark = pytest.mark.django_db

COMPARE = "dashboard:collection_compare"
CHANGES = "dashboard:collection_changes"


def contrasted(*rewards: tuple[float, float], **fields: object) -> tuple[Collection, Collection]:
    """For each task one rollout of both."""
    dataset = make_dataset([make_row(f"No {number}") for number in range(len(rewards))])
    agent, model = make_agent(), make_policy_model()
    made = []
    for side, snapshot in enumerate(({"sampling": {"temperature": 0.2}}, {"sampling": {"temperature": 0.9}})):
        total = len(rewards)
        collection = make_collection(
            dataset=dataset,
            agent=agent,
            policy_model=model,
            name=f"Try {side}",
            snapshot=snapshot,
            state="completed",
            total=total,
            completed=total,
            rewarded=total,
            reward_sum=sum(pair[side] for pair in rewards),
            **fields,
        )
        for task, pair in zip(dataset.tasks.order_by("index"), rewards, strict=True):
            make_rollout(collection, task=task, reward=pair[side])
        made.append(collection)
    return made[0], made[1]


def test_the_verdict_comes_first_then_figures_and_settings():
    a, b = contrasted(*[(1.0, 0.0)] * 9, (0.0, 1.0))
    page = squeezed(signed_in(Role.VIEWER).get(reverse(COMPARE), {"a": a.pk, "b": b.pk}).text)
    parts = ["verdict", "Paired difference", 'id="settings" open', "sampling.temperature", "Mean reward per task"]
    places = [page.index(part) for part in parts]
    assert places == sorted(places)
    assert '<code class="value">0.2</code></td><td><code class="value">0.9</code>' in page
    for part in [
        "10 tasks with rewards in both",
        f"solve rate of #{b.pk} is 80.0 percentage points lower than that of #{a.pk}",
        "interval −125.2 to −34.8",
        "<dt>McNemar p</dt><dd>0.021</dd>",
        "▼ −0.800",
    ]:
        assert part in page


def test_an_insignificant_difference_is_reported_as_none():
    a, b = contrasted((1.0, 0.0), (0.0, 1.0), *[(1.0, 1.0)] * 3)
    page = signed_in().get(reverse(COMPARE), {"a": a.pk, "b": b.pk}).text
    assert "No significant difference" in page


@pytest.mark.parametrize(
    ("low", "high", "shown"), [(-0.0004, 0.207, "(95 % interval −0.04 to 20.7)"), (-0.1, 0.0, "−10.0 to 0.0)")]
)
def test_an_end_of_the_interval_that_rounds_to_zero_has_another_digit(low, high, shown):
    a, b = contrasted((1.0, 0.0), (0.5, 0.5))
    mean = PairedMean(6, 0.4, 0.5, Interval(0.1, low, high))
    verdict = describe_difference(a, b, LabelContrast("", reward=mean, pass_at_k=mean))
    assert (verdict.tone, shown in verdict.sentence) == ("same", True)


def test_the_verdict_names_the_agents_if_only_they_differ():
    a, b = contrasted(*[(0.25, 0.75)] * 4, (0.5, 0.75))
    Collection.objects.filter(pk=b.pk).update(agent=make_agent(name="Careful"))
    page = signed_in().get(reverse(COMPARE), {"a": a.pk, "b": b.pk}).text
    assert f"The mean reward of Careful is 0.450 higher than that of {a.agent.name}" in page


def test_few_tasks_have_no_verdict():
    a, b = contrasted((1.0, 0.0), (1.0, 0.0))
    page = signed_in().get(reverse(COMPARE), {"a": a.pk, "b": b.pk})
    assert (page.context["verdict"].tone, "Only 2 tasks" in page.text) == ("same", True)


def test_differences_are_shown_by_split_and_tag():
    a, b = contrasted(*[(1.0, 0.0)] * 3, *[(0.0, 0.0)] * 3)
    tasks = list(a.version.tasks.order_by("index"))
    for task in tasks[:3]:
        task.split, task.tags_text = "train", "\nhard\n"
        task.save()
    page = squeezed(signed_in().get(reverse(COMPARE), {"a": a.pk, "b": b.pk}).text)
    assert ("By split" in page, "By tag" in page) == (True, True)
    assert '<th scope="row">hard</th><td class="num">3</td><td class="num">1.000</td><td class="num">0.000</td>' in page


def test_the_worst_regressions_are_read_one_after_the_other():
    a, b = contrasted((1.0, 0.5), (1.0, 0.0), (0.0, 1.0))
    client = signed_in()
    page = client.get(reverse(CHANGES), {"a": a.pk, "b": b.pk}).text
    link = next(each for each in read(page).all("a") if each.text.startswith("Step through"))
    first = client.get(link.attributes["href"])
    shown = [(each.collection_id, each.reward) for each in first.context["comparison"].rollouts]
    assert (shown, "1 of 2" in first.text) == ([(a.pk, 1.0), (b.pk, 0.0)], True)


def test_large_collections_are_compared_after_the_page_is_there(monkeypatch):
    monkeypatch.setattr("apps.dashboard.views.collections.comparison_views.AT_ONCE", 0)
    a, b = contrasted((1.0, 0.0), (0.5, 0.5))
    client, address = signed_in(), reverse(COMPARE)
    page = client.get(address, {"a": a.pk, "b": b.pk}).text
    assert ("Paired difference" in page, f'hx-get="?a={a.pk}&amp;b={b.pk}&amp;figures=1"' in page) == (False, True)
    query = {"a": a.pk, "b": b.pk, "figures": 1}
    part = client.get(address, query, headers={"HX-Request": "true"}).text
    assert ("Paired difference" in part, "<html" in part) == (True, False)
    assert "Paired difference" in client.get(address, query).text


@pytest.mark.parametrize(
    ("which", "tasks"),
    [("regressed", [0]), ("improved", [1]), ("lost", [0]), ("gained", [1]), ("same", [2]), ("all", [0, 2, 1])],
)
def test_tasks_are_listed_by_what_became_of_them(which, tasks):
    a, b = contrasted((1.0, 0.0), (0.0, 1.0), (1.0, 1.0))
    reply = signed_in().get(reverse(CHANGES), {"a": a.pk, "b": b.pk, "which": which})
    ids = list(a.version.tasks.order_by("index").values_list("pk", flat=True))
    assert [change.task for change, _ in reply.context["changes"]] == [ids[index] for index in tasks]
    assert {name: count for name, _, count in reply.context["tabs"]}[which] == len(tasks)
    assert reply.context["sequence"].count("-") == len(tasks)


def test_the_lists_of_large_collections_have_no_counts(monkeypatch):
    monkeypatch.setattr("apps.dashboard.views.collections.comparison_views.AT_ONCE", 0)
    a, b = contrasted((1.0, 0.0))
    reply = signed_in().get(reverse(CHANGES), {"a": a.pk, "b": b.pk})
    assert {count for _, _, count in reply.context["tabs"]} == {None}


def test_a_list_of_tasks_is_paged_and_comes_as_a_file(monkeypatch):
    monkeypatch.setattr("apps.dashboard.views.collections.comparison_views._A_PAGE", 2)
    a, b = contrasted((1.0, 0.0), (0.75, 0.0), (0.5, 0.0))
    client, given = signed_in(), {"a": a.pk, "b": b.pk, "which": "regressed"}
    first = client.get(reverse(CHANGES), given)
    assert [change.difference for change, _ in first.context["changes"]] == [-1.0, -0.75]
    following = next(each for each in read(first.text).all("a") if each.attributes.get("rel") == "next")
    second = client.get(following.attributes["href"], headers={"HX-Request": "true"})
    assert (second.text.count("▼"), "▼ −0.500" in second.text, "<html" in second.text) == (1, True, False)
    file = client.get(reverse("dashboard:collection_changes_file"), given)
    rows = list(csv.reader(io.StringIO(file.text)))
    assert [row[4] for row in rows] == ["difference", "-1.0", "-0.75", "-0.5"]
    assert file["Content-Disposition"] == f'attachment; filename="collections-{a.pk}-{b.pk}-regressed.csv"'


def test_two_that_are_marked_in_the_list_are_compared_the_older_first():
    a, b = contrasted((1.0, 0.0), (0.5, 0.5))
    client = signed_in()
    listed = client.get(reverse("dashboard:collection_list")).text
    assert f'<input type="checkbox" name="c" value="{a.pk}"' in listed
    sides = client.get(f"{reverse(COMPARE)}?c={b.pk}&c={a.pk}").context["sides"]
    assert (sides.a, sides.b) == (a, b)


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("?a=999999&b=999998", "999999, 999998"),
        ("?a=x&b=", "Unknown collections: x"),
        ("?c=1&c=2&c=3", "3 were given"),
    ],
)
@pytest.mark.parametrize("page", [COMPARE, CHANGES, "dashboard:collection_changes_file"])
def test_what_cannot_be_compared_is_refused_in_words(page, query, says):
    reply = signed_in().get(reverse(page) + query)
    assert (reply.status_code, says in reply.text) == (400, True)


def test_collections_of_different_datasets_and_one_with_itself_are_refused():
    a, b = make_collection(), make_collection()
    client = signed_in()
    assert "Choose two collections of the same dataset" in client.get(reverse(COMPARE), {"a": a.pk, "b": b.pk}).text
    assert "Choose two different collections" in client.get(reverse(COMPARE), {"a": a.pk, "b": a.pk}).text


def test_without_a_choice_collections_with_rewards_are_offered():
    a, b = contrasted((1.0, 0.0), (0.5, 0.5))
    make_collection(name="Nothing yet")
    client = signed_in()
    assert {each.pk for each in client.get(reverse(COMPARE)).context["offered"]} == {a.pk, b.pk}
    assert "two collections of the same" in client.get(reverse(COMPARE), {"b": b.pk}).text


def test_a_collection_leads_to_the_comparison_with_the_one_before_it():
    a, b = contrasted((1.0, 0.0), (0.5, 0.5))
    page = signed_in().get(reverse("dashboard:collection_detail", args=[b.pk])).text
    assert f'href="{reverse(COMPARE)}?a={a.pk}&amp;b={b.pk}"' in page


def test_the_comparison_takes_as_many_queries_for_six_tasks_as_for_two():
    client, counts = signed_in(), []
    for tasks in (2, 6):
        a, b = contrasted(*[(1.0, 0.0)] * tasks)
        for page in (COMPARE, CHANGES):
            with CaptureQueriesContext(connection) as queries:
                client.get(reverse(page), {"a": a.pk, "b": b.pk})
            counts.append(len(queries))
    assert counts[:2] == counts[2:]


def test_hostile_names_and_prompts_stay_text():
    a, b = contrasted((1.0, 0.0), (0.5, 0.5))
    a.version.tasks.update(prompt_excerpt="<script>alert(1)</script>")
    Collection.objects.filter(pk=a.pk).update(name="<b>", snapshot={"<i>": "<u>"})
    client, given = signed_in(), {"a": a.pk, "b": b.pk}
    for page in (COMPARE, CHANGES):
        text = client.get(reverse(page), given).text
        assert not any(tag in text for tag in ("<script>alert", "<b>", "<i>", "<u>"))
