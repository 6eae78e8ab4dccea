"""Nothing of an export is lost after TRL's own rendering with the chat templates of four families.

Each export takes the options that the template check advises, and leaves out the rows that the template would harm
according to the check. In all other rows every text, call, argument and result is found, in order, in the tokens that
the trainer made of its own rendering.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from apps.gym.exporters.registry import FORMATS
from tests.trainers.conftest import Exports, Program, Writer, rows_for_a_while
from tests.trainers.plans import Plan
from tests.trainers.reading import exactly

pytestmark = pytest.mark.django_db

FAMILIES = ("qwen2_5", "qwen3", "llama3_1", "gptoss", "deepseekv3")
SHAPES: dict[str, dict[str, str]] = {
    "trl_sft": {},
    "trl_sft_completion": {},
    "trl_sft_turns": {},
    "unsloth_sft": {},
    "trl_dpo": {},
    "trl_dpo_implicit": {"prompt": "implicit"},
}
"""Formats for SFT and DPO whose rows TRL renders, with their options."""
TASKS = 12
CASES = [(family, name) for family in FAMILIES for name in SHAPES]


class Rendered(NamedTuple):
    exports: Exports
    rows: dict[str, list[dict[str, Any]]]
    """The rows of each export as its trainer tokenized them."""


def slug_of(name: str) -> str:
    return name.removesuffix("_implicit")


@pytest.fixture(scope="module")
def rendered(
    trainers_python: Path,
    run_program: Program,
    django_db_setup: None,
    django_db_blocker: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> Rendered:
    folder = tmp_path_factory.mktemp("families")
    (templates,) = trainers_python.parent.parent.glob("lib/python3*/site-packages/trl/chat_templates")
    jobs = []
    with rows_for_a_while(django_db_blocker, folder):
        writer = Writer(folder, TASKS)
        for family, name in CASES:
            template = (templates / f"{family}.jinja").read_text()
            checked = {"template": template, "every_row": True, "misfits": "dropped"}
            export, options = f"{name}-{family}", SHAPES[name]
            writer.export(f"{export}-first", slug_of(name), options=options, **checked)
            form = writer.manifests[f"{export}-first"]["template_check"]["form"]
            options = {**options, **(form["options"] if form else {})}
            writer.export(export, slug_of(name), options=options, **checked)
            trainer = "dpo" if FORMATS[slug_of(name)].row_kind == "preferences" else "sft"
            jobs.append({"name": export, "family": family, "trainer": trainer, "folder": str(folder / export)})
    (folder / "jobs.json").write_text(json.dumps(jobs))
    run_program("train_families.py", folder / "jobs.json", folder / "out.json")
    plans = {**writer.plans, **writer.malformed, **writer.inexact}
    exports = Exports(folder, plans, writer.malformed, writer.inexact, writer.manifests)
    return Rendered(exports, json.loads((folder / "out.json").read_text()))


@pytest.mark.parametrize(("family", "name"), CASES)
def test_everything_is_found_in_what_the_trainer_renders(rendered: Rendered, family: str, name: str) -> None:
    export = f"{name}-{family}"
    rows = rendered.rows[export]
    manifest = rendered.exports.manifests[export]
    assert len(rows) == manifest["rows"] > 2
    split = manifest["options"].get("parallel_calls") == "split"
    if "dpo" in name:
        pairs = rendered.exports.pair_of(export)
        texts = [
            (plan, None, row[side]["text"])
            for row in rows
            for side, plan in zip(("chosen", "rejected"), pairs[row["pair_id"]], strict=True)
        ]
    else:
        seen: dict[int, int] = defaultdict(int)
        texts = []
        for row in rows:
            seen[row["rollout_id"]] += 1
            turns = seen[row["rollout_id"]] if name == "trl_sft_turns" else None
            texts.append((rendered.exports.plans[row["rollout_id"]], turns, row["text"]))
    for plan, turns, text in texts:
        lost = missing(pieces(plan, split=split, turns=turns), text)
        assert lost == "", f"{lost}\n{text}"


def pieces(plan: Plan, *, split: bool, turns: int | None) -> Iterator[tuple[str, Any]]:
    """Yield the texts, calls and results in the order in which they are rendered, up to a number of model turns."""
    for one in plan["prompt"]:
        yield "text", one["text"]
    left = turns
    waiting = {one["call"]: one for one in plan["turns"] if one["role"] == "tool"}
    for one in plan["turns"]:
        if left == 0:
            return
        if one["role"] == "assistant":
            yield "text", one["text"]
            calls = one["calls"]
            for call in calls:
                yield "call", call
                if split and len(calls) > 1:
                    if left is not None:
                        left -= 1
                        if left == 0:
                            return
                    yield "result", waiting.pop(call["id"])["text"]
            if left is not None and not (split and len(calls) > 1):
                left -= 1
        elif one["role"] == "user":
            yield "text", one["text"]
        elif one["call"] in waiting:
            yield "result", waiting.pop(one["call"])["text"]


def missing(expected: Iterator[tuple[str, Any]], text: str) -> str:
    """Return the first part that does not follow the parts before it, or nothing."""
    place = 0
    for kind, part in expected:
        if kind == "call":
            place = end_of_call(text, place, part)
        else:
            # Llama 3.1 and gpt-oss write results as JSON texts.
            forms = (part, json.dumps(part, ensure_ascii=False)) if kind == "result" else (part,)
            ends = [found + len(form) for form in forms if (found := text.find(form, place)) >= 0]
            place = min(ends, default=-1)
        if place < 0:
            return f"{kind} {part}"
    return ""


def end_of_call(text: str, place: int, call: dict[str, Any]) -> int:
    """Return the end of the arguments that follow the name of the call, or -1."""
    place = text.find(call["name"], place)
    wanted = exactly(json.loads(call["arguments"] or "{}"))
    while place >= 0 and (place := text.find("{", place)) >= 0:
        try:
            value, end = json.JSONDecoder().raw_decode(text, place)
        except ValueError:
            place += 1
            continue
        return end if exactly(value) == wanted else -1
    return -1
