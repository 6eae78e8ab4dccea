"""Base class of exceptions that reject a request, with HTTP status and stable error code."""

from http import HTTPStatus
from typing import Any, ClassVar

INVALID = "invalid"
"""Error code of invalid values."""


class Refusal(Exception):
    """Raised if a request cannot be fulfilled. The message gives the reason and the remedy.

    `class NotReady(Refusal, status=409, code="not-ready")` sets the HTTP status and the error code; subclasses inherit
    both. The default code means that the request has invalid values. `argument` is the name of the invalid value, or
    empty if the problem is not in a single value.
    """

    status: ClassVar[HTTPStatus] = HTTPStatus.BAD_REQUEST
    code: ClassVar[str] = INVALID
    wait: ClassVar[float | None] = None
    """Seconds after which the same request may succeed; None if unknown."""

    def __init_subclass__(cls, *, status: int | None = None, code: str | None = None) -> None:
        if status is not None:
            cls.status = HTTPStatus(status)
        if code is not None:
            cls.code = code

    def __init__(self, message: str, argument: str = "") -> None:
        super().__init__(message)
        self.argument = argument

    @property
    def invalid_values(self) -> list[dict[str, Any]]:
        """Return the invalid values, each with a JSON Pointer (RFC 6901) into the body."""
        pointer = f"/{self.argument}" if self.argument else ""
        return [{"pointer": pointer, "code": INVALID, "message": str(self)}]

    @property
    def members(self) -> dict[str, Any]:
        """Return additional members of the problem document (RFC 9457), which is the body of the response."""
        return {}
