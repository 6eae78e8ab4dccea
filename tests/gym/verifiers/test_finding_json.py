import pytest

from apps.gym.verifiers.structured.json_finder import find_json


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("```text\na plan\n```\n```json\n[1]\n```", [1]),
        ("```json\n[1]\n```\nIts length is:\n```\n1\n```", [1]),
        ("```\n[1]\n```\n```\n[2]\n```", [2]),
        ("```json\r\n[1]\r\n```", [1]),
        ("- Here:\n  ~~~json\n  [1]\n  ~~~", [1]),
        ("````json\n[1]\n````", [1]),
        ("```json\nnone\n```\n```\n[1]\n```", [1]),
    ],
)
def test_the_last_block_that_says_json_comes_first(text, found):
    assert find_json(text) == found
