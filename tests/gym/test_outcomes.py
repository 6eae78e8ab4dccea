"""The vocabulary of outcomes, and the words of other programs in it."""

from typing import get_args

import pytest

from apps.gym.outcomes import (
    ENDED_BY_ITSELF,
    ERROR_KINDS,
    MASKED,
    NEMO_GYM_FAILURES,
    NEMO_GYM_STAGES,
    OUTCOMES,
    STOP_REASONS,
    VERIFIERS_STOPS,
    Stage,
    find_outcome,
    mask_fields,
    read_mask,
    read_nemo_gym_failure,
)


def test_every_stop_reason_and_error_kind_is_an_outcome_and_nothing_else_but_masked():
    assert list(OUTCOMES) == [*STOP_REASONS, *ERROR_KINDS, MASKED]
    assert {one.stage for one in OUTCOMES.values()} <= set(get_args(Stage))


def test_only_completed_rollouts_count_and_only_those_that_ended_by_themselves_train():
    assert {name for name, one in OUTCOMES.items() if one.counts} == set(STOP_REASONS)
    assert {name for name, one in OUTCOMES.items() if one.trains} == {"answered", "environment_done"} == ENDED_BY_ITSELF
    assert not any(OUTCOMES[name].counts or OUTCOMES[name].trains for name in (*ERROR_KINDS, MASKED))


@pytest.mark.parametrize(
    ("columns", "name"),
    [
        ({"status": "completed", "stop_reason": "max_steps"}, "max_steps"),
        ({"status": "completed", "stop_reason": "answered", "masked": "provider_oom_killed"}, "masked"),
        ({"status": "failed", "error_kind": "judge_error"}, "judge_error"),
        ({"status": "cancelled"}, "cancelled"),
        ({"status": "running"}, None),
        ({"status": "queued"}, None),
    ],
)
def test_a_rollout_has_one_outcome_once_it_has_ended(columns, name):
    found = find_outcome(**columns)
    assert (found.name if found else None) == name


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        ({"reward": 0.0, "mask_sample": True, "failure_kind": "provider_oom_killed"}, "provider_oom_killed"),
        ({"reward": 0.0, "mask_sample": True}, "masked"),
        ({"reward": 0.0, "mask_sample": True, "failure_kind": None}, "masked"),
        ({"reward": 1.0, "mask_sample": 1}, "masked"),
        ({"mask_sample": True, "failure_kind": "a\0" + "b" * 100}, "a" + "b" * 63),
        ({"mask_sample": True, "failure_kind": "\n"}, "masked"),
        # Only `mask_sample` masks: a degraded sample may still be measured validly.
        ({"reward": 0.0, "mask_sample": False, "failure_kind": "session_lost"}, ""),
        ({"reward": 0.0, "failure_kind": "session_lost"}, ""),
        ({"reward": 0.0}, ""),
        ({"reward": 1.0, "mask_sample": "false"}, ""),
        ({"reward": 0.0, "mask_sample": "True"}, "masked"),
        ({"instance_config": {"mask_sample": True}, "failure_kind": "agent_timeout"}, "agent_timeout"),
        ({"instance_config": {"mask_sample": False}}, ""),
        ({"instance_config": "mask_sample"}, ""),
    ],
)
def test_a_verdict_masks_its_attempt(verdict, reason):
    assert read_mask(verdict) == reason
    assert read_mask(mask_fields(verdict)) == reason


def test_failures_of_nemo_gym_have_the_error_kind_of_their_stage_or_their_name():
    assert read_nemo_gym_failure("provider_oom_killed") == "environment_error"
    assert read_nemo_gym_failure("lab:out_of_paper", "verification") == "verifier_error"
    assert read_nemo_gym_failure("lab:judge_asleep") == "judge_error"
    assert read_nemo_gym_failure("lab:out_of_paper") == "environment_error"
    assert read_nemo_gym_failure("environment_server_failed", "agent") == "agent_error"
    assert read_nemo_gym_failure("environment_server_failed") == "environment_error"


def test_words_of_other_programs_lead_to_known_outcomes():
    for words in (NEMO_GYM_FAILURES, NEMO_GYM_STAGES, VERIFIERS_STOPS):
        assert set(words.values()) <= set(OUTCOMES)
