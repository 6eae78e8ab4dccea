import pytest

from apps.gym.wires.sampling_values import find_default_problems, find_sampling_problems


@pytest.mark.parametrize(
    "sampling",
    [
        {},
        {"temperature": 0, "top_p": 1, "max_output_tokens": 1},
        {"temperature": 2.0, "top_p": 0.5, "max_output_tokens": 100_000},
        {"temperature": None, "top_p": None, "max_output_tokens": None},
        {"top_k": "whatever the endpoint thinks of it", "tool_choice": "auto"},
    ],
)
def test_what_endpoints_take_and_what_is_theirs_to_judge_passes(sampling):
    assert find_sampling_problems(sampling) == []


@pytest.mark.parametrize(
    ("sampling", "problem"),
    [
        ({"temperature": "hot"}, "temperature must be a number from 0 to 2, not 'hot'."),
        ({"temperature": 2.1}, "temperature must be a number from 0 to 2, not 2.1."),
        ({"temperature": float("nan")}, "temperature must be a number from 0 to 2, not nan."),
        ({"temperature": True}, "temperature must be a number from 0 to 2, not True."),
        ({"top_p": -0.1}, "top_p must be a number from 0 to 1, not -0.1."),
        ({"max_output_tokens": 0}, "max_output_tokens must be a whole number of at least 1, not 0."),
        ({"max_output_tokens": 1.5}, "max_output_tokens must be a whole number of at least 1, not 1.5."),
        ([], 'Give a JSON object, such as {"temperature": 1.0}.'),
    ],
)
def test_what_every_endpoint_refuses_is_named_with_its_key(sampling, problem):
    assert find_sampling_problems(sampling) == [problem]


def test_all_keys_are_looked_at_and_long_values_are_cut():
    problems = find_sampling_problems({"temperature": "x" * 99, "top_p": 2})
    assert problems == [
        f"temperature must be a number from 0 to 2, not '{'x' * 39}….",
        "top_p must be a number from 0 to 1, not 2.",
    ]


@pytest.mark.parametrize("key", ["messages", "model", "input", "tools", "n", "functions"])
def test_what_a_rollout_sends_itself_is_no_sampling(key):
    assert find_sampling_problems({key: []}) == [f"{key} is set by the rollout and is not a sampling option."]


def test_defaults_that_rollouts_share_hold_no_seed():
    told = "seed has no effect here: each rollout gets its own seed from the collection."
    assert find_default_problems({"seed": 3, "top_p": 2}) == ["top_p must be a number from 0 to 1, not 2.", told]
    assert (find_default_problems({"seed": None}), find_default_problems([])) == ([], find_sampling_problems([]))
    assert find_sampling_problems({"seed": 3}) == []
