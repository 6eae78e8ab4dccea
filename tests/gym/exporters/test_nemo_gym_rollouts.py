"""Scored rollouts hold what was really asked, and verify again to the reward they carry."""

import asyncio

import pytest
from openai.types.responses import Response

from apps.gym.exporters.nemo_gym_rollouts import rollout_rows
from apps.gym.exporters.protocol import Attempt, Options
from apps.gym.resources.inprocess import InProcessServer
from apps.gym.traces.events import ModelCall, SessionOpened
from apps.gym.traces.items import message
from apps.gym.trainability import Dropped
from tests.gym.traces import WEATHER_TOOL, nulls, row, said, trace, turn, weather_trace, with_tokens

NOT_FOR_VERIFY = {"_gymweb_details", "reward", "reward_components", "agent_ref", "gymweb"}


def made(events, task=None, options=None, **fields):
    given = {"reward": 1, "stop_reason": "answered", "agent": "default", "task_index": 5, "repeat": 2}
    attempt = Attempt(events=events, task=task or row(), columns={"rollout_id": 9}, **{**given, **fields})
    [found] = rollout_rows(attempt, options or Options())
    return found


def test_a_row_has_task_request_response_and_reward():
    events = weather_trace()
    found = made(events, row(category="weather"), components={"correct": 1, "format": 0.5})
    response = found.pop("response")
    assert found == {
        "expected_answer": "22",
        "category": "weather",
        "responses_create_params": {
            "input": [{"type": "message", "role": "user", "content": "How warm is it in Paris?"}],
            "tools": [WEATHER_TOOL],
        },
        "reward": 1.0,
        "reward_components": {"correct": 1.0, "format": 0.5},
        "_ng_task_index": 5,
        "_ng_rollout_index": 2,
        "_ng_rollout_id": "5-2",
        "_gymweb_details": [],
        "agent_ref": {"type": "responses_api_agents", "name": "default"},
        "gymweb": {"rollout_id": 9, "stop_reason": "answered"},
    }
    assert response["object"] == "response"
    assert response["tools"] == [WEATHER_TOOL]
    assert Response.model_validate(response).output_text == "It is 22 °C."
    assert [item["type"] for item in response["output"]] == [
        "reasoning",
        "function_call",
        "function_call_output",
        "reasoning",
        "message",
    ]


def test_the_prompt_is_the_one_that_was_used_not_the_one_that_was_uploaded():
    prompt = [message("system", "Be brief."), message("user", "Hi")]
    task = {"responses_create_params": {"input": "Hi", "instructions": "Be brief.", "tool_choice": None}}
    params = made(trace(turn(said("22")), prompt=prompt), task)["responses_create_params"]
    assert params == {"input": prompt, "tools": [WEATHER_TOOL]}


def test_params_hold_the_sampling_that_was_used_and_no_key_that_is_refused():
    call = ModelCall(seen=1, items=[said("22")], sampling={"temperature": 0.7, "seed": 3, "top_p": None, "top_k": 5})
    events = [SessionOpened(environment="e"), *trace(call)[1:]]
    params = made(events, {"responses_create_params": {"input": "Hi", "temperature": 1.0}})["responses_create_params"]
    assert {key: value for key, value in params.items() if key != "input"} == {"temperature": 0.7}
    assert nulls(params) == []


def test_without_components_there_is_no_key_for_them():
    assert "reward_components" not in made(weather_trace())


def test_an_attempt_without_a_reply_is_no_rollout():
    with pytest.raises(Dropped) as why:
        made(trace())
    assert why.value.reason == "no_assistant_turn"


@pytest.mark.parametrize(("answer", "reward"), [(r"It is \boxed{22}.", 1.0), (r"It is \boxed{30}.", 0.0)])
def test_a_row_verifies_again_to_its_reward(answer, reward):
    found = made(trace(turn(said(answer))), reward=reward)

    async def verify_again():
        task = {key: value for key, value in found.items() if key not in NOT_FOR_VERIFY and key[:4] != "_ng_"}
        response = task.pop("response")
        session = await InProcessServer("exact_match", name="exact_match").seed_session(task, seed=0)
        return await session.verify(response)

    assert asyncio.run(verify_again()).value == found["reward"]


def token_fields(item):
    names = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
    return tuple(item[name] for name in names if name in item)


def test_the_last_item_of_each_call_has_its_tokens_and_the_row_says_that_they_are_one_sequence():
    found = made(with_tokens(weather_trace(), ([1, 2], [3]), ([1, 2, 3, 4], [5, 6])))
    assert [(item["type"], token_fields(item)) for item in found["response"]["output"]] == [
        ("reasoning", ()),
        ("function_call", ([1, 2], [3], [-0.5])),
        ("function_call_output", ()),
        ("reasoning", ()),
        ("message", ([1, 2, 3, 4], [5, 6], [-0.5, -0.5])),
    ]
    assert found["gymweb"]["tokens"] == {"calls": 2, "captured": 2, "segments": 1, "breaks": []}


def test_a_row_whose_reply_came_back_in_other_tokens_says_so():
    found = made(with_tokens(weather_trace(), ([1, 2], [3]), ([1, 2, 9, 4], [5, 6])))
    assert found["gymweb"]["tokens"] == {
        "calls": 2,
        "captured": 2,
        "segments": 2,
        "breaks": [{"after_call": 1, "agreed": 2, "within": "reply"}],
    }


@pytest.mark.parametrize(
    ("grammar_calls", "first", "figures"),
    [
        ("mask", (), {"calls": 2, "captured": 1, "segments": 1, "breaks": []}),
        (
            "keep",
            ([1, 2], [3], [-0.5]),
            {"calls": 2, "captured": 2, "segments": 2, "breaks": [{"after_call": 1, "agreed": 2, "within": "reply"}]},
        ),
    ],
)
def test_calls_with_a_grammar_have_token_fields_only_if_kept(grammar_calls, first, figures):
    events = with_tokens(weather_trace(), ([1, 2], [3]), ([1, 2, 9, 4], [5, 6]))
    next(event for event in events if isinstance(event, ModelCall)).grammar = True
    found = made(events, options=Options(grammar_calls=grammar_calls))
    assert [token_fields(found["response"]["output"][place]) for place in (1, 4)] == [
        first,
        ([1, 2, 9, 4], [5, 6], [-0.5, -0.5]),
    ]
    assert found["gymweb"]["tokens"] == figures


def test_a_call_without_captured_tokens_has_none_of_the_three_fields():
    found = made(with_tokens(weather_trace(), None, ([1, 2, 3, 4], [5, 6])))
    assert [token_fields(item) for item in found["response"]["output"]][:4] == [()] * 4
    assert found["gymweb"]["tokens"] == {"calls": 2, "captured": 1, "segments": 1, "breaks": []}
