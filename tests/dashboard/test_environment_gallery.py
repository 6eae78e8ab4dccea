"""The gallery of environments, and the sample datasets that it generates."""

import pytest
from django.test import Client

from apps.environments.models import Environment
from apps.gym.written.registry import list_kits, list_names
from apps.tasks.models import Dataset
from tests.dashboard.markup import faults
from tests.dashboard.pages import signed_in


def test_every_environment_is_shown_and_those_with_tasks_come_first(pages: Client):
    page = pages.get("/environment-gallery/")
    entries = page.context["entries"]
    assert sorted(entry.name for entry in entries) == list_names()
    assert [entry.generates for entry in entries] == [True] * len(list_kits()) + [False] * (
        len(entries) - len(list_kits())
    )
    assert next(entry for entry in entries if entry.name == "calculator").slugs == ["calculator"]
    assert faults(page.text) == []


@pytest.mark.parametrize("name", list_kits())
def test_twenty_tasks_of_each_environment_are_one_click_from_a_collection(pages: Client, name: str):
    slug = f"{name.replace('_', '-')}-sample"
    reply = pages.post(f"/environment-gallery/{name}/")
    assert reply["Location"] == f"/collections/new/?dataset={slug}"
    dataset = Dataset.objects.get(slug=slug)
    assert dataset.latest_version().task_count == 20
    assert dataset.environment == Environment.objects.get(slug=name)
    assert pages.get(reply["Location"]).context["form"]["dataset"].value() == slug


def test_a_second_click_uses_the_same_tasks(pages: Client):
    for _ in range(2):
        pages.post("/environment-gallery/sokoban/")
    assert Dataset.objects.get(slug="sokoban-sample").versions.count() == 1


def test_unknown_environments_and_viewers_are_refused(pages: Client):
    assert pages.post("/environment-gallery/nothing/").status_code == 404
    assert pages.post("/environment-gallery/judged/").status_code == 404
    viewer = signed_in("viewer")
    assert viewer.post("/environment-gallery/sokoban/").status_code == 403
    assert "Generate 20" not in viewer.get("/environment-gallery/").text
    assert not Dataset.objects.exists()
