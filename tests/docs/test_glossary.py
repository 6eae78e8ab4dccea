"""Every term of the field's glossaries has a definition and a place in docs/use/glossary.md."""

import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("GYMWEB_SHARED", ROOT.parent / "shared"))
SOURCE = SHARED / "design" / "terms.md"

TERMS = """
Policy Model; Policy; Orchestration; Rollout orchestration; Verifier; Judge model; Reward model; Service Discovery;
Global Config; Reward; Reward Signal; Resource Server; Resources; Responses API Model; Model server; Inference endpoint;
Responses API Agent; Agent server; Agent; Responses API; Chat Completions API; vLLM; OpenAI API; Azure OpenAI; CLI;
YAML Configuration; Multi-turn; Multi-step; Tool Use; Function Calling; Agentic Workflow; Rollout; Trajectory;
Rollout Batch; Rollout Collection; Data Generation Process; Parallel rollout collection; Batch processing; Environment;
Training environment; Rollout dataset; Training dataset; Task; Prompt; Task Instance; Episode; Trace;
Demonstration Data; Demonstrations; SFT; Preference Pairs; Preference Data; DPO; Alignment; Scored Rollouts; RL; GRPO;
Online Training; Offline Training; Correctness; Quality; Efficiency; Hybrid; Prompt templates; Agent system prompt;
Few-shot; in-context examples; Quality filter; Keep/discard; Heuristic check; VeRL; NeMo RL; OpenRLHF; Actor;
Controller; Worker; Worker Group; Batch Size; Checkpoint; Context Length; Generation; Inference; Token; Ray; Slurm;
WandB; Hyperparameters; Loss Function; Normalization Factor; Value Function; Optimizer; Learning Rate; Epoch; Step;
Forward Pass; Gradient Accumulation; Micro Batch Size; Mixed Precision; Padding; Right Padding; Sharding; FSDP; DTensor;
Megatron Backend; Hugging Face Backend; Training Backend; Pipeline Parallelism; Tensor Parallelism; NCCL; IPC; Backend
"""
NOT_NOUNS = ["run", "job", "sample", "episode", "service", "manager", "helper", "util", "data", "info"]


def split_terms(cell: str) -> list[str]:
    """`Online / Offline Training; Step (update)` → Online Training, Offline Training, Step."""
    terms = []
    for part in re.split(r"[;,]", re.sub(r"\(.*?\)", "", cell)):
        sides = [side.strip() for side in part.split(" / ") if side.strip()]
        tail = sides[-1].split()[-1] if sides else ""
        # "Pipeline / Tensor Parallelism" shares its last word; "Responses API / Chat Completions API" does not.
        terms += [side if " " in side or len(sides) == 1 else f"{side} {tail}" for side in sides]
    return terms


def table_rows(text: str, columns: int) -> list[list[str]]:
    """The rows of every table in the text, without its head: heads are the rows before `|---|`."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rules = {number for number, line in enumerate(lines) if line.startswith("|---")}
    body = [line for number, line in enumerate(lines) if number not in rules and number + 1 not in rules]
    cells = [[cell.strip() for cell in line.strip("|").split(" |")] for line in body]
    assert {len(row) for row in cells} == {columns}, "a row of the glossary has a column too many or too few"
    return cells


def glossary() -> tuple[list[list[str]], list[list[str]]]:
    defined = (ROOT / "docs" / "use" / "glossary.md").read_text()
    avoided = (ROOT / "docs" / "develop" / "ui_words.md").read_text().split("## Words to avoid")[1]
    return table_rows(defined, 3), table_rows(avoided, 2)


def test_every_term_of_the_field_has_a_definition_and_a_place() -> None:
    defined = {term: row for row in glossary()[0] for term in split_terms(row[0])}
    wanted = split_terms(TERMS.replace("\n", " "))
    assert len(wanted) == 111
    assert [term for term in wanted if term not in defined] == []
    empty = [term for term in wanted if len(defined[term][1]) < 15 or len(defined[term][2]) < 5]
    assert empty == []


def test_no_term_is_defined_twice() -> None:
    terms = [term for row in glossary()[0] for term in split_terms(row[0])]
    assert sorted(term for term in set(terms) if terms.count(term) > 1) == []


def test_the_words_we_do_not_use_each_have_another_instead() -> None:
    avoided = {row[0]: row[1] for row in glossary()[1]}
    assert sorted(avoided) == sorted(NOT_NOUNS)
    assert all(avoided.values())


def test_trainer_terms_say_so_and_name_what_we_hand_over() -> None:
    text = (ROOT / "docs" / "use" / "glossary.md").read_text()
    section = text.split("## The trainer's side")[1].split("## GymWeb terms")[0]
    places = [row[2] for row in table_rows(section, 3)]
    assert [place for place in places if not re.match(r"Trainer[;,] .", place)] == []


@pytest.mark.skipif(not SOURCE.exists(), reason="the field's list of terms is not beside this checkout")
def test_the_list_above_is_the_field_s_list() -> None:
    rows = [line.split("|")[1].strip() for line in SOURCE.read_text().splitlines() if line.startswith("| ")]
    field = [term for cell in rows if cell != "term" for term in split_terms(cell)]
    assert sorted(set(field)) == sorted(split_terms(TERMS.replace("\n", " ")))
