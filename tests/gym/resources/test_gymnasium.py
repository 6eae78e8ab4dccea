import asyncio

import pytest

from apps.gym.errors import EnvironmentFault, TimedOut, VerifierError
from apps.gym.resources.gymnasium import GymnasiumServer
from apps.gym.resources.own_verifier import UnverifiedServer
from apps.gym.resources.server_calls import Caller
from apps.gym.rewards import Reward
from apps.gym.traces.events import EnvironmentTurn, ToolResult
from apps.gym.traces.items import message
from tests.gym.resources.servers import BROKEN, SLOW, Answers, serve
from tests.nemo_gym import kinds
from tests.nemo_gym.attempts import attempt, connect, loopback
from tests.nemo_gym.servers import Kind, serving
from tests.nemo_gym.solving import call, says, stands

ROW = {"responses_create_params": {"input": "Deal me in."}, "seed": 4}
RESPONSE = {"object": "response", "output": [says("hit")]}
OVER = {"observation": None, "reward": 1, "terminated": True, "truncated": False, "info": {}}


def in_session(doing, answers, **options):
    """What `doing(session)` gives at a server with these answers."""

    async def run():
        async with serve(answers, adapter=GymnasiumServer, **options) as server:
            session = await server.seed_session(ROW, seed=1)
            try:
                return await doing(session)
            finally:
                await session.close()

    return asyncio.run(run())


async def step(session):
    return await session.step(RESPONSE)


def at(kind, moves, row=ROW, **harness):
    async def run():
        outbound = loopback()
        try:
            async with serving(kind) as server:
                return await attempt(connect(server, outbound), row, moves, **harness), server
        finally:
            await outbound.close()

    return asyncio.run(run())


def test_reset_gets_the_row_and_a_step_the_row_with_the_newest_reply_alone():
    answers = Answers(reset={"observation": "go"}, step=[{"observation": "on"}, OVER])

    async def two_steps(session):
        await session.step(RESPONSE)
        await session.step({"object": "response", "output": [says("stand")]})

    in_session(two_steps, answers)
    assert answers.bodies("reset") == [ROW]
    assert [body["response"]["output"] for body in answers.bodies("step")] == [[says("hit")], [says("stand")]]
    assert {key: answers.bodies("step")[0][key] for key in ROW} == ROW


def test_the_reward_is_the_sum_of_the_steps_and_each_is_kept():
    answers = Answers(reset={}, step=[{"reward": 0.5}, {"reward": -2}, {**OVER, "info": {"level": 3}}])

    async def play(session):
        for _ in range(3):
            await session.step(RESPONSE)
        return await session.verify(RESPONSE)

    assert in_session(play, answers) == Reward(
        value=-0.5,
        explanation="the sum of the rewards of 3 steps",
        details={"terminated": True, "truncated": False, "step_rewards": [0.5, -2.0, 1.0], "info": {"level": 3}},
    )


def test_an_attempt_that_is_cut_short_has_the_reward_of_its_steps_and_counts_as_truncated():
    trace, _ = at(kinds.blackjack("2222" + "2" * 20), lambda *_: [says("<action>hit</action>")], max_steps=3)
    verdict = trace[-1]
    assert (verdict.stop_reason, verdict.reward, verdict.details["truncated"]) == ("max_steps", 0.0, True)


def test_outputs_of_tools_come_with_the_step_in_the_order_of_the_calls():
    def acts(row, output, state):
        if output[0]["type"] == "message":
            return None, 1.0, True, False, {}
        told = [{"call_id": item["call_id"], "output": item["name"].upper()} for item in reversed(output)]
        return "and now?", 0.25, False, False, {"tool_outputs": told}

    def moves(row, said, prompt):
        return [says("done")] if said else [call("mcp__lab__look", {}, 1), call("walk", {}, 2)]

    tools = [{"type": "function", "name": name, "parameters": {}} for name in ("look", "walk")]
    row = {"responses_create_params": {"input": "Go.", "tools": tools}}
    trace, _ = at(Kind("lab", reset=lambda row, state: (None, {}), step=acts), moves, row)
    results = [(event.name, event.output) for event in trace if isinstance(event, ToolResult)]
    assert results == [("mcp__lab__look", "LOOK"), ("walk", "WALK")]
    assert [event.items for event in trace if isinstance(event, EnvironmentTurn)] == [[message("user", "and now?")]]
    assert trace[-1].reward == 1.25


def test_a_call_without_an_output_is_answered_so_that_the_conversation_can_go_on():
    answers = Answers(reset={}, step={"observation": "on"})

    async def calling(session):
        return await session.step({"object": "response", "output": [call("look", {})]})

    given = in_session(calling, answers)
    [(call_id, output)] = given.outputs
    assert call_id == "call_look_1"
    assert output.text == '{"error":"the environment returned no output for this call"}'


def test_each_of_two_calls_with_one_id_has_its_output():
    outputs = [{"call_id": "x", "output": text} for text in ("alpha", "beta")]
    answers = Answers(reset={}, step={"observation": "on", "info": {"tool_outputs": outputs}})

    async def calling(session):
        calls = [{**call(name, {}), "call_id": "x"} for name in ("look", "walk")]
        return await session.step({"object": "response", "output": calls})

    assert [(name, output.text) for name, output in in_session(calling, answers).outputs] == [
        ("x", "alpha"),
        ("x", "beta"),
    ]


def test_a_refused_step_is_a_lasting_fault_and_no_reward_of_0():
    answers = Answers(reset={}, step=(400, "Unable to parse an action", {}))
    with pytest.raises(EnvironmentFault, match="POST /step returned 400: Unable to parse an action") as refused:
        in_session(step, answers)
    assert (refused.value.transient, len(answers.bodies("step"))) == (False, 1)


def test_a_step_is_sent_once_unless_the_server_knows_it_by_its_number():
    answers = Answers(reset={}, step=[(503, "busy", {}), OVER])
    with pytest.raises(EnvironmentFault, match="POST /step returned 503: busy"):
        in_session(step, answers)
    assert len(answers.bodies("step")) == 1
    answers = Answers(reset={"info": {"supports_step_idempotency": True}}, step=[(503, "busy", {}), BROKEN, OVER])
    assert in_session(step, answers).done is True
    numbers = {body["_ng_step_request_id"] for body in answers.bodies("step")}
    assert (len(answers.bodies("step")), len(numbers)) == (3, 1)


@pytest.mark.parametrize("says_so", [True, False, "yes", None])
def test_a_session_is_closed_where_the_server_wants_to_hear_it(says_so):
    answers = Answers(reset={"info": {"supports_explicit_close": says_so}}, step=OVER, close={})
    in_session(step, answers)
    assert answers.bodies("close") == ([{}] if says_so is True else [])


def test_a_close_that_fails_takes_nothing_from_the_attempt():
    answers = Answers(reset={"info": {"supports_explicit_close": True}}, step=OVER, close=BROKEN)
    assert in_session(step, answers).done is True


def test_an_attempt_that_fails_closes_its_session():
    answers = Answers(
        reset={"observation": "go", "info": {"supports_explicit_close": True}}, step=(500, "boom", {}), close={}
    )
    with pytest.raises(EnvironmentFault, match="POST /step returned 500: boom"):
        in_session(step, answers)
    assert len(answers.bodies("close")) == 1


@pytest.mark.parametrize(
    ("reward", "told"),
    [('"1"', "'1'"), ("true", "True"), ("[]", r"\[\]"), ("NaN", "'NaN'"), ("-Infinity", "'-Infinity'")],
)
def test_a_reward_that_is_no_finite_number_is_the_verifiers_failure(reward, told):
    answers = Answers(reset={}, step=(200, f'{{"reward": {reward}}}', {}))
    with pytest.raises(VerifierError, match=rf"no finite number as `reward`: {told}"):
        in_session(step, answers)


@pytest.mark.parametrize("text", ["", "fine", "[1]", "NaN"])
def test_a_reply_that_is_no_object_breaks_the_protocol(text):
    with pytest.raises(EnvironmentFault, match="the reply of /reset is not"):
        in_session(step, Answers(reset=(200, text, {})))
    with pytest.raises(EnvironmentFault, match="the reply of /step is not"):
        in_session(step, Answers(reset={}, step=(200, text, {})))


def test_a_refused_reset_is_a_fault_for_good_and_a_failed_one_is_tried_again():
    with pytest.raises(EnvironmentFault, match='POST /reset returned 422: "no"') as refused:
        in_session(step, Answers(reset=(422, '"no"', {})))
    assert refused.value.transient is False
    answers = Answers(reset=[(500, "boom", {}), {}], step=OVER)
    assert in_session(step, answers).done is True


def test_a_slow_step_is_a_time_out():
    with pytest.raises(TimedOut, match="no reply within 2 s"):
        in_session(step, Answers(reset={}, step=SLOW), call_timeout=2.0)


def test_observations_that_are_no_text_are_written_as_json():
    answers = Answers(reset={"observation": {"board": [0, 1]}}, step=OVER)

    async def opening(session):
        return session.opening

    assert in_session(opening, answers) == [message("user", '{"board":[0,1]}')]


def test_without_verification_there_is_no_reward():
    async def run():
        async with serve(Answers(reset={}, step=OVER), adapter=GymnasiumServer) as server:
            session = await UnverifiedServer(server).seed_session(ROW, seed=1)
            await session.step(RESPONSE)
            return await session.verify(RESPONSE)

    assert asyncio.run(run()).value is None


def test_the_newest_cookies_go_with_every_step():
    _, server = at(kinds.blackjack("232T5TT"), stands)
    assert (server.stale, len(server.sessions), len(server.seen)) == (0, 0, 5)


@pytest.mark.parametrize(("kind", "healthy"), [(kinds.blackjack("2222"), True), (kinds.XLAM, False)])
def test_the_health_check_knows_a_gymnasium_server(kind, healthy):
    async def probe():
        outbound = loopback()
        try:
            async with serving(kind) as server:
                caller = Caller(outbound, name="lab", base_url=server.base_url, call_timeout=120.0, max_tries=1)
                return await GymnasiumServer(caller).probe()
        finally:
            await outbound.close()

    assert asyncio.run(probe()).healthy is healthy
