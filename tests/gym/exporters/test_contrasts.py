"""Pairs of the level step: the same state, then the first action that differs."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.gym.exporters.protocol import Options
from apps.gym.exporters.training_conversations import Conversation, pair_conversations
from apps.gym.traces.events import EnvironmentTurn, ToolResult, TraceUnion
from apps.gym.traces.items import message
from apps.gym.traces.messages import completion_messages
from apps.gym.trainability import Dropped
from tests.gym.exporters.attempts import PROMPT, paris, preference
from tests.gym.traces import call, said, thought, trace, turn

STEP = Options(level="step")


def split(chosen: list[TraceUnion], rejected: list[TraceUnion], options: Options = STEP) -> tuple[Any, Any]:
    return pair_conversations(preference(chosen, rejected), options)


def test_the_first_action_that_differs_is_the_pair_whatever_the_calls_were_called():
    chosen, rejected = split(paris(), paris("It is 30 °C.", call_id="call_99"))
    assert chosen.prompt == rejected.prompt
    assert [one["role"] for one in chosen.prompt] == ["system", "user", "assistant", "tool"]
    assert [one["content"] for one in (*chosen.completion, *rejected.completion)] == [
        "It is 22 °C and sunny in Paris.",
        "It is 30 °C.",
    ]


def test_reasoning_is_no_action_and_stays_in_the_shared_way_only_where_both_thought_it():
    same, _ = split(paris(), paris("30", ("I should look up the weather.", "Hm.")))
    assert same.prompt[2]["reasoning_content"] == "I should look up the weather."
    other, _ = split(paris(), paris("30", ("Whatever.", "Hm.")))
    assert "reasoning_content" not in other.prompt[2]
    with pytest.raises(Dropped, match="same_actions"):
        split(paris(), paris(thoughts=("Whatever.", "Hm.")))


def test_another_answer_of_the_environment_is_another_state():
    with pytest.raises(Dropped, match="states_differ"):
        split(paris(), paris("30", seen='{"temp": 30}'))


def test_one_is_another_argument_than_one_point_zero():
    chosen, rejected = split(paris(arguments='{"top_k": 1}'), paris(arguments='{"top_k": 1.0}'))
    assert [one["role"] for one in chosen.prompt] == ["system", "user"]
    sides = [one.completion[0]["tool_calls"][0]["function"]["arguments"] for one in (chosen, rejected)]
    assert [json.dumps(side) for side in sides] == ['{"top_k": 1}', '{"top_k": 1.0}']


def test_attempts_that_did_the_same_under_other_ids_are_identical_as_trajectories_too():
    with pytest.raises(Dropped, match="identical_completions"):
        split(paris(), paris(call_id="call_99"), Options())


def brute_force(good: list[dict[str, Any]], bad: list[dict[str, Any]]) -> int | str:
    """The number of shared messages, found by comparing all prefixes; or why there is no pair."""

    def plain(messages: list[dict[str, Any]]) -> str:
        text = json.dumps([{k: v for k, v in one.items() if k != "reasoning_content"} for one in messages])
        ids = [call["id"] for one in messages for call in one.get("tool_calls", ())]
        for number, one in enumerate(ids):
            text = text.replace(f'"{one}"', f'"#{number}"')
        return text

    shared = max(n for n in range(min(len(good), len(bad)) + 1) if plain(good[:n]) == plain(bad[:n]))
    if shared == min(len(good), len(bad)):
        return "same_actions"
    sides = {good[shared]["role"], bad[shared]["role"]}
    return shared if sides == {"assistant"} else "states_differ"


@st.composite
def short_attempts(draw: st.DrawFn) -> list[TraceUnion]:
    """From few words, so that two of them often go the same way for a while."""
    few = st.sampled_from(["a", "b"])
    events: list[TraceUnion] = []
    for number in range(draw(st.integers(0, 3))):
        thoughts = [thought(draw(few))] if draw(st.booleans()) else []
        call_id = f"id{draw(st.integers(0, 999_999))}_{number}"
        if draw(st.integers(0, 2)):
            events.append(turn(*thoughts, call(json.dumps({"q": draw(few)}), call_id)))
            events.append(ToolResult(call_id=call_id, name="get_weather", output=draw(few)))
        else:
            events += [turn(*thoughts, said(draw(few))), EnvironmentTurn(items=[message("user", draw(few))])]
    return trace(*events, turn(said(draw(few))), prompt=PROMPT)


@settings(max_examples=500)
@given(short_attempts(), short_attempts())
def test_the_split_is_that_of_brute_force_and_never_shares_a_state_that_differs(good, bad):
    expected = brute_force(completion_messages(good), completion_messages(bad))
    try:
        chosen, rejected = split(good, bad)
    except Dropped as why:
        assert why.reason == expected
        return
    assert len(chosen.prompt) == len(PROMPT) + int(expected)
    assert isinstance(chosen, Conversation)
    assert chosen.prompt == rejected.prompt
    assert (len(chosen.completion), len(rejected.completion)) == (1, 1)
