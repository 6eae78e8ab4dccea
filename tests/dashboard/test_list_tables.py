"""The lists of collections, datasets, models, agents and environments: search, filters, order and trends."""

from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from apps.agents.models import Agent
from apps.rollouts.models import Collection
from apps.tasks.models import Dataset
from tests.dashboard.pages import queries_with_one_and_three
from tests.factories import make_agent, make_collection, make_dataset, make_environment, make_policy_model


@pytest.fixture
def agent(db: None) -> Agent:
    return make_agent()


def ended(dataset: Dataset, agent: Agent, reward: float | None, **fields: Any) -> Collection:
    """A completed collection of ten rollouts whose mean reward is `reward`."""
    rewarded = {} if reward is None else {"rewarded": 10, "reward_sum": reward * 10}
    done = {"state": Collection.State.COMPLETED, "finished_at": timezone.now(), "total": 10, "completed": 10}
    return make_collection(dataset=dataset, agent=agent, **done | rewarded | fields)


def names(pages: Client, url: str) -> list[str]:
    return [getattr(row, "collection", row).name for row in pages.get(url).context["rows"]]


def test_collections_are_searched_by_words_and_number(pages: Client, agent: Agent):
    sums, words = make_dataset(name="Sums"), make_dataset(name="Words", slug="words")
    first = ended(sums, agent, 0.5, name="baseline run")
    ended(words, agent, 0.5, name="second run")
    assert names(pages, "/collections/?q=RUN+sums") == ["baseline run"]
    assert names(pages, f"/collections/?q=%23{first.pk}") == ["baseline run"]
    assert names(pages, "/collections/?q=run") == ["second run", "baseline run"]
    assert names(pages, "/collections/?q=absent") == []
    assert "Clear the filters" in pages.get("/collections/?q=absent").text


def test_pages_of_agents_models_and_environments_link_to_all_their_collections(pages: Client, agent: Agent):
    dataset, model = make_dataset(), make_policy_model(slug="mine")
    ended(dataset, agent, 0.5, name="mine", policy_model=model)
    elsewhere = make_dataset(slug="other", environment=make_environment(slug="other"))
    ended(elsewhere, make_agent(slug="other"), 0.5, name="other")
    for page, link in (
        (f"/agents/{agent.slug}/", f"/collections/?agent={agent.slug}"),
        ("/models/mine/", "/collections/?policy_model=mine"),
        (f"/environments/{dataset.environment.slug}/", f"/collections/?environment={dataset.environment.slug}"),
    ):
        assert f'href="{link}"' in pages.get(page).text
        assert names(pages, link) == ["mine"]


def test_collections_are_filtered_by_state_dataset_and_archive(pages: Client, agent: Agent):
    dataset, other = make_dataset(), make_dataset(slug="other")
    ended(dataset, agent, 0.5, name="done")
    ended(other, agent, 0.5, name="elsewhere")
    ended(dataset, agent, 0.5, name="old", archived_at=timezone.now())
    make_collection(dataset=dataset, agent=agent, name="going", state=Collection.State.RUNNING)
    assert names(pages, f"/collections/?dataset={dataset.slug}") == ["going", "done"]
    assert names(pages, f"/collections/?dataset={dataset.slug}&state=completed") == ["done"]
    assert names(pages, "/collections/?archived=true") == ["old"]
    assert len(names(pages, "/collections/?archived=all")) == 4
    wrong = pages.get("/collections/?state=nonsense")
    assert len(wrong.context["rows"]) == 3
    assert wrong.context["filters"].errors["state"]


def test_archived_collections_alone_can_be_found(pages: Client, agent: Agent):
    assert 'name="archived"' not in pages.get("/collections/").text
    ended(make_dataset(), agent, 0.5, name="old", archived_at=timezone.now())
    page = pages.get("/collections/")
    assert page.context["rows"] == []
    assert 'name="archived"' in page.text


def test_collections_are_ordered_by_mean_reward_over_pages(pages: Client, agent: Agent):
    dataset = make_dataset()
    for index in range(60):
        ended(dataset, agent, None if index % 6 == 0 else index / 60, name=f"{index:02}")
    first = pages.get("/collections/?ordering=-mean_reward")
    after = first.context["page"].after
    seen = names(pages, "/collections/?ordering=-mean_reward")
    seen += names(pages, f"/collections/?ordering=-mean_reward&after={after}")
    valued = [f"{index:02}" for index in reversed(range(60)) if index % 6]
    assert seen == valued + [f"{index:02}" for index in reversed(range(60)) if index % 6 == 0]
    (heading,) = [each for each in first.context["headings"] if each.column.name == "mean_reward"]
    assert (heading.order, heading.query) == ("descending", "ordering=mean_reward")


def test_a_running_collection_is_not_compared_with_the_previous_one(pages: Client, agent: Agent):
    dataset = make_dataset()
    ended(dataset, agent, 0.25)
    ended(dataset, agent, 0.75)
    ended(dataset, agent, 0.5, state=Collection.State.RUNNING, finished_at=None)
    rows = pages.get("/collections/").context["rows"]
    assert [row.difference for row in rows] == [None, 0.5, None]


@pytest.mark.parametrize("owner", ["datasets", "models", "agents", "environments"])
def test_a_row_shows_the_latest_result_and_its_trend(pages: Client, agent: Agent, owner: str):
    dataset, model = make_dataset(), make_policy_model()
    for reward in (0.2, 0.4, 0.9):
        ended(dataset, agent, reward, policy_model=model)
    ended(
        dataset,
        make_agent(slug="another"),
        0.1,
        policy_model=make_policy_model(slug="another"),
        archived_at=timezone.now(),
    )
    rows = {row.slug: row for row in pages.get(f"/{owner}/").context["rows"]}
    owners = {"datasets": dataset, "models": model, "agents": agent, "environments": dataset.environment}
    row = rows[owners[owner].slug]
    assert row.trend.mean_reward == pytest.approx(0.9)
    assert row.trend.sparkline.values == pytest.approx([0.2, 0.4, 0.9])
    assert row.trend.latest.difference == pytest.approx(0.5)


def test_a_model_is_compared_with_itself_alone(pages: Client, agent: Agent):
    dataset, mine, other = make_dataset(), make_policy_model(), make_policy_model(slug="other")
    ended(dataset, agent, 0.2, policy_model=mine)
    ended(dataset, agent, 0.8, policy_model=other)
    ended(dataset, agent, 0.3, policy_model=mine)
    rows = {row.slug: row for row in pages.get("/models/").context["rows"]}
    assert rows[mine.slug].trend.sparkline.values == pytest.approx([0.2, 0.3])
    assert rows["other"].trend.sparkline is None
    assert rows["other"].trend.latest.previous is None


def test_rows_without_results_come_last_in_both_orders(pages: Client, agent: Agent):
    low, high = make_dataset(slug="low", name="Low"), make_dataset(slug="high", name="High")
    make_dataset(slug="none", name="None")
    ended(low, agent, 0.1)
    ended(high, agent, 0.9)
    assert names(pages, "/datasets/?ordering=reward") == ["Low", "High", "None"]
    assert names(pages, "/datasets/?ordering=-reward") == ["High", "Low", "None"]
    assert names(pages, "/datasets/?ordering=nonsense") == ["High", "Low", "None"]


def test_lists_are_searched_and_filtered(pages: Client):
    make_policy_model(name="Qwen", slug="qwen", model_name="qwen3-8b")
    make_policy_model(name="Llama", slug="llama", model_name="llama-3")
    assert names(pages, "/models/?q=QWEN3") == ["Qwen"]
    assert names(pages, "/models/?health=healthy") == []
    make_agent(name="Careful", slug="careful", max_steps=3)
    make_agent(name="Bold", slug="bold", max_steps=5, kind="external")
    assert names(pages, "/agents/?q=careful") == ["Careful"]
    assert names(pages, "/agents/?kind=external") == ["Bold"]
    assert names(pages, "/agents/?q=absent") == []
    assert [name for name in names(pages, "/agents/?ordering=-turns") if name in {"Bold", "Careful"}] == [
        "Bold",
        "Careful",
    ]
    make_dataset(name="Sums", slug="sums", environment=make_environment(slug="maths", name="Maths"))
    make_dataset(name="Words", slug="words", environment=make_environment(slug="letters", name="Letters"))
    assert names(pages, "/datasets/?environment=maths") == ["Sums"]
    assert "Maths" in names(pages, "/environments/?q=math")


@pytest.mark.parametrize("url", ["/collections/", "/datasets/", "/models/", "/agents/", "/environments/"])
def test_a_list_takes_the_same_queries_for_one_row_and_for_three(db: None, url: str):
    def add() -> None:
        number = Dataset.objects.count()
        dataset = make_dataset(slug=f"d{number}", environment=make_environment(slug=f"e{number}"))
        model, agent = make_policy_model(slug=f"m{number}"), make_agent(slug=f"a{number}")
        for reward in (0.2, 0.4):
            ended(dataset, agent, reward, policy_model=model)

    one, three = queries_with_one_and_three(lambda: url, add)
    assert one == three


@pytest.mark.parametrize(
    ("url", "is_open"),
    [
        ("/collections/?q=demo", False),
        ("/collections/?state=completed", True),
        ("/matrix/?rows=model", False),
        ("/matrix/?rows=version", True),
        ("/reviews/", False),
        ("/reviews/?task_number=x", True),
    ],
)
def test_the_folded_filters_are_open_if_one_is_set(pages: Client, agent: Agent, url: str, is_open: bool):
    ended(make_dataset(), agent, 0.5)
    page = pages.get(url).text
    assert ("fold further" in page, 'fold further" open' in page) == (True, is_open)
