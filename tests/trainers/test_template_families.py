"""Template checks with the chat templates that TRL ships, and against what `transformers` renders of the same rows."""

import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from apps.exports.template_checks import TemplateCheck, TemplateSettings
from apps.gym.chat_templates.jinja_rendering import Rendering
from apps.gym.chat_templates.template_findings import TemplateReport
from apps.gym.chat_templates.template_sources import read_template
from apps.gym.exporters.protocol import resolve_options
from apps.gym.exporters.registry import FORMATS
from tests.gym.chattemplates.test_template_verdicts import TOOL, talk
from tests.gym.exporters.attempts import attempt
from tests.trainers.conftest import Program
from tests.trainers.plans import draw_plans, trace_of

FAMILIES = ("qwen2_5", "qwen3", "llama3", "llama3_1", "gptoss", "deepseekv3", "deepseek_r1_distill", "phi3_5", "gemma",
            "gemma4", "cohere", "muse_glimmer", "lfm2")  # fmt: skip


@pytest.fixture(scope="module")
def folder(trainers_python: Path) -> Path:
    (found,) = trainers_python.parent.parent.glob("lib/python3*/site-packages/trl/chat_templates")
    return found


def check(folder: Path, family: str, rows: list[dict[str, Any]], **given: str) -> TemplateReport:
    template = read_template(str(folder / f"{family}.jinja"), "", allowed=[str(folder)])
    settings = msgspec.to_builtins(TemplateSettings(template=template, every_row=True))
    format = FORMATS["trl_sft"]
    checked = TemplateCheck(settings, format, resolve_options(format, given))
    for row in rows:
        checked.read([row])
    checked.close()
    return checked.report()


def kinds(folder: Path, family: str, messages: list[dict[str, Any]]) -> set[str]:
    return {one.kind for one in check(folder, family, [{"messages": messages, "tools": [TOOL]}]).findings}


CASES = {
    "qwen2_5": (set(), set(), set()),
    "qwen3": (set(), set(), set()),
    "llama3_1": ({"call_text_lost", "reworded"}, {"raised"}, {"reworded"}),
    "llama3_2": ({"call_text_lost", "reworded"}, {"raised"}, {"reworded"}),
    "gptoss": ({"call_text_lost", "reworded"}, {"call_text_lost", "parallel_call_lost", "reworded"}, {"reworded"}),
    "deepseekv3": ({"raised"}, {"raised"}, {"raised"}),
    "muse_glimmer": ({"call_text_lost"}, {"call_text_lost"}, set()),
    "gemma": ({"raised"}, {"raised"}, {"raised"}),
    "cohere": ({"raised"}, {"raised"}, {"raised"}),
}
"""Findings with text beside one call, with text beside two calls, and with one call without text."""


@pytest.mark.parametrize("family", CASES)
def test_family_loses_what_was_seen_with_real_packages(family: str, folder: Path) -> None:
    text = {"a": "x"}
    harmless = {"python_values", "schema_lost"}
    found = [
        kinds(folder, family, messages) - harmless
        for messages in (talk(arguments=text), talk(arguments=text, calls=2), talk(arguments=text, text=""))
    ]
    assert found == list(CASES[family])


@pytest.mark.parametrize("family", ["llama3", "phi3_5", "deepseek_r1_distill", "lfm2", "qwen2_5_vl"])
def test_family_loses_every_call(family: str, folder: Path) -> None:
    found = kinds(folder, family, talk(calls=2))
    assert {"call_lost", "parallel_call_lost"} <= found


def test_the_form_that_a_family_takes(folder: Path) -> None:
    rows = [{"messages": talk(text="", calls=calls), "tools": [TOOL]} for calls in (1, 2)]
    form = check(folder, "llama3_1", rows).form
    assert form is not None
    assert (form.options, form.rows, form.checked) == ({"parallel_calls": "split"}, 0, 2)
    form = check(folder, "deepseekv3", rows).form
    assert form is not None
    assert form.options["arguments"] == "text"


def test_text_is_the_text_of_transformers(folder: Path, run_program: Program, tmp_path: Path) -> None:
    """Real rows of all kinds: the same text, and it raises for the same rows."""
    format = FORMATS["trl_sft"]
    options = resolve_options(format, {"numbers": "any"})
    plans = [plan for group in draw_plans(random.Random(4), tasks=20, attempts=2) for plan in group]
    rows = [row for plan in plans for row in format.rows(attempt(trace_of(plan)), options)]
    (tmp_path / "in.json").write_text(
        json.dumps([{"messages": row["messages"], "tools": row["tools"]} for row in rows])
    )
    run_program("template_families.py", tmp_path / "in.json", tmp_path / "out.json", *FAMILIES)
    theirs = json.loads((tmp_path / "out.json").read_text())
    for family in FAMILIES:
        rendering = Rendering((folder / f"{family}.jinja").read_text(), {})
        for row, expected in zip(rows, theirs[family], strict=True):
            try:
                text = rendering.render(row["messages"], row["tools"])
            except Exception:
                text = None
            assert text == expected, family
