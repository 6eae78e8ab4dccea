"""Calls to one resource server: each within its time, tried again within bounds, and told to whoever observes."""

from collections.abc import Mapping
from functools import partial

import orjson

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
from apps.gym.errors import EnvironmentFault, TimedOut
from apps.gym.redaction.shortening import cut_body

_JSON = {"Content-Type": "application/json"}
_PROBE_TIMEOUT = 10.0
_MIB = 1024 * 1024
MAX_REPLY = 16 * _MIB


class ReplyTooLarge(EnvironmentFault):
    """The reply is beyond what is read of it."""


class Caller:
    """The way to one server. `call_timeout` and `connect_timeout` are seconds; `max_tries` bounds each call."""

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
        patient: bool,
        max_bytes: int = MAX_REPLY,
        once: bool = False,
    ) -> OutboundReply:
        """One call. It is tried again while the server cannot be reached and, when `patient`, on 5xx; with `once` it
        never is. Throttled calls wait at the gate and use up no try; without a gate they count as 5xx.

        A time-out is not tried again: the server may be at work on it still. Raises EnvironmentFault (ReplyTooLarge is
        one) or TimedOut.
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
                raise ReplyTooLarge(f"{self.name}: {error}").lasting() from error
            except OutboundFailed as error:
                self._observe("unreachable", str(error))
                raise TryAgain(EnvironmentFault(f"{self.name}: {error}")) from error
            except OutboundRedirectRefused as error:
                raise EnvironmentFault(f"{self.name}: {error}").lasting() from error
            except OutboundRefused as error:
                raise EnvironmentFault(f"{self.name}: {error}").lasting().ours() from error
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
        """A look at the server, as health checks take it. Raises what Outbound raises."""
        return await self.outbound.request(
            "GET",
            self.base_url + path,
            headers=self.headers,
            timeout=min(self.call_timeout, _PROBE_TIMEOUT),
            connect_timeout=min(self.connect_timeout, _PROBE_TIMEOUT),
        )


def bearer(api_key: str) -> dict[str, str]:
    """The header that servers which want a key read it from; none without a key."""
    return {"Authorization": f"Bearer {api_key}"} if api_key else {}


class _Unwell(Exception):
    """A reply of 429 or 5xx, kept so that after the last try its caller can say what it said."""

    def __init__(self, reply: OutboundReply) -> None:
        super().__init__(reply.status)
        self.reply = reply


def is_success(reply: OutboundReply) -> bool:
    return 200 <= reply.status < 300


def may_pass(reply: OutboundReply) -> bool:
    """Whether what kept the server from success may be gone the next time."""
    return reply.status == 429 or reply.status >= 500


def describe(reply: OutboundReply) -> str:
    text = cut_body(reply.body, 2000)
    return f"{reply.status}: {text}" if text else str(reply.status)


def read_object(reply: OutboundReply) -> dict[str, object]:
    """The JSON object of a reply; an empty one where it is something else."""
    try:
        given = orjson.loads(reply.body)
    except orjson.JSONDecodeError:
        return {}
    return given if isinstance(given, dict) else {}


def _outcome(reply: OutboundReply) -> Outcome:
    """How a reply of 429 or 5xx speaks of the server. Frameworks answer 500 where the code for one task raised: a few
    such tasks in a row must not hold back all others."""
    if reply.status == 429:
        return "throttled"
    return "server_error" if reply.status in (502, 503, 504) else "failed"
