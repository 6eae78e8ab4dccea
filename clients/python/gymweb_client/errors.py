"""Exceptions of the client."""

from typing import Any


class GymWebError(Exception):
    """Base class of the errors that this package raises."""


class ApiError(GymWebError):
    """Raised if the server rejected the request.

    `kind` is stable (`invalid`, `not-found`, …). `errors` has a pointer and message for each invalid value.
    """

    def __init__(self, status: int, problem: dict[str, Any]) -> None:
        self.status, self.problem = status, problem
        self.kind = str(problem.get("type", "")).removeprefix("urn:gymweb:problem:")
        self.errors: list[dict[str, Any]] = problem.get("errors") or []
        places = "".join(f"\n  {one.get('pointer', '')} {one.get('message', '')}" for one in self.errors[:10])
        super().__init__(f"{status} {self.kind}: {problem.get('detail', '')}{places}")


class WorkFailed(GymWebError):
    """Raised if an upload was rejected or an export failed. `row` is its state on the server."""

    def __init__(self, what: str, row: dict[str, Any]) -> None:
        self.row = row
        super().__init__(f"{what} {row.get('id')} is {row.get('state')}: {row.get('message', '')}")


class TimeIsUp(GymWebError, TimeoutError):
    """Raised if the work has not finished in time. It continues on the server."""


class NothingQueued(GymWebError):
    """Raised if no rollout of a collection is queued for an external agent."""


class StreamBroken(GymWebError):
    """Raised if a stream of rollouts was interrupted before its last line."""


class ChecksumMismatch(GymWebError):
    """Raised if a downloaded file has the wrong checksum. The file was deleted."""
