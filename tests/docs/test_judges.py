"""The page on judges says what the code does: its settings, rubrics and placeholders."""

from pathlib import Path

import pytest

from apps.gym.judging.prompts import DEFAULT_RUBRICS, PLACEHOLDERS
from apps.gym.judging.scale import JudgeSettings

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "use" / "judges.md").read_text()
FIRST_CELLS = {line.split("|")[1].strip() for line in PAGE.splitlines() if line.startswith("| `")}


def test_every_setting_of_a_judge_is_explained():
    assert {f"`{name}`" for name in JudgeSettings.__struct_fields__} <= FIRST_CELLS


@pytest.mark.parametrize("name", ["tries", "max_characters"])
def test_documented_defaults_equal_the_code(name):
    (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| `{name}` |")]
    assert line.split("|")[-2].strip() == str(getattr(JudgeSettings(), name))


def test_every_placeholder_is_explained():
    assert {f"`{{{name}}}`" for name in PLACEHOLDERS} == {cell for cell in FIRST_CELLS if cell.startswith("`{")}


@pytest.mark.parametrize("question", DEFAULT_RUBRICS)
def test_the_rubrics_of_the_questions_are_quoted(question):
    assert f"| `{question}` | {DEFAULT_RUBRICS[question]} |" in PAGE
