"""Random ids do not make two attempts different; anything else does."""

import pytest

from apps.gym.traces.courses import completion_fingerprint, prompt_fingerprint, question_fingerprint
from apps.gym.traces.events import Prompt, SessionOpened
from apps.gym.traces.items import message
from tests.gym.traces import trace, turn, weather_trace


def test_call_ids_do_not_tell_attempts_apart():
    assert completion_fingerprint(weather_trace(call_id="x1")) == completion_fingerprint(weather_trace(call_id="y2"))


def test_another_answer_is_another_completion():
    assert completion_fingerprint(weather_trace("22")) != completion_fingerprint(weather_trace("23"))


def test_crossed_calls_are_another_completion():
    def crossed(first: str, second: str):
        calls = [{"type": "function_call", "call_id": one, "name": "f", "arguments": "{}"} for one in ("a", "b")]
        outputs = [{"type": "function_call_output", "call_id": one, "output": "o"} for one in (first, second)]
        return completion_fingerprint(trace(turn(*calls), turn(*outputs)))

    assert crossed("a", "b") != crossed("b", "a")


def test_the_prompt_is_its_items_and_its_tools():
    events = weather_trace()
    assert prompt_fingerprint(events) == prompt_fingerprint(weather_trace("another answer"))
    other = [Prompt(items=[message("user", "Oslo?")]) if isinstance(e, Prompt) else e for e in events]
    bare = [SessionOpened(environment="weather") if isinstance(e, SessionOpened) else e for e in events]
    assert len({prompt_fingerprint(one) for one in (events, other, bare)}) == 3


def asks(given: object, **params: object) -> str:
    return question_fingerprint({"responses_create_params": {"input": given, **params}, "id": str(params)})


@pytest.mark.parametrize(
    "same",
    [
        asks([{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"text": "2 + 2?"}]}]),
        asks([{"role": "developer", "content": "Be brief."}, message("user", "2 + 2?")], temperature=0.5),
        asks("2 + 2?", instructions="Be brief.", tools=[{"name": "calculator"}]),
    ],
)
def test_a_question_is_the_same_however_it_is_written_down(same):
    assert same == asks([message("user", "2 + 2?")], instructions="Be brief.")


def test_a_question_that_a_template_asks_is_that_of_the_fields():
    one, other = ({"responses_create_params": {"input": ""}, "id": name, "question": "2 + 2?"} for name in "ab")
    assert question_fingerprint(one) == question_fingerprint(other)


def test_another_text_role_or_picture_is_another_question_and_so_is_another_row_that_shows_nothing():
    picture = {"type": "input_image", "image_url": "a.png"}
    marks = [
        asks("2 + 2?"),
        asks("2 + 3?"),
        asks([message("system", "2 + 2?")]),
        asks([{"role": "user", "content": [{"text": "2 + 2?"}, picture]}]),
        asks([{"role": "user", "content": [{"text": "2 + 2?"}, {**picture, "image_url": "b.png"}]}]),
        question_fingerprint({"responses_create_params": {"input": ""}, "question": "2 + 2?"}),
        question_fingerprint({"responses_create_params": {"input": ""}, "question": "2 + 3?"}),
    ]
    assert len(set(marks)) == len(marks)
