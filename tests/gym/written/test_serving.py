import asyncio
import time
from functools import partial
from typing import Literal

import pytest

from apps.gym.errors import EnvironmentFault, TimedOut, VerifierError
from apps.gym.image_data import data_url
from apps.gym.loop.trials.players import play_attempt, reward_of
from apps.gym.resources.gymnasium import GymnasiumServer
from apps.gym.resources.nemo_gym_http import HttpResourceServer
from apps.gym.resources.own_verifier import UnverifiedServer
from apps.gym.resources.protocol import ToolOutput
from apps.gym.resources.server_calls import Caller
from apps.gym.resources.written_environments import WrittenServer
from apps.gym.serving.served_environment import serve_environment
from apps.gym.traces.events import EnvironmentTurn
from apps.gym.written import Attempted, Call, Environment, Move, Reward, ToolRefused, ask, say, tool
from tests.deadlines import DEADLINE
from tests.gym.serving.ports import on_a_port
from tests.gym.verifiers.replies import response
from tests.images import make_png

PNG = make_png()
ROW = {"responses_create_params": ask("Count to three."), "expected": 3}


class Counter(Environment):
    """Counts."""

    async def seed(self, row, seed):
        if row.get("bad"):
            raise KeyError("start")
        self.count = seed * 0
        self.closed = False

    @tool
    async def up(self, by: int = 1) -> int:
        """Count up."""
        if by < 0:
            raise ToolRefused("down", "only up")
        self.count += by
        return self.count

    @tool
    def wait(self, seconds: float) -> str:
        """Wait in a thread."""
        time.sleep(seconds)
        return "done"

    @tool
    async def sleep(self, seconds: float) -> str:
        """Wait on the loop."""
        await asyncio.sleep(seconds)
        return "done"

    @tool
    async def broken(self) -> str:
        """Break."""
        raise ZeroDivisionError("oh")

    @tool
    async def endless(self) -> str:
        """Say too much."""
        return "x" * (4 * 1024**2 + 1)

    @tool
    async def photograph(self, shows: Literal["picture", "both", "noise"]) -> object:
        """Take a picture."""
        return {"picture": PNG, "both": ["Page 1", PNG], "noise": b"RAW"}[shows]

    async def respond(self, items):
        return None if self.count else [{"type": "message", "role": "user", "content": "Go on."}]

    async def verify(self, attempt: Attempted) -> float | Reward:
        if attempt.answer == "explain":
            return Reward(value=0.5, components={"count": float(self.count)})
        if attempt.answer == "break":
            raise LookupError("no")
        if attempt.answer == "none":
            return None
        return self.count == self.row["expected"] and attempt.answer == "3"

    async def close(self):
        self.closed = True


def server(seconds=DEADLINE, **options):
    return WrittenServer(Counter, name="counter", call_timeout=seconds, verify_timeout=seconds, **options)


def call(name, arguments, seconds=DEADLINE):
    async def once():
        session = await server(seconds).seed_session(ROW, seed=1)
        return await session.call_tool(name, arguments)

    return asyncio.run(once())


def test_tools_keep_their_state_and_verify_reads_it():
    moves = say(Move(calls=[Call("up", {}), Call("up", {"by": 2})]), "\\boxed{3}")
    assert reward_of(asyncio.run(play_attempt(server(), ROW, moves))) == 1.0
    fewer = say(Move(calls=[Call("up", {})]), "\\boxed{3}")
    assert reward_of(asyncio.run(play_attempt(server(), ROW, fewer))) == 0.0


def test_integers_beyond_64_bits_reach_a_tool_and_the_verifier_unchanged():
    async def once():
        session = await server().seed_session(ROW, seed=1)
        return await session.call_tool("up", session.read_arguments(f'{{"by": {2**64 + 1}}}'))

    assert asyncio.run(once()).text == str(2**64 + 1)
    called = {"type": "function_call", "name": "up", "arguments": f'{{"by": {2**64 + 1}}}'}
    [made] = Attempted(response={"output": [called]}).calls
    assert made.arguments == {"by": 2**64 + 1}


def test_the_environments_turn_comes_after_a_reply_without_calls():
    events = asyncio.run(play_attempt(server(), ROW, say("3?", Move(calls=[Call("up", {"by": 3})]), "3")))
    assert reward_of(events) == 1.0
    assert [item["content"] for event in events for item in event.new_items() if item.get("role") == "user"][1:] == [
        "Go on."
    ]


@pytest.mark.parametrize(
    ("name", "arguments", "error", "words"),
    [
        ("up", {"by": -1}, "down", "only up"),
        ("up", {"by": "x"}, "bad_arguments", "Expected `int`, got `str` - at `$.by`"),
        ("up", {"to": 1}, "bad_arguments", "unknown field `to`"),
        ("down", {}, "unknown_tool", "the tools are: up, wait, sleep, broken, endless, photograph"),
        ("seed", {}, "unknown_tool", "no tool named 'seed'"),
        ("broken", {}, "tool_error", "ZeroDivisionError: oh"),
        ("endless", {}, "too_large", "4,194,305 characters"),
        ("photograph", {"shows": "noise"}, "bad_image", "PNG, JPEG, GIF or WebP"),
        ("wait", {"seconds": 1}, "timeout", "no result within 0.3 s"),
        ("sleep", {"seconds": 5}, "timeout", "no result within 0.3 s"),
    ],
)
def test_what_goes_wrong_in_a_call_is_told_to_the_model(name, arguments, error, words):
    output = call(name, arguments, 0.3 if error == "timeout" else DEADLINE)
    assert output.error == error
    assert words in output.text


def test_a_tool_may_return_images():
    picture = {"type": "input_image", "image_url": data_url("image/png", PNG)}
    assert call("photograph", {"shows": "picture"}).output == [picture]
    assert call("photograph", {"shows": "both"}).output == [{"type": "input_text", "text": "Page 1"}, picture]


def test_a_method_that_is_not_async_waits_in_a_thread():
    assert call("wait", {"seconds": 0.01}) == ToolOutput(text="done")


def verify(text, seconds=DEADLINE, **row):
    async def once():
        session = await server(seconds).seed_session({**ROW, **row}, seed=1)
        return await session.verify(response(text))

    return asyncio.run(once())


def test_verify_gives_a_number_or_a_reward_and_anything_else_is_a_fault():
    assert verify("3").value == 0.0
    assert verify("explain") == Reward(value=0.5, components={"count": 0.0})
    with pytest.raises(VerifierError, match="counter: verify: LookupError: no") as broken:
        verify("break")
    assert not broken.value.transient
    with pytest.raises(VerifierError, match="verify: TypeError: returned NoneType, expected a number or a Reward"):
        verify("none")


def test_a_row_that_cannot_be_seeded_is_a_fault_of_the_environment():
    with pytest.raises(EnvironmentFault, match="counter: seed: KeyError: 'start'"):
        verify("3", bad=True)


def test_what_takes_too_long_is_timed_out(monkeypatch):
    async def forever(self, *given):
        await asyncio.sleep(30)

    monkeypatch.setattr(Counter, "verify", forever)
    with pytest.raises(TimedOut, match=r"counter: verify took longer than 0\.3 s"):
        verify("3", 0.3)
    monkeypatch.setattr(Counter, "seed", forever)
    with pytest.raises(TimedOut, match=r"counter: seed took longer than 0\.3 s"):
        verify("3", 0.3)


def test_where_verification_is_off_there_is_no_reward():
    async def once():
        session = await UnverifiedServer(server()).seed_session(ROW, seed=1)
        return await session.verify(response("3"))

    assert asyncio.run(once()).value is None


class SameTurn(Counter):
    """Answers each reply with the same dict, which it changes."""

    async def respond(self, items):
        self.count += 1
        self.turn = getattr(self, "turn", {"type": "message", "role": "user"})
        self.turn["content"] = f"state {self.count}"
        return [self.turn] if self.count < 4 else None


def test_a_turn_that_the_environment_changes_later_stays_as_it_was():
    events = asyncio.run(play_attempt(WrittenServer(SameTurn, name="same"), ROW, say("a", "b", "c", "3")))
    turns = [event.items[0]["content"] for event in events if isinstance(event, EnvironmentTurn) and event.items]
    assert turns == ["state 1", "state 2", "state 3"]


class Once(Counter):
    """Counts, and leaves the last word to the model."""

    respond = Environment.respond


@pytest.mark.parametrize(
    ("written", "client"), [(Once, partial(HttpResourceServer, verify_timeout=120.0)), (Counter, GymnasiumServer)]
)
def test_over_http_it_is_the_same(written, client):
    moves = say(Move(calls=[Call("up", {}), Call("up", {"by": 2})]), "\\boxed{3}")
    here = WrittenServer(written, name="counter")

    async def compare():
        served = await serve_environment(here, most_sessions=5, session_seconds=60.0)
        async with on_a_port(served) as (port, outbound):
            caller = Caller(
                outbound, name="counter", base_url=f"http://127.0.0.1:{port}", call_timeout=120.0, max_tries=1
            )
            return reward_of(await play_attempt(client(caller), ROW, moves))

    assert asyncio.run(compare()) == reward_of(asyncio.run(play_attempt(here, ROW, moves))) == 1.0


def test_what_an_attempt_says_is_read_in_several_ways():
    items = [
        {"type": "function_call", "name": "up", "arguments": '{"by": 2}', "call_id": "a"},
        {"type": "function_call", "name": "up", "arguments": "{oops", "call_id": "b"},
        {"type": "message", "role": "assistant", "content": "First."},
        {"type": "message", "role": "assistant", "content": "Answer: 7"},
    ]
    attempt = Attempted({"output": items})
    assert attempt.calls == [Call("up", {"by": 2}), Call("up", "{oops")]
    assert (attempt.text, attempt.last_message, attempt.answer) == ("First.\nAnswer: 7", "Answer: 7", "7")
    assert (Attempted({"output": []}).answer, Attempted({"output": []}).last_message) == ("", "")
