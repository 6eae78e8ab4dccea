"""A configured verifier in place of the server's own: the session stays as it is but for its end."""

import asyncio

import pytest

from apps.gym.errors import VerifierError
from apps.gym.resources.gymnasium import GymnasiumServer
from apps.gym.resources.own_verifier import ToollessServer, VerifiedServer
from apps.gym.resources.protocol import SteppedSession
from tests.gym.resources.servers import Answers, serve
from tests.gym.verifiers.replies import response, says

ROW = {"responses_create_params": {"input": "Deal me in."}, "expected_answer": "42"}
OVER = {"observation": None, "reward": 5, "terminated": True, "truncated": False, "info": {}}


def test_a_declared_environment_has_no_tools_and_ends_with_the_first_answer():
    async def attempt():
        session = await VerifiedServer(ToollessServer(name="lab"), verifier={"type": "numeric"}).seed_session(
            ROW, seed=1
        )
        output = await session.call_tool("search", {})
        found = await session.list_tools(), output.error, await session.respond([])
        reward = await session.verify(response("42"))
        await session.close()
        return (*found, reward.value, session.judge_calls)

    assert asyncio.run(attempt()) == ([], "unknown_tool", None, 1.0, [])


def test_a_gymnasium_server_keeps_its_steps_and_loses_its_sum():
    answers = Answers(reset={"observation": "go"}, step=[OVER])

    async def attempt():
        async with serve(answers, adapter=GymnasiumServer) as server:
            session = await VerifiedServer(server, verifier={"type": "numeric"}).seed_session(ROW, seed=1)
            assert isinstance(session, SteppedSession)
            opening = [item["content"] for item in session.opening]
            step = await session.step({"object": "response", "output": [says("42")]})
            reward = await session.verify(response("42"))
            await session.close()
            return opening, step.done, reward.value

    assert asyncio.run(attempt()) == (["go"], True, 1.0)


def test_a_session_that_is_no_stepped_one_does_not_look_like_one():
    async def open_session():
        return await VerifiedServer(ToollessServer(name="lab"), verifier={"type": "numeric"}).seed_session(ROW, seed=1)

    session = asyncio.run(open_session())
    assert not isinstance(session, SteppedSession)


def test_what_verifies_here_can_be_verified_again_whatever_the_server_keeps():
    server = VerifiedServer(ToollessServer(name="lab"), verifier={"type": "numeric"})
    assert asyncio.run(server.reverify_mode()) == "stateless"


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (
            {},
            "lab: neither the environment nor",
        ),
        ({"verifier": {"type": "x"}}, "the task's own verifier cannot be used: /verifier/type is 'x'"),
        ({"verifier": "numeric"}, "the task's own verifier cannot be used: /verifier must be an object"),
    ],
)
def test_a_row_that_nothing_can_verify_is_refused_before_the_server_is_asked(row, told):
    class Untouched(ToollessServer):
        async def seed_session(self, row, *, seed):
            raise AssertionError("the server was asked")

    with pytest.raises(VerifierError) as refused:
        asyncio.run(VerifiedServer(Untouched(name="lab"), verifier={}).seed_session(row, seed=1))
    assert str(refused.value).startswith(told)
    assert not refused.value.transient
