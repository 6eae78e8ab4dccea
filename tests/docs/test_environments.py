"""docs/use/environments/ has a page for each built-in environment with its own tasks, and a generated row."""

import re

import pytest

from apps.gym.environments.kits import KITS
from apps.gym.environments.registry import BUILTINS
from scripts.example_rows import PAGES, with_row

NAMES = sorted(path.stem for path in PAGES.glob("*.md"))


def test_each_environment_with_tools_or_tasks_of_its_own_has_a_page():
    assert sorted(set(KITS) - set(NAMES)) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_page_shows_the_tools_and_the_first_row(name):
    page = (PAGES / f"{name}.md").read_text()
    assert page == with_row(page, name)
    assert re.findall(r"^## (.+)$", page, re.MULTILINE) == [
        "Task",
        "Tools",
        "Reward",
        "Shortcuts that fail",
        "Difficulty",
        "Example row",
    ]
    assert f"(../../images/environments/{name}.webp)" in page
    assert (PAGES.parents[1] / "images" / "environments" / f"{name}.webp").stat().st_size > 10_000
    tools = page.split("## Tools")[1].split("\n## ")[0]
    assert [tool["name"] for tool in BUILTINS[name].tools if f"`{tool['name']}" not in tools] == []
