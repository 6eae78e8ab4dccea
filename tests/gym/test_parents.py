"""Each captured call finds the call whose conversation it continues, whatever the client did to the items."""

import json

import pytest

from apps.gym.traces.call_records import Declared
from apps.gym.traces.events import ModelCall
from apps.gym.traces.graph import TraceGraph
from apps.gym.traces.items import message
from apps.gym.traces.parents import ParentFinder
from apps.gym.traces.tokens import capture_tokens
from tests.gym.captured_calls import SYSTEM, TOOL, Recorder, answered, asked, said

TASK = message("user", "Count the files in the folder, please.")
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]}
SUMMARY = "The folder has three files; two of them are empty."


def one_turn(recorder):
    """Record a call of a tool; return the conversation after it."""
    reply = [THOUGHT, asked("c1", '{"command": "ls", "all": true}')]
    recorder.call([SYSTEM, TASK], reply)
    return [SYSTEM, TASK, *reply]


@pytest.mark.parametrize(
    "sent",
    [
        [SYSTEM, TASK, THOUGHT, asked("c1", '{"command": "ls", "all": true}')],
        [SYSTEM, TASK, asked("c1", '{"all":true,"command":"ls"}')],
        [SYSTEM, TASK, {**asked("c1", '{"command": "ls", "all": true}'), "id": "fc_9", "status": "completed"}],
        [{**SYSTEM, "role": "developer"}, TASK, asked("c1", '{"command": "ls", "all": true}')],
        [
            SYSTEM,
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": TASK["content"], "cache_control": {"type": "ephemeral"}},
                ],
            },
            said(""),
            asked("c1", '{"command": "ls", "all": true}'),
        ],
    ],
    ids=["equal", "without reasoning", "other id", "developer", "blocks and an empty text"],
)
def test_a_request_in_another_form_continues_the_call(sent):
    recorder = Recorder()
    one_turn(recorder)
    place = recorder.arrive([*sent, answered("c1")])
    assert (place.parent, place.kept, place.seen) == (1, 4, 5)
    assert place.items_in == [answered("c1")]
    assert (place.lineage, place.root_reason) == (1, "")


@pytest.mark.parametrize(
    "sent",
    [
        [SYSTEM, TASK, asked("c1", '{"command": "ls", "all": 1}'), answered("c1")],
        [SYSTEM, TASK, asked("c2", '{"command": "ls", "all": true}'), answered("c2")],
        [SYSTEM, message("user", "Count the files."), asked("c1", '{"command": "ls", "all": true}'), answered("c1")],
    ],
    ids=["arguments", "call id", "task"],
)
def test_an_edited_history_starts_a_rewritten_root_of_the_same_lineage(sent):
    recorder = Recorder()
    one_turn(recorder)
    place = recorder.arrive(sent)
    assert (place.parent, place.kept, place.items_in) == (0, 0, sent)
    assert (place.lineage, place.root_reason) == (1, "rewritten")


def test_reasoning_that_comes_back_after_the_reply_is_not_stored_again():
    recorder = Recorder()
    recorder.call([SYSTEM, TASK], [said("Three."), THOUGHT])
    place = recorder.arrive([SYSTEM, TASK, said("Three."), THOUGHT, message("user", "Sure?")])
    assert (place.parent, place.kept) == (1, 4)
    assert place.items_in == [message("user", "Sure?")]


def test_an_equal_request_is_a_retry_in_the_place_of_the_first():
    recorder = Recorder()
    before = [*one_turn(recorder), answered("c1")]
    first, second = recorder.arrive(before), recorder.arrive(before)
    assert (second.parent, second.kept, second.items_in) == (first.parent, first.kept, first.items_in)
    assert (first.retry_of, second.retry_of, second.lineage) == (0, first.call, 1)
    third = recorder.arrive(before, tools=[])
    assert (third.retry_of, third.parent, third.tools_in) == (0, 1, [])


def test_the_child_of_a_retry_continues_the_lineage_and_a_second_child_forks():
    recorder = Recorder()
    recorder.call([SYSTEM, TASK], [said("One.")])
    recorder.call([SYSTEM, TASK], [said("Two.")])
    of_retry = recorder.arrive([SYSTEM, TASK, said("Two."), message("user", "More.")])
    of_first = recorder.arrive([SYSTEM, TASK, said("One."), message("user", "More.")])
    assert (of_retry.parent, of_retry.lineage) == (2, 1)
    assert (of_first.parent, of_first.lineage) == (1, 2)


def test_two_identical_conversations_are_ambiguous_and_the_latest_is_taken():
    recorder = Recorder()
    for _ in range(2):
        recorder.call([SYSTEM, TASK], [said("Three.")])
    place = recorder.arrive([SYSTEM, TASK, said("Three."), message("user", "Sure?")])
    assert (place.parent, place.ambiguous) == (2, True)


def test_a_call_that_the_client_names_is_the_parent_without_a_search():
    recorder = Recorder()
    for _ in range(2):
        recorder.call([SYSTEM, TASK], [THOUGHT, said("Three.")])
    follow = [SYSTEM, TASK, THOUGHT, said("Three."), message("user", "Sure?")]
    for previous in (1, 2, 1):
        recorder.call(follow, [said("Yes.")], previous=previous)
    third, fourth, again = recorder.events[3:]
    assert [(one.parent, one.previous, one.kept, one.ambiguous) for one in (third, fourth, again)] == [
        (1, 1, 4, False),
        (2, 2, 4, False),
        (1, 1, 4, False),
    ]
    assert [one.retry_of for one in (third, fourth, again)] == [0, 0, 3]
    assert third.items_in == [message("user", "Sure?")]


def test_another_system_prompt_after_a_named_call_is_a_rewritten_root_of_its_lineage():
    recorder = Recorder()
    recorder.call([SYSTEM, TASK], [asked("c1", json.dumps({"prompt": TASK["content"]}))])
    rest = [TASK, asked("c1", json.dumps({"prompt": TASK["content"]})), answered("c1")]
    recorder.call(rest, [said("Three.")], previous=1)
    recorder.call([message("system", "Be brief."), *rest], [said("3.")], previous=1)
    recorder.call([message("system", "Be brief."), *rest, said("3."), TASK], [said("3.")], previous=3)
    assert [(one.parent, one.previous, one.root_reason) for one in recorder.events[2:]] == [
        (0, 1, "rewritten"),
        (0, 1, "rewritten"),
        (3, 3, ""),
    ]
    assert [one.lineage for one in recorder.events[1:]] == [1, 1, 2, 2]
    assert recorder.events[2].items_in == rest


def test_a_thread_id_resolves_identical_conversations():
    recorder = Recorder()
    for hint in ("a", "b"):
        recorder.call([SYSTEM, TASK], [said("Three.")], hint=hint)
    place = recorder.arrive([SYSTEM, TASK, said("Three."), message("user", "Sure?")], hint="a")
    assert (place.parent, place.ambiguous) == (1, False)


def test_only_completed_calls_are_parents():
    recorder = Recorder()
    pending = recorder.arrive([SYSTEM, TASK])
    follow = [SYSTEM, TASK, said("Three."), message("user", "Sure?")]
    assert recorder.arrive(follow).parent == 0
    recorder.complete(pending.call, [said("Three.")])
    assert recorder.arrive([*follow, message("user", "And?")]).parent == pending.call


def test_a_subagent_is_found_by_the_text_of_a_tool_call():
    recorder = Recorder()
    prompt = "Look for empty files in the folder.\nReport their names."
    recorder.call([SYSTEM, TASK], [asked("c1", json.dumps({"prompt": prompt}), name="agent")])
    other = message("system", "You are a subagent.")
    for text in (prompt, f"<task>\n{prompt}\n</task>"):
        place = recorder.arrive([other, message("user", text)])
        assert (place.root_reason, place.spawned_by) == ("subagent", 1)
    assert place.lineage == 3


def test_another_thread_id_is_a_subagent_and_the_same_one_is_not():
    recorder = Recorder()
    recorder.call([SYSTEM, TASK], [said("Three.")], hint="a")
    other = recorder.arrive([SYSTEM, message("user", "Something else.")], hint="b")
    assert (other.root_reason, other.lineage) == ("subagent", 2)
    same = recorder.arrive([SYSTEM, message("user", "Something else again.")], hint="a")
    assert (same.root_reason, same.lineage) == ("compaction", 1)


def test_a_summary_of_the_conversation_is_a_compaction_that_continues_the_lineage():
    recorder = Recorder()
    before = [*one_turn(recorder), answered("c1", "a b c")]
    recorder.call(before, [asked("c2")])
    recorder.call([*before, asked("c2"), answered("c2"), message("user", "Summarise.")], [said(SUMMARY)])
    place = recorder.arrive([SYSTEM, message("user", f"Earlier, this happened:\n{SUMMARY}\nGo on.")])
    assert (place.root_reason, place.lineage, place.parent) == ("compaction", 1, 0)


def test_a_changed_system_prompt_before_an_extended_conversation_is_rewritten():
    recorder = Recorder()
    recorder.call([message("system", "It is morning."), TASK], [asked("c1")])
    place = recorder.arrive([message("system", "It is noon."), TASK, asked("c1"), answered("c1")])
    assert (place.root_reason, place.lineage) == ("rewritten", 1)


def test_parallel_conversations_with_one_system_prompt_do_not_replace_each_other():
    recorder = Recorder()
    recorder.arrive([SYSTEM, message("user", "First page.")])
    place = recorder.arrive([SYSTEM, message("user", "Second page.")])
    assert (place.root_reason, place.lineage) == ("subagent", 2)


def test_a_title_is_auxiliary_and_leaves_first_to_the_agent():
    recorder = Recorder()
    title = recorder.call([message("system", "Write a title."), TASK], [said("Files")], tools=[])
    assert (title.root_reason, title.tools_in) == ("first", [])
    first = recorder.call([SYSTEM, TASK], [asked("c1")])
    assert (first.root_reason, first.lineage, first.tools_in) == ("first", 2, None)
    again = recorder.arrive([message("system", "Write a title."), message("user", "Files counted")], tools=[])
    assert (again.root_reason, again.lineage) == ("auxiliary", 3)


def test_tools_are_stored_where_they_change():
    finder = ParentFinder([TOOL])
    own = {**TOOL, "name": "read"}
    root = finder.place_request([TASK], [own])
    finder.complete(root.call, [said("One.")])
    same = finder.place_request([TASK, said("One."), TASK], [own])
    finder.complete(same.call, [said("Two.")])
    back = finder.place_request([TASK, said("One."), TASK, said("Two."), TASK], [TOOL])
    assert (root.tools_in, same.tools_in, back.tools_in) == ([own], None, [TOOL])


def test_token_ids_find_the_parent_of_reworded_items():
    recorder = Recorder()
    recorder.call([SYSTEM, TASK], [said("Three.")], tokens=capture_tokens([1, 2], [3, 4], [-0.1] * 2))
    reworded = [SYSTEM, TASK, said("Three. "), message("user", "Sure?")]
    place = recorder.arrive(reworded)
    assert place.parent == 0
    event = recorder.complete(place.call, [said("Yes.")], capture_tokens([1, 2, 3, 4, 5], [6], [-0.1]))
    assert (event.parent, event.kept, event.items_in, event.lineage) == (1, 3, [message("user", "Sure?")], 1)
    assert event.root_reason == ""


def test_token_ids_find_no_parent_if_the_items_have_other_roles():
    recorder = Recorder()
    recorder.call([SYSTEM, TASK], [said("Three.")], tokens=capture_tokens([1, 2], [3, 4], [-0.1] * 2))
    place = recorder.arrive([SYSTEM, TASK, message("user", "Three."), message("user", "Sure?")])
    event = recorder.complete(place.call, [said("Yes.")], capture_tokens([1, 2, 3, 4, 5], [6], [-0.1]))
    assert (event.parent, event.root_reason) == (0, "rewritten")


def test_an_abandoned_call_is_neither_retried_nor_counted_as_a_child():
    recorder = Recorder()
    before = [*one_turn(recorder), answered("c1")]
    recorder.finder.abandon(recorder.arrive(before).call)
    place = recorder.arrive(before)
    assert (place.call, place.retry_of, place.parent, place.lineage) == (3, 0, 1, 1)


def test_an_abandoned_first_call_leaves_its_lineage_to_the_next():
    recorder = Recorder()
    recorder.finder.abandon(recorder.arrive([SYSTEM, TASK]).call)
    place = recorder.arrive([SYSTEM, TASK])
    assert (place.lineage, place.root_reason) == (1, "first")


def test_a_history_with_replaced_tool_results_stays_in_its_lineage_and_says_what_changed():
    recorder = Recorder()
    history = [SYSTEM, TASK]
    for number in range(3):
        reply = asked(f"c{number}")
        recorder.call(history, [reply])
        history = [*history, reply, answered(f"c{number}", f"the result {number}")]
    trimmed = [*history[:3], answered("c0", "[removed]"), *history[4:]]
    place = recorder.arrive(trimmed)
    assert (place.parent, place.lineage, place.root_reason) == (1, 1, "")
    assert place.edited == ["replaced 1 item at item 3"]
    recorder.complete(place.call, [said("Three.")])
    assert recorder.arrive([*trimmed, said("Three."), message("user", "Sure?")]).edited == []


def test_dropped_turns_of_a_history_are_named():
    recorder = Recorder()
    first = [SYSTEM, TASK, asked("c1"), answered("c1", "the first result")]
    recorder.call([SYSTEM, TASK], [asked("c1")])
    recorder.call(first, [asked("c2")])
    place = recorder.arrive([SYSTEM, TASK, asked("c2"), answered("c2", "the second result")])
    assert (place.root_reason, place.lineage) == ("compaction", 1)
    assert place.edited == ["dropped 2 items at item 2"]


@pytest.mark.parametrize("system", [[], [SYSTEM]], ids=["no system prompt", "system prompt"])
def test_a_scratchpad_that_grows_is_one_conversation(system):
    recorder = Recorder(tools=[])
    pad = "Question: how many files are there?"
    for step in range(3):
        event = recorder.call([*system, message("user", pad)], [said(f"ls {step}")], tools=[])
        assert (event.lineage, event.root_reason) == (1, "rewritten" if step else "first")
        pad += f" ls {step} = {step}"
    other = recorder.arrive([*system, message("user", "Question: how many files are there? Be brief.")], tools=[])
    assert (other.root_reason, other.lineage) == ("subagent", 2)


def test_a_scratchpad_may_repeat_only_lines_of_a_reply():
    recorder = Recorder(tools=[])
    pad = "## Question ##\nHow many files are there?\n"
    ending = "Reply with the field next_thought, then with the field done, and with nothing else."
    for step in range(3):
        reply = said(f"## next_thought ##\nI list the files of folder {step}.\n## done ##")
        event = recorder.call([SYSTEM, message("user", f"{pad}{ending}")], [reply], tools=[])
        assert (event.lineage, event.root_reason) == (1, "rewritten" if step else "first")
        pad += f"## thought_{step} ##\nI list the files of folder {step}.\n## result_{step} ##\n{step}\n"
    other = recorder.arrive([SYSTEM, message("user", f"{pad[:60]}## done ##\n{ending}")], tools=[])
    assert (other.root_reason, other.lineage) == ("subagent", 2)


def test_another_question_in_the_same_template_is_no_scratchpad():
    recorder = Recorder(tools=[])
    ending = "Answer with yes or no, and do not explain your answer."
    recorder.call([SYSTEM, message("user", f"Question: Is 4 even?\n{ending}")], [said("yes")], tools=[])
    place = recorder.arrive([SYSTEM, message("user", f"Question: Is 4 plus 1 even?\n{ending}")], tools=[])
    assert (place.root_reason, place.lineage) == ("subagent", 2)


def test_conversations_whose_replies_are_rewritten_are_told_from_subagents():
    recorder = Recorder()
    delegated = '{"task": "Count the empty files in the folder."}'
    recorder.call([SYSTEM, TASK], [asked("c1", delegated, name="counter")])
    prompt = [message("system", "You count."), message("user", "Count the empty files in the folder.")]
    recorder.call(prompt, [asked("c2")])
    prompt += [said("Calling run with {}"), message("user", "Result: 3 files are empty.")]
    recorder.call(prompt, [asked("c3", '{"report": "There are 3 empty files."}', name="finish")])
    after = [SYSTEM, TASK, said(f"Calling counter with {delegated}"), message("user", "There are 3 empty files.")]
    recorder.call(after, [said("3")])
    calls = [one for one in recorder.events if isinstance(one, ModelCall)]
    found = [(call.root_reason, call.lineage, call.spawned_by) for call in calls]
    assert found == [("first", 1, 0), ("subagent", 2, 1), ("rewritten", 2, 0), ("rewritten", 1, 0)]


def test_two_calls_that_are_resent_as_one_text_are_no_compaction():
    recorder = Recorder()
    recorder.call([SYSTEM, TASK], [said("I list both."), asked("c1"), asked("c2")])
    place = recorder.arrive([SYSTEM, TASK, said("I list both. Calling run, run"), message("user", "3 and 4 files")])
    assert (place.root_reason, place.lineage, place.edited) == ("rewritten", 1, ["replaced 2 items at item 2"])


def test_a_declared_scratchpad_is_no_compaction_if_its_system_prompt_changes():
    finder = ParentFinder()
    pad = message("user", "Question: how many files are there?")
    finder.place_request([SYSTEM, pad], [], "c", declared=Declared("conversation"))
    finder.complete(1, [said("ls -l | wc -l")])
    longer = message("user", "Question: how many files are there? ls -l | wc -l = 3")
    extract = [message("system", "You extract."), longer]
    place = finder.place_request(extract, [], "c", declared=Declared("conversation"))
    assert (place.root_reason, place.lineage) == ("rewritten", 1)


def test_numbers_in_the_system_prompt_may_change_with_each_request():
    recorder = Recorder()

    def system(stamp):
        return message("system", f"x-header: cch={stamp};\nYou are an agent.\nYou work on files.")

    recorder.call([system("00001"), TASK], [asked("c1")])
    place = recorder.arrive([system("00002"), TASK, asked("c1"), answered("c1")])
    assert (place.parent, place.kept, place.lineage, place.items_in) == (1, 3, 1, [answered("c1")])
    assert place.edited == ["line 1 of the system prompt was: x-header: cch=00002;"]
    recorder.complete(place.call, [said("Three.")])
    more = [system("00003"), TASK, asked("c1"), answered("c1"), said("Three."), message("user", "Sure?")]
    assert (recorder.arrive(more).parent, recorder.arrive([system("00004"), message("user", "New.")]).parent) == (2, 0)


def test_a_system_prompt_with_other_words_is_another_one():
    recorder = Recorder()
    recorder.call([message("system", "You are the planner.\nYou work on files."), TASK], [asked("c1")])
    other = message("system", "You are the executor.\nYou work on files.")
    place = recorder.arrive([other, TASK, asked("c1"), answered("c1")])
    assert (place.parent, place.root_reason) == (0, "rewritten")


def test_text_beside_tool_calls_may_be_dropped():
    recorder = Recorder()
    recorder.call([SYSTEM, TASK], [said("I will list the files."), asked("c1")])
    place = recorder.arrive([SYSTEM, TASK, asked("c1"), answered("c1")])
    assert (place.parent, place.kept, place.items_in, place.lineage) == (1, 4, [answered("c1")], 1)
    assert place.edited == ["dropped the text beside tool calls"]
    recorder.complete(place.call, [said("Three.")])
    follow = recorder.arrive([SYSTEM, TASK, asked("c1"), answered("c1"), said("Three."), message("user", "Sure?")])
    assert (follow.parent, follow.edited) == (2, [])


def test_a_delegated_text_inside_a_longer_line_names_the_caller():
    recorder = Recorder()
    prompt = "Look for empty files in the folder."
    recorder.call([SYSTEM, TASK], [asked("c1", json.dumps({"prompt": prompt}), name="agent")])
    place = recorder.arrive([message("system", "You are a subagent."), message("user", f"Your task: {prompt} Hurry.")])
    assert (place.root_reason, place.spawned_by) == ("subagent", 1)


def declared(role="conversation", parent=""):
    return Declared(role, parent)


def test_declared_links_take_precedence():
    finder = ParentFinder([TOOL])

    def call(items, reply, hint, links):
        place = finder.place_request(items, [TOOL], hint, declared=links)
        finder.complete(place.call, reply)
        return place

    first = call([SYSTEM, TASK], [said("One.")], "a", declared("main"))
    # Equal requests in two conversations are no retry, and a continuation stays in its own.
    twin = call([SYSTEM, TASK], [said("One.")], "b", declared("subagent", "a"))
    more = call([SYSTEM, TASK, said("One."), TASK], [said("Two.")], "b", declared())
    title = call([SYSTEM, TASK, said("One."), TASK], [said("Title")], "t", declared("auxiliary"))
    again = call([SYSTEM, message("user", "Start anew.")], [said("Three.")], "a", declared())
    assert (first.root_reason, first.lineage, first.declared) == ("first", 1, "main")
    assert (twin.retry_of, twin.root_reason, twin.spawned_by, twin.lineage) == (0, "subagent", 1, 2)
    assert (more.parent, more.lineage, more.declared) == (2, 2, "conversation")
    assert (title.parent, title.root_reason, title.lineage) == (0, "auxiliary", 3)
    assert (again.parent, again.root_reason, again.lineage) == (0, "compaction", 1)


@pytest.mark.parametrize(("hint", "lineage", "notes"), [("main", 1, 1), ("", 2, 0)])
def test_a_request_without_the_last_reply_stays_in_its_lineage_if_the_thread_is_the_same(hint, lineage, notes):
    # Claude Code compacts this way: the summary is asked for without the last turn, which it repeats afterwards.
    recorder = Recorder()
    first, second = [asked("c1")], [said("Now the second."), asked("c2")]
    recorder.call([SYSTEM, TASK], first, hint=hint)
    before = [SYSTEM, TASK, *first, answered("c1")]
    recorder.call(before, second, hint=hint)
    forked = recorder.call([*before, message("user", "Summarize the conversation.")], [said(SUMMARY)], hint=hint)
    assert (forked.parent, forked.lineage, len(forked.edited)) == (1, lineage, notes)
    compacted = [SYSTEM, message("user", f"So far: {SUMMARY}"), *second, answered("c2")]
    root = recorder.call(compacted, [said("Done.")], hint=hint)
    assert (root.root_reason, root.lineage) == ("compaction", 1)
    graph = TraceGraph(recorder.events)
    assert graph.conversation_leaves == ([2, 3, 4] if hint else [2, 4])


def test_a_fork_on_the_same_thread_while_another_call_runs_is_a_lineage_of_its_own():
    recorder = Recorder()
    recorder.call([SYSTEM, TASK], [asked("c1")], hint="main")
    before = [SYSTEM, TASK, asked("c1"), answered("c1")]
    recorder.arrive([*before, message("user", "Go on.")], hint="main")
    assert recorder.arrive([*before, message("user", "Is it done?")], hint="main").lineage == 2


@pytest.mark.parametrize(
    ("text", "reason", "spawned_by"),
    [
        ("[user] Count!\n[call] run(list the first folder)\n[call] run(list the second folder)", "auxiliary", 0),
        ("You are a counter. Your task: list the second folder", "subagent", 2),
        ("list the second folder", "subagent", 2),
    ],
    ids=["transcript", "delegated in a line", "delegated"],
)
def test_a_transcript_with_arguments_of_several_calls_is_no_delegated_task(text, reason, spawned_by):
    recorder = Recorder()
    items = [SYSTEM, TASK]
    for number, place in enumerate(("first", "second")):
        call = asked(f"c{number}", json.dumps({"task": f"list the {place} folder"}))
        recorder.call(items, [call])
        items = [*items, call, answered(f"c{number}")]
    root = recorder.call([message("system", "Summarize."), message("user", text)], [said(SUMMARY)], tools=[])
    assert (root.root_reason, root.spawned_by) == (reason, spawned_by)


def test_a_changing_time_and_an_edit_of_the_history_are_one_conversation():
    recorder = Recorder()

    def system(minute):
        return message("system", f"You are an agent.\nCurrent time: 10:0{minute}")

    history = [TASK]
    for number in range(4):
        recorder.call([system(number), *history[:1], *history[-2:]][: len(history) + 1], [asked(f"c{number}")])
        history += [asked(f"c{number}"), answered(f"c{number}", f"the result {number}")]
    assert {event.lineage for event in recorder.events[1:]} == {1}


def test_stripped_replies_are_edits_of_one_conversation():
    recorder = Recorder(tools=[])
    history = [SYSTEM, TASK]
    for number in range(4):
        text = f"I am at step {number} of the plan.\n"
        event = recorder.call(history, [said(text)], tools=[])
        assert event.lineage == 1
        history = [*history, said(text.strip()), message("user", f"Go on with {number}.")]


def test_declared_conversations_keep_apart():
    finder = ParentFinder([TOOL])

    def call(items, hint, role, parent=""):
        place = finder.place_request(items, [], hint, declared=Declared(role, parent))
        finder.complete(place.call, [said("No.")])
        return place

    assert call([SYSTEM, TASK], "work", "conversation").root_reason == "first"
    guards = [call([SYSTEM, message("user", f"Is {n} safe?")], "", "auxiliary") for n in range(2)]
    assert [(one.root_reason, one.lineage) for one in guards] == [("auxiliary", 2), ("auxiliary", 3)]
    other = finder.place_request([SYSTEM, TASK, said("No."), message("user", "Sure?")], [])
    assert other.parent == 0


def test_a_hand_off_with_the_text_of_the_user_continues_the_conversation():
    recorder = Recorder()
    transfer = asked("c1", json.dumps({"request": TASK["content"]}), name="transfer_to_expert")
    recorder.call([SYSTEM, TASK], [transfer])
    expert = [message("system", "You are an expert."), TASK, transfer, answered("c1", "transferred")]
    place = recorder.arrive(expert, tools=[{**TOOL, "name": "refund"}])
    assert (place.root_reason, place.lineage, place.spawned_by) == ("rewritten", 1, 0)
