"""What every built-in environment's kit is held to: its tasks, its player who solves them, and its cases."""

import asyncio
import json
import statistics

import pytest

from apps.gym.environments.kits import KITS
from apps.gym.environments.registry import BUILTINS
from apps.gym.environments.task_generation import CASE_KINDS, DIFFICULTIES, TooFewTasks, generate_tasks
from apps.gym.loop.trials.case_runs import check_cases, list_cases
from apps.gym.loop.trials.players import KNOW_NOTHING, play_attempt, reward_of
from apps.gym.resources.gymnasium import GymnasiumServer
from apps.gym.resources.inprocess import InProcessServer
from apps.gym.resources.nemo_gym_http import HttpResourceServer
from apps.gym.resources.server_calls import Caller
from apps.gym.serving.served_environment import serve_environment
from apps.gym.tasks.task_rows import check_task
from apps.gym.traces.items import dump_json
from apps.gym.traces.responses import assemble_response
from tests.gym.sandbox.needing import environments
from tests.gym.serving.ports import on_a_port

COUNT = 500
PLAYED = 40
WITHOUT_KIT = {"judged"}
"""A judge model scores these attempts: whoever plays, the reward is the judge's."""
NAMES = environments(KITS)


def server(name):
    return InProcessServer(name, name=name)


def play(name, rows, player):
    async def play_all():
        return [
            reward_of(await play_attempt(server(name), row, player, seed=seed, max_steps=KITS[name].max_steps))
            for seed, row in enumerate(rows)
        ]

    return asyncio.run(play_all())


def test_every_built_in_environment_has_a_kit():
    assert sorted(set(BUILTINS) - set(KITS)) == sorted(WITHOUT_KIT)
    assert sorted(set(KITS) - set(BUILTINS)) == []


@pytest.mark.parametrize("name", NAMES)
def test_there_are_500_tasks_of_a_seed_which_are_always_the_same(name):
    rows = list(generate_tasks(KITS[name], count=COUNT, seed=7))
    assert list(generate_tasks(KITS[name], count=100, seed=7)) == rows[:100]
    assert list(generate_tasks(KITS[name], count=20, seed=8)) != rows[:20]
    assert {row["difficulty"] for row in rows} == set(DIFFICULTIES)
    assert sum(row["split"] == "validation" for row in rows) == COUNT // 5
    assert {row["split"] for row in rows} == {"train", "validation"}
    assert len({dump_json({**row, "difficulty": "", "split": ""}) for row in rows}) == COUNT
    for row in rows:
        assert check_task(dump_json(row), row).split == row["split"]
        assert json.loads(dump_json(row)) == row
        assert BUILTINS[name].needs <= row.keys()


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
@pytest.mark.parametrize("name", NAMES)
def test_who_solves_them_has_the_full_reward_in_every_difficulty(name, difficulty):
    rows = list(generate_tasks(KITS[name], count=PLAYED, seed=3, difficulty=difficulty))
    assert {row["difficulty"] for row in rows} == {difficulty}
    assert statistics.mean(play(name, rows, KITS[name].solve)) >= 0.99


@pytest.mark.parametrize("player", KNOW_NOTHING)
@pytest.mark.parametrize("name", NAMES)
def test_who_knows_nothing_has_no_reward_to_speak_of(name, player):
    rows = list(generate_tasks(KITS[name], count=PLAYED, seed=5))
    assert statistics.mean(play(name, rows, KNOW_NOTHING[player])) <= 0.1


@pytest.mark.parametrize("name", environments(name for name in KITS if KITS[name].guess))
def test_who_guesses_in_the_right_form_has_no_reward_to_speak_of_in_any_difficulty(name):
    for difficulty in DIFFICULTIES:
        rows = list(generate_tasks(KITS[name], count=2 * PLAYED, seed=5, difficulty=difficulty))
        assert statistics.mean(play(name, rows, KITS[name].guess)) <= 0.1


@pytest.mark.parametrize("name", NAMES)
def test_every_case_has_the_reward_that_it_should_have(name):
    results = asyncio.run(check_cases(server(name), KITS[name]))
    assert [(result.case.name, result.problem) for result in results if not result.passed] == []
    assert {result.case.kind for result in results} == set(CASE_KINDS)
    assert len({result.case.name for result in results}) == len(list_cases(KITS[name]))


@pytest.mark.parametrize("name", NAMES)
def test_verified_again_from_its_trace_alone_an_attempt_has_the_same_reward(name):
    rows = list(generate_tasks(KITS[name], count=6, seed=13))
    players = [KITS[name].solve, KITS[name].guess or KITS[name].solve, *KNOW_NOTHING.values()]

    async def verify_again():
        assert await server(name).reverify_mode() == "stateless"
        for seed, row in enumerate(rows):
            player = players[seed % len(players)]
            events = await play_attempt(server(name), row, player, seed=seed, max_steps=KITS[name].max_steps)
            made = assemble_response(events, row, stop_reason=events[-1].stop_reason)
            session = await server(name).seed_session(row, seed=seed)
            assert (await session.verify(made)).value == reward_of(events)
            await session.close()

    asyncio.run(verify_again())


def far(name, outbound, port):
    caller = Caller(outbound, name=name, base_url=f"http://127.0.0.1:{port}", call_timeout=120.0, max_tries=1)
    if server(name).takes_turns:
        return GymnasiumServer(caller)
    return HttpResourceServer(caller, verify_timeout=120.0)


@pytest.mark.parametrize("name", NAMES)
def test_over_http_rewards_are_the_same(name):
    rows = list(generate_tasks(KITS[name], count=9, seed=11))
    players = [KITS[name].solve, *KNOW_NOTHING.values()]
    steps = KITS[name].max_steps

    async def compare():
        served = await serve_environment(server(name), most_sessions=100, session_seconds=60.0)
        async with on_a_port(served) as (port, outbound):
            there = far(name, outbound, port)
            for number, row in enumerate(rows):
                # Who serves an environment seeds it by the row: the attempt here takes the same seed.
                seeded = {**row, "seed": number}
                player = players[number % len(players)]
                here = await play_attempt(server(name), seeded, player, seed=number, max_steps=steps)
                away = await play_attempt(there, seeded, player, seed=number, max_steps=steps)
                assert reward_of(away) == reward_of(here)
                assert isinstance(reward_of(here), float)

    asyncio.run(compare())


def test_too_few_different_tasks_raise():
    kit = KITS["calculator"]

    def always_the_same(dice, difficulty):
        return {"responses_create_params": {"input": "What is 1 + 1?"}, "expected_answer": 2}

    class Poor:
        make_task = staticmethod(always_the_same)
        identity_fields = kit.identity_fields
        identity = None

    with pytest.raises(TooFewTasks, match="no new prompt"):
        list(generate_tasks(Poor, count=2, difficulty="easy"))
