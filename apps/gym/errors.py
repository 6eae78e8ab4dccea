"""One error class per boundary, each with the error kind of a failed rollout."""

from typing import ClassVar, Literal, Self

ErrorKind = Literal[
    "policy_error",
    "environment_error",
    "verifier_error",
    "judge_error",
    "agent_error",
    "agent_lost",
    "timed_out",
    "worker_lost",
    "cancelled",
]


RefusedBy = Literal["rate_limit", "quota"]


class GymError(Exception):
    """Raised if something outside the attempt failed.

    The rollout ends `failed` with `kind` and has no reward.

    `transient`: another attempt may succeed. `is_misconfigured`: the cause is this process's configuration, so another
    worker may succeed. `refused_by`: the endpoint accepts no calls for now, so the attempt returns to the queue and
    does not count. `retry_after` is the endpoint's wait in seconds, if it gave one.
    """

    kind: ClassVar[ErrorKind]
    transient: bool = True
    is_misconfigured: bool = False
    refused_by: RefusedBy | None = None
    retry_after: float | None = None

    def permanent(self) -> Self:
        """Mark the error as permanent: every further attempt would fail the same way. Return it."""
        self.transient = False
        return self

    def refused(self, by: RefusedBy, *, retry_after: float | None = None) -> Self:
        """Mark the error as a refusal: the endpoint accepts no calls for now. Return it."""
        self.refused_by, self.retry_after = by, retry_after
        return self

    def caused_by(self, cause: "GymError") -> Self:
        """Copy the retry information of `cause`. Return the error."""
        self.transient, self.is_misconfigured = cause.transient, cause.is_misconfigured
        self.refused_by, self.retry_after = cause.refused_by, cause.retry_after
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


class JudgeError(VerifierError):
    """The judge model of the verifier failed."""

    kind = "judge_error"


class AgentFailed(GymError):
    """A captured agent reported that it failed."""

    kind = "agent_error"


class AgentLost(GymError):
    """A captured agent was silent for longer than its lease."""

    kind = "agent_lost"


class TimedOut(GymError):
    """The time limit of a call (after its retries) or of the whole rollout was reached."""

    kind = "timed_out"
    # Another attempt would take just as long.
    transient = False
