import re

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
def test_known_and_unknown_sampling_fields_pass(sampling):
    assert find_sampling_problems(sampling) == []


@pytest.mark.parametrize(
    ("sampling", "problem"),
    [
        ({"temperature": "hot"}, r"temperature .* from 0 to 2, not 'hot'"),
        ({"temperature": 2.1}, r"temperature .* from 0 to 2, not 2\.1"),
        ({"temperature": float("nan")}, r"temperature .* from 0 to 2, not nan"),
        ({"temperature": True}, r"temperature .* from 0 to 2, not True"),
        ({"top_p": -0.1}, r"top_p .* from 0 to 1, not -0\.1"),
        ({"max_output_tokens": 0}, r"max_output_tokens .* at least 1, not 0"),
        ({"max_output_tokens": 1.5}, r"max_output_tokens .* at least 1, not 1\.5"),
        ([], r"a JSON object"),
    ],
)
def test_what_every_endpoint_refuses_is_named_with_its_key(sampling, problem):
    [found] = find_sampling_problems(sampling)
    assert re.search(problem, found)


def test_all_keys_are_looked_at_and_long_values_are_cut():
    temperature, top_p = find_sampling_problems({"temperature": "x" * 99, "top_p": 2})
    assert (temperature.startswith("temperature "), f"'{'x' * 39}…" in temperature) == (True, True)
    assert ("x" * 40 in temperature, top_p.startswith("top_p ")) == (False, True)


@pytest.mark.parametrize("key", ["messages", "model", "input", "tools", "n", "functions"])
def test_fields_of_the_request_are_not_sampling(key):
    [problem] = find_sampling_problems({key: []})
    assert f"{key} is set by the rollout" in problem


def test_defaults_that_rollouts_share_hold_no_seed():
    top_p, seed = find_default_problems({"seed": 3, "top_p": 2})
    assert (top_p.startswith("top_p "), seed.startswith("seed has no effect")) == (True, True)
    assert (find_default_problems({"seed": None}), find_default_problems([])) == ([], find_sampling_problems([]))
    assert find_sampling_problems({"seed": 3}) == []
