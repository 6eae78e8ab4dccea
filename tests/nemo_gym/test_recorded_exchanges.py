"""GymWeb sends NeMo Gym's servers what it sent when they were recorded, and gets the same rewards."""

import asyncio
import json

import pytest

from tests.nemo_gym.exchanges import PLAYS, RECORDINGS, replay

REWARDS = {
    "example_single_tool_call": [1.0],
    "example_tool_call_multireward": [2.0, 0.0],
}
"""By play, for servers whose right and wrong answers get other rewards than 1 and 0."""


@pytest.mark.parametrize("name", PLAYS)
def test_a_recorded_server_gets_the_same_requests_and_gives_the_same_rewards(name: str) -> None:
    recording = json.loads((RECORDINGS / f"{name}.json").read_text())
    rewards, left = asyncio.run(replay(recording))
    assert rewards == recording["rewards"]
    assert [set(each) for each in rewards] == [{one} for one in REWARDS.get(name, [1.0, 0.0])]
    assert left == []
