"""Base class of exceptions that reject a request, with HTTP status and stable error code."""

from http import HTTPStatus
from typing import Any, ClassVar

INVALID = "invalid"


class Refusal(Exception):
    """Raised if a request cannot be fulfilled; the message gives the reason and the remedy.

    `class NotReady(Refusal, status=409, code="not-ready")` sets status and code, which subclasses inherit. Without a
    code, a value of the request is invalid: `argument` names it, or is empty if no single value is at fault.
    """

    status: ClassVar[HTTPStatus] = HTTPStatus.BAD_REQUEST
    code: ClassVar[str] = INVALID
    wait: ClassVar[float | None] = None
    """Seconds after which the same request may succeed."""

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
        """Return additional members of the problem document."""
        return {}
