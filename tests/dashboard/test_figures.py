import csv
import io

import pytest
from django.urls import reverse

from apps.accounts.models import Role
from apps.gym.traces.events import Verification
from apps.rollouts.metrics.page_figures import scatter_rewards
from apps.rollouts.models import Collection, FailureCause, Rollout
from apps.rollouts.search.word_index import index_next_rollouts, mark_unindexed
from tests.dashboard.pages import queries_with_one_and_three, signed_in, squeezed
from tests.factories import make_collection, make_dataset, make_rollout

pytestmark = pytest.mark.django_db


def at(collection: Collection, part: str, query: str = "") -> str:
    return reverse(f"dashboard:collection_{part}", args=[collection.pk]) + query


def collected(*rewards: float | None, tags: str = "") -> Collection:
    """One task with these rewards; None failed."""
    given = [each for each in rewards if each is not None]
    collection = make_collection(
        state="completed", total=len(rewards), completed=len(given), rewarded=len(given), reward_sum=sum(given)
    )
    collection.version.tasks.update(tags_text=tags, split="train")
    for reward in rewards:
        failed = {} if reward is not None else {"status": "failed", "stop_reason": "", "error_kind": "timed_out"}
        make_rollout(collection, reward=reward, trace=[], output_tokens=40, **failed)
    return collection


def read_csv(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))


def test_a_large_collection_gets_its_results_after_its_page(monkeypatch):
    collection = collected(1.0, 0.0)
    client = signed_in(Role.VIEWER)
    assert 'id="results-title"' in client.get(at(collection, "detail")).text
    monkeypatch.setattr("apps.rollouts.metrics.cached_figures.AT_ONCE", 1)
    page = client.get(at(collection, "detail")).text
    assert 'id="results-title"' not in page
    address = at(collection, "results")
    # The script of the page asks for them at once.
    assert 'data-fresh="false"' in page
    # Without scripts the link leads to the same on a page of its own.
    assert f'<a href="{address}">Show the results' in page
    whole, part = client.get(address), client.get(address, headers={"HX-Request": "true"})
    assert ("<h1>Results of" in whole.text, "<html" in part.text) == (True, False)
    assert all('id="collection-results"' in each.text for each in (whole, part))


def test_the_shell_of_a_large_collection_counts_no_rollouts(monkeypatch, django_assert_max_num_queries):
    monkeypatch.setattr("apps.rollouts.metrics.cached_figures.AT_ONCE", 1)
    collection = collected(1.0, 0.0)
    client = signed_in()
    with django_assert_max_num_queries(27) as queries:
        client.get(at(collection, "detail"))
    measured = [each["sql"] for each in queries if "GROUP BY" in each["sql"] and '"lease"' not in each["sql"]]
    assert measured == []


def test_the_results_show_attempts_together_and_what_tasks_were_solved():
    collection = collected(1.0, 0.0, 0.5, 1.0)
    collection.rollouts.update(answer="4")
    page = squeezed(signed_in().get(at(collection, "results")).text)
    for part in ["<dt>pass@1</dt><dd>0.500</dd>", "<dt>pass@4</dt><dd>1.000</dd>", "<dt>majority@4</dt>"]:
        assert part in page
    # pass@2 and best-of-2, then the average of the first two.
    assert '<td class="num">2</td><td class="num">0.833</td><td class="num">0.917</td>' in page
    assert '<td class="num">2</td><td class="num">0.500</td>' in page
    assert "?bucket=sometimes" in page


def test_a_point_of_the_scatter_opens_its_rollout():
    collection = collected(1.0, 0.25)
    page = signed_in().get(at(collection, "results")).text
    for rollout in collection.rollouts.all():
        assert f'<a href="/rollouts/{rollout.pk}/" tabindex="-1" aria-label="Rollout {rollout.pk}"><circle' in page


def test_results_take_as_many_queries_for_three_rollouts_as_for_one():
    collection = make_collection(total=3)
    given = {"components": {"correct": 1.0}, "tools": {"search": [1, 0, 0.5]}, "output_tokens": 9}
    one, three = queries_with_one_and_three(
        lambda: at(collection, "results"), lambda: make_rollout(collection, trace=[], **given)
    )
    assert one == three


@pytest.mark.parametrize("part", ["breakdown", "tasks"])
def test_breakdown_and_tasks_take_as_many_queries_for_three_rows_as_for_one(part):
    collection = make_collection()
    tasks = iter(collection.version.tasks.order_by("index"))

    def add() -> None:
        task = next(tasks)
        type(task).objects.filter(pk=task.pk).update(split=f"split {task.index}")
        make_rollout(collection, task=task, trace=[])

    one, three = queries_with_one_and_three(lambda: at(collection, part), add)
    assert one == three


def test_a_breakdown_goes_by_what_the_address_says():
    collection = collected(1.0, 0.0, tags="\nhard\nlong\n")
    client = signed_in()
    assert [row.share.label for row in client.get(at(collection, "breakdown")).context["shares"]] == ["train"]
    by_tag = client.get(at(collection, "breakdown", "?by=tag"), headers={"HX-Request": "true"})
    assert [row.share.label for row in by_tag.context["shares"]] == ["hard", "long"]
    assert ("<html" in by_tag.text, "with several tags" in by_tag.text) == (False, True)
    assert client.get(at(collection, "breakdown", "?by=password")).context["facet"] == "split"


def test_tasks_are_listed_by_how_often_they_were_solved():
    collection = make_collection(dataset=make_dataset())
    never, sometimes, always = collection.version.tasks.order_by("index")
    for task, rewards in [(never, (0.0, 0.5)), (sometimes, (0.0, 1.0)), (always, (1.0, 1.0))]:
        for reward in rewards:
            make_rollout(collection, task=task, reward=reward, trace=[])
    client = signed_in()

    def shown(query: str) -> list[int]:
        return [profile.task for profile, _ in client.get(at(collection, "tasks", query)).context["profiles"]]

    assert shown("") == [never.pk, sometimes.pk, always.pk]
    assert shown("?bucket=never") == [never.pk]
    assert shown("?bucket=sometimes") == [sometimes.pk]
    assert shown("?bucket=always") == [always.pk]
    assert shown(f"?after={never.pk}") == [sometimes.pk, always.pk]
    page = client.get(at(collection, "tasks")).text
    assert f'href="/tasks/{never.pk}/?collection={collection.pk}"' in page


def test_more_tasks_than_a_page_are_paged(monkeypatch):
    monkeypatch.setattr("apps.dashboard.views.collections.figure_views._TASKS_A_PAGE", 2)
    collection = make_collection()
    for task in collection.version.tasks.all():
        make_rollout(collection, task=task, trace=[])
    first = signed_in().get(at(collection, "tasks")).context
    assert (len(first["profiles"]), first["next_after"]) == (2, first["profiles"][-1][0].task)


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        (
            "attempts",
            [["k", "pass_at_k", "best_of_k", "majority_at_k", "average_of_k"], ["1", "0.5", "0.5", "0.0", "0.5"]],
        ),
        ("solved", [["solved", "tasks"], ["never", "0"], ["sometimes", "1"], ["always", "0"]]),
        (
            "endings",
            [["ended", "kind", "rollouts"], ["stop_reason", "answered", "2"], ["error_kind", "timed_out", "1"]],
        ),
        ("lengths", [["output_tokens_from", "output_tokens_to", "rollouts", "mean_reward"], ["40", "40", "2", "0.5"]]),
    ],
)
def test_a_figure_comes_as_a_file(name, rows):
    collection = collected(1.0, 0.0, None)
    reply = signed_in().get(reverse("dashboard:collection_figure", args=[collection.pk, name]))
    assert reply["Content-Disposition"] == f'attachment; filename="collection-{collection.pk}-{name}.csv"'
    assert read_csv(reply.text)[: len(rows)] == rows


def test_points_and_breakdowns_come_as_files_too():
    collection = collected(1.0, tags="\n=HYPERLINK(1)\n")
    client = signed_in()
    rollout = collection.rollouts.get()
    points = client.get(reverse("dashboard:collection_figure", args=[collection.pk, "points"])).text
    assert read_csv(points) == [["rollout", "reward", "output_tokens"], [str(rollout.pk), "1.0", "40"]]
    shares = client.get(reverse("dashboard:collection_figure", args=[collection.pk, "breakdown"]), {"by": "tag"}).text
    # A spreadsheet must not take a tag for a formula.
    (row,) = csv.DictReader(shares.splitlines())
    assert (row["label"], row["rollouts"], row["mean_reward"], row["low_95"], row["median"], row["pass_at_1"]) == (
        "'=HYPERLINK(1)",
        "1",
        "1.0",
        "",
        "1.0",
        "1.0",
    )


def test_a_figure_that_is_none_is_not_found():
    address = reverse("dashboard:collection_figure", args=[collected(1.0).pk, "password"])
    assert signed_in().get(address).status_code == 404


def test_a_sample_of_many_rewards_is_of_this_collection_alone():
    collection, other = make_collection(rewarded=60), make_collection()
    task = collection.version.tasks.first()
    Rollout.objects.bulk_create(
        Rollout(
            collection=each,
            task=task,
            repeat=repeat,
            status="completed",
            attempt=1,
            reward=1.0,
            stop_reason="answered",
            output_tokens=repeat,
            finished_at=collection.created_at,
        )
        for repeat in range(60)
        for each in (collection, other)
    )
    mine = set(collection.rollouts.values_list("pk", flat=True))
    sample = scatter_rewards(collection, most=20)
    assert len(sample) == len({each.rollout for each in sample}) <= 20
    assert len(sample) >= 10
    assert {each.rollout for each in sample} <= mine
    assert scatter_rewards(collection, most=20) == sample
    assert len(scatter_rewards(collection, most=60)) == 60


def test_failures_lead_to_rollouts_queues_and_exports():
    collection = make_collection(total=1, completed=1, rewarded=1, solve_threshold=0.5)
    collection.version.tasks.update(tags_text='\nodd "tag"\n')
    rollout = make_rollout(collection, reward=0.25)
    mark_unindexed([rollout.pk])
    while index_next_rollouts():
        pass
    cause = FailureCause.objects.get(text="compared").pk
    page = signed_in().get(at(collection, "failures")).text
    assert f"q=cause:{cause}" in page
    assert f"filter=cause:{cause}" in page
    assert f"q=-cause:{cause}" in page
    assert f"cause%3A{cause}+tag%3A%22odd+%5C%22tag%5C%22%22" in page
    assert reverse("dashboard:rollout_detail", args=[rollout.pk]) in page
    assert f'title="{rollout.task.prompt_excerpt}"' in page
    low = f"{reverse('dashboard:rollout_list')}?collection={collection.pk}&q=reward:%3C0.5"
    assert low.replace("&", "&amp;") in page
    assert [row.pk for row in signed_in().get(low).context["page"].rows] == [rollout.pk]
    error = make_rollout(collection, status="failed", reward=None, stop_reason="", error_kind="timed_out")
    make_rollout(collection, reward=0.5)
    unsolved = f"{reverse('dashboard:rollout_list')}?collection={collection.pk}&q=flag:unsolved"
    reply = signed_in().get(at(collection, "failures"))
    assert (unsolved.replace("&", "&amp;") in reply.text, reply.context["failures"].unsolved) == (True, 2)
    assert [row.pk for row in signed_in().get(unsolved).context["page"].rows] == [error.pk, rollout.pk]
    # A viewer can neither review nor export.
    page = signed_in(Role.VIEWER).get(at(collection, "failures")).text
    assert (f"q=cause:{cause}" in page, f"filter=cause:{cause}" in page, "q=-cause" in page) == (True, False, False)


def test_failures_of_a_collection_without_rollouts_are_empty():
    page = signed_in().get(at(make_collection(), "failures") + "?by=tool&offset=99999999999999999999")
    assert (page.status_code, 'data-testid="cause"' in page.text) == (200, False)


def test_the_page_of_failures_sends_a_constant_number_of_queries():
    collection = make_collection()
    texts = iter("abc")

    def add() -> None:
        trace = [Verification(reward=0.0, explanation=next(texts))]
        mark_unindexed([make_rollout(collection, reward=0.0, trace=trace).pk])
        while index_next_rollouts():
            pass

    one, three = queries_with_one_and_three(lambda: at(collection, "failures"), add)
    assert one == three
