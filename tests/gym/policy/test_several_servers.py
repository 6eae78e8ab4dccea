"""Several servers of one model: a rollout stays with one, whose prefix cache it hits; a failed try goes to the next."""

import asyncio
from collections import defaultdict

import orjson
import pytest
from aiohttp import web

from apps.gym.calls.outbound import Outbound
from apps.gym.calls.outbound_policy import OutboundPolicy
from apps.gym.calls.retries import Pauses
from apps.gym.errors import PolicyError
from apps.gym.traces.items import message
from apps.gym.wires.protocol import Ask
from tests.plain_policies import plain_policy

REPLY = {"id": "r", "choices": [{"message": {"content": "4"}, "finish_reason": "stop"}]}
SESSIONS = [f"rollout-{number}" for number in range(60)]


def play(turns, *, broken=(), servers=3, max_tries=3):
    """Which servers each session reached, in order, after `turns` asks of each; broken ones answer 503."""
    reached = defaultdict(list)

    def server(index):
        async def handle(request):
            reached[request.headers["X-Session-ID"]].append(index)
            await request.read()
            if index in broken:
                return web.Response(status=503, body=b"{}")
            return web.Response(body=orjson.dumps(REPLY), content_type="application/json")

        return web.ServerRunner(web.Server(handle), shutdown_timeout=0.1)

    async def main():
        runners = [server(index) for index in range(servers)]
        for runner in runners:
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
        outbound = Outbound(OutboundPolicy(["127.0.0.1"]))
        policy = plain_policy(
            outbound,
            base_urls=[f"http://127.0.0.1:{runner.addresses[0][1]}/v1" for runner in runners],
            model_name="m",
            wire="chat",
            max_tries=max_tries,
            pauses=Pauses(first=0.0),
        )
        try:
            for _ in range(turns):
                await asyncio.gather(
                    *(policy.ask(Ask(items=[message("user", "Hi")], session=session)) for session in SESSIONS)
                )
        finally:
            await outbound.close()
            for runner in runners:
                await runner.cleanup()

    asyncio.run(main())
    return reached


def test_every_turn_of_a_rollout_goes_to_the_server_of_its_first():
    reached = play(turns=4)
    assert {session: (len(seen), len(set(seen))) for session, seen in reached.items()} == dict.fromkeys(
        SESSIONS, (4, 1)
    )


def test_rollouts_are_spread_over_all_servers():
    first = [seen[0] for seen in play(turns=1).values()]
    assert sorted(set(first)) == [0, 1, 2]
    assert min(first.count(server) for server in range(3)) >= len(SESSIONS) // 6


def test_a_try_after_a_failure_goes_to_the_next_server_and_the_next_turn_begins_at_its_own_again():
    reached = play(turns=2, broken={1})
    assert {tuple(seen) for seen in reached.values()} == {(0, 0), (2, 2), (1, 2, 1, 2)}


def test_where_all_servers_fail_the_tries_end():
    with pytest.raises(PolicyError, match="returned 503"):
        play(turns=1, broken={0, 1, 2})
