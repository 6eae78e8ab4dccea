"""Test an environment's verifier: run cases with known rewards as attempts."""

import time

import msgspec

from apps.gym.environments.task_generation import Call, Case, Kit, Move, generate_tasks, say
from apps.gym.errors import GymError
from apps.gym.loop.trials.players import echo_prompt, play_attempt, reward_of, stay_silent
from apps.gym.resources.protocol import ResourceServer
from apps.gym.written.environment import tell

FULL = 1.0
_TOLERANCE = 1e-9
_TIMES = 3


class CaseResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a case: the `rewards` of each run, and a `problem`, empty if it passed."""

    case: Case
    rewards: list[float | None]
    problem: str
    seconds: float

    @property
    def passed(self) -> bool:
        return not self.problem


def list_cases(kit: Kit) -> list[Case]:
    """Return the default cases of every kit, then its own."""
    row = next(generate_tasks(kit, count=1, difficulty="easy"))
    unknown = Move(calls=[Call("no_such_tool", {"a": 1})])
    broken = Move(calls=[Call("no_such_tool", "{not JSON")])
    made = [
        Case(name="solved", kind="full reward", row=row, play=kit.solve, reward=FULL),
        Case(name="silence", kind="zero reward", row=row, play=stay_silent, reward=0.0),
        Case(name="the prompt as the answer", kind="zero reward", row=row, play=echo_prompt, reward=0.0),
        Case(name="invalid tool calls", kind="malformed", row=row, play=say(unknown, broken, "\\boxed{"), reward=0.0),
        Case(name="the same attempt again", kind="determinism", row=row, play=kit.solve),
    ]
    return [*made, *kit.cases()]


async def check_cases(server: ResourceServer, kit: Kit) -> list[CaseResult]:
    """Run every case against this server, in process or over HTTP."""
    return await check_each(server, list_cases(kit), max_steps=kit.max_steps)


async def check_each(server: ResourceServer, cases: list[Case], *, max_steps: int) -> list[CaseResult]:
    return [await _check(server, case, max_steps) for case in cases]


async def _check(server: ResourceServer, case: Case, max_steps: int) -> CaseResult:
    began = time.perf_counter()
    rewards: list[float | None] = []
    traces: set[bytes] = set()
    problem = ""
    try:
        for _ in range(_TIMES if case.kind == "determinism" else 1):
            events = await play_attempt(server, case.row, case.play, seed=case.seed, max_steps=max_steps)
            traces.add(msgspec.json.encode(events))
            rewards.append(reward_of(events))
    except GymError as error:
        problem = f"{error.kind}: {error}"
    except (Exception, SystemExit, KeyboardInterrupt) as bug:
        # A case's player is the environment's own code and may raise anything.
        problem = tell(bug)
    return CaseResult(
        case=case,
        rewards=rewards,
        problem=problem or _find_problem(case, rewards, len(traces)),
        seconds=time.perf_counter() - began,
    )


def _find_problem(case: Case, rewards: list[float | None], traces: int) -> str:
    if traces > 1:
        return f"the same attempt gave {traces} different traces"
    (reward,) = set(rewards)
    if reward is None:
        return "no reward"
    if case.reward is not None and abs(reward - case.reward) > _TOLERANCE:
        return f"the reward is {reward:g}, expected {case.reward:g}"
    return ""
