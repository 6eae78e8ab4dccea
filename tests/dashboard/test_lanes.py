"""Captured calls on the trace page: results from later requests, messages, lanes and links."""

import json
import time

import pytest

from apps.accounts.models import Role
from apps.dashboard.live.followed_attempt import Mark, read_news
from apps.dashboard.traces.card_building import build_trace
from apps.dashboard.traces.cards import Trace, group_lanes
from apps.dashboard.traces.step_exchange import read_step, read_text
from apps.dashboard.traces.trace_reading import read_cards, read_spans
from apps.gym.traces.events import ModelCall, ToolResult, TraceUnion, encode_event, event_kind
from apps.gym.traces.items import message
from apps.rollouts.models import TraceEvent
from tests.dashboard.markup import faults, read
from tests.dashboard.pages import signed_in
from tests.factories import make_collection, make_rollout
from tests.gym.captured_calls import SYSTEM, Recorder, answered, asked, said

TASK = message("user", "What is 2 + 2?")
PROMPT = "Add two and two, and say only the sum."
SUBAGENT = [message("system", "You add numbers and nothing else."), message("user", PROMPT)]
PIXEL = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
ASKED = asked("c1", json.dumps({"prompt": PROMPT}))


def shown(events: list[TraceUnion]) -> Trace:
    return build_trace((seq, event_kind(event), encode_event(event), None) for seq, event in enumerate(events))


def with_subagent() -> list[TraceUnion]:
    """Events 1 and 4 are calls of the main agent, 2 and 3 those of its subagent; all tool calls have the same id."""
    recorder = Recorder()
    main = [SYSTEM, TASK]
    recorder.call(main, [ASKED])
    recorder.call(SUBAGENT, [asked("c1", '{"a": 2}')])
    recorder.call([*SUBAGENT, asked("c1", '{"a": 2}'), answered("c1", "four")], [said("4")])
    recorder.call([*main, ASKED, answered("c1", "The sum is 4.")], [said("It is 4.")])
    return recorder.events


def test_a_result_in_a_later_request_is_shown_in_the_card_of_its_call_only():
    _, main, sub, sub_end, end = shown(with_subagent()).cards
    results = [card.blocks[-1].result.body for card in (main, sub)]
    assert [(body.text, body.seq, body.part) for body in results] == [("The sum is 4.", 4, "in0"), ("four", 3, "in0")]
    assert [[block.kind for block in card.blocks] for card in (sub_end, end)] == [["text"], ["text"]]


def test_the_messages_of_a_request_are_shown_as_messages_and_system_prompts_collapsed():
    recorder = Recorder()
    picture = {"role": "user", "content": [{"type": "input_text", "text": "Look."}, PIXEL]}
    recorder.call([SYSTEM, picture, asked("c1"), answered("c1", "few-shot")], [said("done")])
    (_, card) = shown(recorder.events).cards
    assert [(block.kind, block.title, block.is_input) for block in card.blocks] == [
        ("fold", "system", True),
        ("text", "user", True),
        ("image", "user: part", True),
        ("call", "run", True),
        ("text", "assistant", False),
    ]
    assert card.blocks[3].result.body.text == "few-shot"


def test_a_recorded_result_keeps_its_error_and_is_no_card_of_its_own():
    recorder = Recorder()
    recorder.call([SYSTEM, TASK], [asked("c1"), asked("c2")])
    for call_id, error in (("c2", ""), ("c1", "exit 1")):
        recorder.events.append(ToolResult(call_id=call_id, name="run", output=f"for {call_id}", error=error))
    request = [SYSTEM, TASK, asked("c1"), asked("c2"), answered("c1", "for c1")]
    recorder.call(request, [said("done")])
    _, card, end = shown(recorder.events).cards
    results = [block.result for block in card.blocks if block.result]
    assert [(one.body.text, one.error, one.seq) for one in results] == [("for c1", "exit 1", 3), ("for c2", "", 2)]
    assert [flag.name for flag in card.flags] == ["tool error"]
    assert [block.kind for block in end.blocks] == ["text"]


def test_an_output_that_no_call_on_the_path_has_is_shown_with_the_request():
    recorder = Recorder()
    recorder.call([SYSTEM, TASK, answered("lost", "orphan")], [said("done")])
    (_, card) = shown(recorder.events).cards
    assert [block.body.text for block in card.blocks if block.kind == "output"] == ["orphan"]


def test_a_repeated_call_is_marked_within_a_line_of_conversation_only():
    recorder = Recorder()
    main, same = [SYSTEM, TASK], asked("c1", json.dumps({"prompt": PROMPT}))
    recorder.call(main, [same])
    recorder.call(SUBAGENT, [same])
    recorder.call([*main, same, answered("c1")], [same])
    marked = [[flag.name for flag in card.flags] for card in shown(recorder.events).cards]
    assert marked == [[], [], [], ["repeated call"]]


def test_calls_of_a_subagent_form_a_lane_with_links_both_ways():
    cards = shown(with_subagent()).cards
    runs = [(run.lane.label if run.lane else "", [card.seq for card in run.cards]) for run in group_lanes(cards)]
    assert runs == [("", [0, 1]), ("subagent 1", [2, 3]), ("", [4])]
    links = {card.seq: [(link.label, link.seq) for link in card.links] for card in cards}
    assert links == {0: [], 1: [("started subagent 1", 2)], 2: [("started by", 1)], 3: [], 4: [("continues", 1)]}
    assert cards[2].lane.excerpt == PROMPT


def test_retries_compactions_and_auxiliary_calls_are_named():
    recorder = Recorder()
    main = [SYSTEM, TASK]
    recorder.call(main, [said("lost")], served=False)
    recorder.call(main, [asked("c1")])
    recorder.call([*main, asked("c1"), answered("c1", "a long output of the tool")], [said("It is four, I think.")])
    recorder.call([SYSTEM, message("user", "Name this conversation")], [said("Sums")], tools=[])
    recorder.call([SYSTEM, TASK, message("user", "Summary: It is four, I think.")], [said("4")])
    cards = shown(recorder.events).cards[1:]
    assert [(card.mark, card.lane.label if card.lane else "") for card in cards] == [
        ("", ""),
        ("repeated request", ""),
        ("", ""),
        ("", "auxiliary call"),
        ("compaction", ""),
    ]
    assert [(link.label, link.seq) for link in cards[1].links] == [("same request as", 1)]
    assert not any(block.is_input for block in cards[1].blocks)
    assert cards[4].links[0].seq == 3


@pytest.fixture
def stored(db):
    return make_rollout(make_collection(), trace=with_subagent())


def test_a_part_of_a_trace_has_the_results_of_requests_in_other_parts(stored, monkeypatch):
    monkeypatch.setattr("apps.dashboard.traces.trace_reading.split_events.__defaults__", (1,))
    spans = read_spans(stored, 1)
    cards = [card for span in spans for card in read_cards(stored, 1, span)]
    assert len(spans) == len(cards)
    assert cards[1].blocks[-1].result.body.text == "The sum is 4."
    assert read_step(stored, 1, 1)["card"].blocks[-1].result.body.text == "The sum is 4."
    assert read_text(stored, 1, 4, "in0").text == "The sum is 4."


def test_the_page_has_a_collapsible_lane_and_its_label_in_the_outline(stored):
    client = signed_in(Role.VIEWER)
    page = client.get(f"/rollouts/{stored.pk}/").text
    assert faults(page) == []
    lanes = [each.attributes for each in read(page).all("details") if each.attributes.get("class") == "lane"]
    assert [(lane["data-lane"], "open" in lane) for lane in lanes] == [("2", True)]
    lines = [each.attributes["id"] for each in read(page).all("li") if "data-lane" in each.attributes]
    assert lines == ["o2", "o3"]
    saved = b"".join(client.get(f"/rollouts/{stored.pk}/file/").streaming_content).decode()
    assert 'class="lane"' in saved
    assert faults(client.get(f"/rollouts/{stored.pk}/steps/2/").text) == []


def test_a_new_call_brings_the_cards_that_it_changes(db):
    events = with_subagent()
    running = {"status": "running", "lease": 1, "reward": None, "stop_reason": "", "finished_at": None}
    rollout = make_rollout(make_collection(), trace=events[:2], **running)
    seen = []
    for seq, event in enumerate(events[2:], start=2):
        TraceEvent.objects.create(
            rollout=rollout, attempt=1, seq=seq, kind=event_kind(event), payload=encode_event(event)
        )
        news = read_news(rollout, None, Mark("running", 1, seq))
        seen.append([card.seq for card in news["cards"]])
        assert isinstance(event, ModelCall)
    # The subagent's first call changes the link of its caller; its result changes the card of the call that asked.
    assert seen == [[1, 2], [2, 3], [1, 4]]


def test_a_trace_of_200_calls_opens_within_300_ms_of_server_time(db):
    recorder = Recorder()
    main = [SYSTEM, TASK]
    for number in range(50):
        ask = asked(f"c{number}", json.dumps({"prompt": f"{PROMPT} {number}"}))
        recorder.call(main, [ask])
        sub = [SUBAGENT[0], message("user", f"{PROMPT} {number}")]
        for turn in range(3):
            recorder.call(sub, [said(f"Step {turn} of {number}. " * 20)])
            sub = [*sub, said(f"Step {turn} of {number}. " * 20), message("user", "Go on.")]
        main = [*main, ask, answered(f"c{number}", f"The sum is {number}.")]
    assert sum(isinstance(event, ModelCall) for event in recorder.events) == 200
    stored = make_rollout(make_collection(), trace=recorder.events)
    client = signed_in()
    seconds = []
    for _ in range(4):
        began = time.process_time()
        page = client.get(f"/rollouts/{stored.pk}/")
        seconds.append(time.process_time() - began)
    assert page.status_code == 200
    assert "Step 2 of 49." in page.text
    assert min(seconds) < 0.3, seconds
