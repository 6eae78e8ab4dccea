"""docs/use/agent_recipes.md shows the programs and versions that are tested."""

import re
from pathlib import Path

from scripts.agent_recipes import PROGRAMS, RECIPES, Recipe
from tests.agent_sdks.recipe_cases import CASES

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "use" / "agent_recipes.md").read_text()


def row_of(recipe: Recipe) -> tuple[str, str, str, str]:
    name, version = re.fullmatch(r"(@?[^@=\[]+)(?:\[.*\])?(?:==|@)(.+)", recipe.packages[0]).groups()
    return f"`{name}`", version, f"`{recipe.program}`", recipe.wire


def test_the_table_has_all_recipes():
    section = PAGE.partition("## Tested packages")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    assert [tuple(line.strip("| ").split(" | ")[:4]) for line in lines] == [row_of(one) for one in RECIPES]


def test_each_recipe_has_a_case_and_a_program():
    assert {one.name for one in RECIPES} == set(CASES)
    assert {one.program for one in RECIPES} == {path.name for path in PROGRAMS.iterdir() if path.is_file()}


def test_shown_programs_are_the_files():
    shown = re.findall(r"^```(?:python|js|sh)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    files = {path.read_text() for path in PROGRAMS.iterdir() if path.is_file()}
    assert len([one for one in shown if one in files]) == 3
