"""GymWeb's policy client reads what real model servers answered (see scripts/record_servers.py)."""

import asyncio
import functools
import json
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
import pytest

from apps.gym.calls.outbound import Outbound
from apps.gym.calls.outbound_policy import OutboundPolicy
from apps.gym.errors import PolicyError
from apps.gym.traces.items import function_calls, text_of
from apps.gym.wires.endpoint_checks import Endpoint, check_endpoint
from scripts.record_servers import RECORDINGS, ROOT, SERVERS, fill, open_policy
from scripts.recorded_exchanges import MODEL, Question, Recording, ask_questions

MOST_BYTES = 60_000
EXPRESSION = "(68 + 62) * 3"
TEXT, CUT, ANSWER = r"\boxed{8393}.", r"\boxed{8393", r"The answer is \boxed{390}."
# What vLLM's tokenizer reads and the model writes, the end of the turn included.
QUESTION_IDS = [469, 290, 198, 335, 18, 24, 15, 92, 470, 198, 469, 288, 198]
TEXT_IDS = [298, 23, 18, 24, 18, 305, 470]


class Seen(msgspec.Struct, frozen=True):
    """What matters of a reply. `usage` has input and output tokens, () without them. `error` is a refused status."""

    finish: str = ""
    text: str = ""
    call: str = ""
    usage: tuple[int, ...] = ()
    error: int = 0


REFUSED = Seen(error=404)
FULL = Seen("context_length")
GARBAGE = Seen("max_output_tokens", "-  " * 99 + "-", usage=(1208, 100))
BY_API = {
    "text": Seen("stop", TEXT, usage=(13, 7)),
    "call": Seen("tool_calls", call=EXPRESSION, usage=(25, 14)),
    "cut": Seen("max_output_tokens", CUT, usage=(13, 5)),
}
USUAL = {
    **BY_API,
    "answer": Seen("stop", ANSWER, usage=(57, 6)),
    "too_long": FULL,
    "unknown_model": REFUSED,
    "text_streamed": BY_API["text"],
    "call_streamed": BY_API["call"],
    **{f"{wire}_{name}": seen for wire in ("responses", "messages") for name, seen in BY_API.items()},
}
"""What most servers answer."""

DIFFERENT = {
    "vllm": {},
    "portkey": {
        "text_streamed": Seen(error=500),
        "call_streamed": Seen(error=500),
    },
    "litellm": {
        "unknown_model": Seen(error=400),
        # The proxy asks for 16 tokens, the minimum of OpenAI.
        "responses_cut": BY_API["text"],
    },
    "llama_cpp": {
        "unknown_model": BY_API["text"],
        # "logprobs is not supported with tools + stream"
        "call_streamed": Seen(error=400),
        # The status of the response is `completed`.
        "responses_cut": Seen("stop", CUT, usage=(13, 5)),
    },
    "llama_cpp_python": {
        # The end token is not counted. Calls stay in the text, without the tokens of more than 32 bytes.
        "text": Seen("stop", TEXT, usage=(13, 6)),
        "call": Seen("stop", '<tool_call>\n68 + 62) * 3"}}\n</tool_call>', usage=(25, 13)),
        "answer": Seen("stop", ANSWER, usage=(57, 5)),
        "unknown_model": Seen("stop", TEXT, usage=(13, 6)),
        "text_streamed": Seen("stop", TEXT),
        "call_streamed": Seen("stop", '<tool_call>\n68 + 62) * 3"}}\n</tool_call>'),
    },
    "transformers_serve": {
        "tokens_asked": Seen(error=422),
        "unknown_model": Seen(error=400),
        "too_long": GARBAGE,
        "responses_cut": Seen("stop", CUT, usage=(13, 5)),
    },
    "mlx_lm": {"too_long": GARBAGE},
}

CAPTURED = "captured"
ASKED = ("text", "call", "answer", "cut", "text_streamed", "call_streamed")
TOKENS = {
    "vllm": dict.fromkeys(ASKED, CAPTURED),
    "portkey": dict.fromkeys(ASKED[:4], "no_token_ids"),
    # Streamed, the ids of the prompt are lost, and the id of the end token.
    "litellm": {
        **dict.fromkeys(ASKED[:4], CAPTURED),
        "text_streamed": "no_prompt_ids",
        "call_streamed": "no_prompt_ids",
    },
    "llama_cpp": {**dict.fromkeys(ASKED[:4], "no_prompt_ids"), "text_streamed": "no_prompt_ids"},
    "llama_cpp_python": dict.fromkeys(ASKED, "no_token_ids"),
    "transformers_serve": dict.fromkeys(ASKED, ""),
    "mlx_lm": {**dict.fromkeys(ASKED[:4], "no_prompt_ids"), **dict.fromkeys(ASKED[4:], "no_token_ids")},
}
"""The tokens of each reply: captured, or the reason why not. Without a reason, they were not asked for."""

CONTEXTS = {"vllm": 1024, "litellm": 1024, "llama_cpp": 1024}
"""The length of the context, where the list of models tells it."""

each_server = pytest.mark.parametrize("name", SERVERS)


class Replay(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.reply(self.server.models if self.path == "/v1/models" else None)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append((self.path.removeprefix("/v1"), body))
        self.reply(next(self.server.exchanges, None))

    def reply(self, exchange):
        body = exchange.body.encode() if exchange else b"{}"
        self.send_response(exchange.status if exchange else 404)
        for key, value in (exchange.headers if exchange else {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        return None


class Replayed(msgspec.Struct):
    recording: Recording
    outcomes: dict
    requests: list
    checkup: object

    def recorded(self, name):
        return next(one for one in self.recording.exchanges if one.name == name)


@functools.cache
def replay(name):
    """What GymWeb reads in the recorded replies of a server."""
    recording = msgspec.json.decode((RECORDINGS / f"{name}.json").read_bytes(), type=Recording)
    models, *exchanges = recording.exchanges
    with ThreadingHTTPServer(("127.0.0.1", 0), Replay) as server:
        server.daemon_threads = True
        server.models, server.exchanges, server.requests = models, iter(exchanges), []
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            outcomes, checkup = asyncio.run(ask_again(recording, f"http://127.0.0.1:{server.server_port}/v1"))
        finally:
            server.shutdown()
            thread.join()
    return Replayed(recording, outcomes, server.requests[: len(exchanges)], checkup)


async def ask_again(recording, base_url):
    outbound = Outbound(OutboundPolicy(["127.0.0.1"]))

    def connect(question):
        settings = fill(recording.settings[question.wire], {"upstream": 1})
        return open_policy(question, base_url=base_url, settings=settings, outbound=outbound)

    captures = all(one.name != "tokens_asked" for one in recording.exchanges)
    try:
        asked = ask_questions(connect, wires=frozenset(recording.settings), captures=captures)
        outcomes = {name: outcome async for name, outcome in asked}
        policy = connect(Question("models"))
        checkup = await check_endpoint(Endpoint(sender=policy.sender, policy=policy, model_name=MODEL))
    finally:
        await outbound.close()
    return outcomes, checkup


def seen(outcome, recorded):
    if isinstance(outcome, PolicyError):
        assert f"returned {recorded.status}" in str(outcome)
        return Seen(error=recorded.status)
    usage = [outcome.usage[key] for key in ("input_tokens", "output_tokens") if key in outcome.usage]
    calls = [json.loads(call["arguments"])["expression"] for call in function_calls(outcome.items)]
    texts = [text_of(item) for item in outcome.items if item["type"] == "message"]
    return Seen(outcome.finish_reason, "".join(texts).rstrip(), "".join(calls), tuple(usage))


@each_server
def test_each_reply_is_read(name):
    replayed = replay(name)
    found = {key: seen(one, replayed.recorded(key)) for key, one in replayed.outcomes.items() if "drawn" not in key}
    assert [*replayed.outcomes] == [one.name for one in replayed.recording.exchanges[1:]]
    assert found == {key: (USUAL | DIFFERENT[name])[key] for key in found}
    assert DIFFERENT[name].keys() <= found.keys()


@each_server
def test_tokens_are_captured_exactly_or_missing_by_name(name):
    replayed = replay(name)
    notes = {}
    for key in ASKED:
        outcome = replayed.outcomes[key]
        if isinstance(outcome, PolicyError):
            continue
        notes[key] = CAPTURED if outcome.tokens else outcome.tokens_note
        if outcome.tokens and "streamed" not in key:
            [choice] = json.loads(replayed.recorded(key).body)["choices"]
            sent = [entry["logprob"] for entry in choice["logprobs"]["content"]]
            kept = outcome.tokens.fields()["generation_log_probs"]
            assert kept == list(struct.unpack(f"{len(sent)}f", struct.pack(f"{len(sent)}f", *sent)))
    assert notes == TOKENS[name]


@pytest.mark.parametrize("name", ["vllm", "litellm"])
def test_the_captured_ids_are_those_of_prompt_and_reply(name):
    outcomes = replay(name).outcomes
    ids = {key: outcomes[key].tokens.fields() for key in ("text", "cut", "call", "answer")}
    assert ids["text"]["prompt_token_ids"] == ids["cut"]["prompt_token_ids"] == QUESTION_IDS
    assert ids["text"]["generation_token_ids"] == TEXT_IDS
    assert ids["cut"]["generation_token_ids"] == TEXT_IDS[:5]
    # The second turn continues the tokens of the first.
    first = ids["call"]["prompt_token_ids"] + ids["call"]["generation_token_ids"]
    assert ids["answer"]["prompt_token_ids"][: len(first)] == first


@each_server
def test_replies_at_temperature_one_differ(name):
    first, second = (replay(name).outcomes[f"drawn_{number}"] for number in (1, 2))
    assert [text_of(item) for item in first.items] != [text_of(item) for item in second.items]


@each_server
def test_the_length_of_the_context_is_read(name):
    assert replay(name).checkup.capabilities.get("max_model_len") == CONTEXTS.get(name)


@each_server
def test_the_recorded_requests_are_still_sent(name):
    """Otherwise the recording shows replies to requests of an older GymWeb: record it again."""
    replayed = replay(name)
    recorded = [(one.path, shape(one.request)) for one in replayed.recording.exchanges[1:]]
    assert [(path, shape(body)) for path, body in replayed.requests] == recorded, replayed.recording.command


def shape(body):
    """The fields of a request, its model, and the messages without ids of calls."""
    messages = [{"keys": sorted(one), "role": one.get("role")} for one in body.get("messages") or body["input"]]
    return sorted(body), body["model"], messages


@each_server
def test_recordings_are_small_and_name_their_server(name):
    path = RECORDINGS / f"{name}.json"
    recording, server = replay(name).recording, SERVERS[name]
    assert path.stat().st_size <= MOST_BYTES
    assert recording.server == server.title
    assert recording.packages == list(server.packages)
    assert recording.start == list(server.start)
    assert recording.settings == server.settings
    assert name in recording.command
    assert "/root" not in path.read_text() and "/work" not in path.read_text()


def test_each_server_is_recorded():
    assert {path.stem for path in RECORDINGS.iterdir()} == set(SERVERS)


def test_the_recorded_vllm_is_the_one_that_the_project_installs():
    [package] = SERVERS["vllm"].packages
    assert package in (ROOT / "requirements-vllm.txt").read_text().split()
