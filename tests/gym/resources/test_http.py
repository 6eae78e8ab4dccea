import asyncio
import json
import socket

import pytest

from apps.gym.errors import EnvironmentFault, JudgeError, TimedOut, VerifierError
from apps.gym.loop.agent_loop import Attempt, Harness
from apps.gym.resources.own_verifier import UnverifiedServer
from apps.gym.resources.protocol import ToolOutput
from apps.gym.rewards import Reward
from apps.gym.traces.events import ToolResult, decode_event, encode_event
from apps.gym.traces.items import text_of
from apps.gym.wires.scripted import ScriptedPolicy
from tests.gym.resources.servers import BROKEN, SLOW, Answers, serve
from tests.images import make_png, png_url

ROW = {
    "responses_create_params": {"input": "hello", "tools": [{"type": "function", "name": "step"}]},
    "expected_answer": "4",
    "_ng_task_index": 3,
    "reward": 0.25,
}
RESPONSE = {"object": "response", "output": []}


def seed_and(step, answers, *, row=ROW, **options):
    """What `step(session)` gives, in a session at a server with these answers."""

    async def attempt():
        async with serve(answers, **options) as server:
            return await step(await server.seed_session(row, seed=1))

    return asyncio.run(attempt())


def call(name, arguments=None):
    async def step(session):
        return await session.call_tool(name, {} if arguments is None else arguments)

    return step


async def verify(session):
    return await session.verify(RESPONSE)


def test_seeding_sends_the_whole_task_row():
    answers = Answers(seed_session={})
    seed_and(lambda session: session.list_tools(), answers)
    assert answers.seen == [("seed_session", ROW, "")]


def test_the_first_observation_follows_the_prompt_and_is_checked():
    said = [{"role": "user", "content": "Your task: 6 * 7"}]

    async def opening(session):
        return session.opening

    assert seed_and(opening, Answers(seed_session={"env_id": "a", "obs": said})) == said
    assert seed_and(opening, Answers(seed_session={})) == []
    for wrong in ("text", [{"content": "no role"}], {"role": "user", "content": "x"}):
        with pytest.raises(EnvironmentFault, match="`obs` in the reply of /seed_session"):
            seed_and(opening, Answers(seed_session={"obs": wrong}))


def test_a_tool_gets_the_arguments_and_its_text_is_the_output():
    answers = Answers(seed_session={}, lookup=(200, '{"b":1,  "a":[2]}', {}))
    assert seed_and(call("lookup", {"key": "x"}), answers) == ToolOutput(text='{"b":1,  "a":[2]}')
    assert answers.bodies("lookup") == [{"key": "x"}]


@pytest.mark.parametrize("given", ["[1]", '"text"', "3", '{"key":"x"}'])
def test_arguments_that_are_no_object_are_sent_as_nemo_gym_sends_them(given):
    answers = Answers(seed_session={}, lookup=(422, '{"detail":[]}', {}))

    async def step(session):
        return await session.call_tool("lookup", session.read_arguments(given))

    assert seed_and(step, answers) == ToolOutput(text='{"detail":[]}', error="http_422")
    assert answers.bodies("lookup") == [json.loads(given)]


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**40 + 1])
def test_integers_beyond_64_bits_reach_a_tool_unchanged(number):
    answers = Answers(seed_session={}, lookup=(200, f'{{"id":{number}}}', {}))

    async def step(session):
        return await session.call_tool("lookup", session.read_arguments(f'{{"id": {number}}}'))

    assert seed_and(step, answers) == ToolOutput(text=f'{{"id":{number}}}')
    [given] = answers.bodies("lookup")
    assert (given, type(given["id"])) == ({"id": number}, int)


def test_malformed_arguments_are_not_sent_and_get_the_error_text_of_nemo_gym():
    async def step(session):
        with pytest.raises(ValueError, match="JSONDecodeError") as malformed:
            session.read_arguments("{oops")
        return str(malformed.value)

    message = "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
    assert seed_and(step, Answers(seed_session={})) == f"JSONDecodeError('{message}')"


def test_empty_arguments_are_an_empty_object():
    async def step(session):
        return session.read_arguments(" ")

    assert seed_and(step, Answers(seed_session={})) == {}


def test_the_newest_cookies_of_each_reply_go_with_the_next_call():
    answers = Answers(
        seed_session=(200, "{}", {"Set-Cookie": "Lab___lab=first.a==; path=/; httponly"}),
        look=[
            (422, "{}", [("Set-Cookie", "Lab___lab=second"), ("Set-Cookie", "agent=7; Max-Age=10")]),
            (200, "{}", {}),
        ],
        verify={"reward": 1},
    )

    async def step(session):
        await session.call_tool("look", {})
        await session.call_tool("look", {})
        return await session.verify(RESPONSE)

    assert seed_and(step, answers).value == 1.0
    assert answers.cookies() == ["", "Lab___lab=first.a==", "Lab___lab=second; agent=7", "Lab___lab=second; agent=7"]


def test_sessions_do_not_share_their_cookies():
    answers = Answers(seed_session=[(200, "{}", {"Set-Cookie": "s=1"}), (200, "{}", {"Set-Cookie": "s=2"})], look={})

    async def attempts():
        async with serve(answers) as server:
            first = await server.seed_session(ROW, seed=1)
            second = await server.seed_session(ROW, seed=1)
            await first.call_tool("look", {})
            await second.call_tool("look", {})

    asyncio.run(attempts())
    assert answers.cookies() == ["", "", "s=1", "s=2"]


@pytest.mark.parametrize("status", [400, 404, 422, 500, 503])
def test_an_error_of_a_tool_is_an_output_and_is_not_tried_again(status):
    answers = Answers(seed_session={}, look=(status, '{"detail":"no"}', {}))
    assert seed_and(call("look"), answers) == ToolOutput(text='{"detail":"no"}', error=f"http_{status}")
    assert len(answers.bodies("look")) == 1


def test_a_tool_that_takes_too_long_is_an_output():
    output = seed_and(call("look"), Answers(seed_session={}, look=SLOW), call_timeout=2.0)
    assert output.error == "timeout"
    assert json.loads(output.text) == {"error": "the tool gave no result within 2 s"}


def test_an_output_that_no_model_reads_is_a_tool_error():
    answers = Answers(seed_session={}, look=(200, "x" * (4 * 1024**2 + 1), {}))
    output = seed_and(call("look"), answers)
    assert output.error == "too_large"
    assert json.loads(output.text) == {"error": "the tool's result is larger than 4,194,304 bytes"}
    assert len(answers.bodies("look")) == 1


def test_a_reply_to_seeding_that_is_too_large_is_a_fault_at_once():
    answers = Answers(seed_session=(200, "x" * (16 * 1024**2 + 1), {}))
    with pytest.raises(EnvironmentFault, match="larger than the limit"):
        seed_and(verify, answers)
    assert len(answers.seen) == 1


def test_a_verdict_that_is_too_large_is_the_verifiers_failure():
    answers = Answers(seed_session={}, verify=(200, "x" * (17 * 1024**2), {}))
    with pytest.raises(VerifierError, match="larger than the limit"):
        seed_and(verify, answers)
    assert len(answers.bodies("verify")) == 1


def test_a_verdict_may_echo_a_large_attempt():
    big = {"object": "response", "output": [{"type": "message", "content": "x" * (9 * 1024**2)}]}

    async def step(session):
        return await session.verify(big)

    verdict = {"reward": 1.0, "response": big, "copy": big}
    assert seed_and(step, Answers(seed_session={}, verify=verdict)).value == 1.0


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "../verify", "a\\b", "verify", "seed_session", "openapi.json", "reset", "x" * 300]
)
def test_unknown_tool_names_are_not_sent(name):
    answers = Answers(seed_session={}, verify={"reward": 1.0})
    output = seed_and(call(name), answers)
    assert output.error == "unknown_tool"
    assert "there is no tool named" in json.loads(output.text)["error"]
    assert [path for path, _, _ in answers.seen] == ["seed_session"]


def test_a_tool_may_be_called_like_a_gymnasium_route_when_the_row_declares_it():
    assert seed_and(call("step"), Answers(seed_session={}, step={"ok": True})).error == ""


def test_a_tool_name_is_quoted_in_the_path():
    answers = Answers(seed_session={})
    assert seed_and(call("look up?x=1#é"), answers).error == "http_404"
    assert answers.seen[1][0] == "look%20up%3Fx=1%23%C3%A9"


def test_arguments_that_orjson_cannot_write_are_sent_all_the_same():
    answers = Answers(seed_session={}, look={})
    seed_and(call("look", {"big": 2**80, "half": "\ud83d"}), answers)
    assert answers.bodies("look") == [{"big": 2**80, "half": "\ud83d"}]


def test_a_dropped_connection_is_tried_again_within_bounds():
    answers = Answers(seed_session=[BROKEN, BROKEN, {}], look=[BROKEN, {"ok": 1}])
    assert seed_and(call("look"), answers).text == '{"ok": 1}'
    assert len(answers.bodies("seed_session")) == 3


def test_a_server_that_stays_broken_is_a_fault_of_the_environment():
    answers = Answers(seed_session={}, look=BROKEN)
    with pytest.raises(EnvironmentFault, match=r"^lab: "):
        seed_and(call("look"), answers)
    assert len(answers.bodies("look")) == 3


def test_a_server_that_is_not_there_is_a_fault_of_the_environment():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(EnvironmentFault, match=r"^lab: "):
            seed_and(verify, Answers(), base_url=url)


def test_an_address_that_is_not_allowed_is_a_fault_that_names_the_setting():
    with pytest.raises(EnvironmentFault, match="GYMWEB_OUTBOUND_ALLOW"):
        seed_and(verify, Answers(seed_session={}), allow=[])


def test_a_redirect_to_where_none_may_go_is_the_servers_fault_and_an_address_of_ours_is_our_own():
    faults = []
    answers = Answers(seed_session=(307, "", {"Location": "http://169.254.169.254/latest/meta-data/"}))
    for options in ({}, {"allow": []}):
        with pytest.raises(EnvironmentFault) as caught:
            seed_and(verify, answers, **options)
        faults.append((caught.value.transient, caught.value.is_misconfigured))
    assert faults == [(False, False), (False, True)]


def test_a_refused_seed_ends_the_attempt_with_what_the_server_said():
    answers = Answers(seed_session=(422, '{"detail":"bad row"}', {}))
    with pytest.raises(EnvironmentFault, match=r'lab: POST /seed_session returned 422: {"detail":"bad row"}'):
        seed_and(verify, answers)
    assert len(answers.seen) == 1


def test_a_server_error_at_seed_is_tried_again_then_a_fault():
    answers = Answers(seed_session=[(500, "boom", {}), {}], verify={"reward": 1.0})
    assert seed_and(verify, answers).value == 1.0
    with pytest.raises(EnvironmentFault, match="returned 500: boom"):
        seed_and(verify, Answers(seed_session=(500, "boom", {})))


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(500, "failed"), (501, "failed"), (502, "server_error"), (503, "server_error"), (429, "throttled")],
)
def test_a_500_speaks_of_one_task_and_a_gateways_errors_of_the_server(status, outcome):
    heard = []
    answers = Answers(seed_session=[(status, "boom", {}), {}], verify={"reward": 1.0})
    seed_and(verify, answers, observe=lambda outcome, message="": heard.append(outcome))
    assert heard == [outcome, "ok", "ok"]


def test_a_slow_seed_is_a_time_out():
    with pytest.raises(TimedOut, match=r"^lab: .*no reply within 0.2 s"):
        seed_and(verify, Answers(seed_session=SLOW), call_timeout=0.2)


def test_verify_gets_the_row_and_the_response_without_a_reward():
    answers = Answers(seed_session={}, verify={"reward": 1.0})
    seed_and(verify, answers)
    wanted = {key: value for key, value in ROW.items() if key != "reward"}
    assert answers.bodies("verify") == [{**wanted, "response": RESPONSE}]


def test_a_verdict_becomes_a_reward_with_its_components_and_details():
    verdict = {
        "responses_create_params": {},
        "response": {},
        "reward": 2.5,
        "reward_components": {"correct": 1, "format": 1.5, "valid": True, "note": "text"},
        "explanation": "well done",
        "expected_answer": "4",
        "_ng_task_index": 3,
        "extracted_answer": "4",
        "huge": "x" * 30_000,
    }
    assert seed_and(verify, Answers(seed_session={}, verify=verdict)) == Reward(
        value=2.5,
        components={"correct": 1.0, "format": 1.5, "valid": 1.0},
        explanation="well done",
        details={"expected_answer": "4", "extracted_answer": "4", "huge": "left out: 30,002 bytes"},
    )


def test_a_verdict_nested_without_end_and_with_zero_bytes_is_a_reward_all_the_same():
    deep = "[" * 500 + "]" * 500
    verdict = '{"reward": 1, "deep": %s, "reward_components": {"a\\u0000b": 1}, "explanation": "x\\u0000y"}' % deep  # noqa: UP031
    assert seed_and(verify, Answers(seed_session={}, verify=(200, verdict, {}))) == Reward(
        value=1.0,
        components={"a�b": 1.0},
        explanation="x�y",
        details={"deep": "left out: it cannot be written as JSON"},
    )


def test_a_verdict_of_very_many_components_is_a_verifier_error():
    verdict = {"reward": 1, "reward_components": {f"part{place}": 1 for place in range(201)}}
    with pytest.raises(VerifierError, match="201 reward_components; at most 200 are kept"):
        seed_and(verify, Answers(seed_session={}, verify=verdict))


def test_all_details_together_are_bounded():
    verdict = {"reward": 0, **{f"part{n}": "x" * 15_000 for n in range(10)}}
    details = seed_and(verify, Answers(seed_session={}, verify=verdict)).details
    kept = [value for value in details.values() if not value.startswith("left out")]
    assert (len(details), len(kept)) == (10, 4)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{}", "no finite number as `reward`: None"),
        ('{"reward": "1.0"}', "no finite number as `reward`: '1.0'"),
        ('{"reward": true}', "no finite number as `reward`: True"),
        ('{"reward": null}', "no finite number as `reward`: None"),
        ('{"reward": NaN}', "is not JSON"),
        ("[1.0]", "is not an object"),
        ("fine!", "is not JSON"),
        ("", "is not JSON"),
    ],
)
def test_a_verdict_without_a_finite_reward_is_a_verifier_error(text, reason):
    with pytest.raises(VerifierError) as caught:
        seed_and(verify, Answers(seed_session={}, verify=(200, text, {})))
    assert reason in str(caught.value)


def test_a_failed_judge_is_an_error_and_never_a_reward_of_zero():
    verdict = {"reward": 0.0, "_ng_failure_class": "judge_failed", "_ng_failure_judge_error": "503 from the judge"}
    with pytest.raises(JudgeError, match=r"judge_failed.*503 from the judge") as caught:
        seed_and(verify, Answers(seed_session={}, verify=verdict))
    assert caught.value.kind == "judge_error"
    with pytest.raises(VerifierError, match="sandbox_died") as caught:
        seed_and(verify, Answers(seed_session={}, verify={"reward": 0.0, "_ng_failure_class": "sandbox_died"}))
    assert caught.value.kind == "verifier_error"


def test_a_server_error_at_verify_is_tried_again_then_a_verifier_error():
    answers = Answers(seed_session={}, verify=[(500, "boom", {}), (429, "", {}), {"reward": 1.0}])
    assert seed_and(verify, answers).value == 1.0
    answers = Answers(seed_session={}, verify=(500, '"TypeError()"', {}))
    with pytest.raises(VerifierError, match=r'returned 500: "TypeError\(\)"'):
        seed_and(verify, answers)
    assert len(answers.bodies("verify")) == 3


def test_a_refused_verify_is_a_verifier_error_at_once():
    answers = Answers(seed_session={}, verify=(422, '{"detail":[]}', {}))
    with pytest.raises(VerifierError, match="returned 422"):
        seed_and(verify, answers)
    assert len(answers.bodies("verify")) == 1


def test_a_slow_verify_is_a_time_out():
    with pytest.raises(TimedOut):
        seed_and(verify, Answers(seed_session={}, verify=SLOW), verify_timeout=0.2)


def test_a_server_that_breaks_at_verify_is_a_fault_of_the_environment():
    with pytest.raises(EnvironmentFault):
        seed_and(verify, Answers(seed_session={}, verify=BROKEN))


def test_where_verification_is_off_the_server_is_not_asked():
    answers = Answers(seed_session={}, verify={"reward": 1.0})

    async def attempt():
        async with serve(answers) as server:
            return await verify(await UnverifiedServer(server).seed_session(ROW, seed=1))

    assert asyncio.run(attempt()).value is None
    assert answers.bodies("verify") == []


def test_the_environment_has_no_turn_of_its_own():
    async def step(session):
        await session.close()
        return await session.respond([]), await session.list_tools()

    assert seed_and(step, Answers(seed_session={})) == (None, [])


def probe(answers, **options):
    async def check():
        async with serve(answers, **options) as server:
            return await server.probe()

    return asyncio.run(check())


def test_a_probe_names_the_tools_of_the_schema():
    document = {
        "paths": {
            "/look": {"post": {"summary": "Look", "requestBody": _body({"$ref": "#/components/schemas/Look"})}},
            "/verify": {"post": {}},
            "/{path}": {"post": {}},
            "/": {"get": {}},
        },
        "components": {"schemas": {"Look": {"type": "object", "properties": {"at": {"type": "string"}}}}},
    }
    found = probe(Answers(root={"status": "ok"}, **{"openapi.json": document}))
    assert (found.healthy, found.message) == (True, "reachable; 1 tool in its OpenAPI document")
    assert found.latency > 0
    assert found.tools == [
        {
            "type": "function",
            "name": "look",
            "description": "Look",
            "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
            "strict": False,
        }
    ]


def _body(schema):
    return {"content": {"application/json": {"schema": schema}}}


@pytest.mark.parametrize("document", [None, [], {"paths": []}, {"paths": {"/a": 1}}, (200, "not json", {}), BROKEN])
def test_a_probe_does_without_a_schema(document):
    script = {} if document is None else {"openapi.json": [document]}
    found = probe(Answers(root={"status": "ok"}, **script))
    assert (found.healthy, found.tools) == (True, [])


def test_a_probe_of_something_else_is_unhealthy_and_says_why():
    assert probe(Answers()).message == 'GET / returned 404: {"detail": "Not Found"}'
    assert not probe(Answers(root=(500, "", {}))).healthy
    assert not probe(Answers(root=BROKEN)).healthy
    assert "no reply within 0.2 s" in probe(Answers(root=SLOW), call_timeout=0.2).message
    assert "GYMWEB_OUTBOUND_ALLOW" in probe(Answers(), allow=[]).message


DOCUMENT = {
    "paths": {
        "/seed_session": {"post": {}},
        "/verify": {"post": {}},
        "/get_weather": {"post": {"description": "Look outside."}},
    }
}


def listing(answers, row):
    async def step(session):
        return [tool["name"] for tool in await session.list_tools()]

    return seed_and(step, answers, row=row)


def test_tools_that_the_row_does_not_declare_come_from_the_servers_document():
    row = {"responses_create_params": {"input": "hi"}}
    assert listing(Answers(**{"seed_session": {}, "openapi.json": DOCUMENT}), row) == ["get_weather"]
    assert listing(Answers(seed_session={}), row) == []


@pytest.mark.parametrize("declared", [[], [{"type": "function", "name": "own"}]])
def test_a_list_of_tools_in_the_row_is_all_there_is_be_it_empty(declared):
    answers = Answers(**{"seed_session": {}, "openapi.json": DOCUMENT})
    assert listing(answers, {"responses_create_params": {"input": "hi", "tools": declared}}) == []
    assert [path for path, _, _ in answers.seen] == ["seed_session"]


def test_the_document_is_asked_for_once():
    answers = Answers(**{"seed_session": {}, "openapi.json": DOCUMENT})
    row = {"responses_create_params": {"input": "hi"}}

    async def many():
        async with serve(answers) as server:
            sessions = [await server.seed_session(row, seed=1) for _ in range(4)]
            return await asyncio.gather(*(session.list_tools() for session in sessions))

    assert [len(tools) for tools in asyncio.run(many())] == [1, 1, 1, 1]
    assert [path for path, _, _ in answers.seen].count("openapi.json") == 1


def test_an_unreachable_server_is_an_error_when_listing_tools():
    with pytest.raises(EnvironmentFault, match=r"^lab: "):
        listing(Answers(**{"seed_session": {}, "openapi.json": BROKEN}), {"responses_create_params": {"input": "hi"}})


@pytest.mark.parametrize(
    ("seeded", "document", "closed"),
    [
        ({"supports_explicit_close": True}, {"paths": {}}, ["close"]),
        ({}, {"paths": {"/close": {"post": {}}}}, ["close"]),
        ({}, {"paths": {"/close_session": {"post": {}}}}, ["close_session"]),
        ({"supports_explicit_close": True}, {"paths": {"/close_session": {"post": {}}}}, ["close_session", "close"]),
        ({}, {"paths": {}}, []),
    ],
)
@pytest.mark.parametrize("tools", [{}, {"tools": []}], ids=["tools of the server", "tools of the row"])
def test_a_session_is_closed_where_the_server_has_a_way_to(seeded, document, closed, tools):
    cookies = {"Set-Cookie": "session=s-1"}
    seed = (200, json.dumps(seeded), {"Content-Type": "application/json", **cookies})
    answers = Answers(**{"seed_session": [seed], "openapi.json": document, "close": {}, "close_session": (500, "", {})})

    async def step(session):
        await session.list_tools()
        await session.close()
        await session.close()

    seed_and(step, answers, row={"responses_create_params": {"input": "hi", **tools}})
    assert [(path, body) for path, body, _ in answers.seen if "close" in path] == [(path, {}) for path in closed]
    assert {cookie for path, _, cookie in answers.seen if "close" in path} == ({"session=s-1"} if closed else set())


def test_a_session_whose_seed_cannot_be_read_is_closed():
    seed = (200, '{"obs": 3}', {"Content-Type": "application/json", "Set-Cookie": "session=s-1"})
    document = {"paths": {"/close_session": {"post": {}}}}
    answers = Answers(**{"seed_session": [seed], "openapi.json": document, "close_session": {}})

    async def run():
        async with serve(answers) as server:
            await server.seed_session(ROW, seed=1)

    with pytest.raises(EnvironmentFault, match="must be a list of messages"):
        asyncio.run(run())
    assert answers.bodies("close_session") == [{}]


def test_a_server_that_has_only_the_routes_of_the_protocol_is_healthy():
    async def probe(answers):
        async with serve(answers) as server:
            return await server.probe()

    assert asyncio.run(probe(Answers(seed_session=(405, "", {})))).healthy is True
    lost = asyncio.run(probe(Answers()))
    assert (lost.healthy, lost.message) == (False, 'GET / returned 404: {"detail": "Not Found"}')


def test_a_gymnasium_server_is_named_as_one():
    document = {"paths": {"/reset": {"post": {}}, "/step": {"post": {}}}}

    async def probe():
        async with serve(Answers(**{"root": {}, "openapi.json": document})) as server:
            return await server.probe()

    assert asyncio.run(probe()).message.endswith("Choose the adapter for Gymnasium servers")


def test_a_key_goes_with_every_call_as_a_bearer_token():
    answers = Answers(**{"root": {}, "openapi.json": DOCUMENT, "seed_session": {}, "look": {}, "verify": {"reward": 1}})

    async def run():
        async with serve(answers, api_key="k-1") as server:
            await server.probe()
            session = await server.seed_session(ROW, seed=1)
            await session.call_tool("look", {})
            await session.verify(RESPONSE)

    asyncio.run(run())
    assert answers.authorizations == ["Bearer k-1"] * 5


IMAGE = {"type": "input_image", "image_url": png_url(width=40)}


@pytest.mark.parametrize(
    ("reply", "parts"),
    [
        ((200, make_png(width=40), {"Content-Type": "image/png"}), [IMAGE]),
        (
            (200, json.dumps([{"type": "input_text", "text": "It:"}, IMAGE]), {}),
            [{"type": "input_text", "text": "It:"}, IMAGE],
        ),
    ],
)
def test_a_tool_may_return_images(reply, parts):
    output = seed_and(call("step"), Answers(seed_session={}, step=reply))
    assert output == ToolOutput(text="It:" if len(parts) > 1 else "", parts=parts)


@pytest.mark.parametrize(
    "text",
    [
        '[{"type": "input_image", "file_id": "f"}]',
        '[{"type": "other"}, "input_image"]',
        '["input_image"',
        "input_image",
    ],
)
def test_other_texts_about_images_stay_texts(text):
    assert seed_and(call("step"), Answers(seed_session={}, step=(200, text, {}))) == ToolOutput(text=text)


def test_an_image_that_no_model_accepts_is_a_tool_error():
    svg = json.dumps([{"type": "input_image", "image_url": "data:image/svg+xml;base64,PHN2Zy8+"}])
    output = seed_and(call("step"), Answers(seed_session={}, step=(200, svg, {})))
    assert output.error == "bad_image"
    assert "is not a base64 data URL of a PNG, JPEG, GIF or WebP image" in output.text


def test_the_model_sees_the_image_that_its_tool_returned():
    row = {
        "responses_create_params": {
            "input": "Take a screenshot. How wide is it?",
            "tools": [{"type": "function", "name": "screenshot", "parameters": {"type": "object", "properties": {}}}],
        }
    }
    answers = Answers(
        seed_session={},
        screenshot=(200, make_png(width=40), {"Content-Type": "image/png"}),
        verify={"reward": 1.0},
    )

    async def run():
        async with serve(answers) as server:
            attempt = Attempt(
                row=row, server=server, policy=ScriptedPolicy(), harness=Harness(), seed=1, elapsed=lambda: 0.0
            )
            return [event async for event in attempt.events()]

    events = asyncio.run(run())
    (result,) = [event for event in events if isinstance(event, ToolResult)]
    assert (result.output, result.text) == ([IMAGE], "")
    assert decode_event(encode_event(result)) == result
    assert "40" in text_of(events[-2].items[-1])
    assert answers.bodies("verify")[0]["response"]["output"][2]["output"] == [IMAGE]
