"""A rollout of a captured agent, with a subagent and a retry, on every page and in every reader of traces."""

import json

import pytest
from django.urls import reverse

from apps.accounts.models import Role
from apps.dashboard.traces.captured_tokens import read_captured
from apps.dashboard.traces.side_by_side import compare_rollouts
from apps.dashboard.traces.trace_reading import find_capture
from apps.gym.exporters.protocol import Options
from apps.gym.traces.event_texts import texts_of
from apps.gym.traces.events import AgentEnd, ModelCall, Verification, encode_event, event_kind, event_tokens
from apps.gym.traces.items import message
from apps.pairs.trace_reader import read_traces
from apps.reviews.queues.blind_items import read_item_view
from apps.rollouts.models import Rollout, TraceEvent
from apps.rollouts.reverification.reverification_jobs import queue_reverification
from apps.rollouts.reverification.reverification_spec import ReverificationOrder
from apps.rollouts.streams.rollout_stream import describe_rollout
from tests.dashboard.pages import signed_in, squeezed
from tests.factories import make_collection, make_dataset, make_rollout, make_row
from tests.gym.captured_calls import SYSTEM, Recorder, answered, asked, said, tokens_of
from tests.reviews.queues import annotator, claim, make_queue
from tests.rollouts.finished import finish_reverification

pytestmark = pytest.mark.django_db
TASK = message("user", "What is 2 + 2?")
SUBAGENT = message("system", "You add numbers and nothing else.")
PROMPT = "Add two and two, and say only the sum."


def captured():
    """Main agent: calls 1 and 4, of which 3 is the superseded retry. Subagent: call 2, which completes last."""
    recorder = Recorder()

    def call(request, reply):
        return recorder.arrive(request).call, request, reply

    def complete(call, request, reply, **fields):
        recorder.complete(call, reply, tokens_of(request, reply), model="policy", **fields)

    complete(*call([SYSTEM, TASK], [asked("c1", json.dumps({"prompt": PROMPT}))]))
    subagent = call([SUBAGENT, message("user", PROMPT)], [said("5")])
    follow = [SYSTEM, TASK, asked("c1", json.dumps({"prompt": PROMPT})), answered("c1", "The sum is 4.")]
    complete(*call(follow, [said("lost")]), served=False)
    complete(*call(follow, [said("4")]))
    complete(*subagent)
    end = AgentEnd(command="finish", answer="4", artifacts={"note": "done"})
    return [*recorder.events, end, Verification(reward=1.0, stop_reason="answered")]


@pytest.fixture
def rollout():
    return make_rollout(make_collection(dataset=make_dataset([make_row()])), trace=captured())


def test_the_trace_page_shows_calls_as_stored_with_their_place(rollout):
    page = squeezed(signed_in(Role.VIEWER).get(reverse("dashboard:rollout_detail", args=[rollout.pk])).text)
    for part in ("Model call", "started by", "same request as", "Agent finished", "The sum is 4."):
        assert part in page


@pytest.mark.parametrize("seq", range(7))
def test_each_step_has_a_page(rollout, seq):
    page = signed_in(Role.VIEWER).get(reverse("dashboard:rollout_step", args=[rollout.pk, seq]))
    assert page.status_code == 200


def test_the_step_of_a_call_shows_its_own_request(rollout):
    address = reverse("dashboard:rollout_text", args=[rollout.pk, 4, "request"])
    sent = signed_in(Role.VIEWER).get(address).text
    assert PROMPT in sent
    assert SYSTEM["content"] not in sent
    address = reverse("dashboard:rollout_text", args=[rollout.pk, 3, "request"])
    sent = signed_in(Role.VIEWER).get(address).text
    assert "The sum is 4." in sent
    assert "lost" not in sent


def test_token_figures_leave_out_untrained_tokens(rollout):
    figures = find_capture(rollout, 1).figures
    assert (figures.calls, figures.captured, figures.exact, figures.segments) == (3, 3, 1, 2)
    read = read_captured(rollout, 1, call=4)
    assert [(call.number, call.segment) for call in read.calls] == [(1, 2), (2, 1), (3, 0), (4, 2)]
    assert (read.figures, read.strip.prompt) == (figures, 16)
    page = signed_in(Role.VIEWER).get(reverse("dashboard:rollout_tokens", args=[rollout.pk]))
    assert page.status_code == 200


def test_the_api_gives_a_segment_for_each_path(rollout):
    answer = signed_in(Role.VIEWER).get(f"/api/v1/rollouts/{rollout.pk}/tokens/").json()
    assert [(call["call"], call["seq"]) for call in answer["calls"]] == [(1, 1), (2, 4), (3, 2), (4, 3)]
    assert [segment["calls"] for segment in answer["segments"]] == [[2], [1, 4]]
    trace = signed_in(Role.VIEWER).get(f"/api/v1/rollouts/{rollout.pk}/trace/")
    assert trace.status_code == 200


def test_streams_tell_the_main_path_and_all_segments(rollout):
    told = describe_rollout(rollout, rollout.graph(tokens=True))
    assert [item["type"] for item in told["items"]] == ["function_call", "function_call_output", "message"]
    assert told["prompt"] == [SYSTEM, TASK]
    assert [(one["lineage"], one["calls"]) for one in told["segments"]] == [(2, [2]), (1, [1, 4])]
    assert told["is_one_sequence"] is False


@pytest.mark.parametrize(("grammar_calls", "trained"), [("mask", [4, 4]), ("keep", [4, 8]), ("drop", [])])
def test_streams_mask_keep_or_drop_calls_with_a_grammar(rollout, grammar_calls, trained):
    graph = rollout.graph(tokens=True)
    graph.calls[4].grammar = True
    told = describe_rollout(rollout, graph, Options(grammar_calls=grammar_calls))
    assert [sum(one["mask"]) for one in told["segments"]] == trained


def test_pairs_and_exports_read_the_main_path(rollout):
    ((_, events),) = read_traces({rollout.pk: 1})
    assert events == rollout.trace()
    assert [event.items[-1] for event in events if isinstance(event, ModelCall)][-1] == said("4")
    ((_, whole),) = read_traces({rollout.pk: 1}, whole=True)
    assert len(whole) == rollout.events.count()


def test_comparisons_show_the_main_path(rollout):
    other = make_rollout(rollout.collection)
    comparison = compare_rollouts([rollout, other])
    texts = [cell.step.text for line in comparison.lines for cell in line.cells[:1] if cell]
    assert "The sum is 4." in texts
    assert not {"5", "lost"} & set(texts)


def test_reviewers_see_the_main_path_and_the_answer():
    queue = make_queue(pairs=1)
    for rollout in Rollout.objects.all():
        rollout.events.all().delete()
        TraceEvent.objects.bulk_create(
            TraceEvent(
                rollout=rollout,
                attempt=rollout.attempt,
                seq=seq,
                kind=event_kind(event),
                payload=encode_event(event),
                tokens=event_tokens(event),
            )
            for seq, event in enumerate(captured())
        )
    side = read_item_view(claim(queue, annotator())).sides[0]
    texts = [text for _, event in side.events for text in texts_of(event)]
    assert "The sum is 4." in texts
    assert not {"5", "lost"} & set(texts)
    assert len({seq for seq, _ in side.events}) == len(side.events)
    assert [event.answer for _, event in side.events if isinstance(event, AgentEnd)] == ["4"]


def test_a_reverification_reads_the_main_path(rollout):
    queued = queue_reverification(ReverificationOrder(collection=rollout.collection))
    done = finish_reverification(reverification=queued)
    assert list(done.rewards.values_list("new_reward", "answer")) == [(1.0, "4")]
