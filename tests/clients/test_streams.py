"""Rollouts as they end, from a real server: what a trainer sends and gets, and what becomes of it when it leaves."""

import http.client
import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.clients.site import Site, open_site
from tests.deadlines import DEADLINE, wait_until
from tests.factories import make_row

pytestmark = pytest.mark.slow
PATH = "/api/v1/rollouts/stream/"
ROWS = [make_row("What is 2 + 2?", "4", id="four"), make_row("What is 2 + 3?", "5", id="five")]


def ask(site: Site, **fields: Any) -> dict[str, Any]:
    given = {"rows": ROWS, "environment": "exact_match", "endpoint": {"base_url": site.model, "model_name": "mock"}}
    return {name: value for name, value in {**given, **fields}.items() if value is not None}


@contextmanager
def open_stream(
    site: Site, asked: dict[str, Any], *, key: str = "", **headers: str
) -> Iterator[http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", site.served.port, timeout=DEADLINE)
    given = {
        "Authorization": f"Bearer {key or site.key}",
        "Content-Type": "application/json",
        "Accept": "application/x-ndjson",
        **headers,
    }
    try:
        connection.request("POST", PATH, json.dumps(asked), given)
        yield connection.getresponse()
    finally:
        connection.close()


def stream(site: Site, asked: dict[str, Any], **headers: str) -> list[dict[str, Any]]:
    with open_stream(site, asked, **headers) as answer:
        assert (answer.status, answer.headers["Content-Type"]) == (200, "application/x-ndjson"), answer.read()
        return [json.loads(line) for line in answer if line.strip()]


def refusal(site: Site, asked: dict[str, Any], **headers: str) -> tuple[int, str, list[str]]:
    with open_stream(site, asked, **headers) as answer:
        body = json.load(answer)
    pointers = [error["pointer"] for error in body.get("errors", [])]
    return answer.status, body["type"].removeprefix("urn:gymweb:problem:"), pointers


def test_rows_come_back_as_rollouts_with_rewards_items_and_tokens(site: Site) -> None:
    endpoint = {"base_url": site.model, "model_name": "mock", "version": "step-1"}
    first, *rollouts, last = stream(site, ask(site, repeats=3, endpoint=endpoint, sampling={"temperature": 0.5}))
    assert (first["type"], first["total"]) == ("collection", 6)
    assert (last["type"], last["reason"], last["completed"], last["failed"]) == ("end", "completed", 6, 0)
    assert Counter(one["type"] for one in rollouts) == {"rollout": 6}
    assert {(one["external_id"], one["repeat"], one["reward"]) for one in rollouts} == {
        *(("four", repeat, 1.0) for repeat in range(3)),
        *(("five", repeat, 0.0) for repeat in range(3)),
    }
    for one in rollouts:
        assert (one["status"], one["error_kind"], one["model_version"]) == ("completed", "", "step-1")
        assert [item["content"] for item in one["prompt"]] == [
            ROWS[one["task_index"]]["responses_create_params"]["input"][0]["content"]
        ]
        assert [item["content"][0]["text"] for item in one["items"]] == ["4"]
        (segment,) = one["segments"]
        assert sum(segment["mask"]) == 6
        (sampled,) = segment["sampled"]
        assert (sampled["temperature"], one["logprob_mode"]) == (0.5, "raw_logprobs")
        assert (sampled["call"], sampled["version"], sampled["end"] - sampled["start"]) == (1, "step-1", 6)
        assert len(segment["input_ids"]) == len(segment["mask"]) == len(segment["logprobs"])
        assert [bool(logprob) for logprob in segment["logprobs"]] == [bool(sampled) for sampled in segment["mask"]]
        assert one["is_one_sequence"] is True


@pytest.mark.parametrize(("grammar_calls", "trained"), [("mask", [0]), ("keep", [6]), ("drop", [])])
def test_tokens_of_strict_tools_are_masked_kept_or_dropped(site: Site, grammar_calls: str, trained: list[int]) -> None:
    tool = {"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": True}
    row = make_row("What is 2 + 2?", "4")
    row["responses_create_params"]["tools"] = [tool]
    answer = stream(site, ask(site, rows=[row], grammar_calls=grammar_calls))
    (rollout,) = [one for one in answer if one["type"] == "rollout"]
    assert [sum(segment["mask"]) for segment in rollout["segments"]] == trained


def test_groups_come_whole(site: Site) -> None:
    _, *groups, last = stream(site, ask(site, repeats=4, group=True))
    assert last["reason"] == "completed"
    assert [(group["type"], group["is_whole"], len(group["rollouts"])) for group in groups] == [("group", True, 4)] * 2
    assert [{one["task"] for one in group["rollouts"]} for group in groups] == [{group["task"]} for group in groups]
    for group in groups:
        figures = group["figures"]
        assert (figures["group_size"], set(figures["advantages"])) == (
            4,
            {str(one["rollout"]) for one in group["rollouts"]},
        )


def test_tasks_that_are_there_already_are_named_by_their_ids(site: Site) -> None:
    rollouts = [line for line in stream(site, ask(site)) if line["type"] == "rollout"]
    chosen = [one["task"] for one in rollouts if one["external_id"] == "five"]
    again = stream(site, ask(site, rows=None, environment=None, task_ids=chosen, repeats=2))
    assert [(one["task"], one["reward"]) for one in again if one["type"] == "rollout"] == [(chosen[0], 0.0)] * 2


def test_the_same_rows_are_the_same_tasks(site: Site) -> None:
    once, twice = stream(site, ask(site)), stream(site, ask(site))
    assert {one["task"] for one in once[1:-1]} == {one["task"] for one in twice[1:-1]}
    assert once[0]["collection"] != twice[0]["collection"]


def test_a_key_gives_the_same_rollouts_again_and_no_others(site: Site) -> None:
    key = {"Idempotency-Key": "step-7"}
    once, twice = stream(site, ask(site), **key), stream(site, ask(site, group=True), **key)
    assert twice[0]["collection"] == once[0]["collection"]
    assert {one["rollout"] for one in once[1:-1]} == {
        one["rollout"] for group in twice[1:-1] for one in group["rollouts"]
    }
    assert refusal(site, ask(site, repeats=2), **key) == (409, "idempotency-key-used", [])


def test_a_rollout_that_failed_is_sent_with_its_kind(site: Site) -> None:
    endpoint = {"base_url": "http://127.0.0.1:9/v1", "model_name": "gone"}
    answer = stream(site, ask(site, rows=ROWS[:1], endpoint=endpoint, max_attempts=1))
    (failed,) = [one for one in answer if one["type"] == "rollout"]
    assert (failed["status"], failed["reward"], failed["items"], failed["segments"]) == ("failed", None, [], [])
    assert failed["error_kind"] == "policy_error"
    assert answer[-1]["failed"] == 1


@pytest.mark.parametrize(
    ("wrong", "status", "kind", "pointers"),
    [
        ({"rows": None}, 400, "invalid", ["/rows", "/environment"]),
        ({"task_ids": [1]}, 400, "invalid", ["/rows"]),
        ({"rows": None, "environment": None, "task_ids": [10**9]}, 400, "invalid", ["/task_ids"]),
        ({"endpoint": None}, 400, "invalid", ["/policy_model"]),
        ({"endpoint": {"base_url": "http://10.0.0.1/v1", "model_name": "m"}}, 400, "invalid", ["/endpoint/base_url"]),
        ({"repeats": 6_000}, 400, "invalid", ["/repeats"]),
        ({"seconds": 10**6}, 400, "invalid", ["/seconds"]),
        ({"grammar_calls": "forget"}, 400, "invalid", ["/grammar_calls"]),
        ({"reapeats": 2}, 400, "invalid", ["/reapeats"]),
        ({"sampling": {"temperature": "hot"}}, 400, "invalid", ["/sampling"]),
        ({"rows": [*ROWS, {"responses_create_params": {}}]}, 400, "invalid", ["/rows/2/responses_create_params/input"]),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(
    site: Site, wrong: dict[str, Any], status: int, kind: str, pointers: list[str]
) -> None:
    assert refusal(site, ask(site, **wrong)) == (status, kind, pointers)


def test_who_may_not_collect_may_not_stream(site: Site) -> None:
    assert refusal(site, ask(site), key=site.viewer_key) == (403, "permission-denied", [])


@pytest.fixture(scope="module")
def slow_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A model that takes two seconds, and room for two streams."""
    with open_site(tmp_path_factory.mktemp("slow"), "--seats", "2", latency=2000, GYMWEB_STREAMS="2") as opened:
        yield opened


def test_a_disconnected_client_cancels_the_remaining_rollouts(slow_site: Site) -> None:
    with open_stream(slow_site, ask(slow_site, repeats=50)) as answer:
        collection = json.loads(answer.readline())["collection"]
    wait_until(lambda: slow_site.counts(collection)["state"] == "cancelled")


@pytest.mark.parametrize("keep", [True, False])
def test_a_stream_whose_connection_broke_goes_on_for_who_asks_again_with_its_key(slow_site: Site, keep: bool) -> None:
    asked, key = ask(slow_site, repeats=1, keep=keep), {"Idempotency-Key": f"broken-{keep}"}
    with open_stream(slow_site, asked, **key) as answer:
        collection = json.loads(answer.readline())["collection"]
    # The server sees that nobody reads.
    time.sleep(0.5)
    again = stream(slow_site, asked, **key)
    assert (again[0]["collection"], again[-1]["reason"], len(again)) == (collection, "completed", 4)


def test_a_stream_whose_time_is_up_says_so_and_cancels_the_rest(slow_site: Site) -> None:
    answer = stream(slow_site, ask(slow_site, repeats=50, group=True, seconds=15))
    groups, last = answer[1:-1], answer[-1]
    assert (last["type"], last["reason"]) == ("end", "time")
    assert slow_site.counts(last["collection"])["state"] == "cancelled"
    # What had ended is not lost, though no group was whole.
    assert [group["is_whole"] for group in groups] == [False] * len(groups)
    assert sum(len(group["rollouts"]) for group in groups) >= 1


def test_one_stream_too_many_is_asked_to_come_again(slow_site: Site) -> None:
    asked = ask(slow_site, repeats=50)
    with open_stream(slow_site, asked) as one, open_stream(slow_site, asked) as two:
        assert (one.status, two.status) == (200, 200)
        with open_stream(slow_site, asked) as three:
            assert (three.status, three.headers["Retry-After"]) == (503, "6")
            assert json.load(three)["type"] == "urn:gymweb:problem:too-many-streams"
    # Both are closed now, so there is room again.
    wait_until(lambda: _is_open(slow_site, asked))


def _is_open(site: Site, asked: dict[str, Any]) -> bool:
    with open_stream(site, asked) as answer:
        return answer.status == 200


def test_memory_stays_flat_over_thousands_of_rollouts(site: Site, tmp_path: Path) -> None:
    stream(site, ask(site, repeats=50))
    before = site.served.rss()
    answer = stream(site, ask(site, repeats=1000))
    grown = site.served.rss() - before
    assert len(answer) == 2002
    print(f"2,000 rollouts streamed; the server grew by {grown / 1e6:.0f} MB")
    assert grown < 60 * 1024**2


def test_a_reader_that_is_slow_costs_no_memory(site: Site) -> None:
    """Eighty megabytes wait for somebody who reads nothing for a while: in the database, not in the server."""
    asked = ask(site, rows=[make_row("What is 2 + 2? " + "x" * 200_000, "4")], repeats=400)
    stream(site, {**asked, "repeats": 20})
    with open_stream(site, asked) as answer:
        collection = json.loads(answer.readline())["collection"]
        before = site.served.rss()
        wait_until(lambda: site.counts(collection)["state"] == "completed", 600)
        time.sleep(2.0)
        grown = site.served.rss() - before
        lines = [json.loads(line) for line in answer if line.strip()]
    sent = sum(len(one["prompt"][0]["content"]) for one in lines[:-1])
    print(f"{sent / 1e6:.0f} MB waited for a slow reader; the server grew by {grown / 1e6:.0f} MB")
    assert (len(lines), lines[-1]["reason"]) == (401, "completed")
    assert sent > 80e6
    assert grown < 48 * 1024**2


def test_a_collection_that_its_budget_pauses_ends_the_stream_and_stays_paused(site: Site) -> None:
    answer = stream(site, ask(site, repeats=400, concurrency=1, max_tokens=1))
    assert (answer[-1]["type"], answer[-1]["reason"], answer[-1]["cancelled"]) == ("end", "paused", 0)
    assert len(answer) - 2 == answer[-1]["completed"] < 800
    assert site.counts(answer[-1]["collection"])["state"] == "paused"
