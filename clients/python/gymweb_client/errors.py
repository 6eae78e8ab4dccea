"""What can go wrong, each with what is needed to do something about it."""

from typing import Any


class GymWebError(Exception):
    """Anything that this package raises by itself."""


class ApiError(GymWebError):
    """The server refused: `kind` is stable (`invalid`, `not-found`, …), `errors` name places in what was sent."""

    def __init__(self, status: int, problem: dict[str, Any]) -> None:
        self.status, self.problem = status, problem
        self.kind = str(problem.get("type", "")).removeprefix("urn:gymweb:problem:")
        self.errors: list[dict[str, Any]] = problem.get("errors") or []
        places = "".join(f"\n  {one.get('pointer', '')} {one.get('message', '')}" for one in self.errors[:10])
        super().__init__(f"{status} {self.kind}: {problem.get('detail', '')}{places}")


class WorkFailed(GymWebError):
    """An upload was rejected or an export failed; `row` is what the server says of it."""

    def __init__(self, what: str, row: dict[str, Any]) -> None:
        self.row = row
        super().__init__(f"{what} {row.get('id')} is {row.get('state')}: {row.get('message', '')}")


class TimeIsUp(GymWebError, TimeoutError):
    """It has not ended within the time that was given; it goes on."""


class StreamBroken(GymWebError):
    """A stream of rollouts broke off before its last line."""


class ChecksumMismatch(GymWebError):
    """A downloaded file is not the one that was written; it was removed."""
