"""Errors in a custom environment fail only their own attempt, and name the place in the code."""

import asyncio
import logging
import time

import pytest
import uvloop

from apps.gym.environments.task_generation import Case, say
from apps.gym.errors import EnvironmentFault, GymError, VerifierError
from apps.gym.loop.trials.case_runs import check_cases
from apps.gym.loop.trials.players import play_attempt, reward_of
from apps.gym.resources.written_environments import WrittenServer, perform
from apps.gym.serving.served_environment import serve_environment
from apps.gym.serving.served_request import IncomingRequest, answer_always
from apps.gym.written import Environment, Reward, ask, tool

ROW = {"responses_create_params": ask("Go on.")}


def written(**methods):
    return type("Mine", (Environment,), {"__doc__": "Mine.", "verify": gives(1.0), **methods})


def gives(value):
    async def method(self, *given):
        return value

    return method


def raises(problem):
    async def method(self, *given):
        raise problem

    return method


def raises_in_a_thread(problem):
    def method(self, *given):
        raise problem

    return method


def raises_in_a_task_of_its_own(problem):
    async def method(self, *given):
        await asyncio.gather(raises(problem)(self), asyncio.sleep(0))

    return method


def attempt(cls, text="x"):
    """The reward, or the kind and the words of the fault."""

    async def once():
        try:
            return reward_of(await play_attempt(WrittenServer(cls, name="mine"), ROW, say(text), max_steps=3))
        except GymError as fault:
            return fault.kind, str(fault)

    return asyncio.run(once())


KINDS = {"seed": "environment_error", "respond": "environment_error", "verify": "verifier_error"}
PROBLEMS = [
    (ValueError("oops"), "ValueError: oops"),
    (SystemExit(3), "SystemExit: 3"),
    (KeyboardInterrupt(), "KeyboardInterrupt"),
    (asyncio.CancelledError(), "CancelledError"),
    (GeneratorExit(), "GeneratorExit"),
    (TimeoutError("mine"), "TimeoutError: mine"),
    (BaseExceptionGroup("both", [SystemExit(1)]), "BaseExceptionGroup: both (1 sub-exception)"),
    (ValueError("\udc80"), "ValueError: ?"),
]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(("problem", "told"), PROBLEMS, ids=[told for _, told in PROBLEMS])
@pytest.mark.parametrize("how", [raises, raises_in_a_thread, raises_in_a_task_of_its_own])
def test_an_exception_ends_the_attempt_and_names_the_method(how, problem, told, name, caplog):
    caplog.set_level(logging.CRITICAL)  # A report of a test travels as UTF-8, which has no half of a pair.
    assert attempt(written(**{name: how(problem)})) == (KINDS[name], f"mine: {name}: {told}")


def test_an_exception_that_cannot_be_pickled_is_reported():
    assert attempt(written(verify=raises_in_a_thread(StopIteration(4)))) == (
        "verifier_error",
        "mine: verify: RuntimeError: StopIteration: 4",
    )


@pytest.mark.parametrize("how", [raises, raises_in_a_thread, raises_in_a_task_of_its_own])
def test_a_tool_that_would_end_the_process_is_told_to_the_model(how):
    class Mine(Environment):
        """Mine."""

        @tool
        async def leave(self) -> str:
            """Leave."""
            result = how(SystemExit(2))(self)
            return await result if result else ""

    async def once():
        session = await WrittenServer(Mine, name="mine").seed_session(ROW, seed=0)
        return await session.call_tool("leave", {})

    output = asyncio.run(once())
    assert (output.error, output.text) == ("tool_error", '{"error": "SystemExit: 2"}')


def test_what_closing_raises_leaves_the_reward():
    assert attempt(written(close=raises(SystemExit(1)))) == 1.0


@pytest.mark.parametrize(
    ("methods", "told"),
    [
        ({"verify": gives("1.0")}, "verify: TypeError: returned str, expected a number or a Reward"),
        ({"verify": gives(None)}, "verify: TypeError: returned NoneType, expected a number or a Reward"),
        ({"verify": gives(float("nan"))}, "the verifier gave a reward that is not finite: nan {}"),
        (
            {"verify": gives(Reward(value=1.0, details={"a": object()}))},
            "verify: TypeError: Type is not JSON serializable: object",
        ),
        ({"verify": gives(Reward(value=None))}, "verify: TypeError: the value of its Reward is NoneType"),
        ({"verify": lambda self: 1.0}, "verify: TypeError: <lambda>() takes 1 positional argument"),
        ({"respond": gives("go on")}, "respond: TypeError: returned str, expected a list of items or None"),
        ({"respond": gives(["go on"])}, "respond: TypeError: returned str as item 0, expected an object"),
        ({"respond": gives([{}])}, "respond: ValueError: its item 0 has neither role nor type"),
        ({"respond": gives([{"role": "user", "content": 3}])}, "respond: ValueError: its item 0/content must be text"),
        ({"__init__": raises_in_a_thread(SystemExit(1))}, "seed: SystemExit: 1"),
        ({"__init__": lambda self, more: None}, "seed: TypeError: "),
    ],
)
def test_return_values_are_checked(methods, told):
    kind, said = attempt(written(**methods))
    assert told in said
    assert kind == KINDS.get(told.partition(":")[0], "verifier_error")


def test_methods_without_async_run_in_threads():
    class Plain(Environment):
        """Plain."""

        def seed(self, row, seed):
            time.sleep(0.01)
            self.turns = 0

        def respond(self, items):
            self.turns += 1
            return None if self.turns > 1 else [{"role": "user", "content": "Again."}]

        def verify(self, attempt):
            return self.turns / 2

        def close(self):
            closed.append(self.turns)

    closed = []
    assert attempt(Plain) == 1.0
    assert closed == [2]


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_cancelled_attempt_ends_even_if_its_code_resists(run):
    async def stubborn(self, *given):
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            raise ValueError("not now") from None

    async def once():
        task = asyncio.ensure_future(play_attempt(WrittenServer(written(verify=stubborn), name="mine"), ROW, say("x")))
        await asyncio.sleep(0.05)
        task.cancel()
        (ended,) = await asyncio.gather(task, return_exceptions=True)
        return type(ended)

    assert run(once()) is asyncio.CancelledError


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_callback_that_raises_is_in_the_log_and_the_attempt_goes_on(run, caplog):
    async def verify(self, attempt):
        def late():
            raise ValueError("too late")

        asyncio.get_running_loop().call_soon(late)
        await asyncio.sleep(0.01)
        return 1.0

    async def once():
        return await play_attempt(WrittenServer(written(verify=verify), name="mine"), ROW, say("x"))

    assert reward_of(run(once())) == 1.0
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["too late"]


def test_a_task_of_its_own_that_never_began_leaves_no_warning(recwarn):
    async def begin():
        asyncio.ensure_future(asyncio.sleep(1)).cancel()
        await asyncio.sleep(0)

    asyncio.run(perform(begin, seconds=1.0))
    assert [str(warning.message) for warning in recwarn] == []


def test_a_served_environment_answers_500_and_serves_on():
    cls = written(verify=raises(SystemExit(3)))

    async def once():
        served = await serve_environment(WrittenServer(cls, name="mine"), most_sessions=5, session_seconds=60.0)
        row = b'{"responses_create_params": {"input": "x"}, "response": {"output": []}}'
        opened = await answer_always(served, IncomingRequest(method="POST", path="seed_session", body=row), seconds=120)
        asked = IncomingRequest(method="POST", path="verify", body=row, session=opened.session)
        told = await answer_always(served, asked, seconds=120)
        again = await answer_always(served, IncomingRequest(method="GET", path=""), seconds=120)
        return told.status, told.body, again.status

    assert asyncio.run(once()) == (500, b'"VerifierError: mine: verify: SystemExit: 3"', 200)


@pytest.mark.parametrize(
    ("methods", "told"),
    [
        ({"make_task": staticmethod(lambda dice, difficulty: 1 / 0)}, "mine: make_task: ZeroDivisionError: "),
        ({"make_task": staticmethod(lambda dice, difficulty: {})}, "mine: make_task: KeyError: 'responses_create"),
        ({"make_task": staticmethod(lambda dice, difficulty: None)}, "make_task: returned NoneType, expected dict"),
        ({"cases": staticmethod(raises_in_a_thread(SystemExit(2)))}, "mine: cases: "),
    ],
)
def test_an_exception_of_a_kit_names_the_function(methods, told):
    tasks = {"make_task": staticmethod(lambda dice, difficulty: ROW), "solve": staticmethod(say("x"))}
    cls = written(name="mine", **{**tasks, **methods})
    with pytest.raises(EnvironmentFault, match=told.replace("(", r"\(")):
        asyncio.run(check_cases(WrittenServer(cls, name="mine"), cls.kit()))


def test_a_player_that_breaks_is_the_problem_of_its_case():
    def solve(seen):
        raise SystemExit(5)

    def play(seen):
        raise KeyError("no")

    cases = staticmethod(lambda: [Case(name="own", kind="zero reward", row=ROW, play=play)])
    cls = written(
        name="mine",
        make_task=staticmethod(lambda dice, difficulty: ROW),
        solve=staticmethod(solve),
        cases=cases,
        verify=gives(0.0),
    )
    results = asyncio.run(check_cases(WrittenServer(cls, name="mine"), cls.kit()))
    assert {result.case.name: result.problem for result in results if result.problem} == {
        "solved": "environment_error: mine: solve: SystemExit: 5",
        "the same attempt again": "environment_error: mine: solve: SystemExit: 5",
        "own": "KeyError: 'no'",
    }


def test_a_fault_of_verify_is_lasting():
    async def once():
        session = await WrittenServer(written(verify=raises(SystemExit(1))), name="mine").seed_session(ROW, seed=0)
        await session.verify({"output": []})

    with pytest.raises(VerifierError) as fault:
        asyncio.run(once())
    assert not fault.value.transient
