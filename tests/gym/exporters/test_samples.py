"""The files of every trainer, made from the attempt that the samples show: row for row what real loaders took."""

import json

import pytest

from apps.gym.exporters.dataset_columns import ATTEMPT_FEATURES, PAIR_FEATURES
from apps.gym.exporters.protocol import Row, resolve_options
from apps.gym.exporters.registry import find_format
from apps.gym.exporters.training_conversations import TASK_FEATURES
from apps.gym.traces.messages import nested_tools
from tests.gym.exporters.attempts import TOOLS, attempt, paris, preference, task
from tests.gym.exporters.stored import SAMPLES, read_lines

pytestmark = pytest.mark.skipif(not SAMPLES.exists(), reason="the shared samples are not here")

OURS = {*ATTEMPT_FEATURES, *PAIR_FEATURES, *TASK_FEATURES, "turn", "weight"}


def rows(slug: str, source: object, **options: object) -> list[Row]:
    format = find_format(slug)
    return list(format.rows(source, resolve_options(format, options)))


def sample(name: str) -> list[Row]:
    return read_lines(SAMPLES / name)


def theirs(row: Row, *, keep: tuple[str, ...] = ()) -> Row:
    """A row without the columns that say where it comes from."""
    return {key: value for key, value in row.items() if key not in OURS or key in keep}


@pytest.mark.parametrize(
    ("slug", "name", "options"),
    [
        ("trl_sft", "trl.sft.jsonl", {}),
        ("nemo_rl_sft", "nemorl.sft.openai_format.jsonl", {}),
        ("axolotl_sft", "axolotl.sft.jsonl", {}),
        ("llama_factory_sft", "llamafactory.sft.jsonl", {}),
        ("trl_sft_turns", "trl.sft.per_turn.jsonl", {}),
    ],
)
def test_demonstrations(slug, name, options):
    assert [theirs(row) for row in rows(slug, attempt(), **options)] == sample(name)


def test_openai_style_demonstrations():
    asked = attempt()
    asked.task["responses_create_params"]["parallel_tool_calls"] = False
    assert rows("openai_sft", asked) == sample("openai.sft.jsonl")


def test_openrlhf_demonstrations_without_the_tools_that_its_loader_drops():
    assert [theirs(row) for row in rows("openrlhf_sft", attempt(), tools="dropped")] == sample(
        "openrlhf.sft.messages.jsonl"
    )


def test_verl_demonstrations_are_the_same_json_as_text():
    [made], [theirs_] = rows("verl_sft", attempt()), sample("verl.sft.json_columns.jsonl")
    assert {key: json.loads(made[key]) for key in ("messages", "tools")} == {
        key: json.loads(theirs_[key]) for key in ("messages", "tools")
    }


def test_pairs_of_trajectories():
    [made] = rows("trl_dpo", preference())
    [theirs_] = sample("trl.dpo.jsonl")[:1]
    assert theirs(made)["prompt"] == theirs_["prompt"]
    assert made["tools"] == theirs_["tools"]
    assert [sorted(one) for one in made["chosen"]] == [sorted(one) for one in theirs_["chosen"]]


@pytest.mark.parametrize(
    ("slug", "name", "keep"),
    [
        ("trl_dpo", "trl.dpo.step.jsonl", ()),
        ("nemo_rl_dpo", "nemorl.dpo.preference.jsonl", ()),
        ("llama_factory_dpo", "llamafactory.dpo.jsonl", ()),
        ("openrlhf_dpo", "openrlhf.dpo.messages.jsonl", ("margin",)),
        ("openai_dpo", "openai.dpo.jsonl", ()),
    ],
)
def test_pairs_of_steps(slug, name, keep):
    pair = preference()
    pair.chosen.task["responses_create_params"]["parallel_tool_calls"] = False
    options = {"tools": "dropped"} if slug in {"nemo_rl_dpo", "openrlhf_dpo"} else {}
    assert [theirs(row, keep=keep) for row in rows(slug, pair, level="step", **options)] == sample(name)[:1]


def test_labels():
    [good], [bad] = (rows("trl_kto", attempt(reward=reward)) for reward in (1.0, 0.25))
    theirs_ = sample("trl.kto.jsonl")
    assert theirs(good) == theirs_[0]
    assert (good["label"], bad["label"]) == (True, False)
    [made] = rows("llama_factory_kto", attempt())
    assert made == sample("llamafactory.kto.jsonl")[0]


def test_prompts_for_rl():
    assert rows("nemo_rl_tasks", task()) == sample("nemorl.grpo.nemo_gym.jsonl")
    [grpo], [openrlhf], [verl] = rows("trl_grpo", task()), rows("openrlhf_rl", task()), rows("verl_rl", task())
    assert json.loads(verl["extra_info"]["tools"]) == nested_tools(TOOLS)
    assert set(sample("trl_grpo.jsonl")[0]) <= set(grpo)
    assert theirs(openrlhf) == {**sample("openrlhf.rl.jsonl")[0], "datasource": "weather"}
    theirs_ = sample("verl.rl.jsonl")[0]
    assert {key: verl[key] for key in ("data_source", "agent_name", "prompt", "reward_model")} == {
        key: theirs_[key] for key in ("data_source", "agent_name", "prompt", "reward_model")
    }
    assert {key: verl["extra_info"][key] for key in ("split", "index", "task_id")} == {
        key: theirs_["extra_info"][key] for key in ("split", "index", "task_id")
    }


def test_the_scored_archive_has_every_column_of_the_sample():
    theirs_ = sample("rl.scored.jsonl")[0]
    [made] = rows("scored_rollouts", attempt(paris()), arguments="object")
    assert set(theirs_) - {"metadata"} <= set(made) | {"task_id", "rollout_id"}
    assert made["prompt"] == theirs_["prompt"]
    assert made["completion"] == theirs_["completion"]
    assert json.loads(made["tools"]) == json.loads(theirs_["tools"])
