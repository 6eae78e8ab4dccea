import json

import pytest
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import Role
from apps.gym.traces.events import ErrorRaised, ModelCall, Prompt, ToolResult, encode_event
from apps.gym.traces.items import message
from apps.reviews.models import Comment
from apps.rollouts.models import Rollout, TraceEvent
from tests.dashboard.markup import read
from tests.dashboard.pages import queries_with_one_and_three, signed_in, squeezed
from tests.factories import (
    make_collection,
    make_dataset,
    make_policy_model,
    make_rollout,
    make_row,
    make_trace,
    make_user,
)
from tests.gym.traces import with_tokens

pytestmark = pytest.mark.django_db
HOSTILE = "</pre><script>alert(1)</script>"


def url(rollout: Rollout, query: str = "") -> str:
    return reverse("dashboard:rollout_detail", args=[rollout.pk]) + query


def add_event(rollout: Rollout, seq: int, event: ModelCall | ErrorRaised | Prompt, *, attempt: int = 1) -> None:
    TraceEvent.objects.create(rollout=rollout, attempt=attempt, seq=seq, kind="model_call", payload=encode_event(event))


def running_rollout(**fields: object) -> Rollout:
    given = {"status": "running", "lease": 1, "reward": None, "stop_reason": "", "finished_at": None}
    return make_rollout(make_collection(), trace=[Prompt(items=[message("user", "hi")])], **{**given, **fields})


def test_the_page_shows_the_whole_attempt():
    rollout = make_rollout(make_collection(), components={"correct": 1.0}, input_tokens=1200, duration=4.5)
    page = squeezed(signed_in(Role.VIEWER).get(url(rollout)).text)
    for part in [
        "Session started",
        "What is 2 + 2?",
        "Call <code>calculator</code>",
        "{&quot;expression&quot;: &quot;2+2&quot;}",
        "compared",
        "1 of 1",
        "1,200",
        "4.5 s",
        "answered",
    ]:
        assert part in page
    assert [f'id="e{seq}"' in page for seq in range(6)] == [True] * 6
    assert "style=" not in page
    assert "<textarea" not in page


def test_the_result_follows_its_call_in_the_page():
    page = signed_in().get(url(make_rollout(make_collection()))).text
    assert page.index("Call <code>calculator") < page.index('class="result') < page.index('id="e4"')


def test_hostile_text_of_models_and_tools_is_escaped():
    items = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": HOSTILE}]},
        {"type": "function_call", "call_id": "c", "name": HOSTILE, "arguments": HOSTILE},
        {"type": HOSTILE, "x": HOSTILE},
        message("assistant", HOSTILE),
    ]
    rollout = make_rollout(
        make_collection(),
        trace=[
            ModelCall(seen=0, items=items, model=HOSTILE, finish_reason=HOSTILE),
            ToolResult(call_id="c", name=HOSTILE, output=HOSTILE, error=HOSTILE),
            ErrorRaised(kind=HOSTILE, message=HOSTILE),
        ],
        components={HOSTILE: 1.0},
    )
    Comment.objects.create(rollout=rollout, text=HOSTILE, author=make_user())
    page = signed_in().get(url(rollout)).text
    assert "<script>alert" not in page
    assert page.count("&lt;script&gt;alert(1)") >= 9


def test_a_failed_rollout_says_what_failed():
    rollout = make_rollout(
        make_collection(),
        status="failed",
        reward=None,
        stop_reason="",
        error_kind="policy_error",
        error_message="429 from the endpoint",
        trace=[],
    )
    page = signed_in().get(url(rollout)).text
    verdict = page.partition('<div class="verdict"')[2].partition("</div>")[0]
    assert "policy_error" in verdict
    assert "429 from the endpoint" in verdict
    assert '<pre class="said">429 from the endpoint</pre>' in page


def test_the_verdict_of_a_failed_rollout_quotes_the_error_and_links_to_its_event():
    rollout = make_rollout(
        make_collection(),
        status="failed",
        reward=None,
        stop_reason="",
        error_kind="policy_error",
        error_message="429 from the endpoint",
        trace=[
            Prompt(items=[message("user", "hi")]),
            ErrorRaised(kind="policy_error", message="429 from the endpoint"),
        ],
    )
    page = signed_in().get(url(rollout)).text
    verdict = page.partition('<div class="verdict"')[2].partition("</div>")[0]
    assert '<a href="#e1">step #1</a>' in verdict
    assert "policy_error" in verdict
    assert "429 from the endpoint" in verdict


def test_the_group_is_one_step_away():
    collection = make_collection()
    first, middle, last = (make_rollout(collection) for _ in range(3))
    page = signed_in().get(url(middle)).text
    assert f'rel="prev" href="{url(first)}"' in page
    assert f'rel="next" href="{url(last)}"' in page
    assert "Task 1</a>" in page
    assert "rollout 2 of 3" in page


def test_an_earlier_attempt_can_be_read():
    rollout = make_rollout(make_collection(), attempt=2)
    add_event(rollout, 0, ModelCall(seen=0, items=[message("assistant", "the lost one")]))
    client = signed_in()
    latest, earlier = client.get(url(rollout)).text, client.get(url(rollout, "?attempt=1")).text
    assert ("the lost one" in latest, "the lost one" in earlier) == (False, True)
    assert "?attempt=1" in latest
    assert "1 · worker lost or shut down" in latest
    assert "Attempt 1 of 2" in earlier
    assert ("data-follow" in earlier, 'data-comment="' in earlier) == (False, False)


def test_a_long_output_says_how_much_is_shown_and_where_the_rest_is():
    output = "line\n" * 20_000
    rollout = make_rollout(make_collection(), trace=[ToolResult(call_id="c", name="t", output=output)])
    client = signed_in()
    page = client.get(url(rollout)).text
    assert "Showing 31.2 KB of 97.7 KB" in page
    whole = reverse("dashboard:rollout_text", args=[rollout.pk, 0, "0"])
    assert (f'href="{whole}" data-load-all' in page, f'href="{whole}?download=1"' in page) == (True, True)
    assert client.get(whole).text == output


def test_the_raw_page_has_every_event_as_stored():
    rollout = make_rollout(make_collection())
    answer = signed_in().get(reverse("dashboard:rollout_raw", args=[rollout.pk]), {"download": 1})
    assert answer["Content-Disposition"] == f'attachment; filename="rollout-{rollout.pk}.json"'
    raw = json.loads(answer.getvalue())
    assert (raw["rollout"]["id"], raw["rollout"]["reward"], raw["attempt"]) == (rollout.pk, 1.0, 1)
    assert [event["type"] for event in raw["events"]] == [
        "session",
        "prompt",
        "model_call",
        "tool_result",
        "model_call",
        "verification",
    ]


def test_the_page_takes_as_many_queries_for_three_comments_as_for_one():
    rollout, author = make_rollout(make_collection()), make_user()
    one, three = queries_with_one_and_three(
        lambda: url(rollout), lambda: Comment.objects.create(rollout=rollout, text="x", author=author)
    )
    assert one == three


def test_every_event_has_a_link_that_opens_the_comment_form_about_it():
    rollout = make_rollout(make_collection())
    page = signed_in(Role.ENGINEER).get(url(rollout)).text
    assert [f'href="{url(rollout)}?comment={seq}#comment"' in page for seq in range(6)] == [True] * 6
    opened = read(signed_in(Role.ENGINEER).get(url(rollout, "?comment=3")).text)
    values = [each.attributes.get("value") for each in opened.all("input") if each.attributes.get("id") == "id_seq"]
    assert values == ["3"]
    assert "?comment=" not in signed_in(Role.VIEWER).get(url(rollout)).text
    assert "?comment=" not in signed_in(Role.ENGINEER).get(url(rollout, "?attempt=0")).text


@pytest.mark.parametrize("seq", ["x", "-1", "9" * 30, "²"])
def test_a_comment_about_no_event_opens_an_empty_form(seq):
    opened = read(signed_in().get(url(make_rollout(make_collection())), {"comment": seq}).text)
    assert [each.attributes.get("value") for each in opened.all("input") if each.attributes.get("id") == "id_seq"] == [
        None
    ]


def comment(rollout: Rollout, **fields: object) -> dict[str, object]:
    return {"path": reverse("dashboard:rollout_comment", args=[rollout.pk]), "data": fields}


def test_an_engineer_comments_on_an_event():
    rollout = make_rollout(make_collection())
    client = signed_in(Role.ENGINEER)
    done = client.post(**comment(rollout, text=" wrong tool ", seq=3))
    said = Comment.objects.get()
    assert (said.text, said.seq, done["Location"]) == ("wrong tool", 3, url(rollout, f"#c{said.pk}"))
    page = client.get(url(rollout)).text
    assert 'on <a href="#e3">step #3</a>' in page


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [({"text": "  "}, "This field is required."), ({"text": "x", "seq": 99}, "has no event 99.")],
)
def test_a_comment_that_says_nothing_or_points_nowhere_is_refused(fields, complaint):
    rollout = make_rollout(make_collection())
    answer = signed_in().post(**comment(rollout, **fields))
    assert (answer.status_code, Comment.objects.count()) == (422, 0)
    assert complaint in answer.text


def test_a_viewer_reads_and_does_not_comment():
    rollout = make_rollout(make_collection())
    assert signed_in(Role.VIEWER).post(**comment(rollout, text="x")).status_code == 403


def listed(page: str) -> list[int]:
    return [int(part.split("/")[0]) for part in page.split('<th scope="row"><a href="/rollouts/')[1:]]


def test_the_list_shows_all_collections_newest_first_and_filters():
    first, second = make_collection(), make_collection()
    a, b, c = make_rollout(first, reward=0.0), make_rollout(second), make_rollout(second, reward=0.5)
    client, address = signed_in(), reverse("dashboard:rollout_list")
    assert listed(client.get(address).text) == [c.pk, b.pk, a.pk]
    assert listed(client.get(address, {"collection": second.pk}).text) == [c.pk, b.pk]
    assert listed(client.get(address, {"sort": "-reward"}).text) == [b.pk, c.pk, a.pk]
    assert listed(client.get(address, {"sort": "id", "min_reward": "0.5"}).text) == [b.pk, c.pk]
    assert listed(client.get(address, {"collection": "no"}).text) == []
    assert listed(client.get(address, {"dataset": second.dataset.slug}).text) == [c.pk, b.pk]
    assert listed(client.get(address, {"policy_model": first.policy_model.slug}).text) == [a.pk]
    assert listed(client.get(address, {"dataset": "no"}).text) == []


def test_the_list_takes_as_many_queries_for_three_rows_as_for_one():
    one, three = queries_with_one_and_three(
        lambda: reverse("dashboard:rollout_list"), lambda: make_rollout(make_collection())
    )
    assert one == three


@pytest.mark.parametrize("sort", ["", "id", "reward", "-reward"])
def test_paging_meets_every_rollout_once(sort):
    collection = make_collection()
    task = collection.version.tasks.first()
    Rollout.objects.bulk_create(
        Rollout(
            collection=collection,
            task=task,
            repeat=n,
            status="completed",
            attempt=1,
            finished_at=timezone.now(),
            stop_reason="answered",
            reward=[None, 0.1 + 0.2, 0.5, 1.0][n % 4],
        )
        for n in range(130)
    )
    client, seen, after = signed_in(), [], ""
    for _ in range(3):
        answer = client.get(reverse("dashboard:rollout_list"), {"sort": sort, "after": after})
        seen += listed(answer.text)
        after = answer.context["page"].after
    assert after == ""
    assert sorted(seen) == sorted(Rollout.objects.values_list("pk", flat=True))


@pytest.mark.parametrize("sort", ["reward", "-reward"])
def test_pages_by_reward_are_in_its_order_with_those_without_one_last(sort):
    collection = make_collection(dataset=make_dataset([make_row()] * 120))
    tasks = list(collection.version.tasks.order_by("index"))
    rewards = [[None, 0.25, 1.0, 0.5, 1.0][n % 5] for n in range(120)]
    for task, reward in zip(tasks, rewards, strict=True):
        make_rollout(collection, task=task, trace=[], reward=reward)
    client, seen, after = signed_in(), [], ""
    for _ in range(3):
        answer = client.get(reverse("dashboard:rollout_list"), {"sort": sort, "after": after})
        seen += [(row.reward, row.pk) for row in answer.context["page"].rows]
        after = answer.context["page"].after
    valued = sorted(((row, pk) for row, pk in seen if row is not None), reverse=sort == "-reward")
    valueless = sorted((pk for row, pk in seen if row is None), reverse=sort == "-reward")
    assert seen == [*valued, *((None, pk) for pk in valueless)]
    assert len(seen) == 120


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"status": "failed"}, ["failed"]),
        ({"status": "completed"}, [0.9, 0.2, None]),
        ({"error_kind": "timed_out"}, ["failed"]),
        ({"min_reward": "0.5"}, [0.9]),
        ({"max_reward": "0.5"}, [0.2]),
        ({"status": "failed", "min_reward": "0.5"}, []),
    ],
)
def test_filters_hold_in_the_order_of_rewards_too(query, found):
    collection = make_collection()
    for reward in (0.2, 0.9, None):
        make_rollout(collection, trace=[], reward=reward)
    make_rollout(collection, trace=[], status="failed", error_kind="timed_out", reward=None, stop_reason="")
    page = signed_in().get(reverse("dashboard:rollout_list"), {"sort": "-reward", **query}).context["page"]
    assert [row.status if row.status == "failed" else row.reward for row in page.rows] == found


def test_the_list_finds_scattered_rollouts_of_a_model_or_dataset():
    mine, other = make_collection(), make_collection()
    rollouts = [make_rollout(collection, trace=[]) for collection in (other, mine, other, mine, other)]
    second = make_collection(dataset=mine.dataset, policy_model=other.policy_model)
    late = make_rollout(second, trace=[])
    client, address = signed_in(), reverse("dashboard:rollout_list")
    of_model = client.get(address, {"policy_model": mine.policy_model.slug}).context["page"]
    of_dataset = client.get(address, {"dataset": mine.dataset.slug}).context["page"]
    of_both = client.get(address, {"dataset": mine.dataset.slug, "policy_model": mine.policy_model.slug, "sort": "id"})
    unused = client.get(address, {"policy_model": make_policy_model().slug}).context["page"]
    assert [row.pk for row in of_model.rows] == [rollouts[3].pk, rollouts[1].pk]
    assert [row.pk for row in of_dataset.rows] == [late.pk, rollouts[3].pk, rollouts[1].pk]
    assert [row.pk for row in of_both.context["page"].rows] == [rollouts[1].pk, rollouts[3].pk]
    assert unused.rows == []


def captured_page(*captured: tuple[list[int], list[int]] | None) -> str:
    trace = with_tokens(make_trace(), *captured)
    return squeezed(signed_in(Role.VIEWER).get(url(make_rollout(make_collection(), trace=trace))).text)


def test_the_page_says_that_the_captured_calls_are_one_sequence():
    page = captured_page(([1, 2], [3]), ([1, 2, 3, 4], [5, 6]))
    assert "Tokens: 2 calls captured, 1 segment</p>" in page


def test_the_page_links_to_the_call_where_the_tokens_break():
    page = captured_page(([1, 2], [3]), ([1, 2, 9, 4], [5, 6]))
    parts = ("2 calls captured, 2 segments", '<a href="#e4">Break after call 1</a>', "first 2 of the 3 token IDs")
    assert [part in page for part in (*parts, "(reply tokenised differently).</p>")] == [True] * 4


def test_the_page_counts_calls_without_tokens_and_says_nothing_where_none_has_any():
    assert "Tokens: 1 of 2 calls captured, 1 segment</p>" in captured_page(None, ([1], [2]))
    assert 'id="rollout-tokens"' not in captured_page(None, None)
