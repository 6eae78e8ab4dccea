"""NeMo Gym's own servers, unmodified: what the servers of the other tests imitate, they must do too."""

import asyncio
import json

import pytest

from apps.gym.resources.gymnasium import GymnasiumServer
from apps.gym.resources.nemo_gym_http import HttpResourceServer
from apps.gym.resources.server_calls import Caller
from tests.nemo_gym import solving
from tests.nemo_gym.attempts import attempt, loopback
from tests.nemo_gym.real.installed import PACKAGES, needs_nemo_gym, running

pytestmark = needs_nemo_gym


def ground_truth(row, said, prompt):
    """The calls that the row calls right, one a turn."""
    done = sum(item.get("type") == "function_call_output" for item in said)
    truth = row["ground_truth"]
    if done == len(truth):
        return [solving.says("Done.")]
    return [{"type": "function_call", "call_id": f"call_{done}", **truth[done]}]


def ask_weather(row, said, prompt):
    done = solving.outputs(said)
    city = row["verifier_metadata"]["expected_city"]
    return [solving.says(done[0]["weather"])] if done else [solving.call("mcp__lab__get_weather", {"city": city})]


KINDS = [
    ("example_single_tool_call", [(solving.weather, {1.0})]),
    ("example_session_state_mgmt", [(solving.count, {1.0}), (solving.count_wrong, {0.0})]),
    ("example_multi_step", [(solving.synonyms, {1.0}), (solving.synonyms_wrong, {0.0})]),
    ("example_tool_call_multireward", [(solving.one_call, {2.0}), (solving.one_call_wrong, {0.0})]),
    ("mcqa", [(solving.letter, {1.0}), (solving.letter_wrong, {0.0})]),
    ("string_match", [(solving.string, {1.0}), (solving.nothing, {0.0})]),
    ("xlam_fc", [(solving.calls, {1.0}), (solving.calls_wrong, {0.0})]),
    ("calendar", [(solving.calendar, {1.0}), (solving.calendar_wrong, {0.0})]),
    ("example_multi_turn_gymnasium", [(solving.follow_ups, {1.0}), (solving.nothing, {0.0})]),
    ("blackjack", [(solving.stands, {-1.0, 0.0, 1.0})]),
    ("workplace_assistant", [(ground_truth, {1.0}), (solving.first_tool, {0.0})]),
    ("example_mcp_weather", [(ask_weather, {1.0})]),
]


def rows_of(name):
    lines = (PACKAGES / "resources_servers" / name / "data" / "example.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines if line.strip()]


@pytest.mark.parametrize(("name", "plays"), KINDS, ids=[name for name, _ in KINDS])
def test_it_is_driven_and_gives_the_rewards_of_its_rule(name, plays):
    async def drive(url):
        outbound = loopback()
        caller = Caller(outbound, name=name, base_url=url, call_timeout=120.0, max_tries=2)
        if name in ("blackjack", "example_multi_turn_gymnasium"):
            server = GymnasiumServer(caller)
        else:
            server = HttpResourceServer(caller, verify_timeout=120.0)
        try:
            probe = await server.probe()
            assert probe.healthy, probe.message
            found = []
            for moves, _ in plays:
                traces = await asyncio.gather(*(attempt(server, row, moves) for row in rows_of(name)))
                found.append({trace[-1].reward for trace in traces})
            return found
        finally:
            await outbound.close()

    with running(name) as url:
        found = asyncio.run(drive(url))
    for rewards, (_, expected) in zip(found, plays, strict=True):
        assert rewards <= expected
