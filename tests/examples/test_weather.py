import asyncio
import json

import aiohttp
import pytest

from apps.gym.calls.outbound import Outbound
from apps.gym.calls.outbound_policy import OutboundPolicy
from apps.gym.resources.nemo_gym_http import HttpResourceServer
from apps.gym.resources.server_calls import Caller
from tests.examples.processes import EXAMPLES, weather_server

ROW = {"responses_create_params": {"input": "Weather in Paris?"}}
RESPONSE = {"object": "response", "output": []}


@pytest.fixture(scope="module")
def base_url():
    with weather_server() as url:
        yield url


def post(base_url, *calls, jar=True):
    """The (status, JSON) of each call, made by one client with its cookies."""

    async def make():
        cookie_jar = aiohttp.CookieJar(unsafe=True) if jar else aiohttp.DummyCookieJar()
        async with aiohttp.ClientSession(base_url, cookie_jar=cookie_jar) as client:
            replies = []
            for path, body in calls:
                raw = body if isinstance(body, bytes) else json.dumps(body).encode()
                async with client.post(path, data=raw) as reply:
                    replies.append((reply.status, await reply.json()))
            return replies

    return asyncio.run(make())


def test_an_attempt_that_asks_for_the_weather_is_rewarded(base_url):
    replies = post(
        base_url,
        ("/seed_session", ROW),
        ("/get_weather", {"city": "Paris"}),
        ("/verify", {**ROW, "response": RESPONSE}),
    )
    assert replies == [
        (200, {}),
        (200, {"city": "Paris", "weather_description": "The weather in Paris is cold."}),
        (
            200,
            {
                **ROW,
                "response": RESPONSE,
                "reward": 1.0,
                "explanation": "the weather was asked for in Paris",
                "cities": ["Paris"],
            },
        ),
    ]


def test_an_attempt_that_never_asks_gets_nothing(base_url):
    _, (status, verdict) = post(base_url, ("/seed_session", ROW), ("/verify", {**ROW, "response": RESPONSE}))
    assert (status, verdict["reward"]) == (200, 0.0)


def test_without_its_cookie_an_attempt_is_a_new_one(base_url):
    calls = [("/get_weather", {"city": "Paris"}), ("/verify", {**ROW, "response": RESPONSE})]
    assert post(base_url, *calls)[1][1]["reward"] == 1.0
    assert post(base_url, *calls, jar=False)[1][1]["reward"] == 0.0


def test_a_forged_cookie_is_not_believed(base_url):
    async def call():
        async with aiohttp.ClientSession(base_url, cookie_jar=aiohttp.DummyCookieJar()) as client:
            async with client.post("/get_weather", json={"city": "Paris"}) as reply:
                name, morsel = next(iter(reply.cookies.items()))
            forged = morsel.value.rpartition(".")[0] + "." + "0" * 64
            rewards = []
            for value in (morsel.value, forged, "é.1.é"):
                headers = {"Cookie": f"{name}={value}"}
                async with client.post("/verify", json={**ROW, "response": RESPONSE}, headers=headers) as reply:
                    rewards.append((await reply.json())["reward"])
            return rewards

    assert asyncio.run(call()) == [1.0, 0.0, 0.0]


def test_the_cookie_is_sent_again_with_every_reply_even_an_error(base_url):
    async def names():
        async with aiohttp.ClientSession(base_url) as client:
            found = []
            for path, body in [("/seed_session", ROW), ("/get_weather", {}), ("/nope", {})]:
                async with client.post(path, json=body) as reply:
                    found.append(list(reply.cookies))
            return found

    assert asyncio.run(names()) == [["WeatherResourcesServer___weather"]] * 3


def test_wrong_arguments_get_the_answer_that_fastapi_gives(base_url):
    missing = {"type": "missing", "loc": ["body", "city"], "msg": "Field required", "input": {}}
    extra = {"type": "extra_forbidden", "loc": ["body", "day"], "msg": "Extra inputs are not permitted", "input": 1}
    wrong = {"type": "string_type", "loc": ["body", "city"], "msg": "Input should be a valid string", "input": 5}
    assert post(
        base_url,
        ("/get_weather", {}),
        ("/get_weather", {"city": "Paris", "day": 1}),
        ("/get_weather", {"city": 5}),
        ("/nope", {}),
    ) == [
        (422, {"detail": [missing]}),
        (422, {"detail": [extra]}),
        (422, {"detail": [wrong]}),
        (404, {"detail": "Not Found"}),
    ]
    (broken, not_an_object, no_response) = post(
        base_url, ("/get_weather", b"{oops"), ("/seed_session", b"[]"), ("/verify", ROW)
    )
    assert (broken[0], broken[1]["detail"][0]["type"]) == (422, "json_invalid")
    assert (not_an_object[0], not_an_object[1]["detail"][0]["type"]) == (422, "dict_type")
    assert (no_response[0], no_response[1]["detail"][0]["loc"]) == (422, ["body", "response"])


def test_gymweb_runs_its_example_rows_to_a_reward(base_url):
    lines = (EXAMPLES / "resource_servers" / "weather" / "example.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]

    async def attempt(server, row):
        session = await server.seed_session(row, seed=1)
        output = await session.call_tool("get_weather", {"city": "Oslo"})
        wrong = await session.call_tool("get_weather", {"town": "Oslo"})
        reward = await session.verify(RESPONSE)
        await session.close()
        return output, wrong.error, reward.value, reward.explanation, reward.details

    async def attempts():
        outbound = Outbound(OutboundPolicy([base_url.removeprefix("http://")]))
        caller = Caller(outbound, name="weather", base_url=base_url, call_timeout=120.0, max_tries=3)
        server = HttpResourceServer(caller, verify_timeout=120.0)
        try:
            probe = await server.probe()
            return probe, await asyncio.gather(*(attempt(server, row) for row in rows))
        finally:
            await outbound.close()

    probe, results = asyncio.run(attempts())
    assert (probe.healthy, probe.message) == (True, "reachable; 1 tool in its OpenAPI document")
    assert probe.tools[0]["parameters"] == rows[0]["responses_create_params"]["tools"][0]["parameters"]
    assert len(results) == 5
    for output, wrong, value, explanation, details in results:
        assert json.loads(output.text) == {"city": "Oslo", "weather_description": "The weather in Oslo is cold."}
        assert (output.error, wrong, value) == ("", "http_422", 1.0)
        assert explanation == "the weather was asked for in Oslo"
        assert details == {"cities": ["Oslo"]}


def test_many_calls_at_once_are_all_answered(base_url):
    async def calls() -> list[int]:
        async with aiohttp.ClientSession(base_url, connector=aiohttp.TCPConnector(limit=32)) as client:

            async def call():
                async with client.post("/get_weather", json={"city": "Paris"}) as reply:
                    await reply.read()
                    return reply.status

            return await asyncio.gather(*(call() for _ in range(200)))

    assert asyncio.run(calls()) == [200] * 200
