"""Pairs have one prompt and two continuations; what cannot be compared is dropped by name."""

import math

import pytest

from apps.gym.exporters.protocol import Attempt, Options, Preference, resolve_options
from apps.gym.exporters.registry import FORMATS
from apps.gym.exporters.trl import dpo_rows
from apps.gym.traces.items import dump_json, message
from apps.gym.traces.messages import completion_messages, prompt_messages
from apps.gym.trainability import Dropped
from tests.gym.exporters.stored import SAMPLES, read_lines
from tests.gym.traces import call, key_structure, nulls, row, said, trace, turn, weather_trace


def pair(chosen, rejected):
    sides = [Attempt(events=events, task=row(), reward=reward) for events, reward in ((chosen, 1), (rejected, 0))]
    [made] = dpo_rows(Preference(chosen=sides[0], rejected=sides[1], margin=1.0, columns={"pair_id": 4}), Options())
    return made


def test_a_pair_is_a_shared_prompt_and_two_continuations():
    chosen, rejected = weather_trace("It is 22 °C."), trace(turn(said("It is 30 °C.")))
    made = pair(chosen, rejected)
    assert made["prompt"] == [{"role": "user", "content": "How warm is it in Paris?"}]
    assert made["chosen"] == completion_messages(chosen)
    assert made["rejected"] == [{"role": "assistant", "content": "It is 30 °C."}]
    assert [one["function"]["name"] for one in made["tools"]] == ["get_weather"]
    assert (made["chosen_reward"], made["rejected_reward"], made["reward_margin"], made["pair_id"]) == (
        1.0,
        0.0,
        1.0,
        4,
    )
    assert '"chosen_reward":1.0,"rejected_reward":0.0,"reward_margin":1.0' in dump_json(made)
    assert nulls(made) == []


@pytest.mark.parametrize("slug", [slug for slug, one in FORMATS.items() if one.row_kind == "preferences"])
def test_no_row_of_a_pair_has_a_margin_that_a_trainer_takes_unasked(slug):
    """TRL's RewardTrainer would: OpenRLHF's does only where it is told to, and takes 0 for a row without."""
    sides = [Attempt(events=trace(turn(said(text))), task=row(), reward=math.nan) for text in ("22", "30")]
    options = resolve_options(FORMATS[slug], {})
    for margin in (0.5, None):
        [made] = FORMATS[slug].rows(Preference(chosen=sides[0], rejected=sides[1], margin=margin), options)
        assert ("margin" in made) == (margin is not None and slug == "openrlhf_dpo")
        assert made.get("reward_margin", margin) == margin
        assert nulls(made) == []
        features = FORMATS[slug].features(options)
        assert set(made) <= set(features)
        assert "margin" not in features or slug == "openrlhf_dpo"


def test_the_prompt_with_a_continuation_is_a_demonstration():
    chosen = weather_trace()
    made = pair(chosen, weather_trace("30"))
    assert [*made["prompt"], *made["chosen"]] == [*prompt_messages(chosen), *completion_messages(chosen)]


@pytest.mark.parametrize(
    ("rejected", "reason"),
    [
        (trace(turn(said("30")), prompt=[message("user", "Oslo?")]), "different_prompts"),
        (trace(turn(said("30")))[1:], "different_prompts"),
        (weather_trace(), "identical_completions"),
        (trace(turn(call("[1]")), turn(said("30"))), "malformed_arguments"),
        (trace(), "no_assistant_turn"),
    ],
)
def test_what_cannot_be_compared_is_dropped_with_its_reason(rejected, reason):
    with pytest.raises(Dropped) as why:
        pair(weather_trace(), rejected)
    assert why.value.reason == reason


@pytest.mark.skipif(not SAMPLES.exists(), reason="the shared samples are not here")
def test_the_keys_equal_the_sample_for_trl():
    sample = read_lines(SAMPLES / "trl.dpo.jsonl")[0]
    made = pair(weather_trace(), weather_trace("30"))
    assert set(sample) <= set(made)
    assert key_structure(made["prompt"][-1]) == key_structure(sample["prompt"][-1])
    for side in ("chosen", "rejected"):
        assert [set(one) for one in made[side]] == [set(one) for one in sample[side]]
    assert set(made["tools"][0]["function"]) == set(sample["tools"][0]["function"])
