"""TRL's own trainers run on what GymWeb exports, and what their losses see is what the traces hold.

Text and reasoning are compared byte for byte, tools and arguments as JSON values, tokens as ids.
"""

import json
import math
from typing import Any

import pytest

from tests.trainers.conftest import Exports, Program
from tests.trainers.plans import INEXACT, MALFORMED, Plan
from tests.trainers.reading import ASSISTANT, END, Reader, TextReader, exactly, turns_of

# The exports are written to the test database, which pytest-django makes for tests that say so.
pytestmark = [pytest.mark.slow, pytest.mark.django_db]

IGNORED = -100
MASKED = {"assistant_only_loss": True}
JOBS = [
    {"name": "conversations", "trainer": "sft", "folder": "trl_sft-jsonl", "settings": MASKED},
    {"name": "conversations, streamed", "trainer": "sft", "folder": "trl_sft-jsonl-gz", "streaming": True,
     "settings": MASKED},
    {"name": "conversations, from Parquet", "trainer": "sft", "folder": "trl_sft-parquet", "settings": MASKED},
    {"name": "conversations, text", "trainer": "sft", "folder": "trl_sft_text", "settings": MASKED},
    {"name": "conversations, inline", "trainer": "sft", "folder": "trl_sft_inline", "settings": MASKED},
    {"name": "conversations, without reasoning", "trainer": "sft", "folder": "trl_sft_dropped", "settings": MASKED},
    {"name": "conversations, whole loss", "trainer": "sft", "folder": "trl_sft"},
    {"name": "completions", "trainer": "sft", "folder": "trl_sft_completion", "settings": MASKED},
    {"name": "completions, whole loss", "trainer": "sft", "folder": "unsloth_sft"},
    {"name": "turns", "trainer": "sft", "folder": "trl_sft_turns"},
    {"name": "tokens", "trainer": "sft", "folder": "trl_sft_tokens-parquet"},
    {"name": "tokens, packed", "trainer": "sft", "folder": "trl_sft_tokens",
     "settings": {"packing": True, "max_length": 512}},
    {"name": "pairs", "trainer": "dpo", "folder": "trl_dpo"},
    {"name": "pairs, step", "trainer": "dpo", "folder": "trl_dpo_step"},
    {"name": "pairs, implicit", "trainer": "dpo", "folder": "trl_dpo_implicit"},
    {"name": "pairs as text, ORPO", "trainer": "orpo", "folder": "trl_orpo"},
    {"name": "pairs as text, CPO", "trainer": "cpo", "folder": "trl_orpo"},
    {"name": "pairs rendered, ORPO", "trainer": "orpo", "folder": "trl_dpo", "rendered": True},
    {"name": "labels", "trainer": "kto", "folder": "trl_kto"},
    {"name": "scores", "trainer": "reward", "folder": "trl_reward"},
    {"name": "scores, step", "trainer": "reward", "folder": "trl_reward_step"},
    {"name": "prompts", "trainer": "grpo", "folder": "trl_grpo"},
]  # fmt: skip
MIRRORS = [job["name"] for job in JOBS[:3]] + ["conversations, inline", "completions"]
"""Those whose rows hold everything, and whose losses cover what the model said."""


@pytest.fixture(scope="module")
def trained(exports: Exports, run_program: Program, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("trained")
    jobs = [{"streaming": False, "settings": {}, **job, "folder": str(exports.path(job["folder"]))} for job in JOBS]
    (folder / "jobs.json").write_text(json.dumps(jobs))
    run_program("train_exports.py", folder / "jobs.json", folder / "out.json")
    found: dict[str, Any] = json.loads((folder / "out.json").read_text())
    return found


@pytest.mark.parametrize("name", [job["name"] for job in JOBS])
def test_a_trainer_takes_two_steps(trained: dict[str, Any], name: str) -> None:
    assert trained[name]["steps"] == 2
    assert len(trained[name]["losses"]) == 2
    assert all(math.isfinite(loss) for loss in trained[name]["losses"])


def read_whole(reader: Reader, plan: Plan) -> None:
    reader.prompt(plan)
    for turn in plan["turns"]:
        reader.message(turn)
    reader.end()


def read_turns(reader_of: type[Reader], trained: list[str], plan: Plan) -> None:
    turns = turns_of(plan)
    assert len(trained) == len(turns)
    for text, turn in zip(trained, turns, strict=True):
        reader = reader_of(text)
        reader.turn(turn)
        reader.end()


@pytest.mark.parametrize("name", MIRRORS)
def test_a_conversation_is_rendered_as_the_trace_holds_it_and_the_turns_of_the_model_alone_are_learned(
    exports: Exports, trained: dict[str, Any], name: str
) -> None:
    rows = trained[name]["rows"]
    assert len(rows) >= 60
    for row in rows:
        plan = exports.plans[row["rollout_id"]]
        read_whole(Reader(row["text"]), plan)
        read_turns(Reader, row["trained"], plan)


def test_reasoning_that_is_dropped_is_nowhere(exports: Exports, trained: dict[str, Any]) -> None:
    rows = trained["conversations, without reasoning"]["rows"]
    thinking = 0
    for row in rows:
        plan = exports.plans[row["rollout_id"]]
        thinking += any(turn["reasoning"] for turn in turns_of(plan))
        quiet = {**plan, "turns": [{**turn, "reasoning": ""} for turn in plan["turns"]]}
        read_whole(Reader(row["text"]), quiet)
        read_turns(Reader, row["trained"], quiet)
    assert thinking > 20


def test_arguments_that_are_no_object_drop_the_row_or_stay_the_text_that_the_model_wrote(
    exports: Exports, trained: dict[str, Any]
) -> None:
    assert exports.manifests["trl_sft"]["counts"]["dropped"]["malformed_arguments"] == len(MALFORMED)
    assert not set(exports.malformed) & {row["rollout_id"] for row in exports.rows("trl_sft")}
    rows = {row["rollout_id"]: row for row in trained["conversations, text"]["rows"]}
    for rollout_id, plan in {**exports.plans, **exports.malformed, **exports.inexact}.items():
        if rollout_id in rows:
            read_whole(TextReader(rows[rollout_id]["text"]), plan)
            read_turns(TextReader, rows[rollout_id]["trained"], plan)
    assert set(exports.malformed) | set(exports.inexact) <= set(rows)
    assert len(rows) == len(exports.rows("trl_sft")) + len(MALFORMED) + len(INEXACT)


def test_numbers_that_datasets_would_change_drop_the_row(exports: Exports) -> None:
    assert exports.manifests["trl_sft"]["counts"]["dropped"]["inexact_numbers"] == len(INEXACT)
    written = {name: {row["rollout_id"] for row in exports.rows(name)} for name in ("trl_sft", "trl_sft_any")}
    assert written["trl_sft_any"] - written["trl_sft"] == set(exports.inexact)


def test_without_the_assistants_mask_conversations_are_learned_whole(exports: Exports, trained: dict[str, Any]) -> None:
    for row in trained["conversations, whole loss"]["rows"]:
        assert row["trained"] == [row["text"]]
        read_whole(Reader(row["text"]), exports.plans[row["rollout_id"]])


def test_without_the_assistants_mask_a_completion_is_learned_with_what_tools_answered(
    exports: Exports, trained: dict[str, Any]
) -> None:
    for row in trained["completions, whole loss"]["rows"]:
        plan = exports.plans[row["rollout_id"]]
        (learned,) = row["trained"]
        assert row["text"].endswith(ASSISTANT + learned)
        reader = Reader(ASSISTANT + learned)
        for turn in plan["turns"]:
            reader.message(turn)
        reader.end()


def test_a_row_of_a_turn_is_what_the_model_saw_and_learns_what_it_said(
    exports: Exports, trained: dict[str, Any]
) -> None:
    rows = trained["turns"]["rows"]
    for row in rows:
        plan = exports.plans[row["rollout_id"]]
        read_whole(Reader(row["text"]), {**plan, "turns": plan["turns"][: row["turn"] + 1]})
        reader = Reader("".join(row["trained"]))
        reader.turn(plan["turns"][row["turn"]])
        reader.literal("\n")
        reader.end()
    written = {row["rollout_id"] for row in rows}
    assert len(rows) == sum(len(turns_of(exports.plans[one])) for one in written)


def sequences(plan: Plan) -> list[tuple[list[int], list[int]]]:
    """Ids and labels as captured: where a prompt does not go on from what was seen, another sequence begins."""
    found: list[tuple[list[int], list[int]]] = []
    for prompt, generation in plan["tokens"]:
        seen, labels = found.pop() if found and prompt[: len(found[-1][0])] == found[-1][0] else ([], [])
        given = prompt[len(seen) :]
        found.append(([*prompt, *generation], [*labels, *[IGNORED] * len(given), *generation]))
    return found


def test_captured_ids_are_loaded_and_sampled_ones_learned(exports: Exports, trained: dict[str, Any]) -> None:
    rows = trained["tokens"]["rows"]
    learned = {(row["rollout_id"], row["segment"]): row["ids"] for row in rows}
    wanted = {
        (one, number): ids
        for one in {row["rollout_id"] for row in rows}
        for number, (ids, _) in enumerate(sequences(exports.plans[one]))
    }
    assert learned == wanted
    assert len(wanted) > len({rollout_id for rollout_id, _ in wanted}) > 40
    for row in exports.rows("trl_sft_tokens"):
        ids, labels = sequences(exports.plans[row["rollout_id"]])[row["segment"]]
        assert (row["input_ids"], row["labels"]) == (ids, labels)


@pytest.mark.parametrize("name", ["pairs", "pairs, implicit", "pairs rendered, ORPO"])
def test_both_sides_of_a_pair_are_learned_after_their_prompt(
    exports: Exports, trained: dict[str, Any], name: str
) -> None:
    pairs = exports.pair_of("trl_dpo")
    rows = trained[name]["rows"]
    assert {row["pair_id"] for row in rows} == set(pairs)
    assert len(rows) > 20
    for row in rows:
        for side, plan in zip(("chosen", "rejected"), pairs[row["pair_id"]], strict=True):
            text, (learned,) = row[side]["text"], row[side]["trained"]
            assert text.endswith(learned)
            # ORPOTrainer adds an end of turn, because a rendered text ends with a line feed.
            extra = END if "rendered" in name else ""
            assert text.endswith(f"{END}\n{extra}")
            read_whole(Reader(text.removesuffix(extra)), plan)
            if name != "pairs, implicit":
                prompt = Reader(text[: -len(learned)])
                prompt.prompt(plan)
                prompt.literal(ASSISTANT)
                prompt.end()


@pytest.mark.parametrize("name", ["pairs as text, ORPO", "pairs as text, CPO"])
def test_both_sides_of_a_pair_of_texts_are_learned_after_their_prompt(
    exports: Exports, trained: dict[str, Any], name: str
) -> None:
    written = {row["pair_id"]: row for row in exports.rows("trl_orpo")}
    pairs = exports.pair_of("trl_orpo")
    assert set(pairs) == {row["pair_id"] for row in trained[name]["rows"]} == set(exports.pair_of("trl_dpo"))
    for row in trained[name]["rows"]:
        wanted = written[row["pair_id"]]
        for side, plan in zip(("chosen", "rejected"), pairs[row["pair_id"]], strict=True):
            assert row[side] == {"text": wanted["prompt"] + wanted[side], "trained": [wanted[side]]}
            assert [turn["text"] for turn in plan["turns"] if turn["text"].strip() not in wanted[side]] == []
            calls = [one["name"] for turn in turns_of(plan) for one in turn["calls"]]
            assert wanted[side].count('<tool_call>\n{"name": ') == len(calls)


def is_action(turn: dict[str, Any]) -> str:
    """What was done, by its value; call ids and thoughts are none of it."""
    calls = [
        [one["name"], json.loads(one["arguments"]) if one["arguments"].strip() else {}] for one in turn.get("calls", ())
    ]
    return exactly([turn["role"], turn["text"], calls])


def test_a_pair_of_steps_is_the_first_action_that_differs_after_the_same_state(
    exports: Exports, trained: dict[str, Any]
) -> None:
    pairs = exports.pair_of("trl_dpo_step")
    rows = trained["pairs, step"]["rows"]
    shared = 0
    assert len(rows) > 15
    for row in rows:
        chosen, rejected = pairs[row["pair_id"]]
        ways = zip(chosen["turns"], rejected["turns"], strict=False)
        first = next(place for place, (good, bad) in enumerate(ways) if is_action(good) != is_action(bad))
        shared += first > 0
        for side, plan in zip(("chosen", "rejected"), (chosen, rejected), strict=True):
            # The way there stands as the chosen one had it, since the other side saw the same.
            both = zip(chosen["turns"][:first], rejected["turns"], strict=False)
            way = [{**turn, "reasoning": same_thought(turn, other)} for turn, other in both]
            read_whole(Reader(row[side]["text"]), {**plan, "turns": [*way, plan["turns"][first]]})
            reader = Reader("".join(row[side]["trained"]))
            reader.turn(plan["turns"][first])
            reader.literal("\n")
            reader.end()
    assert shared > 5


def same_thought(turn: dict[str, Any], other: dict[str, Any]) -> str:
    return turn["reasoning"] if turn.get("reasoning") and turn["reasoning"] == other.get("reasoning") else ""


def test_labels_say_which_attempts_are_good_and_cover_the_completion(exports: Exports, trained: dict[str, Any]) -> None:
    rows = trained["labels"]["rows"]
    assert {row["label"] for row in rows} == {True, False}
    for row in rows:
        plan = exports.plans[row["rollout_id"]]
        assert row["label"] == (plan["reward"] >= 0.5)
        read_whole(Reader(row["text"]), plan)
        (learned,) = row["trained"]
        assert row["text"].endswith(ASSISTANT + learned)


def test_a_reward_model_scores_whole_conversations(exports: Exports, trained: dict[str, Any]) -> None:
    pairs = exports.pair_of("trl_reward")
    assert len(trained["scores"]["rows"]) == len(pairs) > 20
    for row in trained["scores"]["rows"]:
        for side, plan in zip(("chosen", "rejected"), pairs[row["pair_id"]], strict=True):
            read_whole(Reader(row[side]), plan)


def test_prompts_reach_the_reward_functions_with_their_columns(exports: Exports, trained: dict[str, Any]) -> None:
    tasks = {row["task_id"]: row for row in exports.rows("trl_grpo")}
    seen = trained["prompts"]["seen"]
    assert len(seen) == 4
    for one in seen:
        task = tasks[one["task_id"]]
        # Figures have ten decimals where the file is JSON.
        assert one == {**{name: task[name] for name in one}, "solve_rate": round(task["solve_rate"], 10)}
