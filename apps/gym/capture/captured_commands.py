"""How an agent ends its attempt, and how its calls are refused."""

import asyncio
import hashlib
from typing import Any, Literal, TypeVar

import msgspec

from apps.gym.rewards import Reward
from apps.gym.traces.events import AgentEnd

Result = TypeVar("Result")


class CallRefused(Exception):
    """Raised if the attempt accepts no such call. `status` is that of the HTTP reply."""

    def __init__(self, status: int, message: str, code: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """How the agent ends its attempt.

    `call` is the number of the call with the final answer, if it is not the last. `claimer` is the id of the user who
    claimed the attempt. `reward` is set if an agent server has verified the attempt, and `error_kind` if it named the
    kind of its failure.
    """

    command: Literal["finish", "fail"]
    answer: str = ""
    artifacts: dict[str, Any] = {}
    call: int = 0
    message: str = ""
    claimer: int = 0
    reward: Reward | None = None
    error_kind: str = ""

    @property
    def sha256(self) -> str:
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()

    def event(self) -> AgentEnd:
        """Return the event of this end, without its time and the calls that were not served."""
        return AgentEnd(
            command=self.command,
            answer=self.answer,
            artifacts=self.artifacts,
            call=self.call,
            kind=self.error_kind,
            message=self.message,
            sha256=self.sha256,
        )


def attempt_ended() -> CallRefused:
    """Return the refusal of a call after the end of the attempt."""
    return CallRefused(409, "The attempt has ended.", "attempt_ended")


async def outcome(task: asyncio.Task[Result]) -> Result:
    """Return the result of a task. The task goes on if the caller is cancelled.

    Raises CallRefused if the task was cancelled, and the errors of the task.
    """
    await asyncio.wait([task])
    if task.cancelled():
        raise attempt_ended()
    return task.result()
