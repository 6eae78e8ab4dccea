"""The parts that a trace page is made of: chunks, outline, one step, texts, pictures, what was found, neighbours."""

import base64
import gzip
import json

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from apps.accounts.models import Role
from apps.dashboard.tables.neighbours import find_neighbours
from apps.dashboard.templatetags.gymweb_format import usd
from apps.dashboard.traces.card_building import build_trace
from apps.dashboard.traces.chunks import Span, pages_of, split_events
from apps.dashboard.traces.finding import find_words
from apps.dashboard.traces.trace_view import TraceView
from apps.gym.traces.events import (
    EnvironmentTurn,
    ErrorRaised,
    JudgeCall,
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
from tests.dashboard.pages import queries_with_one_and_three, signed_in, squeezed
from tests.factories import make_collection, make_policy_model, make_rollout, make_trace
from tests.gym.exporters.test_stored_logprobs import stored
from tests.gym.traces import with_tokens
from tests.images import make_png

pytestmark = pytest.mark.django_db
HTMX = {"HX-Request": "true"}
PNG = make_png()


def address(name: str, rollout: Rollout, *args: object, **query: object) -> str:
    found = reverse(f"dashboard:rollout_{name}", args=[rollout.pk, *args])
    return found + ("?" + "&".join(f"{key}={value}" for key, value in query.items()) if query else "")


def call(number: int, arguments: str = '{"n": 1}') -> dict[str, object]:
    return {"type": "function_call", "call_id": f"c{number}", "name": "count", "arguments": arguments}


def turns(count: int, output: str = "ok") -> list[TraceUnion]:
    events: list[TraceUnion] = [Prompt(items=[message("user", "go on")])]
    for number in range(count):
        events.append(ModelCall(seen=1, items=[call(number, f'{{"n": {number}}}')]))
        events.append(ToolResult(call_id=f"c{number}", name="count", output=f"{output} {number}"))
    return events


def shown_steps(html: str) -> list[int]:
    return [int(each.attributes["id"][1:]) for each in read(html).all("article") if each.attributes.get("id")]


def test_a_chunk_begins_with_a_step_so_that_no_call_is_parted_from_its_results():
    kinds = [(0, "prompt"), *((seq, "tool_result" if seq % 3 else "model_call") for seq in range(1, 400))]
    spans = split_events(kinds)
    assert [span.first for span in spans[1:]] == [150, 300]
    assert spans[0] == Span(0, 149, 50)
    assert spans[-1].last == 399
    assert sum(span.steps for span in spans) == sum(kind != "tool_result" for _, kind in kinds)


def test_a_small_rest_goes_with_the_chunk_before_and_pages_join_chunks():
    assert split_events((seq, "model_call") for seq in range(60)) == [Span(0, 59, 60)]
    spans = split_events((seq, "model_call") for seq in range(500))
    assert (len(spans), pages_of(spans)) == (10, [Span(0, 199, 200), Span(200, 399, 200), Span(400, 499, 100)])
    assert split_events([]) == []


def test_a_long_trace_opens_with_its_first_part_and_names_the_others():
    rollout = make_rollout(make_collection(), trace=turns(260))
    page = signed_in().get(address("detail", rollout)).text
    assert shown_steps(page) == [0, *range(1, 99, 2)]
    places = [each.attributes for each in read(page).all("section") if "pending" in each.attributes.get("class", "")]
    assert [(each["data-first"], each["data-last"]) for each in places][:2] == [("99", "198"), ("199", "298")]
    assert 'href="?hide=none&amp;step=99#e99">50 steps, #99 to #198</a>' in page
    assert 'id="outline-399"' in page


def test_an_address_opens_the_part_that_holds_its_step():
    rollout = make_rollout(make_collection(), trace=turns(260))
    page = signed_in().get(address("detail", rollout, step=310)).text
    assert (shown_steps(page)[0], 309 in shown_steps(page)) == (299, True)
    # Without such a step it opens as always.
    assert shown_steps(signed_in().get(address("detail", rollout, step=9_999)).text)[0] == 0


def test_a_part_comes_alone_to_the_page_and_leads_to_it_otherwise():
    rollout = make_rollout(make_collection(), trace=turns(260))
    client = signed_in(Role.VIEWER)
    part = client.get(address("steps", rollout, **{"from": 99}), headers=HTMX)
    assert (shown_steps(part.text)[0], shown_steps(part.text)[-1], "<html" in part.text) == (99, 197, False)
    assert faults(part.text) == []
    alone = client.get(address("steps", rollout, **{"from": 99}))
    assert alone["Location"] == f"{address('detail', rollout)}?attempt=1&step=99#e99"
    assert client.get(address("steps", rollout, **{"from": 5_000}), headers=HTMX).status_code == 404
    outline = client.get(address("outline", rollout, **{"from": 399}), headers=HTMX).text
    assert ('id="o399"' in outline, 'id="o1"' in outline, "<html" in outline) == (True, False, False)


def test_a_page_takes_as_many_queries_for_five_hundred_steps_as_for_three(django_assert_num_queries):
    short, long = (make_rollout(make_collection(), trace=turns(count)) for count in (1, 500))
    client = signed_in()
    counts = [_queries(client, address("detail", rollout)) for rollout in (short, long)]
    assert counts[0] == counts[1]
    assert _queries(client, address("steps", long, **{"from": 99}), **HTMX) <= 6


def _queries(client: Client, url: str, **headers: str) -> int:
    with CaptureQueriesContext(connection) as queries:
        assert client.get(url, headers=headers).status_code == 200
    return len(queries)


def test_a_thousand_steps_are_less_than_150_kb_on_the_wire():
    rollout = make_rollout(make_collection(), trace=turns(1_000, output="a line of words that a tool wrote, " * 40))
    page = signed_in().get(address("detail", rollout), headers={"Accept-Encoding": "gzip"})
    assert page["Content-Encoding"] == "gzip"
    assert len(page.content) < 100_000
    assert "1,001 steps" in gzip.decompress(page.content).decode()


def test_texts_of_a_part_that_are_too_many_are_shown_by_their_beginnings():
    rollout = make_rollout(make_collection(), trace=turns(20, output="x" * 30_000))
    page = signed_in().get(address("detail", rollout)).text
    assert len(page) < 700_000
    assert "Showing 1.2 KB of 29.3 KB" in page


def test_a_step_has_its_figures_its_request_and_its_response():
    model = make_policy_model(
        provider="compatible", wire="chat", base_url="https://m.example/v1", model_name="m-1", input_price=2.0
    )
    trace = make_trace()
    trace[2].sampling = {"temperature": 0.5, "max_output_tokens": 64}
    trace[2].duration = 2.0
    rollout = make_rollout(make_collection(policy_model=model), trace=trace)
    client = signed_in(Role.VIEWER)
    page = squeezed(client.get(address("step", rollout, 4)).text)
    assert 'Request <span class="muted small">POST …/chat/completions</span>' in page
    request = json.loads(client.get(address("text", rollout, 4, "request")).text)
    assert (request["model"], [each["role"] for each in request["messages"]]) == ("m-1", ["user", "assistant", "tool"])
    first = json.loads(client.get(address("text", rollout, 2, "request")).text)
    assert (first["temperature"], first["max_completion_tokens"], len(first["messages"])) == (0.5, 64, 1)
    response = json.loads(client.get(address("text", rollout, 2, "response")).text)
    assert (response["finish_reason"], response["usage"]["input_tokens"]) == ("tool_calls", 20)
    inspected = squeezed(client.get(address("step", rollout, 2), headers=HTMX).text)
    figures = {"Tokens in": "20", "Tokens per second": "2.50", "Duration": "2.0 s", "Cost": usd(4e-05)}
    for part in [f'<dt>{label}</dt><dd class="figure">{value}</dd>' for label, value in figures.items()]:
        assert part in inspected
    assert "Request <span" not in client.get(address("step", rollout, 3)).text
    assert client.get(address("step", rollout, 99)).status_code == 404


def test_a_step_has_the_tools_of_its_call():
    one, two = [{"type": "function", "name": name, "parameters": {"type": "object"}} for name in ("one", "two")]
    model = make_policy_model(provider="compatible", wire="chat", base_url="https://m.example/v1", model_name="m-1")
    trace = make_trace()
    trace[0].tools = [one]
    trace[4].tools_in = [one, two]
    rollout = make_rollout(make_collection(policy_model=model), trace=trace)
    client = signed_in(Role.VIEWER)
    for seq, names in ((2, ["one"]), (4, ["one", "two"])):
        request = json.loads(client.get(address("text", rollout, seq, "request")).text)
        assert [tool["function"]["name"] for tool in request["tools"]] == names
    assert json.loads(client.get(address("text", rollout, 4, "changed-tools")).text) == [one, two]


@pytest.mark.parametrize("seq", range(8))
def test_every_kind_of_step_has_a_page(seq):
    trace = [
        SessionOpened(environment="e"),
        Prompt(items=[message("user", "hi")]),
        ModelCall(seen=1, items=[call(1), {"type": "odd", "x": 1}]),
        ToolResult(call_id="c1", name="count", output="1"),
        EnvironmentTurn(items=[message("user", "go on")]),
        JudgeCall(judge="j", question="q", prompt=[message("user", "?")]),
        Verification(reward=1.0),
        ErrorRaised(kind="policy_error", message="gone"),
    ]
    rollout = make_rollout(make_collection(), trace=trace)
    page = signed_in().get(address("step", rollout, seq))
    assert (page.status_code, faults(page.text)) == (200, [])


def test_a_text_is_served_exactly_and_never_executed():
    arguments = '{"n":  1,\n "text": "é"}'
    rollout = make_rollout(make_collection(), trace=[ModelCall(seen=0, items=[call(1, arguments)])])
    text = signed_in(Role.VIEWER).get(address("text", rollout, 0, "0", download=1))
    assert text.text == arguments
    assert text["Content-Type"] == "text/plain; charset=utf-8"
    assert text["Content-Security-Policy"] == "default-src 'none'; sandbox"
    assert (text["X-Content-Type-Options"], text["Content-Disposition"]) == (
        "nosniff",
        f'attachment; filename="rollout-{rollout.pk}-0-0.json"',
    )
    assert signed_in().get(address("text", rollout, 0, "7")).status_code == 404
    assert signed_in().get(address("text", rollout, 5, "0")).status_code == 404


def picture(kind: str, content: bytes) -> dict[str, object]:
    data = base64.b64encode(content).decode()
    return {"role": "user", "content": [{"type": "input_image", "image_url": f"data:{kind};base64,{data}"}]}


def test_a_picture_of_the_trace_comes_from_our_own_address():
    rollout = make_rollout(make_collection(), trace=[EnvironmentTurn(items=[picture("image/png", PNG)])])
    page = signed_in().get(address("detail", rollout)).text
    source = address("image", rollout, 0, "0.0")
    assert f'src="{source}"' in page
    shown = signed_in(Role.VIEWER).get(source)
    assert (shown.content, shown["Content-Type"]) == (PNG, "image/png")
    assert (shown["X-Content-Type-Options"], shown["Content-Security-Policy"]) == (
        "nosniff",
        "default-src 'none'; sandbox",
    )


@pytest.mark.parametrize("with_call", [True, False])
def test_a_picture_of_a_result_is_shown_with_its_text(with_call):
    parts = [{"type": "input_text", "text": "The page:"}, *picture("image/png", PNG)["content"]]
    result = ToolResult(call_id="c1", name="look", output=parts)
    asked = [ModelCall(seen=0, items=[call(1, "{}")])] if with_call else []
    rollout = make_rollout(make_collection(), trace=[*asked, result])
    page = signed_in().get(address("detail", rollout)).text
    source = address("image", rollout, len(asked), "0.1")
    assert (f'src="{source}"' in page, "The page:" in page, "base64" in page) == (True, True, False)
    assert signed_in(Role.VIEWER).get(source).content == PNG
    assert "<mark>The page</mark>:" in signed_in().get(address("find", rollout, q="The page")).text


@pytest.mark.parametrize(
    "item",
    [
        picture("image/svg+xml", b"<svg onload=alert(1)>"),
        picture("text/html", b"<script>alert(1)</script>"),
        picture("image/png", b"<script>alert(1)</script>"),
        {"role": "user", "content": [{"type": "input_image", "image_url": "https://elsewhere.example/x.png"}]},
        {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,%%"}]},
        {"role": "user", "content": [{"type": "input_image", "image_url": {"url": ["x"]}}]},
        {"role": "user", "content": ["x"]},
    ],
)
def test_only_pictures_are_served_as_pictures(item):
    rollout = make_rollout(make_collection(), trace=[EnvironmentTurn(items=[item])])
    client = signed_in()
    assert client.get(address("image", rollout, 0, "0.0")).status_code == 404
    assert 'src="https://elsewhere' not in client.get(address("detail", rollout)).text


def test_the_turns_of_a_simulated_user_are_marked():
    asked = JudgeCall(judge="user-7b", question="next message", role="user", prompt=[message("user", "Hello?")])
    trace = [
        Prompt(items=[message("user", "Hi.")]),
        asked,
        EnvironmentTurn(items=[message("user", "My card.")], by_user=True),
        EnvironmentTurn(items=[message("user", "A board.")]),
    ]
    collection = make_collection(snapshot={"environment": {"builtin": "simulated_user"}})
    rollout = make_rollout(collection, trace=trace, judge_calls=1, judge_tokens=5)
    rows = [(seq, event_kind(event), encode_event(event), None) for seq, event in enumerate(trace)]
    assert [card.title for card in build_trace(rows).cards] == [
        "Prompt",
        "User model call",
        "Simulated user",
        "Environment turn",
    ]
    page = signed_in().get(address("detail", rollout)).text
    assert "<b>user model</b>" in page
    assert "<b>user</b>" in page
    assert "User model tokens" in page
    assert "Judge tokens" not in page


def test_words_are_found_in_all_parts_and_counted():
    trace = [
        Prompt(items=[message("user", "Where is the Needle?")]),
        ModelCall(seen=1, items=[call(1, '{"needle": "needle\\u0041"}')]),
        ToolResult(call_id="c1", name="needle_tool", output="hay " * 500 + "<b>NEEDLE</b>"),
        Verification(reward=1.0, explanation="no", details={"deep": ["needle"]}),
    ]
    rollout = make_rollout(make_collection(), trace=trace)
    found = squeezed(signed_in(Role.VIEWER).get(address("find", rollout, q="needle"), headers=HTMX).text)
    assert "<strong>5</strong> matches in 4" in found
    assert "&lt;b&gt;<mark>NEEDLE</mark>&lt;/b&gt;" in found
    # Each leads to the very text, which its card may have switched off.
    parts = {hit.part for hit in find_words(rollout, rollout.attempt, "needle").hits if hit.seq == 2}
    shown = signed_in().get(address("detail", rollout)).text
    assert [f'data-part="2/{part}"' in shown and f'data-hit="2/{part}"' in found for part in parts] == [True]
    whole = signed_in().get(address("find", rollout, q="needle")).text
    assert (f'href="{address("detail", rollout)}?hide=none&amp;step=2#e2"' in whole, faults(whole)) == (True, [])
    assert "“nothing of it” does not occur" in signed_in().get(address("find", rollout), {"q": "nothing of it"}).text


def test_of_many_places_the_first_are_listed_and_the_others_counted():
    rollout = make_rollout(make_collection(), trace=[ErrorRaised(kind="policy_error", message="ab " * 1_000)])
    found = squeezed(signed_in().get(address("find", rollout, q="ab"), headers=HTMX).text)
    assert "<strong>1000</strong> matches in 1" in found
    assert "first 200 are listed" in found
    assert "800 more" in found
    assert found.count("<mark>") == 200


@pytest.mark.parametrize(
    ("query", "cookie", "hidden", "only"),
    [
        ("", "", set(), False),
        ("hide=reasoning,results", "", {"reasoning", "results"}, False),
        ("hide=none", "hide=system", set(), False),
        ("", "hide=system|only=errors", {"system"}, True),
        ("hide=nonsense,system&only=x", "", {"system"}, False),
    ],
)
def test_hidden_parts_are_in_the_address_or_remembered(rf, query, cookie, hidden, only):
    request = rf.get(f"/?{query}")
    request.COOKIES["trace_view"] = cookie
    noise = TraceView.read(request)
    assert (set(noise.hidden), noise.only_errors) == (hidden, only)
    assert TraceView.read(rf.get(f"/?{noise.query}")) == noise


def test_the_page_hides_what_the_address_says_without_a_script():
    page = signed_in().get(address("detail", make_rollout(make_collection()), hide="system,results")).text
    (reader,) = [each.attributes for each in read(page).all("div") if each.attributes.get("id") == "reader"]
    assert reader["data-hide"] == "system results"
    assert 'href="?hide=system" data-part="results" aria-pressed="false"' in page


@pytest.mark.parametrize("sort", ["", "id", "reward", "-reward"])
def test_neighbours_follow_the_order_of_the_list(sort):
    collection = make_collection()
    for reward in (0.5, None, 1.0, 0.5, None, 0.0):
        given = {} if reward is not None else {"status": "cancelled", "stop_reason": ""}
        make_rollout(collection, reward=reward, **given)
    client, listed = signed_in(), f"sort={sort}"
    page = client.get(reverse("dashboard:rollout_list") + f"?{listed}")
    order = [row.pk for row in page.context["page"].rows]
    found = [find_neighbours(listed, row) for row in page.context["page"].rows]
    assert [each.previous for each in found] == [None, *order[:-1]]
    assert [each.next for each in found] == [*order[1:], None]


def test_a_rollout_leads_on_through_the_filtered_list_that_it_was_opened_from():
    collection = make_collection()
    good, _, best = (make_rollout(collection, reward=reward) for reward in (0.6, 0.1, 0.9))
    client = signed_in()
    rows = client.get(reverse("dashboard:collection_detail", args=[collection.pk]) + "?min_reward=0.5").text
    listed = f"q%3Dcollection%253A{collection.pk}%2Breward%253A%253E%253D0.5%26sort%3Did"
    opened = f"{address('detail', good)}?list={listed}"
    assert f'href="{opened}"' in rows
    page = client.get(opened).text
    (following,) = [each.attributes for each in read(page).all("a") if each.attributes.get("rel") == "next"]
    assert following["href"].startswith(address("detail", best) + f"?list={listed}")
    assert 'rel="next"' not in client.get(following["href"]).text
    # What means no list is passed over: the group it is.
    assert client.get(address("detail", good, list="sort%3Dnonsense")).context["beside"].next == good.pk + 1


def test_the_tokens_of_a_call_come_with_their_segment_and_break():
    trace = with_tokens(make_trace(), ([1, 2], [3, 4]), ([1, 2, 3, 9], [5, 6, 7]))
    rollout = make_rollout(make_collection(), trace=trace)
    client = signed_in(Role.VIEWER)
    page = client.get(address("tokens", rollout, call=2))
    strip = page.context["captured"].strip
    assert [(token.place, token.id, token.logprob) for token in strip.tokens] == [
        (3, 9, None),
        (4, 5, -0.5),
        (5, 6, -0.5),
        (6, 7, -0.5),
    ]
    assert [(each.segment, each.shape.generated) for each in page.context["captured"].calls] == [(1, 2), (2, 3)]
    assert (
        "first 3 of 4 token IDs match the previous call; after that, the reply was tokenised differently"
        in squeezed(page.text)
    )
    table = client.get(address("tokens", rollout, **{"call": 2, "first": 0, "as": "table"}))
    assert len(read(table.text).all("tr")) == 1 + 2 + 1 + 7
    assert (faults(page.text), faults(table.text)) == ([], [])
    nothing = client.get(address("tokens", make_rollout(make_collection()))).text
    assert "No tokens were captured" in nothing


def test_tokens_with_impossible_log_probabilities_are_not_shown_as_captured():
    page = signed_in(Role.VIEWER).get(address("tokens", make_rollout(make_collection(), trace=stored(3.2))))
    captured = page.context["captured"]
    assert [(each.shape is None, each.segment) for each in captured.calls] == [(True, 0), (False, 1)]
    assert (captured.figures.captured, captured.strip.call.number) == (1, 2)


def test_the_downloads_are_whole_and_inert():
    rollout = make_rollout(make_collection(), trace=turns(260, output="</pre><script>alert(1)</script>"))
    client = signed_in(Role.VIEWER)
    raw = json.loads(client.get(address("raw", rollout)).getvalue())
    assert (len(raw["events"]), raw["events"][-1]["call_id"]) == (521, "c259")
    saved = client.get(address("file", rollout))
    page = saved.getvalue().decode()
    assert saved["Content-Disposition"] == f'attachment; filename="rollout-{rollout.pk}.html"'
    assert saved["Content-Security-Policy"] == "default-src 'none'; sandbox"
    assert shown_steps(page) == [0, *range(1, 520, 2)]
    parsed = read(page)
    assert (parsed.all("script"), parsed.all("link"), parsed.all("form")) == ([], [], [])
    (policy,) = [each.attributes["content"] for each in parsed.all("meta") if "http-equiv" in each.attributes]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")


def test_step_pages_take_as_many_queries_for_three_turns_as_for_one():
    rollout = make_rollout(make_collection(), trace=turns(1))
    added = iter(range(1, 100))

    def add() -> None:
        number = next(added)
        for place, event in enumerate(turns(number + 1)[-2:]):
            TraceEvent.objects.create(
                rollout=rollout,
                attempt=1,
                seq=1 + 2 * number + place,
                kind=event_kind(event),
                payload=encode_event(event),
            )

    for name, args in (("step", [1]), ("find", []), ("tokens", [])):
        one, three = queries_with_one_and_three(
            lambda name=name, args=args: address(name, rollout, *args, **({"q": "ok"} if name == "find" else {})), add
        )
        assert (name, one) == (name, three)


@pytest.mark.parametrize(
    ("text", "words", "found"),
    [
        ("The Café closes.", "CAFE", [("The ", "Café", " closes.")]),
        ("The Cafe\u0301 closes.", "café", [("The ", "Cafe\u0301", " closes.")]),
        ("The cafe closes.", "Café", [("The ", "cafe", " closes.")]),
        ("Straße, strasse", "STRASSE", [("", "Straße", ", strasse"), ("Straße, ", "strasse", "")]),
        ("カ\u3099 and ガ", "ガ", [("", "カ\u3099", " and ガ"), ("カ\u3099 and ", "ガ", "")]),
        ("İstanbul", "istanbul", [("", "İstanbul", "")]),
    ],
)
def test_find_takes_letters_with_and_without_accents_for_the_same(text, words, found):
    rollout = make_rollout(make_collection(), trace=[Prompt(items=[message("user", text)])])
    hits = find_words(rollout, rollout.attempt, words).hits
    assert [(hit.before, hit.found, hit.after) for hit in hits] == found
