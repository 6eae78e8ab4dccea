"""A graph of captured calls reads as lines: one for each path, as the built-in loop would have written it."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.gym.traces.call_records import Declared
from apps.gym.traces.canonical_items import item_digest
from apps.gym.traces.events import (
    AgentEnd,
    EnvironmentTurn,
    ModelCall,
    Prompt,
    SessionOpened,
    ToolResult,
    Verification,
    conversation,
    decode_event,
    encode_event,
)
from apps.gym.traces.graph import TraceGraph, main_line
from apps.gym.traces.graph_segments import join_graph
from apps.gym.traces.items import message
from apps.gym.traces.tokens import restore_tokens
from tests.gym.captured_calls import SYSTEM, TOOL, Recorder, all_ids, answered, asked, said
from tests.gym.traces import weather_trace

TASK = message("user", "Count the files in the folder, please.")
SUBAGENT = message("system", "You are a subagent.")


def kinds(line):
    return [type(event) for event in line]


def test_a_line_is_its_own_line():
    events = weather_trace()
    graph = TraceGraph(events)
    assert graph.is_line
    assert graph.leaves == [2]
    assert all(one is other for one, other in zip(main_line(events), events, strict=True))
    assert [one.calls for one in graph.lineages] == [[1, 2]]
    assert graph.request(2) == conversation(events)[:-2]


def test_an_attempt_without_calls_has_a_main_line():
    events = [SessionOpened(environment="files"), Verification(reward=0.0)]
    graph = TraceGraph(events)
    assert (graph.main, graph.leaves, graph.longest_leaf) == (events, [], 0)


def test_a_path_reads_as_the_built_in_loop_would_have_written_it():
    recorder = Recorder()
    recorder.call([SYSTEM, TASK], [asked("c1"), asked("c2")])
    recorder.call(
        [SYSTEM, TASK, asked("c1"), asked("c2"), answered("c1", "a"), answered("c2", "b"), message("user", "Well?")],
        [said("Two.")],
    )
    verdict = Verification(reward=1.0)
    line = main_line([*recorder.events, verdict])
    assert all(one is other for one, other in zip(main_line(line), line, strict=True))
    assert kinds(line) == [
        SessionOpened,
        Prompt,
        ModelCall,
        ToolResult,
        ToolResult,
        EnvironmentTurn,
        ModelCall,
        Verification,
    ]
    assert [(one.name, one.output) for one in line if isinstance(one, ToolResult)] == [("run", "a"), ("run", "b")]
    calls = [one for one in line if isinstance(one, ModelCall)]
    assert [one.seen for one in calls] == [2, 7]
    assert line[-1] is verdict


def test_a_recorded_result_keeps_its_error_and_times():
    recorder = Recorder()
    recorder.call([SYSTEM, TASK], [asked("c1")])
    recorded = ToolResult(call_id="c1", name="run", output="Error: no such file", error="failed", at=3.0, duration=2.0)
    recorder.events.append(recorded)
    recorder.call([SYSTEM, TASK, asked("c1"), answered("c1", "Error: no such file")], [said("None.")])
    assert any(one is recorded for one in main_line(recorder.events))


def test_an_output_with_an_image_stays_whole():
    recorder = Recorder()
    image = {**answered("c1"), "output": [{"type": "input_image", "image_url": "data:image/png;base64,AA"}]}
    recorder.call([SYSTEM, TASK], [asked("c1")])
    recorder.call([SYSTEM, TASK, asked("c1"), image], [said("A cat.")])
    assert [one.items for one in main_line(recorder.events) if isinstance(one, EnvironmentTurn)] == [[image]]


def test_kept_drops_the_tail_of_the_parent():
    first = ModelCall(seen=1, items=[said("a"), said("b")], call=1, lineage=1, items_in=[TASK])
    edited = ModelCall(seen=3, items=[said("c")], call=2, parent=1, kept=2, lineage=1, items_in=[message("user", "x")])
    rewound = ModelCall(seen=2, items=[said("d")], call=3, parent=2, kept=1, lineage=2, items_in=[message("user", "y")])
    graph = TraceGraph([first, edited, rewound])
    assert conversation(graph.line(2)) == [TASK, said("a"), message("user", "x"), said("c")]
    assert conversation(graph.line(3)) == [TASK, message("user", "y"), said("d")]
    assert graph.request(2) == [TASK, said("a"), message("user", "x")]


def test_tools_of_the_session_are_the_offered_ones():
    recorder = Recorder()
    own = [{**TOOL, "name": "read"}]
    recorder.call([SYSTEM, TASK], [said("a")], tools=own)
    recorder.call([SYSTEM, TASK, said("a"), TASK], [said("b")], tools=own)
    graph = TraceGraph(recorder.events)
    assert graph.main[0] == SessionOpened(environment="files", tools=own)
    assert graph.tools(2) == own


def test_a_line_has_the_tools_of_each_call():
    recorder = Recorder()
    read, write = {**TOOL, "name": "read"}, {**TOOL, "name": "write"}
    recorder.call([SYSTEM, TASK], [said("a")], tools=[read])
    recorder.call([SYSTEM, TASK, said("a"), TASK], [said("b")], tools=[read, write])
    recorder.call([SYSTEM, TASK, said("a"), TASK, said("b"), TASK], [said("c")], tools=[read, write])
    line = TraceGraph(recorder.events).main
    assert line[0] == SessionOpened(environment="files", tools=[read])
    assert [event.tools_in for event in line if isinstance(event, ModelCall)] == [None, [read, write], None]
    assert TraceGraph(line).tools(3) == [read, write]


def test_a_cut_call_leaves_the_tools_of_the_call_that_cut_it():
    read, write = {**TOOL, "name": "read"}, {**TOOL, "name": "write"}
    opened = SessionOpened(environment="files", tools=[read])
    first = ModelCall(seen=1, items=[said("a")], call=1, lineage=1, items_in=[TASK])
    more = ModelCall(seen=3, items=[said("b")], call=2, parent=1, kept=2, lineage=1, items_in=[TASK], tools_in=[write])
    rewound = ModelCall(seen=3, items=[said("c")], call=3, parent=2, kept=2, lineage=1, items_in=[SYSTEM])
    line = TraceGraph([opened, first, more, rewound]).line(3)
    assert [event.tools_in for event in line if isinstance(event, ModelCall)] == [None, [write]]


def interleaved(turns=3):
    """Record a main agent and a subagent whose calls alternate."""
    recorder = Recorder(with_tokens=True)
    lines = {"a": [SYSTEM, TASK], "b": [SUBAGENT, TASK]}
    for number in range(turns):
        for name, line in lines.items():
            reply = asked(f"{name}{number}")
            recorder.call(list(line), [reply])
            line += [reply, answered(f"{name}{number}")]
    return recorder


def test_a_subagent_has_its_own_lineage_and_leaf():
    graph = TraceGraph(interleaved().events)
    assert [(one.number, one.calls) for one in graph.lineages] == [(1, [1, 3, 5]), (2, [2, 4, 6])]
    assert graph.leaves == [5, 6]
    assert (graph.main_leaf, graph.longest_leaf) == (6, 6)


@pytest.mark.parametrize(("named", "leaf"), [(4, 4), (0, 6), (99, 6)])
def test_finish_names_the_main_call(named, leaf):
    events = [*interleaved().events, AgentEnd(command="finish", call=named, answer="Three.")]
    assert TraceGraph(events).main_leaf == leaf


def test_the_main_line_goes_on_after_a_compaction():
    recorder = Recorder()
    recorder.call([SYSTEM, TASK], [asked("c1")])
    recorder.call([SYSTEM, TASK, asked("c1"), answered("c1")], [asked("c2")])
    recorder.call([SYSTEM, message("user", "Go on with the count.")], [said("Three.")])
    graph = TraceGraph(recorder.events)
    assert (graph.leaves, graph.main_leaf) == ([2, 3], 3)


def test_the_main_line_is_not_the_title_that_the_client_asked_for_first():
    recorder = Recorder()
    recorder.call([message("system", "Write a title."), TASK], [said("Files")], tools=[])
    recorder.call([SYSTEM, TASK], [said("Three.")])
    assert TraceGraph(recorder.events).main_leaf == 2


def test_superseded_and_unserved_replies_are_not_leaves():
    recorder = Recorder()
    recorder.call([SYSTEM, TASK], [said("lost")], served=False)
    recorder.call([SYSTEM, TASK], [said("a")])
    recorder.call([SYSTEM, TASK, said("a"), TASK], [said("b")], served=False)
    graph = TraceGraph(recorder.events)
    assert (graph.effective_calls, graph.leaves, graph.main_leaf) == ({2}, [2], 2)
    recorder.call([SYSTEM, TASK, said("lost"), TASK], [said("c")])
    graph = TraceGraph(recorder.events)
    assert (graph.effective_calls, graph.leaves) == ({1, 2, 4}, [2, 4])


def test_a_missing_parent_does_not_stop_the_reader():
    orphan = ModelCall(seen=9, items=[said("b")], call=4, parent=3, kept=8, lineage=1, items_in=[answered("c1")])
    line = TraceGraph([orphan]).main
    assert line == [Prompt(items=[answered("c1")]), ModelCall(seen=9, items=[said("b")])]


def test_payloads_of_lines_have_no_new_fields():
    call = ModelCall(seen=1, items=[said("a")])
    assert encode_event(call) == (
        '{"type":"model_call","seen":1,"items":[{"type":"message","role":"assistant",'
        '"content":[{"type":"output_text","text":"a"}]}]}'
    )
    end = AgentEnd(command="fail", kind="agent_error", message="No key.", sha256="00")
    assert decode_event(encode_event(end)) == end


@st.composite
def plans(draw):
    """Draw steps: a request that extends a call, starts a root or repeats a request; or the completion of a call."""
    return draw(
        st.lists(
            st.tuples(st.sampled_from(["extend", "extend", "extend", "root", "retry", "complete"]), st.integers(0, 30)),
            min_size=1,
            max_size=25,
        )
    )


def play(plan, *, most=1 << 22):
    """Capture the calls of a plan. Return the events, and the true conversation and request of each call."""
    recorder = Recorder(with_tokens=True, most=most)
    open_calls, whole, requests = [], {}, {}

    def arrive(request):
        call = recorder.arrive(request).call
        requests[call] = request
        open_calls.append(call)

    def complete(choice):
        call = open_calls.pop(choice % len(open_calls))
        reply = [{"type": "reasoning", "summary": []}] if call % 3 == 0 else []
        reply += [said(f"reply {call}")] if call % 2 else [asked(f"c{call}")]
        recorder.complete(call, reply)
        whole[call] = [*requests[call], *reply]

    arrive([SYSTEM, TASK])
    for step, (kind, choice) in enumerate(plan):
        if kind == "extend" and whole:
            before = whole[sorted(whole)[choice % len(whole)]]
            reply = before[-1]
            new = answered(reply["call_id"], str(step)) if reply["type"] == "function_call" else TASK
            arrive([*before, new, message("user", f"step {step}")])
        elif kind == "root":
            arrive([message("system", f"agent {step}"), TASK])
        elif kind == "retry":
            arrive(requests[sorted(requests)[choice % len(requests)]])
        elif kind == "complete" and open_calls:
            complete(choice)
    while open_calls:
        complete(len(plan))
    return recorder.events, whole, requests


def canonical(items):
    return [digest for digest in map(item_digest, items) if digest]


@settings(max_examples=200, deadline=None)
@given(plans(), st.sampled_from([64, 1 << 22]))
def test_random_graphs_reproduce_every_path_and_train_each_token_once(plan, most):
    events, whole, requests = play(plan, most=most)
    graph = TraceGraph(events)
    for call in graph.calls:
        line = graph.line(call)
        assert canonical(conversation(line)) == canonical(whole[call])
        assert canonical(graph.request(call)) == canonical(requests[call])
        last = [event for event in restore_tokens(line) if isinstance(event, ModelCall)][-1]
        assert last.items[-1]["prompt_token_ids"] == all_ids(requests[call])
    trained = [one.call for found in join_graph(graph) for one in found.sampled]
    assert sorted(trained) == sorted(graph.effective_calls)
    for found in join_graph(graph):
        sampled = [place for one in found.sampled for place in range(one.start, one.end)]
        assert [place for place, kept in enumerate(found.segment.mask) if kept] == sampled
        for one in found.sampled:
            reply = whole[one.call][len(requests[one.call]) :]
            assert found.segment.input_ids[one.start : one.end].tolist() == all_ids(reply)


def test_a_graph_of_200_calls_reads_in_300_ms():
    recorder = interleaved(turns=100)
    stored = [(encode_event(event), getattr(event, "tokens", None)) for event in recorder.events]
    began = time.process_time()
    graph = TraceGraph([decode_event(*one) for one in stored])
    assert len(conversation(graph.main)) == 201
    assert len(join_graph(graph)) == 2
    assert time.process_time() - began < 0.3


def finished(recorder, answer=""):
    return TraceGraph([*recorder.events, AgentEnd(command="finish", answer=answer)])


def planned_and_executed():
    recorder = Recorder(tools=[])
    recorder.call([message("system", "You plan."), TASK], [said("Count with ls.")], tools=[])
    executor = [message("system", "You execute."), message("user", "Count the files. Plan:\nCount with ls.")]
    recorder.call(executor, [said("The answer is \\boxed{42}")], tools=[])
    return recorder


@pytest.mark.parametrize(
    ("answer", "path"),
    [
        ("42", (2, "answer", False)),
        ("The answer is \\boxed{42}", (2, "answer", False)),
        ("Count with ls.", (1, "answer", False)),
        ("ls", (1, "contains", True)),
        ("count with", (1, "contains", False)),
        ("", (2, "latest", False)),
        ("43", (2, "latest", True)),
    ],
)
def test_the_main_path_ends_at_the_call_that_wrote_the_answer(answer, path):
    assert finished(planned_and_executed(), answer).main_path == path


def test_the_latest_of_several_calls_that_contain_the_answer_counts_within_one_conversation():
    recorder = Recorder(tools=[])
    pad = "How many files are there?"
    for reply in ("I list all the files.", "There are 42 files, so I am done.", "There are 42 files in the folder."):
        recorder.call([message("user", pad)], [said(reply)], tools=[])
        pad += f" {reply} ok"
    assert [call.lineage for call in recorder.events if isinstance(call, ModelCall)] == [1, 1, 1]
    assert finished(recorder, "42").main_path == (3, "contains", False)
    recorder.call([message("system", "You check."), message("user", "Fine?")], [said("Yes, 42 is fine.")], tools=[])
    assert finished(recorder, "42").main_path == (4, "contains", True)


def test_an_argument_of_a_last_tool_call_is_an_answer():
    recorder = Recorder()
    recorder.call([SYSTEM, TASK], [asked("c1", '{"answer": {"value": "42"}}', name="final_answer")])
    recorder.call([message("system", "You check."), message("user", "Is it harmful?")], [said("No.")])
    assert finished(recorder, "42").main_path == (1, "answer", False)


def test_a_conversation_that_goes_on_after_the_answer_is_the_main_path():
    recorder = Recorder()
    recorder.call([SYSTEM, TASK], [said("42")])
    recorder.call([SYSTEM, TASK, said("42"), message("user", "Sure?")], [said("Yes.")])
    recorder.call([message("system", "You check."), message("user", "Is it harmful?")], [said("No.")])
    assert finished(recorder, "42").main_path == (2, "earlier", False)


def test_a_subagent_with_the_same_answer_is_not_the_main_path():
    recorder = Recorder()
    recorder.call([SYSTEM, TASK], [asked("c1", '{"prompt": "Count all the files there."}', name="agent")])
    late = recorder.arrive([SUBAGENT, message("user", "Count all the files there.")])
    recorder.call([SYSTEM, TASK, asked("c1", '{"prompt": "Count all the files there."}', name="agent")], [said("42")])
    recorder.complete(late.call, [said("42")])
    assert finished(recorder, "42").main_path == (3, "answer", False)
    assert finished(recorder).main_path == (3, "latest", False)


def test_two_served_replies_to_one_request_are_two_samples():
    recorder = Recorder()
    for text in ("41", "42"):
        recorder.call([SYSTEM, TASK], [said(text)])
    graph = finished(recorder, "41")
    assert (graph.leaves, graph.main_leaf, graph.conversation_leaves) == ([1, 2], 1, [1])


def test_the_segments_of_a_conversation_leave_out_titles_and_subagents():
    recorder = Recorder()
    recorder.call([message("system", "Write a title."), TASK], [said("Files")], tools=[])
    recorder.call([SYSTEM, TASK], [asked("c1")])
    recorder.call([SYSTEM, TASK, asked("c1"), answered("c1")], [asked("c2")])
    recorder.call([SUBAGENT, message("user", "Something else.")], [said("Done.")])
    recorder.call([SYSTEM, message("user", "Go on with the count.")], [said("42")])
    graph = finished(recorder, "42")
    assert (graph.leaves, graph.conversation_leaves) == ([1, 3, 4, 5], [3, 5])
    assert [one.root_reason for one in graph.lineages] == ["auxiliary", "first", "subagent"]


def test_turns_in_requests_have_their_authors():
    recorder = Recorder()
    invented = [said("Understood, I will begin."), message("user", "Go.")]
    recorder.call([SYSTEM, TASK, *invented], [said('He said "three" of them.'), asked("c1")])
    reworded = [said("He said 'three' of them."), asked("c1"), answered("c1")]
    recorder.call([SYSTEM, TASK, *invented, *reworded], [said("Three.")])
    prompt = TraceGraph(recorder.events).main[1]
    assert prompt.authors == ["", "", "injected", "", "rerendered", "rerendered", ""]
    turned = [said("Understood, I will begin."), said("I call run with {}"), message("user", "ok")]
    authors = TraceGraph(recorder.events)._authors
    assert authors.of(turned, 3) == ["injected", "injected", ""]
    whole = [said('He said "three" of them.'), asked("c1"), answered("c1"), said("Three."), message("user", "Sure?")]
    assert authors.of(whole, 3) == ["sampled", "sampled", "", "sampled", ""]
    # Of two equal turns, the last is the reply; before the call, there is none.
    assert authors.of([said("Three."), message("user", "?"), said("Three.")], 3) == ["rerendered", "", "sampled"]
    assert authors.of([said("Three.")], 1) == ["injected"]


def test_a_call_with_short_values_that_is_resent_as_text_is_reworded():
    recorder = Recorder()
    recorder.call([SYSTEM, TASK], [asked("c1", '{"a": 6, "b": 70}', name="multiply")])
    resent = said("Calling tools: {'name': 'multiply', 'arguments': {'a': 6, 'b': 70}}")
    assert TraceGraph(recorder.events)._authors.of([resent, said("6 and 70")], 2) == ["rerendered", "injected"]


def declared_calls(*calls):
    """Return the events of calls of (conversation, role, request, reply)."""
    recorder = Recorder(tools=[])
    for name, role, request, reply in calls:
        place = recorder.finder.place_request(request, [], name, declared=Declared(role))
        recorder._requests[place.call] = request
        recorder._arrived[place.call] = float(place.call)
        recorder.complete(place.call, [said(reply)])
    return recorder


def test_auxiliary_conversations_stay_aside_when_they_are_rewritten():
    asks = [[message("system", "You check."), message("user", f"Is {n} safe?")] for n in ("this", "that one")]
    guards = [("guard", "auxiliary", ask, "no") for ask in asks]
    recorder = declared_calls(("work", "main", [SYSTEM, TASK], "Done."), *guards)
    assert finished(recorder).main_path.leaf == 1
    assert finished(recorder, "no").main_path == (3, "answer", False)


def test_a_name_alone_makes_no_conversation_auxiliary():
    plan = ("planner", "conversation", [message("system", "You plan."), TASK], "List, count.")
    work = ("worker", "conversation", [SYSTEM, message("user", "List, count.")], "4")
    assert finished(declared_calls(plan, work)).main_path.leaf == 2
    assert finished(declared_calls(plan, work), "4").main_path == (2, "answer", False)


def test_values_of_a_structured_answer_are_answers():
    recorder = Recorder()
    recorder.call([SYSTEM, TASK], [asked("c1", '{"count": 4, "ok": true}', name="final_result")])
    for answer in ("4", "true", '{"ok": true, "count": 4}'):
        assert finished(recorder, answer).main_path == (1, "answer", False)


def test_an_abandoned_fork_is_no_segment_of_the_conversation():
    recorder = Recorder()
    recorder.call([SYSTEM, TASK], [said("three")])
    recorder.call([SYSTEM, TASK, said("three"), message("user", "Title?")], [said("Files")])
    recorder.call([SYSTEM, TASK, said("three"), message("user", "As a number.")], [said("3")])
    graph = finished(recorder, "3")
    assert (graph.leaves, graph.main_leaf, graph.conversation_leaves) == ([2, 3], 3, [3])


def test_a_conversation_that_went_on_after_the_answer_precedes_one_that_quotes_it():
    recorder = Recorder()
    recorder.call([SYSTEM, TASK], [said("Paris")])
    recorder.call([SYSTEM, TASK, said("Paris"), message("user", "Sure?")], [said("Yes.")])
    recorder.call([message("system", "You check."), message("user", "Is it harmful?")], [said("No, Paris is fine.")])
    assert finished(recorder, "Paris").main_path == (2, "earlier", False)
