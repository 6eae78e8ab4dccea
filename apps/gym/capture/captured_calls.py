"""The trace events of captured calls."""

from collections.abc import Callable
from typing import Any

from apps.gym.capture.capture_wires import CapturedRequest
from apps.gym.resources.protocol import Session
from apps.gym.traces.call_records import Place
from apps.gym.traces.events import ModelCall, ToolResult
from apps.gym.wires.protocol import Reply


def model_call(
    request: CapturedRequest, place: Place, reply: Reply, *, wire: str, sampling: dict[str, Any], tokens: bytes | None
) -> ModelCall:
    """Return the event of a call, without its times. `tokens` are packed."""
    return ModelCall(
        **{name: getattr(place, name) for name in place.__struct_fields__},
        **reply.call_fields(),
        seen=place.seen,
        wire=wire,
        notes=request.notes,
        sampling=sampling if reply.sampling is None else reply.sampling,
        tokens=tokens,
    )


async def call_tool(
    session: Session,
    name: str,
    arguments: dict[str, Any],
    *,
    call_id: str,
    elapsed: Callable[[], float],
) -> ToolResult:
    """Call a tool of the environment and return its event."""
    began = elapsed()
    output = await session.call_tool(name, arguments)
    return ToolResult(
        call_id=call_id, name=name, output=output.output, error=output.error, at=began, duration=elapsed() - began
    )
