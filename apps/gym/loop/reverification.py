"""Verify an attempt again from its trace: a new session, perhaps its tool calls once more, then the verifier."""

import time
from typing import Any

import msgspec
import orjson

from apps.gym.calls.time_limits import TimeLimit
from apps.gym.errors import TimedOut, VerifierError
from apps.gym.resources.protocol import (
    AsksJudge,
    ResourceServer,
    ReverifyMode,
    SaysReverifyMode,
    Session,
    Stepped,
)
from apps.gym.traces.events import JudgeCall, ModelCall, ToolResult, TraceUnion, Verification
from apps.gym.traces.items import TaskRow, function_calls
from apps.gym.traces.messages import offered_tools
from apps.gym.traces.responses import assemble_response
from apps.gym.wires.tool_names import bare_call_names, bare_name


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a new verification gave, with what a judge was asked for it, also where it gave nothing."""

    judge_calls: list[JudgeCall] = []
    verification: Verification | None = None
    error: Exception | None = None


async def ask_reverify_mode(server: ResourceServer) -> ReverifyMode:
    """Raises EnvironmentFault where the server cannot be reached."""
    return await server.reverify_mode() if isinstance(server, SaysReverifyMode) else "unknown"


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
    """Never raises but CancelledError: a verifier that breaks must not end the others. `seconds` bounds it all."""
    judge: list[AsksJudge] = []
    began = time.perf_counter()
    limit = TimeLimit(seconds)
    try:
        async with limit:
            session = await server.seed_session(row, seed=seed)
            if isinstance(session, AsksJudge):
                judge.append(session)
            try:
                names = frozenset(str(tool.get("name", "")) for tool in offered_tools(events, row))
                if replay:
                    await _replay(session, events, row, names)
                response = assemble_response(events, row, stop_reason=stop_reason)
                response["output"] = bare_call_names(response["output"], names)
                reward = await session.verify(response)
            finally:
                await session.close()
    except TimeoutError:
        return Verdict(judge_calls=_calls(judge), error=TimedOut(f"not verified within {seconds:g} s"))
    except Exception as problem:
        # User code may raise what it likes.
        return Verdict(judge_calls=_calls(judge), error=problem)
    if reward.value is None:
        return Verdict(error=VerifierError("this environment verifies nothing"))
    return Verdict(
        judge_calls=_calls(judge),
        verification=Verification(
            reward=reward.value,
            components=reward.components,
            explanation=reward.explanation,
            details=reward.details,
            stop_reason=stop_reason,
            reverification=number,
            duration=time.perf_counter() - began - limit.waited,
        ),
    )


def _calls(judged: list[AsksJudge]) -> list[JudgeCall]:
    return [call for session in judged for call in session.judge_calls]


async def _replay(session: Session, events: list[TraceUnion], row: TaskRow, names: frozenset[str]) -> None:
    """The tool calls that were made, in their order, and the replies that the environment answered. A call whose
    arguments were no JSON never reached a tool."""
    made = {event.call_id for event in events if isinstance(event, ToolResult)}
    for event in events:
        if not isinstance(event, ModelCall):
            continue
        calls = function_calls(event.items)
        if isinstance(session, Stepped):
            response = assemble_response([events[0], event], row)
            response["output"] = bare_call_names(response["output"], names)
            if (await session.step(response)).done:
                return
        elif not calls:
            await session.respond(event.items)
        for call in () if isinstance(session, Stepped) else calls:
            arguments = _arguments(call.get("arguments"))
            if str(call.get("call_id", "")) in made and arguments is not None:
                await session.call_tool(bare_name(str(call.get("name", "")), names), arguments)


def _arguments(arguments: object) -> dict[str, Any] | None:
    if isinstance(arguments, str):
        try:
            arguments = orjson.loads(arguments) if arguments.strip() else {}
        except orjson.JSONDecodeError:
            return None
    return arguments if isinstance(arguments, dict) else None
