"""Demonstrations have the columns that TRL reads, in the types that Arrow keeps."""

import pytest

from apps.gym.exporters.protocol import Attempt, Options
from apps.gym.exporters.trl import sft_rows
from apps.gym.traces.events import EnvironmentTurn
from apps.gym.traces.items import dump_json, message
from apps.gym.trainability import Dropped
from tests.gym.exporters.stored import SAMPLES, STORED, read_lines, trace_of
from tests.gym.traces import call, nulls, row, said, trace, turn, weather_trace

COLUMNS = {"rollout_id": 7, "task_id": 3}


def demonstration_row(events, task, *, reward, columns):
    [made] = sft_rows(Attempt(events=events, task=task, reward=reward, columns=columns), Options())
    return made


def test_a_demonstration_is_the_whole_conversation_with_its_tools():
    assert demonstration_row(weather_trace(), row(), reward=1, columns=COLUMNS) == {
        "messages": [
            {"role": "user", "content": "How warm is it in Paris?"},
            {
                "role": "assistant",
                "content": "",
                "reasoning_content": "I should look.",
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "get_weather", "arguments": {"city": "Paris"}},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": '{"temp": 22}', "name": "get_weather"},
            {"role": "assistant", "content": "It is 22 °C.", "reasoning_content": "The tool says 22."},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "get_weather",
                    "description": "Current weather",
                    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
                },
            }
        ],
        "reward": 1.0,
        "rollout_id": 7,
        "task_id": 3,
    }


def test_a_reward_of_one_is_written_as_a_float():
    assert '"reward":1.0' in dump_json(demonstration_row(weather_trace(), row(), reward=1, columns={}))


def test_nothing_is_null_even_where_the_task_row_is():
    assert nulls(demonstration_row(weather_trace(), row(), reward=0.5, columns=COLUMNS)) == []


def test_malformed_arguments_drop_the_row():
    with pytest.raises(Dropped) as why:
        demonstration_row(trace(turn(call("{oops")), turn(said("22"))), row(), reward=1.0, columns={})
    assert why.value.reason == "malformed_arguments"


def test_the_last_message_is_the_assistants():
    events = trace(turn(said("hit")), EnvironmentTurn(items=[message("user", "bust")]))
    assert demonstration_row(events, row(), reward=1.0, columns={})["messages"][-1]["role"] == "assistant"


@pytest.mark.skipif(not SAMPLES.exists(), reason="the shared samples are not here")
def test_the_sample_rollout_becomes_the_sample_that_trl_trained_on():
    (stored,) = read_lines(SAMPLES / "rollouts.nemo_gym.jsonl")[:1]
    (expected,) = read_lines(SAMPLES / "trl.sft.jsonl")[:1]
    made = demonstration_row(trace_of(stored), stored, reward=1.0, columns={})
    assert {key: made[key] for key in expected} == expected


@pytest.mark.skipif(not STORED, reason="the shared rollouts are not here")
@pytest.mark.parametrize("path", STORED, ids=lambda path: path.name.partition(".")[0])
def test_real_rollouts_become_demonstrations(path):
    for stored in read_lines(path):
        made = demonstration_row(trace_of(stored), stored, reward=stored["reward"], columns={})
        roles = [one["role"] for one in made["messages"]]
        assert roles[-1] == "assistant"
        assert set(roles) <= {"system", "user", "assistant", "tool"}
        assert all(isinstance(one["content"], str) for one in made["messages"])
        assert "system" not in roles[1:]
        assert [where for where in nulls(made) if "/arguments/" not in where and "/enum/" not in where] == []
