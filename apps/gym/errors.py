"""Errors that end an attempt without a reward: one class for each error kind that code can raise."""

from typing import ClassVar, Literal, Self

from apps.gym.outcomes import OUTCOMES, ErrorKind

RefusedBy = Literal["rate_limit", "quota"]
"""Why an endpoint accepts no calls for now: it throttles, or its quota is used up."""


class GymError(Exception):
    """Base class of errors that end an attempt without a reward.

    Unless the rollout is retried, it ends as failed with the error kind `kind`.

    `transient`: another attempt may succeed. `is_misconfigured`: the configuration of this process is the cause, so
    another worker may succeed. `refused_by`: the endpoint accepts no calls for now, so the rollout returns to the queue
    and the attempt does not count as failed. `retry_after`: seconds to wait, if the endpoint named them. `unreadable`:
    the endpoint answered 200 with a reply of another form, which is often permanent (see MAX_UNREADABLE).
    """

    kind: ClassVar[ErrorKind]
    transient: bool = True
    is_misconfigured: bool = False
    refused_by: RefusedBy | None = None
    retry_after: float | None = None
    unreadable: bool = False

    def __init_subclass__(cls) -> None:
        cls.transient = OUTCOMES[cls.kind].retried != "no"

    def permanent(self) -> Self:
        """Mark the error as permanent: every further attempt would fail the same way. Return it."""
        self.transient = False
        return self

    def refused(self, by: RefusedBy, *, retry_after: float | None = None) -> Self:
        """Mark the error as a refusal: the endpoint accepts no calls for now (see RefusedBy). Return it."""
        self.refused_by, self.retry_after = by, retry_after
        return self

    def caused_by(self, cause: "GymError") -> Self:
        """Copy the marks of `cause` to this error and return it."""
        self.transient, self.is_misconfigured = cause.transient, cause.is_misconfigured
        self.refused_by, self.retry_after = cause.refused_by, cause.retry_after
        self.unreadable = cause.unreadable
        return self

    def misconfigured(self) -> Self:
        """Mark the error as caused by the configuration of this process. Return it."""
        self.is_misconfigured = True
        return self


class PolicyError(GymError):
    """The policy model was unreachable, rejected the request, or sent an invalid reply."""

    kind = "policy_error"


class EnvironmentFault(GymError):
    """The resource server was unreachable or broke the protocol."""

    kind = "environment_error"


class VerifierError(GymError):
    """The verifier failed or returned an invalid reward."""

    kind: ClassVar[ErrorKind] = "verifier_error"


class VerifierTooSlow(VerifierError):
    """A verifier that runs in a separate process was stopped at its time limit."""

    kind = "verifier_timeout"


class JudgeError(VerifierError):
    """The judge model or the simulated user failed, or gave no valid answer."""

    kind = "judge_error"


class AgentFailed(GymError):
    """An agent outside of the worker failed: an external agent, a command agent or an agent server."""

    kind = "agent_error"


class AgentLost(GymError):
    """A captured agent was silent for longer than its lease."""

    kind = "agent_lost"


class TimedOut(GymError):
    """A call with all its retries, or the whole rollout, exceeded its time limit.

    It is not retried: another attempt would take just as long.
    """

    kind = "timed_out"
