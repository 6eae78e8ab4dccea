"""The tiny policy's tasks, its teacher, and what its card says of the weights that are here."""

import json
import random
import re
import struct
from pathlib import Path

import pytest

from apps.gym.environments.calculator.environment import Calculator
from apps.gym.traces.items import message
from scripts.tiny_policy.tasks import SYSTEM_PROMPT, Sum, draw_rows, draw_sum, draw_task, value_of
from scripts.tiny_policy.teacher import write_attempt

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "tiny_policy"
METRICS = json.loads((FOLDER / "metrics.json").read_text())
CHECKPOINTS = ("half", "strong")
by_checkpoint = pytest.mark.parametrize("name", CHECKPOINTS)


def asked(row):
    """The expression of a task."""
    question = row["responses_create_params"]["input"][-1]["content"]
    return re.fullmatch(r"(?:What is|Compute|How much is|Please calculate) (.+?)[?.]", question)[1]


def test_a_sum_of_two_steps_has_the_value_of_its_steps():
    dice = random.Random(5)
    drawn = [draw_sum(dice) for _ in range(500)]
    stepped = [own for own in drawn if own.inner]
    assert len({own.expression.translate(str.maketrans("0123456789", "#" * 10)) for own in stepped}) == 6
    assert [
        own.expression for own in stepped if value_of(own.outer.format(value_of(own.inner))) != value_of(own.expression)
    ] == []


def test_held_out_sums_are_decided_by_the_expression_and_about_one_in_ten():
    dice = random.Random(6)
    drawn = [draw_sum(dice) for _ in range(4000)]
    assert 0.08 < sum(own.is_held_out for own in drawn) / len(drawn) < 0.12
    assert {draw_task(dice, held_out=True)[0].is_held_out for _ in range(50)} == {True}
    assert {draw_task(dice, held_out=False)[0].is_held_out for _ in range(200)} == {False}


def test_the_same_seed_draws_the_same_rows():
    assert draw_rows(20, seed=1) == draw_rows(20, seed=1)
    assert draw_rows(20, seed=1) != draw_rows(20, seed=2)


def test_the_teacher_is_rewarded_by_the_real_verifier_and_never_shows_a_held_out_sum():
    dice = random.Random(7)
    for _ in range(300):
        turns = write_attempt(dice)
        chat = [turn.message for turn in turns]
        question = next(own for own in chat if own["role"] == "user")["content"]
        row = {"responses_create_params": {"input": [{"role": "user", "content": question}]}}
        expression = asked(row)
        row["expected_answer"] = str(value_of(expression))
        assert not Sum(expression=expression).is_held_out
        answer = message("assistant", chat[-1]["content"])
        assert Calculator(row).verify({"output": [answer]}).value == 1.0
        assert {turn.message["role"] for turn in turns if turn.learned} == {"assistant"}
        assert turns[-1].learned


def test_a_slip_is_refused_as_the_environment_refuses_it_and_not_learned():
    dice = random.Random(8)
    slips = [
        turns
        for turns in (write_attempt(dice) for _ in range(600))
        if any(turn.message["role"] == "assistant" and not turn.learned for turn in turns)
    ]
    assert 20 < len(slips) < 80
    for turns in slips:
        place = next(i for i, turn in enumerate(turns) if turn.message["role"] == "assistant")
        assert not turns[place].learned
        assert set(json.loads(turns[place + 1].message["content"])) == {"error"}


def test_the_tasks_that_are_here_are_held_out_and_drawn_by_the_seed_that_the_metrics_name():
    rows = [json.loads(line) for line in (FOLDER / "tasks.jsonl").read_text().splitlines()]
    assert rows == draw_rows(50, seed=METRICS["seed"] + 4, held_out=True)
    assert [asked(row) for row in rows if not Sum(expression=asked(row)).is_held_out] == []
    systems = {own["content"] for row in rows for own in row["responses_create_params"]["input"][:-1]}
    assert systems == {SYSTEM_PROMPT}


@by_checkpoint
def test_the_weights_are_small_untied_and_as_many_as_the_metrics_say(name):
    path = FOLDER / name / "model.safetensors"
    assert path.stat().st_size <= 4 * 2**20
    with path.open("rb") as stream:
        header = json.loads(stream.read(struct.unpack("<Q", stream.read(8))[0]))
    shapes = {tensor: facts["shape"] for tensor, facts in header.items() if tensor != "__metadata__"}
    count = 0
    for shape in shapes.values():
        size = 1
        for side in shape:
            size *= side
        count += size
    assert count == METRICS["parameters"] <= 1_000_000
    assert {"model.embed_tokens.weight", "lm_head.weight"} <= set(shapes)
    assert json.loads((FOLDER / name / "config.json").read_text())["tie_word_embeddings"] is False


@by_checkpoint
def test_both_checkpoints_have_the_tokenizer_and_the_template_of_the_training(name):
    template = (ROOT / "scripts" / "tiny_policy" / "chat_template.jinja").read_text()
    assert (FOLDER / name / "chat_template.jinja").read_text() == template
    assert (FOLDER / name / "tokenizer.json").read_text() == (FOLDER / "half" / "tokenizer.json").read_text()


def test_the_weaker_checkpoint_is_about_sixty_percent_and_the_stronger_above_ninety_five():
    kinds = ("seen_kind", "held_out")
    half, strong = ([METRICS["checkpoints"][name][kind]["success"] for kind in kinds] for name in ("half", "strong"))
    assert all(0.55 <= share <= 0.65 for share in half)
    assert all(share > 0.95 for share in strong)


@by_checkpoint
def test_the_card_has_the_figures_that_were_measured(name):
    card = (FOLDER / "README.md").read_text()
    own = METRICS["checkpoints"][name]
    figures = [f"{own[kind]['success']:.3f} ± {own[kind]['standard_error']:.3f}" for kind in ("held_out", "seen_kind")]
    assert f"| `{name}` | {own['steps']} | {figures[0]} | {figures[1]} |" in card
    assert f"{METRICS['parameters']:,} parameters" in card
    assert f"in {METRICS['training_seconds']} s, seed {METRICS['seed']}, torch {METRICS['torch'].split('+')[0]}" in card
