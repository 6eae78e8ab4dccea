"""Links derived again from stored calls equal those of the capture; other links are replaced."""

from msgspec.structs import replace

from apps.gym.traces.events import ModelCall
from apps.gym.traces.graph import TraceGraph
from apps.gym.traces.items import message
from apps.gym.traces.relinking import relink
from tests.gym.captured_calls import SYSTEM, Recorder, answered, asked, said

TASK = message("user", "Count the files in the folder, please.")


def two_turns(**fields):
    recorder = Recorder(with_tokens=True)
    recorder.call([SYSTEM, TASK], [asked("c1")], **fields)
    recorder.call([SYSTEM, TASK, asked("c1"), answered("c1")], [said("Three.")], **fields)
    return recorder.events


def unlinked(events, position):
    """Return a captured call as a root of its own."""
    call = events[position]
    request = TraceGraph(events).request(call.call)
    return replace(call, parent=0, kept=0, items_in=request, lineage=call.call, root_reason="subagent")


def test_a_wrong_root_becomes_the_child_of_the_call_that_it_continues():
    right = two_turns()
    wrong = [*right[:2], unlinked(right, 2)]
    changed = relink(wrong)
    assert changed == {2: replace(right[2], thread=0)}
    assert TraceGraph([*wrong[:2], changed[2]]).main[-1].items == [said("Three.")]


def test_threads_decide_as_they_did_when_the_calls_arrived():
    recorder = Recorder()
    recorder.call([SYSTEM, TASK], [said("Three.")], hint="a")
    recorder.call([SYSTEM, message("user", "Now count the folders.")], [said("Two.")], hint="b")
    assert [one.root_reason for one in recorder.events[1:]] == ["first", "subagent"]
    assert relink(recorder.events) == {}
    assert [one.thread for one in recorder.events[1:]] == [1, 2]


def test_without_thread_ids_stored_links_stay_if_threads_explain_them():
    recorder = Recorder()
    recorder.call([SYSTEM, TASK], [said("Three.")], hint="a")
    recorder.call([SYSTEM, message("user", "Now count the folders.")], [said("Two.")], hint="a")
    old = [replace(event, thread=None) if isinstance(event, ModelCall) else event for event in recorder.events]
    assert [one.root_reason for one in old[1:]] == ["first", "compaction"]
    assert relink(old) == {}


def test_a_linear_trace_has_no_links():
    assert relink([ModelCall(seen=1, items=[said("Three.")])]) == {}
