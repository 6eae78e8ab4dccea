"""Courses of attempts: where two part, held against the traces themselves and against the exporters."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from apps.gym.exporters.protocol import Options, Preference
from apps.gym.exporters.training_conversations import pair_conversations
from apps.gym.pairs.pair_making import pair_group
from apps.gym.pairs.pair_rule import Attempt, Rule
from apps.gym.traces.courses import Divergence, course_of, find_divergence
from apps.gym.traces.events import EnvironmentTurn, ModelCall, Prompt, ToolResult, TraceUnion
from apps.gym.traces.items import message
from apps.gym.trainability import Dropped
from tests.gym.exporters.attempts import attempt
from tests.gym.traces import call, said, thought, trace, turn

Turn = tuple[str, str, str, str]
"""What was thought, said and called with, and what the environment answered."""

turns = st.lists(
    st.tuples(
        st.sampled_from(["", "hm"]),
        st.sampled_from(["", "ok"]),
        st.sampled_from(['{"n": 1}', '{"n":1}', '{"n": 1.0}', "no json"]),
        st.sampled_from(["sun", "sun", "rain"]),
    ),
    max_size=3,
)
endings = st.sampled_from(["4", "4", "5"])


def make(seed: int, drawn: list[Turn], ending: str) -> list[TraceUnion]:
    """Every call has an id of its own, as in every attempt."""
    events: list[TraceUnion] = []
    for number, (hidden, text, arguments, answer) in enumerate(drawn):
        name = f"call-{seed}-{number}"
        items = [*([thought(hidden)] if hidden else []), *([said(text)] if text else []), call(arguments, name)]
        events += [turn(*items), ToolResult(call_id=name, name="get_weather", output=answer)]
    return trace(*events, turn(said(ending)))


def plain(events: list[TraceUnion]) -> list[tuple[str, str]]:
    """Each action and each answer as text, without thoughts and ids: said anew, and as plainly as it can be."""
    found: list[tuple[str, str]] = []
    for event in events:
        if isinstance(event, ModelCall):
            texts = [part["text"] for item in event.items if item["type"] == "message" for part in item["content"]]
            calls = [item["arguments"] for item in event.items if item["type"] == "function_call"]
            found.append(("act", repr((texts, [normal(one) for one in calls]))))
        elif isinstance(event, ToolResult):
            found.append(("state", event.output))
    return found


def normal(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments))
    except ValueError:
        return arguments


@settings(max_examples=200)
@given(turns, endings, turns, endings)
def test_a_step_pair_never_shares_a_state_that_differs(one_turns, one_ending, other_turns, other_ending):
    events = {1: make(1, one_turns, one_ending), 2: make(2, other_turns, other_ending)}
    courses = {pk: course_of(each) for pk, each in events.items()}
    one, other = plain(events[1]), plain(events[2])
    shared = 0
    while shared < min(len(one), len(other)) and one[shared] == other[shared]:
        shared += 1
    attempts = [Attempt(id=1, reward=1.0), Attempt(id=2, reward=0.0)]
    made = pair_group(attempts, courses, Rule(level="step")).pairs
    both_act = shared < min(len(one), len(other)) and one[shared][0] == other[shared][0] == "act"
    assert bool(made) == both_act
    for pair in made:
        acts = [place for place, (kind, _) in enumerate(one) if kind == "act"]
        place = acts[pair.turn]
        # Everything up to there is the same, tool outputs too; the two turns themselves are not.
        assert one[:place] == other[:place]
        assert one[place] != other[place]


@settings(max_examples=200)
@given(turns, endings, turns, endings)
def test_pairs_of_the_level_step_are_what_the_exporters_make_of_them(one_turns, one_ending, other_turns, other_ending):
    chosen, rejected = make(1, one_turns, one_ending), make(2, other_turns, other_ending)
    divergence = find_divergence(course_of(chosen), course_of(rejected))
    preference = Preference(chosen=attempt(chosen), rejected=attempt(rejected), margin=1.0)
    options = Options(level="step", arguments="text", malformed="text")
    try:
        good, _ = pair_conversations(preference, options)
    except Dropped as why:
        assert divergence == why.reason
        return
    assert isinstance(divergence, Divergence)
    assert sum(one["role"] == "assistant" for one in good.prompt) == divergence.turn


def steps(events: list[TraceUnion]) -> list[tuple[bool, bytes]]:
    return [(step.acts, step.digest) for step in course_of(events).steps]


def test_ids_and_reasoning_do_not_count_as_actions():
    one = make(1, [("hm", "", '{"n": 1}', "sun")], "4")
    other = make(2, [("", "", '{"n":1}', "sun")], "4")
    assert steps(one) == steps(other)
    assert course_of(one).actions == course_of(other).actions
    assert course_of(one).completion != course_of(other).completion


def test_one_is_another_argument_than_one_point_zero():
    one, other = (course_of(make(1, [("", "", text, "sun")], "4")) for text in ('{"n": 1}', '{"n": 1.0}'))
    assert find_divergence(one, other) == Divergence(0, 0)


def test_an_answer_that_differs_first_leaves_no_parting_even_where_actions_differ_later():
    one, other = (course_of(make(1, [("", "", "{}", seen)], end)) for seen, end in (("sun", "4"), ("rain", "5")))
    assert find_divergence(one, other) == "states_differ"


def test_what_an_environment_says_by_itself_is_a_state():
    def asked(text: str) -> list[TraceUnion]:
        return trace(turn(said("Hello.")), EnvironmentTurn(items=[message("user", text)]), turn(said("4")))

    assert find_divergence(course_of(asked("Go on.")), course_of(asked("Go on."))) == "same_actions"
    assert find_divergence(course_of(asked("Go on.")), course_of(asked("Stop."))) == "states_differ"


def test_lengths_count_what_the_model_wrote_thoughts_and_arguments_too():
    events = make(1, [("hm", "ok", '{"n": 1}', "a long answer of the tool")], "4")
    assert [step.written for step in course_of(events).steps] == [len("hm" + "ok" + '{"n": 1}'), 0, 1]


def test_other_tools_are_another_prompt():
    one = make(1, [], "4")
    other: list[Any] = [event for event in one if not isinstance(event, Prompt)]
    assert course_of(one).prompt != course_of([other[0], Prompt(items=[message("user", "?")]), *other[1:]]).prompt
