"""Verify an attempt again from its trace: open a new session, optionally replay the tool calls, run the verifier."""

import time

import msgspec

from apps.gym.calls.time_limits import TimeLimit
from apps.gym.errors import TimedOut, VerifierError
from apps.gym.loop.attempt_driver import verification_event
from apps.gym.outcomes import read_mask
from apps.gym.resources.protocol import (
    ResourceServer,
    Session,
    SteppedSession,
)
from apps.gym.traces.events import JudgeCall, ModelCall, ToolResult, TraceUnion, Verification, tool_offers
from apps.gym.traces.items import TaskRow, call_arguments, function_calls
from apps.gym.wires.tool_names import assemble_unprefixed_response, strip_tool_prefix


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a new verification, with its judge calls even if it failed."""

    judge_calls: list[JudgeCall] = []
    verification: Verification | None = None
    error: Exception | None = None


async def verify_again(
    *,
    server: ResourceServer,
    row: TaskRow,
    events: list[TraceUnion],
    stop_reason: str,
    seed: int,
    seconds: float,
    replay: bool = False,
    number: int = 0,
) -> Verdict:
    """Verify an attempt again within `seconds`.

    Errors are returned, not raised (except CancelledError), so that a broken verifier does not stop others.
    """
    sessions: list[Session] = []
    began = time.perf_counter()
    limit = TimeLimit(seconds)
    try:
        with limit:
            session = await server.seed_session(row, seed=seed)
            sessions.append(session)
            try:
                offers = [row["responses_create_params"].get("tools") or [], *tool_offers(events)]
                names = frozenset(str(tool.get("name", "")) for tools in offers for tool in tools)
                if replay:
                    await _replay(session, events, row, names)
                reward = await session.verify(assemble_unprefixed_response(events, row, names, stop_reason))
            finally:
                await session.close()
    except TimeoutError:
        return Verdict(judge_calls=_calls(sessions), error=TimedOut(f"not verified within {seconds:g} s"))
    except Exception as problem:
        # Custom code may raise anything.
        return Verdict(judge_calls=_calls(sessions), error=problem)
    if reward.value is None:
        return Verdict(error=VerifierError("this environment has no verifier"))
    if masked := read_mask(reward.details):
        told = f"the verifier masked the attempt ({masked}): its reward is no valid measurement"
        return Verdict(judge_calls=_calls(sessions), error=VerifierError(told))
    return Verdict(
        judge_calls=_calls(sessions),
        verification=verification_event(
            reward, stop_reason, duration=time.perf_counter() - began - limit.waited, reverification=number
        ),
    )


def _calls(sessions: list[Session]) -> list[JudgeCall]:
    return [call for session in sessions for call in session.judge_calls]


async def _replay(session: Session, events: list[TraceUnion], row: TaskRow, names: frozenset[str]) -> None:
    """Send the recorded tool calls and replies to the session, in order.

    A call with invalid JSON arguments never reached a tool.
    """
    # A simulated user would answer with other messages, so no replies are sent to it.
    has_user = any(isinstance(event, JudgeCall) and event.role == "user" for event in events)
    made = {event.call_id for event in events if isinstance(event, ToolResult)}
    for event in events:
        if not isinstance(event, ModelCall):
            continue
        calls = function_calls(event.items)
        if isinstance(session, SteppedSession):
            if (await session.step(assemble_unprefixed_response([events[0], event], row, names))).done:
                return
        elif not calls and not has_user:
            await session.respond(event.items)
        for call in () if isinstance(session, SteppedSession) else calls:
            arguments = call_arguments(call)
            if str(call.get("call_id", "")) in made and arguments is not None:
                await session.call_tool(strip_tool_prefix(str(call.get("name", "")), names), arguments)
