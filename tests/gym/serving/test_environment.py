import asyncio
import itertools
import json
from unittest.mock import AsyncMock

import msgspec
import pytest

from apps.gym.environments.calculator.environment import Calculator
from apps.gym.environments.kits import KITS
from apps.gym.environments.protocol import ToolRefused
from apps.gym.environments.registry import BUILTINS
from apps.gym.environments.task_generation import generate_tasks
from apps.gym.judging.judge import Judge
from apps.gym.loop.agent_loop import Attempt, Harness
from apps.gym.resources.inprocess import InProcessServer
from apps.gym.resources.nemo_gym_http import HttpResourceServer
from apps.gym.resources.own_verifier import UnverifiedServer, VerifiedServer
from apps.gym.resources.server_calls import Caller
from apps.gym.serving.served_environment import CannotServe, serve_environment
from apps.gym.serving.served_request import IncomingRequest, Refused, answer_always, plain_path
from apps.gym.traces.events import JudgeCall, SessionOpened, ToolResult, Verification
from apps.gym.wires.scripted import ScriptedPolicy
from tests.deadlines import DEADLINE, wait_until_async
from tests.gym.sandbox.needing import environments
from tests.gym.serving.ports import on_a_port

ROW = {
    "responses_create_params": {"input": [{"role": "user", "content": "What is (3 + 4) * 12? Box it."}]},
    "expected_answer": "84",
    "question": "What is (3 + 4) * 12?",
}
RESPONSE = {
    "object": "response",
    "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "\\boxed{84}"}]}],
}


def builtin(name="calculator", **options):
    judge = Judge(ScriptedPolicy(), name="judge")
    return InProcessServer(name, name=name, judge=judge if BUILTINS[name].asks_judge else None, **options)


async def served(name="calculator", *, most=10, seconds=60.0, **options):
    return await serve_environment(builtin(name, **options), most_sessions=most, session_seconds=seconds)


def client(outbound, port, name):
    caller = Caller(outbound, name=name, base_url=f"http://127.0.0.1:{port}", call_timeout=120.0, max_tries=1)
    return HttpResourceServer(caller, verify_timeout=120.0)


def timeless(event):
    return msgspec.structs.replace(event, at=0.0, duration=0.0)


async def attempt(server, seed, *, mistakes, row=ROW):
    policy = ScriptedPolicy(mistake_rate=mistakes)
    made = Attempt(row=row, server=server, policy=policy, harness=Harness(), seed=seed, elapsed=lambda: 0.0)
    return [timeless(event) async for event in made.events()]


@pytest.mark.parametrize("name", environments(name for name in BUILTINS if not builtin(name).takes_turns))
def test_every_built_in_environment_gives_the_same_traces_and_rewards_over_http_as_in_process(name):
    row = {**next(generate_tasks(KITS[name], count=1)), "seed": 1} if name in KITS else ROW

    async def compare():
        environment = await served(name)
        async with on_a_port(environment) as (port, outbound):
            over_http = client(outbound, port, name)
            for seed, mistakes in itertools.product(range(4), (0.0, 1.0)):
                here = await attempt(builtin(name), seed, mistakes=mistakes, row=row)
                there = await attempt(over_http, seed, mistakes=mistakes, row=row)
                # What a judge was asked stays with who asks it.
                assert there == [event for event in here if not isinstance(event, JudgeCall)]
                assert isinstance(there[0], SessionOpened)
                assert isinstance(there[-1], Verification)
            assert len(environment.sessions) == 0

    asyncio.run(compare())


VERIFIERS = {
    "multiple_choice": ({"type": "multiple_choice"}, {"options": [{"A": "84"}, {"B": "7"}], "expected_answer": "A"}),
    "tool_calls": ({"type": "tool_calls"}, {"expected_answers": [{"name": "calculator", "arguments": {}}]}),
    "hybrid": (
        {
            "type": "hybrid",
            "components": [
                {"name": "right", "weight": 0.7, "verifier": {"type": "numeric"}},
                {"name": "short", "weight": 0.3, "verifier": {"type": "efficiency", "steps": 1}},
            ],
        },
        {},
    ),
}


@pytest.mark.parametrize("name", VERIFIERS)
def test_an_environment_with_a_configured_verifier_gives_the_same_over_http(name):
    verifier, fields = VERIFIERS[name]
    row = {**ROW, **fields}

    def configured():
        return VerifiedServer(builtin("calculator"), verifier=verifier)

    async def compare():
        environment = await serve_environment(configured(), most_sessions=10, session_seconds=60.0)
        async with on_a_port(environment) as (port, outbound):
            over_http = client(outbound, port, "calculator")
            for seed in range(3):
                here = await attempt(configured(), seed, mistakes=0.5, row=row)
                assert await attempt(over_http, seed, mistakes=0.5, row=row) == here
                assert isinstance(here[-1], Verification)

    asyncio.run(compare())


@pytest.mark.parametrize("error", ["unknown_tool", "bad_arguments", "calculation_error"])
def test_a_tool_that_refuses_is_named_alike_over_http(error, monkeypatch):
    def refuse(self, name, arguments):
        raise ToolRefused(error, "no")

    monkeypatch.setattr(Calculator, "call_tool", refuse)

    async def compare():
        async with on_a_port(await served()) as (port, outbound):
            here = await attempt(builtin(), 1, mistakes=0.0)
            there = await attempt(client(outbound, port, "calculator"), 1, mistakes=0.0)
        assert there == here
        assert {event.error for event in there if isinstance(event, ToolResult)} == {error}

    asyncio.run(compare())


def ask(environment, method, path, body=b"", session=""):
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = asyncio.run(
        answer_always(environment, IncomingRequest(method=method, path=path, body=raw, session=session), seconds=120)
    )
    return answer, json.loads(answer.body)


@pytest.fixture
def calculator():
    return asyncio.run(served())


def test_the_literal_exchange_of_a_session(calculator):
    seeded, said = ask(calculator, "POST", "seed_session", ROW)
    assert (seeded.status, said, bool(seeded.session)) == (200, {"supports_explicit_close": True}, True)
    called, result = ask(calculator, "POST", "calculator", {"expression": "2+2"}, seeded.session)
    assert (called.status, result, called.session) == (200, {"result": 4}, seeded.session)
    verified, verdict = ask(calculator, "POST", "verify", {**ROW, "response": RESPONSE}, seeded.session)
    assert (verified.status, verdict["reward"], verdict["response"]) == (200, 1.0, RESPONSE)
    assert verdict["expected_answer"] == "84"
    assert ask(calculator, "POST", "close", {}, seeded.session)[1] == {}
    late, why = ask(calculator, "POST", "calculator", {"expression": "2+2"}, seeded.session)
    assert (late.status, why["detail"][:23]) == (400, "Session not initialized")


def test_requests_about_the_server_itself_are_answered(calculator):
    assert ask(calculator, "GET", "")[1]["status"] == "ok"
    assert ask(calculator, "GET", "reverify_mode")[1] == "stateless"
    document = ask(calculator, "GET", "openapi.json")[1]
    schema = document["paths"]["/calculator"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert schema["required"] == ["expression"]
    assert set(document["paths"]) >= {"/seed_session", "/verify", "/aggregate_metrics", "/reverify_mode"}


BAD = [
    ("GET", "seed_session", b"", 405, "Method Not Allowed"),
    ("GET", "calculator", b"", 404, "Not Found"),
    ("POST", "a/b", b"{}", 404, "Not Found"),
    ("POST", "seed_session", b"{oops", 422, "JSON decode error"),
    ("POST", "seed_session", b"[]", 422, "valid dictionary"),
    ("POST", "seed_session", b"{}", 422, "Field required"),
    ("POST", "seed_session", b'{"responses_create_params": {"input": 7}}', 422, "list of items"),
    ("POST", "seed_session", b'{"responses_create_params": {"input": "x", "tools": 7}}', 422, "list of tools"),
    ("POST", "seed_session", b'{"a": NaN}', 422, "NaN"),
    ("POST", "seed_session", b'{"a":' * 100_000, 422, "JSON decode error"),
    ("POST", "verify", b'{"responses_create_params": {"input": "x"}}', 422, "Field required"),
    ("POST", "verify", b'{"responses_create_params": {"input": "x"}, "response": {"output": 3}}', 422, "valid list"),
    ("POST", "verify", b'{"responses_create_params": {"input": "x"}, "response": {"output": [3]}}', 422, "of items"),
    ("POST", "aggregate_metrics", b"{}", 422, "valid list"),
    ("POST", "calculator", b"[1]", 422, "valid dictionary"),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "words"), BAD)
def test_bad_input_gets_a_clear_error(calculator, method, path, body, status, words):
    answer, said = ask(calculator, method, path, body)
    assert (answer.status, words in json.dumps(said)) == (status, True)


def test_a_task_that_cannot_be_verified_is_a_500_with_its_text(calculator):
    row = {"responses_create_params": ROW["responses_create_params"], "response": RESPONSE}
    answer, said = ask(calculator, "POST", "verify", row)
    assert (answer.status, "expected_answer" in said, said[:14]) == (500, True, "VerifierError:")


def test_a_verifier_that_needs_nothing_of_the_session_verifies_without_one(calculator):
    assert ask(calculator, "POST", "verify", {**ROW, "response": RESPONSE})[1]["reward"] == 1.0


def test_a_verifier_that_needs_its_session_is_not_served_without_one(monkeypatch):
    monkeypatch.setattr(InProcessServer, "reverify_mode", AsyncMock(return_value="unsupported"))
    environment = asyncio.run(served())
    assert ask(environment, "GET", "reverify_mode")[1] == "unsupported"
    assert ask(environment, "POST", "verify", {**ROW, "response": RESPONSE})[0].status == 400
    session = ask(environment, "POST", "seed_session", ROW)[0].session
    assert ask(environment, "POST", "verify", {**ROW, "response": RESPONSE}, session)[1]["reward"] == 1.0


def test_a_judge_that_failed_is_told_as_no_score():
    async def serve():
        server = InProcessServer("judged", name="judged")
        return await serve_environment(server, most_sessions=1, session_seconds=60.0)

    answer, said = ask(asyncio.run(serve()), "POST", "verify", {**ROW, "response": RESPONSE})
    assert (answer.status, said["reward"], said["_ng_failure_class"]) == (200, 0.0, "judge_failed")
    assert "no judge model" in said["_ng_failure_judge_error"]


def test_an_environment_without_a_verdict_is_not_served():
    with pytest.raises(CannotServe, match="has no verifier"):
        asyncio.run(serve_environment(UnverifiedServer(builtin()), most_sessions=10, session_seconds=60.0))


def test_a_body_over_the_limit_is_refused():
    async def send():
        async with on_a_port(await served(), max_body=1000) as (port, outbound):
            url = f"http://127.0.0.1:{port}/seed_session"
            return await outbound.request("POST", url, body=b" " * 2000, timeout=DEADLINE)

    reply = asyncio.run(send())
    assert (reply.status, b"larger than 1,000 bytes" in reply.body) == (413, True)


def test_an_answer_that_takes_too_long_is_a_504():
    class Slow:
        name, cookie = "slow", ""

        async def answer(self, asked):
            await asyncio.sleep(30)

    answer = asyncio.run(answer_always(Slow(), IncomingRequest(method="GET", path=""), seconds=0.01))
    assert (answer.status, json.loads(answer.body)) == (504, "slow: no answer within 0.01 s")


def test_a_bug_is_a_500_with_its_text_and_a_line_in_the_log(caplog):
    class Broken:
        name, cookie = "broken", ""

        async def answer(self, asked):
            raise ZeroDivisionError("x")

    answer = asyncio.run(answer_always(Broken(), IncomingRequest(method="GET", path="a"), seconds=120))
    assert (answer.status, json.loads(answer.body)) == (500, "ZeroDivisionError('x')")
    assert "broken failed at GET a" in caplog.text


def test_half_a_surrogate_pair_and_long_numbers_come_through(calculator):
    seeded = ask(calculator, "POST", "seed_session", ROW)[0].session
    raw = b'{"expression": "\\ud800"}'
    answer, said = ask(calculator, "POST", "calculator", raw, seeded)
    assert (answer.status, "error" in said) == (400, True)


def test_seeding_again_ends_the_session_before(calculator):
    first = ask(calculator, "POST", "seed_session", ROW)[0].session
    second = ask(calculator, "POST", "seed_session", ROW, first)[0].session
    assert (len(calculator.sessions), first != second) == (1, True)


def test_refusals_carry_their_headers():
    async def fill():
        environment = await served(most=1)
        seed = IncomingRequest(method="POST", path="seed_session", body=json.dumps(ROW).encode())
        await environment.answer(seed)
        with pytest.raises(Refused) as refused:
            await environment.answer(seed)
        return refused.value

    refusal = asyncio.run(fill())
    assert (refusal.status, refusal.headers) == (503, {"Retry-After": "5"})


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/verify", "verify"),
        ("/ng-rollout/3-0/verify", "verify"),
        ("/ng-rollout/3-0/training-token-capture/v1/responses", "v1/responses"),
        ("/v1/responses/", "v1/responses"),
        ("/", ""),
    ],
)
def test_the_prefix_that_names_a_rollout_is_stripped(path, route):
    assert plain_path(path) == route


def test_a_page_of_any_site_is_refused():
    async def send():
        async with on_a_port(await served()) as (port, outbound):
            url = f"http://127.0.0.1:{port}/seed_session"
            headers = {"Origin": "http://example.com", "Content-Type": "text/plain"}
            return await outbound.request("POST", url, body=json.dumps(ROW).encode(), headers=headers, timeout=DEADLINE)

    assert asyncio.run(send()).status == 403


def test_who_hangs_up_is_not_worked_for_any_longer():
    class Waiting:
        name, cookie = "waiting", ""
        ended = ""

        async def answer(self, asked):
            self.ended = "at work"
            try:
                await asyncio.sleep(10 * DEADLINE)
            except asyncio.CancelledError:
                self.ended = "cancelled"
                raise

        async def tidy(self):
            pass

        close = tidy

    async def hang_up(waiting):
        async with on_a_port(waiting) as (port, outbound):
            url = f"http://127.0.0.1:{port}/"
            asking = asyncio.create_task(outbound.request("GET", url, timeout=10 * DEADLINE))
            await wait_until_async(lambda: waiting.ended == "at work")
            asking.cancel()
            await wait_until_async(lambda: waiting.ended == "cancelled")

    waiting = Waiting()
    asyncio.run(hang_up(waiting))
    assert waiting.ended == "cancelled"
