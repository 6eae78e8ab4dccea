"""Calls to one resource server, with time limits, limited retries and observers."""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from apps.gym.calls.flow_control import EndpointPaused, Gate
from apps.gym.calls.observers import Observer, Outcome, ignore
from apps.gym.calls.outbound import (
    Outbound,
    OutboundFailed,
    OutboundRedirectRefused,
    OutboundReply,
    OutboundTimedOut,
    OutboundTooLarge,
)
from apps.gym.calls.outbound_policy import OutboundRefused
from apps.gym.calls.refusals import read_retry_after
from apps.gym.calls.retries import Pauses, TryAgain, call_with_retries
from apps.gym.errors import EnvironmentFault, GymError, TimedOut
from apps.gym.redaction.shortening import cut_body
from apps.gym.resources.protocol import Session
from apps.gym.traces.items import TaskRow, as_object, read_json

_JSON = {"Content-Type": "application/json"}
_PROBE_TIMEOUT = 10.0
_MIB = 1024 * 1024
MAX_REPLY = 16 * _MIB
_CLOSE_SECONDS = 5.0
"""Seconds to close a session, which must not block its seat."""


class ReplyTooLarge(EnvironmentFault):
    """Raised if the reply exceeds the size limit."""


class Caller:
    """Calls to one server.

    `call_timeout` and `connect_timeout` are in seconds; `max_tries` limits the tries of each call.
    """

    def __init__(
        self,
        outbound: Outbound,
        *,
        name: str,
        base_url: str,
        call_timeout: float,
        max_tries: int,
        connect_timeout: float = 10.0,
        api_key: str = "",
        pauses: Pauses | None = None,
        observe: Observer = ignore,
        gate: Gate | None = None,
    ) -> None:
        self.name = name
        self.base_url = base_url.rstrip("/")
        self.call_timeout = call_timeout
        self.connect_timeout = connect_timeout
        self.outbound = outbound
        self.headers = bearer(api_key)
        self._posted = {**_JSON, **self.headers}
        self._max_tries = max_tries
        self._observe = observe
        self._gate = gate
        self._pauses = pauses or Pauses()

    async def post(
        self,
        path: str,
        body: bytes,
        *,
        cookies: Mapping[str, str],
        seconds: float,
        patient: bool = False,
        max_bytes: int = MAX_REPLY,
        once: bool = False,
    ) -> OutboundReply:
        """Send one call.

        It is retried if the server is unreachable and, when `patient`, on 5xx; with `once` never. Throttled calls wait
        at the gate and do not count as tries; without a gate they count as 5xx.

        A time-out is not retried: the server may still be working on it. Raises EnvironmentFault (including
        ReplyTooLarge) or TimedOut.
        """
        url = f"{self.base_url}/{path}"

        def tell(reply: OutboundReply) -> str:
            self._observe("throttled", f"{path}: {describe(reply)}")
            return describe(reply)

        async def send() -> OutboundReply:
            request = partial(
                self.outbound.request,
                "POST",
                url,
                body=body,
                headers=self._posted,
                cookies=cookies,
                timeout=seconds,
                connect_timeout=self.connect_timeout,
                max_bytes=max_bytes,
            )
            try:
                reply = await (self._gate.send(request, tell) if self._gate and not once else request())
            except EndpointPaused as paused:
                raise EnvironmentFault(f"{self.name} is throttled: {paused}").refused("rate_limit") from None
            except OutboundTimedOut as error:
                self._observe("timed_out", str(error))
                raise TimedOut(f"{self.name}: {error}") from error
            except OutboundTooLarge as error:
                self._observe("failed", str(error))
                raise ReplyTooLarge(f"{self.name}: {error}").permanent() from error
            except OutboundFailed as error:
                self._observe("unreachable", str(error))
                raise TryAgain(EnvironmentFault(f"{self.name}: {error}")) from error
            except OutboundRedirectRefused as error:
                raise EnvironmentFault(f"{self.name}: {error}").permanent() from error
            except OutboundRefused as error:
                raise EnvironmentFault(f"{self.name}: {error}").permanent().misconfigured() from error
            if patient and (reply.status == 429 or reply.status >= 500):
                self._observe(_outcome(reply), f"{path}: {describe(reply)}")
                raise TryAgain(_Unwell(reply), after=read_retry_after(reply))
            self._observe("ok")
            return reply

        try:
            reply, _ = await call_with_retries(send, max_tries=1 if once else self._max_tries, pauses=self._pauses)
        except _Unwell as unwell:
            return unwell.reply
        return reply

    async def get(self, path: str) -> OutboundReply:
        """Fetch a page, for health checks. Raises the errors of Outbound."""
        return await self.outbound.request(
            "GET",
            self.base_url + path,
            headers=self.headers,
            timeout=min(self.call_timeout, _PROBE_TIMEOUT),
            connect_timeout=min(self.connect_timeout, _PROBE_TIMEOUT),
        )


class CallerSession(Session):
    """One attempt at a server. The newest value of each cookie is sent with every call."""

    def __init__(self, caller: Caller, row: TaskRow) -> None:
        self._caller = caller
        self._row = row
        self._cookies: dict[str, str] = {}
        self._closing_routes: list[str] = []

    @property
    def cookies(self) -> dict[str, str]:
        return self._cookies

    def take_cookies(self, cookies: dict[str, str]) -> None:
        self._cookies = {**self._cookies, **cookies}

    async def _post(self, path: str, body: bytes, *, seconds: float, **options: Any) -> OutboundReply:
        reply = await self._caller.post(path, body, cookies=self._cookies, seconds=seconds, **options)
        if reply.cookies:
            self._cookies = {**self._cookies, **reply.cookies}
        return reply

    async def close(self) -> None:
        """Close the session if the server supports it. Other servers expire sessions by themselves.

        The body is empty, as NeMo Gym's agents send it: the cookie names the session.
        """
        routes, self._closing_routes = self._closing_routes, []
        for route in routes:
            with suppress(GymError):  # the result is final, and the server's own time limit ends the session
                await self._post(route, b"{}", seconds=_CLOSE_SECONDS, once=True)


def bearer(api_key: str) -> dict[str, str]:
    """Return the authorization header, or no header without a key."""
    return {"Authorization": f"Bearer {api_key}"} if api_key else {}


class _Unwell(Exception):
    """Raised for a reply of 429 or 5xx, and kept for the error message after the last try."""

    def __init__(self, reply: OutboundReply) -> None:
        super().__init__(reply.status)
        self.reply = reply


def is_success(reply: OutboundReply) -> bool:
    return 200 <= reply.status < 300


def may_pass(reply: OutboundReply) -> bool:
    """Return True if the failure may be temporary."""
    return reply.status == 429 or reply.status >= 500


def check_success(reply: OutboundReply, told: str, kind: type[GymError] = EnvironmentFault) -> None:
    """Raise an error with the response to `told`, for example POST /verify."""
    if not is_success(reply):
        problem = kind(f"{told} returned {describe(reply)}")
        raise problem if may_pass(reply) else problem.permanent()


def describe(reply: OutboundReply) -> str:
    text = cut_body(reply.body, 2000)
    return f"{reply.status}: {text}" if text else str(reply.status)


def read_object(reply: OutboundReply) -> dict[str, object]:
    """Return the JSON object of a reply, or an empty one if it is something else."""
    return as_object(read_json(reply.body))


def _outcome(reply: OutboundReply) -> Outcome:
    """Return the outcome of a 429 or 5xx reply.

    Frameworks send 500 if the code for one task raised; a few such tasks must not pause all others.
    """
    if reply.status == 429:
        return "throttled"
    return "server_error" if reply.status in (502, 503, 504) else "failed"
