"""The page of a running rollout receives new events, each once."""

import pytest
from django.urls import reverse

from apps.accounts.models import Role
from apps.dashboard.live.followed_attempt import Mark, read_news
from apps.gym.traces.events import (
    ErrorRaised,
    ModelCall,
    Prompt,
    SessionOpened,
    ToolResult,
    TraceUnion,
    Verification,
    encode_event,
    event_kind,
)
from apps.gym.traces.items import message
from apps.rollouts.models import Rollout, TraceEvent
from tests.dashboard.markup import faults, read
from tests.dashboard.pages import signed_in, squeezed
from tests.factories import make_collection, make_rollout

pytestmark = pytest.mark.django_db
HTMX = {"HX-Request": "true"}
CALLS = ModelCall(
    seen=1,
    items=[
        {"type": "function_call", "call_id": f"call_{n}", "name": "calculator", "arguments": '{"expression": "1+1"}'}
        for n in (1, 2)
    ],
)


def add(rollout: Rollout, seq: int, event: TraceUnion, attempt: int = 1) -> None:
    TraceEvent.objects.create(
        rollout=rollout, attempt=attempt, seq=seq, kind=event_kind(event), payload=encode_event(event)
    )


@pytest.fixture
def rollout() -> Rollout:
    """It runs, and has opened its session and read its prompt."""
    trace = [SessionOpened(environment="calculator"), Prompt(items=[message("user", "hi")])]
    given = {"status": "running", "lease": 1, "reward": None, "stop_reason": "", "finished_at": None}
    return make_rollout(make_collection(), trace=trace, **given)


def seqs(parts: dict[str, object] | None) -> list[int] | None:
    return None if parts is None else [card.seq for card in parts["cards"]]


def address(rollout: Rollout, seen: str = "") -> str:
    return reverse("dashboard:rollout_detail", args=[rollout.pk]) + (f"?seen={seen}" if seen else "")


def test_the_page_names_its_socket_its_poll_and_what_it_has(rollout):
    page = signed_in().get(address(rollout)).text
    (place,) = [each.attributes for each in read(page).all("div") if each.attributes.get("id") == "rollout-live"]
    assert (place["data-follow"], place["data-poll"], place["data-mark"]) == (
        f"/ws/rollouts/{rollout.pk}/",
        address(rollout),
        "running-1-2",
    )
    assert faults(page) == []
    assert "js/follow" in page


def test_the_page_of_an_ended_rollout_follows_nothing():
    page = signed_in().get(address(make_rollout(make_collection()))).text
    assert ("data-follow" in page, "js/follow" in page, 'data-settled="true"' in page) == (False, False, True)


def test_nothing_new_is_said_when_nothing_changed(rollout):
    assert signed_in().get(address(rollout, "running-1-2"), headers=HTMX).status_code == 204


def test_new_events_come_alone(rollout):
    add(rollout, 2, ModelCall(seen=1, items=[message("assistant", "new words")]))
    news = signed_in().get(address(rollout, "running-1-2"), headers=HTMX)
    assert (news.status_code, "new words" in news.text, "<html" in news.text) == (200, True, False)
    ids = [each.attributes["id"] for each in read(news.text).all("article")]
    assert (ids, 'data-mark="running-1-3"' in news.text) == (["e2"], True)


def test_a_result_brings_the_card_of_its_call_again_and_no_other(rollout):
    add(rollout, 2, CALLS)
    add(rollout, 3, ToolResult(call_id="call_2", name="calculator", output="2"))
    assert seqs(read_news(rollout, None, Mark("running", 1, 3))) == [2]
    add(rollout, 4, ToolResult(call_id="call_1", name="calculator", output="one"))
    parts = read_news(rollout, None, Mark("running", 1, 4))
    assert seqs(parts) == [2]
    assert [block.result.seq for block in parts["cards"][0].blocks] == [4, 3]
    assert parts["mark"] == Mark("running", 1, 5)
    add(rollout, 5, ModelCall(seen=4, items=[message("assistant", "two")]))
    assert seqs(read_news(rollout, None, Mark("running", 1, 5))) == [5]


def test_a_call_id_of_an_earlier_turn_is_not_taken_for_this_one(rollout):
    for turn in range(3):
        add(rollout, 2 + 2 * turn, ModelCall(seen=1, items=CALLS.items[:1]))
        add(rollout, 3 + 2 * turn, ToolResult(call_id="call_1", name="calculator", output=str(turn)))
    (card,) = read_news(rollout, None, Mark("running", 1, 7))["cards"]
    assert (card.seq, card.blocks[0].result.body.text) == (6, "2")


def test_the_header_counts_what_there_is_while_it_runs(rollout):
    add(rollout, 2, CALLS)
    add(rollout, 3, ToolResult(call_id="call_1", name="calculator", output="2"))
    page = squeezed(signed_in().get(address(rollout)).text)
    assert "<dt>Turns</dt><dd>1</dd>" in page
    assert "<dt>Tool calls</dt><dd>1</dd>" in page
    assert "<span data-awaited>No result yet</span>" in page


def test_the_end_is_told_with_the_last_events_and_the_figures_of_the_row(rollout):
    add(rollout, 2, Verification(reward=0.5, stop_reason="answered", duration=0.25))
    Rollout.objects.update(
        status="completed",
        lease=None,
        stop_reason="answered",
        reward=0.5,
        turns=7,
        verify_time=0.25,
        finished_at="2026-01-01T00:00Z",
    )
    news = squeezed(signed_in().get(address(rollout, "running-1-2"), headers=HTMX).text)
    for part in ['data-settled="true"', 'data-mark="completed-1-3"', "0.50", "<dt>Turns</dt><dd>7</dd>", 'id="e2"']:
        assert part in news
    assert "<dt>Time by phase</dt><dd>verifier 250 ms</dd>" in news
    assert ("data-follow" in news, 'id="e1"' in news) == (False, False)


def test_an_end_without_new_events_is_told_too(rollout):
    Rollout.objects.update(status="cancelled", lease=None, finished_at="2026-01-01T00:00Z")
    news = signed_in().get(address(rollout, "running-1-2"), headers=HTMX)
    assert ('data-mark="cancelled-1-2"' in news.text, "<article" in news.text) == (True, False)


def test_another_attempt_begins_a_trace_of_its_own_and_says_why(rollout):
    add(rollout, 2, ErrorRaised(kind="policy_error", message="503 <again>"))
    Rollout.objects.update(attempt=2, failures=1)
    add(rollout, 0, SessionOpened(environment="calculator"), attempt=2)
    news = squeezed(signed_in().get(address(rollout, "running-1-3"), headers=HTMX).text)
    assert 'data-mark="running-2-1"' in news
    assert "<strong>Attempt 2</strong>" in news
    assert "after attempt 1 ended: <a" in news
    assert "policy_error</a> – 503 &lt;again&gt;" in news
    assert [each.attributes["id"] for each in read(news).all("article")] == ["e0"]
    # Once: the next news of this attempt go on below.
    add(rollout, 1, Prompt(items=[message("user", "hi")]), attempt=2)
    assert "<strong>Attempt 2</strong>" not in signed_in().get(address(rollout, "running-2-1"), headers=HTMX).text


def test_a_rollout_that_waits_for_its_next_attempt_says_so(rollout):
    add(rollout, 2, ErrorRaised(kind="policy_error", message="503"))
    Rollout.objects.update(status="queued", lease=None, failures=1)
    news = signed_in().get(address(rollout, "running-1-2"), headers=HTMX).text
    assert "next attempt appears" in news
    assert [each.attributes["id"] for each in read(news).all("article")] == ["e2"]


@pytest.mark.parametrize("mark", ["", "x", "running-1-", "running-99999999-1", "running-1-1;drop", "-1-1"])
def test_a_mark_that_is_none_gets_everything(rollout, mark):
    news = signed_in().get(address(rollout, mark), headers=HTMX)
    assert [each.attributes["id"] for each in read(news.text).all("article")] == ["e0", "e1"]


def test_who_may_not_comment_gets_no_links_to_it(rollout):
    add(rollout, 2, CALLS)
    told = [signed_in(role).get(address(rollout, "running-1-2"), headers=HTMX).text for role in Role.values]
    assert ["data-comment" in each for each in told] == [role in {Role.ENGINEER, Role.ADMIN} for role in Role.values]


def test_attempts_are_links_with_their_reasons(rollout):
    add(rollout, 2, ErrorRaised(kind="policy_error", message="503"))
    Rollout.objects.update(attempt=3, failures=1, lost=1)
    page = squeezed(signed_in().get(address(rollout)).text)
    assert "3 attempts:" in page
    for part in ["1 · policy_error", "2 · worker lost", "3 · running"]:
        assert f"{part}</a>" in page
    assert f'href="{address(rollout)}?attempt=1"' in page


def test_a_look_without_news_costs_few_queries(rollout, django_assert_num_queries):
    row = Rollout.objects.get(pk=rollout.pk)
    with django_assert_num_queries(1):
        assert read_news(row, None, Mark("running", 1, 2)) is None
