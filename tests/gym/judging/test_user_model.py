"""A model plays the user: its own tools, its stop words, and failures that are no rewards."""

import asyncio

import pytest

from apps.gym.errors import JudgeError, PolicyError
from apps.gym.judging.user_model import MAX_CALLS, UserModel
from apps.gym.traces.items import message
from apps.gym.wires.protocol import Reply
from tests.gym.judging.judges import Answers, make_judge, said

STOP_WORDS = ("###STOP###", "###TRANSFER###")
TOOLS = [{"type": "function", "name": "look"}]


def says(text):
    return Reply(items=said(text), finish_reason="stop")


def calls(arguments="{}"):
    call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": arguments}
    return Reply(items=[call], finish_reason="tool_calls")


def open_user(answers, used=None, **judge):
    judgement = make_judge(answers, **judge).open_judgement(seed=7)

    def use_tool(name, arguments):
        (used if used is not None else []).append((name, arguments))
        return "a lamp"

    user = UserModel(
        judgement,
        conversation=[message("system", "You play a user.")],
        tools=TOOLS,
        stop_words=STOP_WORDS,
        use_tool=use_tool,
    )
    return user, judgement


def test_the_user_reads_the_conversation_and_calls_its_tools_before_it_answers():
    answers, used = Answers(says("Hi."), calls('{"at": "shelf"}'), says("I see a lamp.")), []
    user, judgement = open_user(answers, used)
    assert asyncio.run(user.answer("Hello?")) == "Hi."
    assert asyncio.run(user.answer("What is there?")) == "I see a lamp."
    assert used == [("look", {"at": "shelf"})]
    assert user.calls == [{"turn": 1, "name": "look", "arguments": {"at": "shelf"}}]
    assert [ask.tools for ask in answers.asks] == [TOOLS] * 3
    assert [item.get("content") or item.get("output") for item in answers.asks[2].items if "name" not in item][-2:] == [
        "What is there?",
        "a lamp",
    ]
    # Each call stores only what is new.
    assert [len(call.prompt) for call in judgement.calls] == [2, 1, 1]
    assert {call.role for call in judgement.calls} == {"user"}


def test_invalid_arguments_reach_no_tool():
    used = []
    user, judgement = open_user(Answers(calls("{"), says("Well.")), used)
    assert asyncio.run(user.answer("Look.")) == "Well."
    assert (used, user.calls) == ([], [])
    assert "not a JSON object" in judgement.calls[1].prompt[0]["output"]


@pytest.mark.parametrize("word", STOP_WORDS)
def test_a_stop_word_ends_the_conversation(word):
    user, _ = open_user(Answers(says(f"Thank you. {word}")))
    assert asyncio.run(user.answer("Done.")) is None


def test_a_user_has_the_sampling_of_its_model_and_no_temperature_of_a_judge():
    answers = Answers(says("Hi."))
    user, _ = open_user(answers, sampling={"top_p": 0.9})
    asyncio.run(user.answer("Hello?"))
    assert answers.asks[0].sampling == {"top_p": 0.9, "seed": 7}


@pytest.mark.parametrize(
    ("answers", "told", "made"),
    [
        ([says(" ")], "neither a message nor a tool call", 1),
        ([calls()], f"more than {MAX_CALLS} tool calls", MAX_CALLS + 1),
        ([PolicyError("no connection")], "The user model judge failed: no connection", 1),
        ([Reply(items=[], finish_reason="context_length")], "The user model judge gave no answer", 1),
    ],
)
def test_a_user_without_a_message_is_an_error_and_its_calls_are_kept(answers, told, made):
    user, judgement = open_user(Answers(*answers))
    with pytest.raises(JudgeError, match=told):
        asyncio.run(user.answer("Hello?"))
    assert len(judgement.calls) == made
