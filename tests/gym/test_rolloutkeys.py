"""A rollout row is parted into what is its task's and what its verifier said, by names that it gives or public ones."""

import pytest

from apps.gym.tasks.rollout_keys import own_task, verifier_details, with_details

PARAMS = {"input": "2 + 2?"}
TASK = {"responses_create_params": PARAMS, "expected_answer": "4", "value": 7}
DONE = {"response": {"output": []}, "reward": 1.0, "agent_ref": {"name": "theirs"}, "_ng_task_index": 3}


def test_a_row_that_names_nothing_is_parted_by_the_names_that_public_servers_use():
    row = {**TASK, **DONE, "extracted_answer": "4", "why": "equal"}
    assert own_task(row) == {"responses_create_params": PARAMS, "expected_answer": "4", "why": "equal"}
    assert verifier_details(row, {**TASK, "value": 8}) == {"extracted_answer": "4", "why": "equal", "value": 7}


@pytest.mark.parametrize(
    "details",
    [{}, {"why": "equal"}, {"expected_answer": "4"}, {"expected_answer": "four", "value": None}, {"new": [1]}],
)
def test_joined_keys_are_split_again(details):
    row, ours = with_details(TASK, {**details, "reward": 2, "_ng_x": 1, "responses_create_params": {}})
    row = {**row, **DONE, "gymweb": ours}
    assert {key: row[key] for key in details} == details
    assert (own_task(row), verifier_details(row, TASK)) == (TASK, details)


def test_a_server_that_repeats_the_expected_answer_takes_it_from_no_task():
    row = {**TASK, **DONE, "why": "equal", "_gymweb_details": ["expected_answer", "why"]}
    assert own_task(row) == TASK


def test_request_and_attempt_fields_are_not_verifier_fields():
    named = ["responses_create_params", "response", "reward", "_ng_task_index", 3, None]
    row = {**TASK, **DONE, "_gymweb_details": named, "gymweb": {"task": {"responses_create_params": {}}}}
    assert (own_task(row), verifier_details(row, TASK)) == (TASK, {})
