from hypothesis import example, given
from hypothesis import strategies as st

from apps.gym.traces.alignment import Step, align, count_common, is_common, steps_of
from apps.gym.traces.events import (
    EnvironmentTurn,
    ErrorRaised,
    JudgeCall,
    ModelCall,
    Prompt,
    SessionOpened,
    ToolResult,
    Verification,
)
from apps.gym.traces.items import message

STEPS = st.builds(
    Step,
    kind=st.sampled_from(["call", "reply", "result"]),
    name=st.sampled_from(["", "search", "run"]),
    text=st.sampled_from(["a", "b", "c"]),
)
ATTEMPTS = st.lists(st.lists(STEPS, max_size=12), min_size=1, max_size=5)


def call(text: str, name: str = "run") -> Step:
    return Step("call", name, text)


def said(text: str) -> Step:
    return Step("reply", "assistant", text)


@given(ATTEMPTS)
def test_read_down_each_column_is_its_attempt(attempts):
    rows = align(attempts)
    for column, attempt in enumerate(attempts):
        assert [row[column] for row in rows if row[column] is not None] == attempt


@given(ATTEMPTS)
def test_a_row_holds_steps_of_one_kind_and_is_never_empty(attempts):
    for row in align(attempts):
        kinds = {(step.kind, step.name) for step in row if step is not None}
        assert len(kinds) == 1


@given(st.lists(STEPS, max_size=12), st.integers(1, 5))
def test_attempts_that_are_the_same_have_all_in_common(attempt, times):
    rows = align([attempt] * times)
    assert count_common(rows) == len(rows) == len(attempt)


@given(st.lists(STEPS, max_size=6), ATTEMPTS)
def test_what_all_begin_with_is_common(beginning, attempts):
    rows = align([[*beginning, *attempt] for attempt in attempts])
    assert all(is_common(row) for row in rows[: len(beginning)])


@example([call("a"), call("b"), call("b")], [call("c"), call("c"), call("a")])
@given(st.lists(STEPS, max_size=10), st.lists(STEPS, max_size=10))
def test_two_are_aligned_as_well_one_way_as_the_other(one, other):
    def same(rows):
        return sum(is_common(row) for row in rows)

    assert same(align([one, other])) == same(align([other, one]))


def test_a_step_of_one_side_has_its_own_row():
    assert align([[call("a"), said("x")], [call("a"), call("b"), said("x")]]) == [
        (call("a"), call("a")),
        (None, call("b")),
        (said("x"), said("x")),
    ]


def test_differing_steps_of_one_kind_share_a_row():
    rows = align([[call("a"), said("x")], [call("b"), said("y")]])
    assert rows == [(call("a"), call("b")), (said("x"), said("y"))]
    assert count_common(rows) == 0


def test_calls_of_different_tools_are_not_aligned():
    assert align([[call("a", "run")], [call("a", "search")]]) == [
        (call("a", "run"), None),
        (None, call("a", "search")),
    ]


def test_steps_added_by_several_sides_share_a_row():
    rows = align([[said("x")], [call("a"), said("x")], [call("b"), said("x")]])
    assert rows == [(None, call("a"), call("b")), (said("x"), said("x"), said("x"))]


def test_of_equal_worth_is_what_says_the_same():
    rows = align([[call("a"), call("b")], [call("b")]])
    assert rows == [(call("a"), None), (call("b"), call("b"))]


def test_a_failed_result_is_not_the_same_as_one_that_went_well():
    assert not is_common((Step("result", "run", "x", 1, "timeout"), Step("result", "run", "x", 1)))


def test_steps_come_from_every_kind_of_event():
    spoken = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hm."}]}
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "So."}]}
    called = {"type": "function_call", "name": "run", "call_id": "c", "arguments": '{"b": 1, "a": [2]}'}
    events = [
        SessionOpened(environment="e"),
        Prompt(items=[message("user", "Do.")]),
        ModelCall(seen=1, items=[thought, spoken, called, {"type": "web_search_call", "id": "w"}]),
        ToolResult(call_id="c", name="run", output="not JSON", error="timeout"),
        EnvironmentTurn(items=[message("user", "Go on.")]),
        JudgeCall(judge="j", question="score", prompt=[]),
        Verification(reward=0.5, components={"format": 1.0}, explanation="close"),
        ErrorRaised(kind="timed_out", message="too long"),
    ]
    assert steps_of(list(enumerate(events))) == [
        Step("prompt", "user", "Do.", 1),
        Step("reasoning", "", "So.", 2),
        Step("reply", "assistant", "Hm.", 2),
        Step("call", "run", '{\n  "a": [\n    2\n  ],\n  "b": 1\n}', 2),
        Step("reply", "web_search_call", '{\n  "id": "w",\n  "type": "web_search_call"\n}', 2),
        Step("result", "run", "not JSON", 3, "timeout"),
        Step("environment", "user", "Go on.", 4),
        Step("verdict", "", "reward 0.5\nformat 1.0\nclose", 6),
        Step("error", "timed_out", "too long", 7, "timed_out"),
    ]


def test_arguments_that_mean_the_same_are_the_same():
    def one(arguments):
        return steps_of(
            [(0, ModelCall(seen=0, items=[{"type": "function_call", "name": "f", "arguments": arguments}]))]
        )

    assert one('{"a": 1, "b": 2}') == one('{"b":2,"a":1}')
    assert one("{") != one("[")
    assert one('{"a": 1, "b": "x"}') != one('{"a": "1", "b": "x"}')


def test_texts_in_arguments_and_results_are_decoded():
    arguments = '{"path": "a.py", "code": "x = 1\\nprint(x)", "lines": [1], "empty": "", "number": "1"}'
    call = {"type": "function_call", "name": "f", "arguments": arguments}
    events = [ModelCall(seen=0, items=[call]), ToolResult(call_id="c", name="f", output='{"stdout": "1\\n"}')]
    assert [step.text for step in steps_of(list(enumerate(events)))] == [
        'code:\nx = 1\nprint(x)\nempty: ""\nlines: [\n  1\n]\nnumber: "1"\npath: a.py',
        "stdout:\n1\n",
    ]


def test_empty_sides_have_no_rows():
    assert align([]) == []
    assert align([[], []]) == []


def test_deeply_nested_text_is_compared_as_text():
    for depth in (300, 1020):
        deep = "[" * depth + "]" * depth
        results = [ToolResult(call_id="c", name="run", output=each) for each in (deep, deep.replace("[]", "[1]"))]
        one, other = (steps_of([(0, result)])[0] for result in results)
        assert one.text == deep
        assert one.text != other.text
