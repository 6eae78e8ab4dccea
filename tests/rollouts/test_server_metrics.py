"""Metrics that a server computes over a collection, requested from a real server on a socket."""

import asyncio
import threading
from contextlib import contextmanager

import pytest
from aiohttp import web

from apps.environments.models import Adapter
from apps.gym.traces.events import Verification
from apps.rollouts.engine.collection_limits import settle_collections
from apps.rollouts.models import Collection, ServerMetrics
from apps.rollouts.server_metrics import aggregate_requests
from apps.rollouts.server_metrics.aggregate_requests import (
    NoServerMetrics,
    request_queued_metrics,
    request_server_metrics,
)
from tests.dashboard.pages import signed_in
from tests.factories import make_collection, make_dataset, make_environment, make_rollout, make_row
from tests.gym.resources.servers import Answers

pytestmark = pytest.mark.django_db
State = ServerMetrics.State
REPLY = {
    "group_level_metrics": [{"_ng_task_index": 0, "mean/reward": 0.5}],
    "agent_metrics": {"mean/reward": 0.5, "pass@2/accuracy": 100.0, "per_sample_aggregate": {"accuracy": [50.0]}},
    "key_metrics": {"pass@2/accuracy": 100.0},
}


@pytest.fixture(autouse=True)
def loopback(settings):
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]


@contextmanager
def served(answers):
    """The address of a server that gives these answers, in a thread of its own."""
    loop = asyncio.new_event_loop()
    app = web.Application(client_max_size=64 * 1024**2)
    app.router.add_route("*", "/{path:.*}", answers.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)

    async def start():
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner.addresses[0][1]

    port = loop.run_until_complete(start())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(runner.cleanup())
        loop.close()


def collected(url, **fields):
    """A collection of two tasks, with two rewarded rollouts of the first and a failed one of the second."""
    environment = make_environment(adapter=Adapter.HTTP, builtin="", base_url=url, max_tries=1, **fields)
    rows = [make_row("one", "1", difficulty="easy"), make_row("two", "2", difficulty="hard")]
    dataset = make_dataset(rows, environment=environment)
    collection = make_collection(
        dataset=dataset, state="running", total=3, completed=2, failed=1, rewarded=2, reward_sum=1.0
    )
    first, second = collection.version.tasks.order_by("index")
    for repeat, reward in enumerate((1.0, 0.0)):
        verified = Verification(reward=reward, details={"extracted_answer": str(repeat)})
        make_rollout(
            collection,
            task=first,
            repeat=repeat,
            reward=reward,
            input_tokens=10,
            output_tokens=5,
            components={"format": 1.0},
            trace=[verified],
        )
    failed = {"status": "failed", "stop_reason": "", "error_kind": "timed_out"}
    make_rollout(collection, task=second, reward=None, trace=[], **failed)
    return collection


def test_a_finished_collection_gets_the_metrics_of_its_server():
    answers = Answers(aggregate_metrics=REPLY)
    with served(answers) as url:
        collection = collected(url)
        settle_collections([collection.pk])
        collection.refresh_from_db()
        assert (collection.state, collection.server_metrics.state) == (Collection.State.COMPLETED, State.QUEUED)
        assert request_queued_metrics()
        assert not request_queued_metrics()
    metrics = ServerMetrics.objects.get()
    assert (metrics.state, metrics.message, metrics.rewarded) == (State.READY, "", 2)
    assert metrics.key_metrics == {"pass@2/accuracy": 100.0}
    assert metrics.agent_metrics == REPLY["agent_metrics"]
    assert not metrics.is_outdated
    (sent,) = answers.bodies("aggregate_metrics")
    assert sent == {
        "verify_responses": [
            {
                "expected_answer": "1",
                "difficulty": "easy",
                "extracted_answer": str(repeat),
                "reward": reward,
                "reward_components": {"format": 1.0},
                "_ng_task_index": 0,
                "_ng_rollout_index": repeat,
                "agent_ref": {"type": "responses_api_agents", "name": collection.agent.slug},
                "response": {"usage": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}},
            }
            for repeat, reward in enumerate((1.0, 0.0))
        ]
    }


@pytest.mark.parametrize(
    ("answer", "state", "message"),
    [
        ((500, "KeyError('difficulty')", {}), State.FAILED, "returned 500: KeyError('difficulty')"),
        ((200, "not JSON", {}), State.FAILED, "is not JSON"),
        ({"agent_metrics": [1]}, State.FAILED, "`agent_metrics` in the reply of /aggregate_metrics is not an object"),
        ({"agent_metrics": {"a": "x\0"}}, State.FAILED, "at agent_metrics/a that cannot be stored"),
        (None, State.UNSUPPORTED, ""),
    ],
)
def test_a_failure_is_stored_and_ends_nothing_else(answer, state, message):
    answers = Answers(**({} if answer is None else {"aggregate_metrics": [answer]}))
    with served(answers) as url:
        collection = collected(url)
        settle_collections([collection.pk])
        assert request_queued_metrics()
    metrics = ServerMetrics.objects.get()
    assert metrics.state == state
    assert message in metrics.message
    collection.refresh_from_db()
    assert collection.state == Collection.State.COMPLETED


def test_an_unreachable_server_is_a_failure_and_the_last_metrics_stay():
    answers = Answers(aggregate_metrics=REPLY)
    with served(answers) as url:
        collection = collected(url)
        request_server_metrics(collection=collection)
        request_queued_metrics()
    request_server_metrics(collection=collection)
    request_queued_metrics()
    metrics = ServerMetrics.objects.get()
    assert metrics.state == State.FAILED
    assert metrics.message
    assert metrics.key_metrics == REPLY["key_metrics"]


def test_changed_rewards_make_the_metrics_outdated_until_requested_again():
    with served(Answers(aggregate_metrics=REPLY)) as url:
        collection = collected(url)
        request_server_metrics(collection=collection)
        request_queued_metrics()
        Collection.objects.update(reward_sum=2.0)
        assert ServerMetrics.objects.get().is_outdated
        request_server_metrics(collection=collection)
        request_queued_metrics()
        assert not ServerMetrics.objects.get().is_outdated


def test_rollouts_are_sent_in_order_over_several_reads(monkeypatch):
    monkeypatch.setattr(aggregate_requests, "_CHUNK", 3)
    answers = Answers(aggregate_metrics=REPLY)
    with served(answers) as url:
        collection = collected(url)
        second = collection.version.tasks.order_by("index")[1]
        for repeat in range(1, 8):
            make_rollout(collection, task=second, repeat=repeat, reward=repeat / 8, trace=[])
        request_server_metrics(collection=collection)
        request_queued_metrics()
    (sent,) = answers.bodies("aggregate_metrics")
    places = [(each["_ng_task_index"], each["_ng_rollout_index"]) for each in sent["verify_responses"]]
    assert places == [(0, 0), (0, 1), *((1, repeat) for repeat in range(1, 8))]


def test_a_request_that_is_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(aggregate_requests, "MAX_BODY", 100)
    with served(Answers(aggregate_metrics=REPLY)) as url:
        request_server_metrics(collection=collected(url))
        request_queued_metrics()
    assert "the maximum of one request" in ServerMetrics.objects.get().message


@pytest.mark.parametrize("fields", [{"verifies": False}, {"verifier": {"type": "exact_match"}}])
def test_only_a_server_that_computes_rewards_is_asked(fields):
    collection = collected("http://127.0.0.1:9", **fields)
    settle_collections([collection.pk])
    with pytest.raises(NoServerMetrics, match="no metrics of its own"):
        request_server_metrics(collection=collection)
    assert not ServerMetrics.objects.exists()


def test_a_collection_without_rewards_is_refused():
    collection = collected("http://127.0.0.1:9")
    collection.rewarded = 0
    with pytest.raises(NoServerMetrics, match="has a reward yet"):
        request_server_metrics(collection=collection)


def test_the_pages_the_api_and_the_file_show_the_metrics():
    client = signed_in()
    answers = Answers(aggregate_metrics=REPLY)
    with served(answers) as url:
        collection = collected(url)
        Collection.objects.update(state="completed", finished_at=collection.created_at)
        page = client.get(f"/collections/{collection.pk}/results/").text
        assert "Not requested yet" in page
        asked = client.post(f"/collections/{collection.pk}/server-metrics/")
        assert asked.url == f"/collections/{collection.pk}/"
        assert "Being computed" in client.get(f"/collections/{collection.pk}/results/").text
        request_queued_metrics()
        page = client.get(f"/collections/{collection.pk}/results/").text
        assert '<code>pass@2/accuracy</code></th><td class="num">100</td>' in page
        assert '<code>mean/reward</code></th><td class="num">0.5</td>' in page
        file = client.get(f"/collections/{collection.pk}/figures/server_metrics.csv").text
        assert file.splitlines()[:3] == ["metric,value,key_metric", "pass@2/accuracy,100.0,yes", "mean/reward,0.5,no"]
        other = make_collection(dataset=collection.dataset, state="completed")
        compared = client.get(f"/collections/compare/?a={collection.pk}&b={other.pk}").text
        assert '<code>pass@2/accuracy</code></th><td class="num">100</td><td class="num">–</td>' in compared
        path = f"/api/v1/collections/{collection.pk}"
        found = client.get(f"{path}/server_metrics/").json()
        assert (found["state"], found["key_metrics"], found["is_outdated"]) == ("ready", REPLY["key_metrics"], False)
        again = client.post(f"{path}/request_server_metrics/")
        assert (again.status_code, again.json()["state"]) == (202, "queued")
    request_queued_metrics()
    page = client.get(f"/collections/{collection.pk}/results/").text
    assert "did not compute them:" in page
    assert "<code>pass@2/accuracy</code>" in page
    assert client.get(f"/api/v1/collections/{other.pk}/server_metrics/").status_code == 404
    refused = client.post(f"/api/v1/collections/{other.pk}/request_server_metrics/")
    assert refused.status_code == 409
    assert "has a reward yet" in refused.json()["detail"]
