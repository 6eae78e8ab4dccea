"""Columns that say how tokens were sampled, and what they are needed for."""

import math
from itertools import product

import msgspec
import pytest

from apps.gym.exporters.captured_rows import SAMPLING_FEATURES
from apps.gym.exporters.protocol import resolve_options
from apps.gym.exporters.registry import FORMATS
from apps.gym.traces.events import ModelCall
from apps.gym.traces.tokens import capture_tokens, pack_tokens
from apps.gym.trainability import Dropped
from tests.gym.exporters.attempts import attempt, paris
from tests.gym.exporters.test_formats import CAPTURED
from tests.gym.traces import with_tokens

FORMS = ["trl_sft_tokens", "scored_rollouts"]
POLICY = {7: 0.6, 8: 0.35, 9: 0.05}
"""The whole distribution of each uncertain token."""


def sampled(events, *samplings, **fields):
    """The trace with the sampling of each call."""
    given = iter(samplings)
    return [
        msgspec.structs.replace(event, sampling=next(given), **fields) if isinstance(event, ModelCall) else event
        for event in events
    ]


def rows(slug, events, options=None, **fields):
    return list(FORMATS[slug].rows(attempt(events, **fields), resolve_options(FORMATS[slug], options or {})))


def columns(slug, *samplings, **fields):
    [row] = rows(slug, sampled(with_tokens(paris(), *CAPTURED), *samplings, **fields))
    return {name: row[name] for name in SAMPLING_FEATURES if name in row and name != "logprob_mode"}


@pytest.mark.parametrize("slug", FORMS)
def test_a_row_has_the_fields_that_were_sent(slug):
    sent = {
        "temperature": 1,
        "top_p": 0.9,
        "top_k": 50,
        "min_p": 0.0,
        "repetition_penalty": 1.1,
        "logit_bias": {"5": -100},
        "min_tokens": 2,
        "seed": 3,
        "max_output_tokens": 9,
    }
    found = columns(slug, sent, {**sent, "seed": 4})
    assert found == {
        "temperature": 1.0,
        "top_p": 0.9,
        "top_k": 50,
        "min_p": 0.0,
        "repetition_penalty": 1.1,
        "logit_bias": {"5": -100},
        "other_sampling": {"min_tokens": 2},
        "altered_sampling": "logit_bias, min_tokens, repetition_penalty, top_k, top_p",
    }
    assert {name: type(value) for name, value in found.items() if name in ("temperature", "top_k")} == {
        "temperature": float,
        "top_k": int,
    }


@pytest.mark.parametrize("slug", FORMS)
def test_calls_stored_without_these_fields_have_no_columns(slug):
    assert columns(slug, {}, {}) == {}


@pytest.mark.parametrize("slug", FORMS)
def test_values_that_differ_are_no_column_and_still_named(slug):
    found = columns(slug, {"temperature": 1.0, "top_p": 0.9}, {"temperature": 1.0})
    assert found == {"temperature": 1.0, "altered_sampling": "top_p"}
    assert columns(slug, {"top_k": 5.5}, {"top_k": 5.5}) == {
        "other_sampling": {"top_k": 5.5},
        "altered_sampling": "top_k",
    }


def test_sampled_has_the_fields_of_each_call_and_a_grammar_is_named():
    events = sampled(with_tokens(paris(), *CAPTURED), {"temperature": 0.5, "top_p": 0.9}, {"seed": 1}, grammar=True)
    [row] = rows("scored_rollouts", events)
    assert [(one.get("temperature"), one.get("sampling")) for one in row["sampled"]] == [
        (0.5, {"top_p": 0.9}),
        (None, None),
    ]
    assert row["altered_sampling"] == "top_p, grammar"


@pytest.mark.parametrize("slug", [*FORMS, "nemo_gym_rollouts"])
def test_rollouts_with_altered_sampling_are_dropped_on_request_only(slug):
    events = with_tokens(paris(), *CAPTURED)
    altered, neutral = sampled(events, {}, {"top_p": 0.9}), sampled(events, {"top_p": 1}, {"top_k": -1})
    assert len(rows(slug, altered)) == 1
    with pytest.raises(Dropped, match="altered_sampling"):
        rows(slug, altered, {"altered_sampling": "drop"})
    assert len(rows(slug, neutral, {"altered_sampling": "drop"})) == 1


def test_only_calls_with_tokens_count():
    events = sampled(with_tokens(paris(), ([1], [4, 5]), None), {}, {"top_p": 0.9})
    assert len(rows("scored_rollouts", events, {"altered_sampling": "drop"})) == 1


def test_nemo_gym_rows_name_altered_sampling_and_the_engine():
    events = sampled(with_tokens(paris(), *CAPTURED), {"top_p": 0.9}, {})
    engine = {"engine": "vllm", "engine_version": "0.32.0", "dtype": "bfloat16"}
    [row] = rows("nemo_gym_rollouts", events, engine=engine)
    assert row["gymweb"]["altered_sampling"] == ["top_p"]
    assert {name: row["gymweb"][name] for name in engine} == engine


def truncate(top_p):
    """The distribution that is sampled: the smallest set of most likely tokens with this probability."""
    kept, total = {}, 0.0
    for token, probability in sorted(POLICY.items(), key=lambda one: -one[1]):
        if total < top_p:
            kept[token] = probability
            total += probability
    return {token: probability / total for token, probability in kept.items()}


@pytest.mark.parametrize(("top_p", "mean"), [(0.9, 0.9025), (1.0, 1.0)])
def test_the_mean_ratio_of_the_whole_to_the_truncated_policy_follows_from_a_row(top_p, mean):
    """Two uncertain tokens per rollout, of which top_p 0.9 keeps 0.95 each: the mean is 0.95² = 0.9025, exactly."""
    found = 0.0
    for ids in product(truncate(top_p), repeat=2):
        capture = capture_tokens([1], list(ids), [math.log(POLICY[token]) for token in ids])
        first = True
        events = []
        for event in paris():
            packed = pack_tokens(capture, before=b"") if isinstance(event, ModelCall) and first else None
            first = first and packed is None
            events.append(msgspec.structs.replace(event, tokens=packed) if isinstance(event, ModelCall) else event)
        sent = {"temperature": 1.0, "top_p": top_p}
        [row] = rows("scored_rollouts", sampled(events, sent, sent), logprob_mode="raw_logprobs")
        distribution = truncate(row["top_p"])
        trained = [place for place, kept in enumerate(row["loss_mask"]) if kept]
        drawn = math.prod(distribution[row["input_ids"][place]] for place in trained)
        whole = math.exp(sum(row["logprobs"][place] for place in trained))
        found += drawn * (whole / drawn)
    assert found == pytest.approx(mean, abs=1e-6)
