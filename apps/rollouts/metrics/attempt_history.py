"""What became of each attempt at a rollout, from what its events say and what the row does."""

from dataclasses import dataclass

from django.db.models import Count

from apps.gym.traces.events import ErrorRaised, decode_event
from apps.rollouts.models import Rollout

OUTCOMES = ("running", "completed", "failed", "cancelled", "cut_off")


@dataclass(frozen=True, slots=True)
class PastAttempt:
    """`outcome` is one of OUTCOMES; `cut_off` left no end: its worker was lost, or gave it back as it left."""

    attempt: int
    events: int
    outcome: str
    error_kind: str = ""
    message: str = ""

    @property
    def reason(self) -> str:
        """Why it ended, in a few words."""
        if self.outcome == "cut_off":
            return "its worker was lost" if self.error_kind else "its worker was lost or gave it back"
        return self.error_kind or self.outcome


def read_attempts(rollout: Rollout) -> list[PastAttempt]:
    """Every attempt that was claimed, the first one first; one that was lost before it said anything has no events."""
    counts = dict(rollout.events.order_by().values_list("attempt").annotate(events=Count("seq")))
    ends = rollout.events.filter(kind__in=["error", "verification"]).order_by("attempt", "seq")
    # A verification may be large, and that there is one says all.
    # The last word counts: a reverification may have given a reward to what had failed.
    kinds = dict(ends.values_list("attempt", "kind"))
    said: dict[int, ErrorRaised | None] = dict.fromkeys(kinds)
    for attempt, payload in ends.filter(kind="error").values_list("attempt", "payload"):
        event = decode_event(payload)
        said[attempt] = event if isinstance(event, ErrorRaised) and kinds[attempt] == "error" else None
    last = max([rollout.attempt, *counts])
    past = [number for number in range(1, last + 1) if number != rollout.attempt]
    silent = sum(number not in said for number in past) + (_is_latest_silent(rollout, said))
    # As many as the row counts of lost workers, and no other way to end without a word.
    all_lost = rollout.lost > 0 and silent == rollout.lost
    return [_read(rollout, number, counts.get(number, 0), said, all_lost) for number in range(1, last + 1)]


def _is_latest_silent(rollout: Rollout, said: dict[int, ErrorRaised | None]) -> bool:
    waits = rollout.status == Rollout.Status.QUEUED or rollout.error_kind == "worker_lost"
    return waits and rollout.attempt > 0 and rollout.attempt not in said


def _read(
    rollout: Rollout, number: int, events: int, said: dict[int, ErrorRaised | None], all_lost: bool
) -> PastAttempt:
    error = said.get(number)
    if error is not None:
        return PastAttempt(number, events, "failed", error.kind, error.message)
    if number in said:
        return PastAttempt(number, events, "completed")
    is_latest = number == rollout.attempt and rollout.status != Rollout.Status.QUEUED
    if is_latest and rollout.error_kind != "worker_lost":
        return PastAttempt(number, events, rollout.status, rollout.error_kind, rollout.error_message)
    return PastAttempt(number, events, "cut_off", "worker_lost" if all_lost else "")
