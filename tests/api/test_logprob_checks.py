"""Captured log probabilities scored again: by a server that speaks vLLM's completions, or by the caller."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import orjson
import pytest
from msgspec.structs import replace

from apps.gym.traces.events import ModelCall
from apps.policies.models import PolicyModel
from tests.factories import make_collection, make_policy_model, make_rollout, make_trace
from tests.gym.traces import with_tokens

pytestmark = pytest.mark.django_db


class Scorer(BaseHTTPRequestHandler):
    """Gives each id after the first the log probability −id / 10, unless it is told to answer otherwise."""

    def do_POST(self):
        asked = orjson.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, asked))
        ids = asked["prompt"]
        scored = [None, *({str(one): {"logprob": -one / 10, "rank": 1}} for one in ids[1:])]
        status, body = self.server.answer or (200, {"choices": [{"text": "", "prompt_logprobs": scored}]})
        sent = orjson.dumps(body)
        self.send_response(status)
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(settings):
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    server = ThreadingHTTPServer(("127.0.0.1", 0), Scorer)
    server.asked, server.answer = [], None
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def model(server):
    return make_policy_model(
        provider="compatible",
        base_url=f"http://127.0.0.1:{server.server_port}/v1",
        model_name="tiny",
        version="step-2",
        capture_tokens=True,
    )


def capture(model, *captured, version="step-2", **call):
    """A rollout whose calls read and wrote these ids; each sampled token has the log probability −0.5."""
    given = [
        replace(event, version=version, **call) if isinstance(event, ModelCall) else event for event in make_trace()
    ]
    collection = make_collection(policy_model=model)
    sampled = sum(len(ids) for _, ids in captured)
    return make_rollout(collection, trace=with_tokens(given, *captured), sampled_tokens=sampled, model_version=version)


def check(client, model, **body):
    answer = client.post(f"/api/v1/policy-models/{model.slug}/check-logprobs/", body, content_type="application/json")
    return answer.status_code, answer.json()


def test_the_server_scores_the_ids_of_the_current_version_again(engineer, server, model):
    capture(model, ([1, 2], [5]), ([1, 2, 5, 9], [4, 7]))
    capture(model, ([1], [5]), ([1, 5], [6]), version="step-1")
    status, found = check(engineer, model)
    [(path, asked)] = server.asked
    assert (status, path, asked["model"], asked["prompt"]) == (200, "/v1/completions", "tiny", [1, 2, 5, 9, 4, 7])
    assert (asked["prompt_logprobs"], asked["max_tokens"]) == (0, 1)
    # −0.5 against −0.5, −0.4 and −0.7
    every = found["figures"]["every"]
    assert (every["tokens"], round(every["largest"], 6), round(every["mean"], 6)) == (3, 0.2, 0.1)
    assert every["above"] == {"0.001": 2 / 3, "0.01": 2 / 3, "0.1": 1 / 3}
    assert (found["compared_with"], found["version"], found["rollouts"]) == ("server", "step-2", 1)
    assert (found["left_out"], found["problem"]) == ({}, "")
    shown = engineer.get(f"/api/v1/policy-models/{model.slug}/").json()["logprob_check"]
    assert shown == found


def test_tokens_that_a_forward_pass_cannot_give_are_left_out_by_name(engineer, server, model):
    capture(model, ([1, 2], [5]), ([1, 2, 5, 9], [4, 7]), grammar=True)
    capture(model, ([1], [5]), ([1, 5, 3], [6, 6]), sampling={"temperature": 0.5})
    PolicyModel.objects.update(logprob_mode="processed_logprobs")
    capture(model, ([3], [5]), ([3, 5, 3], [6]), sampling={"temperature": 1.0})
    capture(model, ([1], [5]), ([1, 5, 4], [6, 6, 6]), sampling={"top_p": 0.9})
    capture(model, ([1], [5]), ([1, 5, 2], [6]), sampling={"top_p": 1, "top_k": -1})
    status, found = check(engineer, model)
    left_out = {"grammar": 3, "processed_temperature": 3, "processed_sampling": 4}
    assert (status, found["left_out"]) == (200, left_out)
    assert found["figures"]["every"]["tokens"] == 4
    # Raw log probabilities are those before truncation.
    PolicyModel.objects.update(logprob_mode="raw_logprobs")
    assert check(engineer, model)[1]["left_out"] == {"grammar": 3}


def test_scores_of_another_model_are_compared_with_the_same_figures(engineer, server, model):
    rollout = capture(model, ([1, 2], [5]), ([1, 2, 5, 9], [4, 7]))
    scores = [{"rollout": rollout.pk, "segment": 0, "logprobs": [0, -9, -0.5, -9, -0.5, -0.75]}]
    status, found = check(engineer, model, scores=scores, compared_with="policy/, float32")
    assert (status, server.asked, found["compared_with"]) == (200, [], "policy/, float32")
    assert (found["figures"]["every"]["tokens"], found["figures"]["every"]["largest"]) == (3, 0.25)
    short = [{**scores[0], "logprobs": [0, -0.5]}]
    assert check(engineer, model, scores=short)[1]["errors"][0]["pointer"] == "/scores"
    assert check(engineer, model, scores=[{**scores[0], "segment": 3}])[0] == 400


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((404, {"detail": "Not Found"}), "404"),
        ((200, {"choices": [{"text": "x"}]}), "prompt_logprobs"),
        ((200, {"choices": [{"prompt_logprobs": [None, {"1": {"logprob": -1}}]}]}), "prompt_logprobs"),
        ((200, []), "Expected"),
    ],
)
def test_a_server_that_cannot_score_is_named(engineer, server, model, answer, why):
    capture(model, ([1, 2], [5]), ([1, 2, 5, 9], [4, 7]))
    server.answer = answer
    status, found = check(engineer, model)
    assert (status, found["figures"]["every"]["tokens"], found["left_out"]) == (200, 0, {"not_scored": 1})
    assert why in found["problem"]


def test_nothing_to_compare_is_an_error(engineer, model):
    status, found = check(engineer, model)
    assert (status, found["type"]) == (409, "urn:gymweb:problem:no-comparable-tokens")


def test_only_engineers_check(viewer, model):
    assert check(viewer, model)[0] == 403
