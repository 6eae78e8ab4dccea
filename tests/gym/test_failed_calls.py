"""When a failed model call fails the attempt of a captured agent."""

import pytest

from apps.gym.traces.events import AgentEnd, FailedCall, ModelCall
from apps.gym.traces.failed_calls import find_unanswered
from tests.gym.captured_calls import asked, said


def reply(call, *items):
    return ModelCall(seen=1, call=call, items=list(items) or [said(f"reply {call}")])


def failed(call, latest=0):
    return FailedCall(call=call, latest=latest or call, message="The stream broke.")


def find(calls, failures, **end):
    found = find_unanswered([*calls, AgentEnd(command="finish", failed_calls=failures, **end)])
    return found and found.call


CASES = [
    ("no call failed", [reply(1)], [], {}, None),
    ("the only call failed", [], [failed(1)], {}, 1),
    ("all calls failed, and the agent made up an answer", [], [failed(1), failed(2)], {"answer": "4"}, 2),
    ("the last call failed", [reply(1)], [failed(2)], {}, 2),
    ("a retry got a reply", [reply(2)], [failed(1)], {}, None),
    ("a retry failed too", [reply(1)], [failed(2), failed(3)], {}, 3),
    ("a parallel call got a reply", [reply(2)], [failed(1, latest=2)], {}, 1),
    ("a parallel call wrote the answer", [reply(2, said("It is 42."))], [failed(1, latest=2)], {"answer": "42"}, None),
    ("an earlier call wrote the answer", [reply(1, said("\\boxed{42}"))], [failed(2)], {"answer": " 42\n"}, None),
    ("a tool call has the answer", [reply(1, asked("c", '{"answer": "42"}'))], [failed(2)], {"answer": "42"}, None),
    ("the answer is only a part of a number", [reply(1, said("1427"))], [failed(2)], {"answer": "42"}, 2),
    ("the agent made up an answer", [reply(1, said("Let me see."))], [failed(2)], {"answer": "Sorry."}, 2),
    ("the agent names a reply", [reply(1)], [failed(2)], {"call": 1}, None),
    ("the agent names a failed call", [reply(1)], [failed(2)], {"call": 2}, 2),
]


@pytest.mark.parametrize(
    ("calls", "failures", "end", "wanted"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_a_failed_call_counts_unless_the_agent_got_its_answer(calls, failures, end, wanted):
    assert find(calls, failures, **end) == wanted


def test_traces_of_earlier_versions_name_failed_calls_as_unserved():
    lost = reply(1)
    assert find([lost], None, unserved=[1]) is None
    assert find([], None, unserved=[1]) == 1
    assert find([lost], None, unserved=[1, 2]) == 2
    assert find([reply(3)], None, unserved=[2]) is None
