"""One error class per boundary; each names the error kind that a rollout ends with."""

from typing import ClassVar, Literal, Self

ErrorKind = Literal[
    "policy_error",
    "environment_error",
    "verifier_error",
    "judge_error",
    "timed_out",
    "worker_lost",
    "cancelled",
]


RefusedBy = Literal["rate_limit", "quota"]


class GymError(Exception):
    """Something outside the attempt failed: the rollout ends `failed` with `kind` and has no reward.

    `passing` says whether another attempt may go better. `is_ours` says that this process is to blame, as it is set up,
    and not the endpoint: another process may attempt it. `refused_by` says that the endpoint takes no calls for now:
    the attempt goes back to the queue and does not count. `retry_after` is in seconds, where the endpoint named it.
    """

    kind: ClassVar[ErrorKind]
    passing: bool = True
    is_ours: bool = False
    refused_by: RefusedBy | None = None
    retry_after: float | None = None

    def lasting(self) -> Self:
        """The same error as one that every further attempt would meet again."""
        self.passing = False
        return self

    def refused(self, by: RefusedBy, *, retry_after: float | None = None) -> Self:
        """The same error as one of an endpoint that takes no calls for now."""
        self.refused_by, self.retry_after = by, retry_after
        return self

    def because_of(self, cause: "GymError") -> Self:
        """The same error with all that `cause` says about further attempts."""
        self.passing, self.is_ours = cause.passing, cause.is_ours
        self.refused_by, self.retry_after = cause.refused_by, cause.retry_after
        return self

    def ours(self) -> Self:
        """The same error as one for which this process is to blame."""
        self.is_ours = True
        return self


class PolicyError(GymError):
    """The policy model could not be reached, refused, or answered something that is no reply."""

    kind = "policy_error"


class EnvironmentFault(GymError):
    """The resource server could not be reached or broke its protocol."""

    kind = "environment_error"


class VerifierError(GymError):
    """The verifier failed or gave something that is no reward."""

    kind: ClassVar[ErrorKind] = "verifier_error"


class JudgeError(VerifierError):
    """The verifier asked a judge model, and the judge failed."""

    kind = "judge_error"


class TimedOut(GymError):
    """The time limit of a call (after its retries) or of the whole rollout ran out."""

    kind = "timed_out"
    # Another attempt would cost as much again, and whoever set the limit did not mean twice of it.
    passing = False
