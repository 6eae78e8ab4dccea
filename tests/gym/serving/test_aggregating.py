import pytest

from apps.gym.serving.aggregating import aggregate_metrics
from apps.gym.serving.served_request import Refused

USAGE = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
ROWS = [
    {"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1.0, "response": {"usage": USAGE}},
    {"_ng_task_index": 0, "_ng_rollout_index": 1, "reward": 0.0},
    {"_ng_task_index": 1, "_ng_rollout_index": 0, "reward": 1.0},
    {"_ng_task_index": 1, "_ng_rollout_index": 1, "reward": 1.0},
]
TOKENS = {
    f"{figure}/{name}": float(value) for figure in ("mean", "max", "min", "median") for name, value in USAGE.items()
}


def test_the_literal_reply_of_the_protocol():
    reply = aggregate_metrics({"verify_responses": ROWS})
    first, second = reply["group_level_metrics"]
    whole = {
        "num_rollouts": 2,
        "expected_num_rollouts": 2,
        "missing_num_rollouts": 0,
        "reward_profile_completion_pct": 100.0,
        "sample": {"agent_ref": {"name": "agent"}},
    }
    rewards = {"mean/reward": 0.5, "max/reward": 1.0, "min/reward": 0.0, "median/reward": 0.5}
    assert first.pop("std/reward") == pytest.approx(0.7071067811865476)
    assert first == {
        "_ng_task_index": 0,
        **rewards,
        **TOKENS,
        **whole,
        "rollout_infos": [
            {"rollout_id": "0:0", "_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1.0, **USAGE},
            {"rollout_id": "0:1", "_ng_task_index": 0, "_ng_rollout_index": 1, "reward": 0.0},
        ],
    }
    assert (second["mean/reward"], second["std/reward"]) == (1.0, 0.0)
    overall = {"mean/reward": 0.75, "max/reward": 1.0, "min/reward": 0.0, "median/reward": 1.0, "std/reward": 0.5}
    assert reply["agent_metrics"] == {**overall, **TOKENS}
    means = {"mean/reward": 0.75, "mean/input_tokens": 10.0, "mean/output_tokens": 5.0, "mean/total_tokens": 15.0}
    assert reply["key_metrics"] == means


def test_one_rollout_has_no_deviation_but_zero():
    assert aggregate_metrics({"verify_responses": ROWS[:1]})["agent_metrics"]["std/reward"] == 0.0


def test_truths_count_as_one_and_zero_and_texts_not_at_all():
    rows = [{"reward": 1.0, "accuracy": True, "name": "x"}, {"reward": 0.0, "accuracy": False}]
    metrics = aggregate_metrics({"verify_responses": rows})["agent_metrics"]
    assert (metrics["mean/accuracy"], "mean/name" in metrics) == (0.5, False)


def test_a_group_expects_the_rollouts_that_were_sent():
    groups = aggregate_metrics({"verify_responses": ROWS[:3]})["group_level_metrics"]
    assert [(group["num_rollouts"], group["expected_num_rollouts"]) for group in groups] == [(2, 2), (1, 1)]
    assert {group["missing_num_rollouts"] for group in groups} == {0}


def test_no_rows_are_no_metrics():
    assert aggregate_metrics({"verify_responses": []}) == {
        "group_level_metrics": [],
        "agent_metrics": {},
        "key_metrics": {},
    }


def test_two_rows_of_one_rollout_are_refused():
    with pytest.raises(ValueError, match="two rows of task 0"):
        aggregate_metrics({"verify_responses": [ROWS[0], ROWS[0]]})


@pytest.mark.parametrize("body", [{}, {"verify_responses": 3}, {"verify_responses": [3]}])
def test_a_body_without_rows_is_refused(body):
    with pytest.raises(Refused):
        aggregate_metrics(body)


def test_a_number_too_large_to_be_squared_is_left_out():
    rows = [{"reward": reward, "score": 1} for reward in (1e308, 10**400, 1.0, 3.0)]
    overall = aggregate_metrics({"verify_responses": rows})["agent_metrics"]
    assert overall["mean/reward"] == 2.0
    assert overall["std/reward"] == pytest.approx(2**0.5)
    assert overall["mean/score"] == 1.0
