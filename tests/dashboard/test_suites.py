"""The pages of suites."""

import pytest
from django.test import Client

from apps.rollouts.models import Collection
from apps.tasks.models import Suite
from apps.tasks.suite_changes import save_suite
from tests.factories import make_agent, make_collection, make_dataset, make_policy_model, make_rollout, make_row

pytestmark = pytest.mark.django_db


@pytest.fixture
def suite() -> Suite:
    datasets = [make_dataset([make_row(name) for name in names], slug=names) for names in ("ab", "c")]
    return save_suite(suite=Suite(slug="letters", name="Letters", datasets=datasets), user=None)


def test_a_suite_is_created_changed_and_listed(pages: Client):
    make_dataset(slug="sums"), make_dataset(slug="words")
    reply = pages.post("/suites/new/", {"name": "Mathematics", "slug": "", "datasets": "words\nsums"})
    assert (reply.status_code, reply["Location"]) == (302, "/suites/mathematics/")
    reply = pages.post("/suites/mathematics/edit/", {"name": "Math", "datasets": "sums\nwords"})
    assert reply.status_code == 302
    suite = Suite.objects.get(slug="mathematics")
    assert (suite.name, [one.slug for one in suite.datasets]) == ("Math", ["sums", "words"])
    assert 'href="/suites/mathematics/"' in pages.get("/suites/").text
    assert "sums\nwords" in pages.get("/suites/mathematics/edit/").text


@pytest.mark.parametrize("datasets", ["", "sums\nsums", "sums\nunknown"])
def test_a_list_of_datasets_that_cannot_be_is_shown_beside_the_field(pages: Client, datasets: str):
    make_dataset(slug="sums")
    reply = pages.post("/suites/new/", {"name": "Math", "slug": "math", "datasets": datasets})
    assert reply.status_code == 422
    assert list(reply.context["form"].errors) == ["datasets"]
    assert not Suite.objects.exists()


def test_the_page_of_a_suite_shows_the_figures_of_each_dataset_and_their_mean(pages: Client, suite: Suite):
    model = make_policy_model(slug="qwen")
    for dataset, reward in zip(suite.datasets, (1.0, 0.5), strict=True):
        tasks = list(dataset.tasks.all())
        collection = make_collection(
            dataset=dataset, policy_model=model, state="completed", total=len(tasks), completed=len(tasks),
            rewarded=len(tasks), reward_sum=reward * len(tasks),
        )  # fmt: skip
        for task in tasks:
            make_rollout(collection, task=task, reward=reward, trace=[])
    reply = pages.get("/suites/letters/")
    [(row, _, _)] = reply.context["rows"]
    assert ([cell.value for cell in row.cells], row.mean) == ([1.0, 0.5], 0.75)
    assert "0.750" in reply.text
    assert "/matrix/?suite=letters" in reply.text
    assert "0.750" in pages.get("/matrix/?suite=letters").text


def test_a_form_plans_one_collection_for_each_dataset_once(pages: Client, suite: Suite):
    given = {
        "policy_model": make_policy_model(slug="qwen").slug,
        "agent": make_agent().slug,
        "repeats": "3",
        "max_seconds": "",
        "idempotency_key": "once",
        "priority": "0",
        "rollout_timeout": "60",
        "max_attempts": "2",
        "seed": "0",
    }
    for _ in range(2):
        assert pages.post("/suites/letters/collect/", given).status_code == 302
    assert [(one.dataset.slug, one.total) for one in Collection.objects.order_by("pk")] == [("ab", 6), ("c", 3)]


def test_a_plan_that_cannot_be_is_explained_with_its_dataset(pages: Client, suite: Suite):
    suite.datasets = [make_dataset([], slug="empty")]
    save_suite(suite=suite, user=None)
    given = {"policy_model": make_policy_model().slug, "agent": make_agent().slug, "repeats": "1", "priority": "0"}
    rest = {"rollout_timeout": "60", "max_attempts": "2", "seed": "0"}
    reply = pages.post("/suites/letters/collect/", given | rest)
    assert reply.status_code == 422
    assert "empty: " in reply.text
    assert not Collection.objects.exists()


def test_the_form_of_a_plan_shows_its_options_once(pages: Client, suite: Suite):
    page = pages.get("/suites/letters/collect/").text
    for name in ("policy_model", "agent", "repeats", "splits", "max_tokens", "seed", "idempotency_key"):
        assert page.count(f'name="{name}"') == 1
    assert 'name="dataset"' not in page
