"""The twelve tasks: an oracle gets 1.0 and a silent agent 0.0, and the user's calls stay out of training data."""

import asyncio

import pytest

from apps.gym.environments.simulated_user.kit import KIT, twelve_tasks
from apps.gym.exporters.nemo_gym_rollouts import rollout_rows
from apps.gym.exporters.protocol import Attempt, Options
from apps.gym.exporters.trl import sft_rows
from apps.gym.loop.reverification import verify_again
from apps.gym.loop.trials.players import play_attempt, reward_of, stay_silent
from apps.gym.resources.inprocess import InProcessServer
from apps.gym.resources.own_verifier import UnverifiedServer, VerifiedServer
from apps.gym.rollout_files.rollout_rows import read_attempt
from apps.gym.traces.events import EnvironmentTurn, JudgeCall, conversation
from apps.gym.traces.items import dump_json, text_of
from apps.gym.wires.protocol import USER_ROLE

TWELVE = twelve_tasks()
SERVER = InProcessServer("simulated_user", name="library")


def play(row, player):
    return asyncio.run(play_attempt(SERVER, row, player))


def named(purpose):
    return next(row for row in TWELVE if row["description"]["purpose"] == purpose)


def test_there_are_twelve_different_tasks():
    assert len({row["description"]["purpose"] for row in TWELVE}) == 12


@pytest.mark.parametrize("row", TWELVE, ids=lambda row: row["description"]["purpose"])
def test_an_oracle_gets_one_and_a_silent_agent_nothing(row):
    events = play(row, KIT.solve)
    assert (reward_of(events), events[-1].stop_reason) == (1.0, "environment_done")
    assert reward_of(play(row, stay_silent)) == 0.0


def test_the_trace_has_the_calls_of_the_user_before_each_of_its_messages():
    events = play(named("return a book"), KIT.solve)
    asked = [event for event in events if isinstance(event, JudgeCall)]
    turns = [event for event in events if isinstance(event, EnvironmentTurn)]
    assert {(call.role, call.judge, call.model) for call in asked} == {("user", "scripted user", "scripted, no LLM")}
    assert all(turn.by_user for turn in turns)
    # A question, the call of return_book, its result, and the stop word, which ends the attempt without a message.
    assert (len(asked), len(turns)) == (4, 2)
    assert "return_book" in dump_json(asked[1].items)
    assert text_of(asked[-1].items[-1]) == "###STOP###"
    assert isinstance(events[events.index(turns[1]) - 1], JudgeCall)


def test_the_agent_reads_the_messages_of_the_user_and_nothing_of_its_scenario():
    events = play(named("return a book"), KIT.solve)
    read = dump_json(conversation(events))
    assert "My card number is" in read
    assert USER_ROLE not in read
    assert "return_book" not in read
    [demonstration] = sft_rows(Attempt(events=events, task=named("return a book"), reward=1.0), Options())
    roles = [one["role"] for one in demonstration["messages"]]
    assert roles.count("user") == 3
    assert roles.count("assistant") == sum(event.__class__.__name__ == "ModelCall" for event in events)
    assert USER_ROLE not in dump_json(demonstration)
    assert "return_book" not in dump_json(demonstration)


@pytest.mark.parametrize("replay", [False, True])
def test_a_reverification_reads_the_calls_of_the_user_from_the_trace(replay):
    row = named("return a book")
    events = play(row, KIT.solve)
    verdict = asyncio.run(
        verify_again(
            server=SERVER, row=row, events=events, stop_reason="environment_done", seed=1, seconds=60.0, replay=replay
        )
    )
    assert verdict.verification.reward == 1.0
    assert verdict.judge_calls == []
    without = [event for event in events if not isinstance(event, JudgeCall)]
    verdict = asyncio.run(
        verify_again(server=SERVER, row=row, events=without, stop_reason="environment_done", seed=1, seconds=60.0)
    )
    assert verdict.verification.reward == 0.0


@pytest.mark.parametrize(
    "server",
    [VerifiedServer(SERVER, verifier={"type": "contains", "wanted": ["anything else"]}), UnverifiedServer(SERVER)],
    ids=["own verifier", "unverified"],
)
def test_the_calls_of_the_user_are_in_the_trace_whatever_scores_it(server):
    row = named("return a book")
    events = asyncio.run(play_attempt(server, row, KIT.solve))
    assert sum(isinstance(event, JudgeCall) for event in events) == 4
    assert events[-1].stop_reason == "environment_done"


def test_an_exported_rollout_is_imported_with_the_calls_of_the_user():
    row = named("return a book")
    [exported] = rollout_rows(Attempt(events=play(row, KIT.solve), task=row, reward=1.0), Options())
    assert [call["name"] for call in exported["response"]["user_calls"]] == ["return_book"]
    imported = read_attempt(exported, task=row, environment="library", is_original=True)
    verdict = asyncio.run(
        verify_again(
            server=SERVER, row=row, events=imported.events, stop_reason="environment_done", seed=1, seconds=60.0
        )
    )
    assert verdict.verification.reward == 1.0
