"""Determine how each attempt of a rollout ended, from its events and its row."""

from dataclasses import dataclass

from django.db.models import Count

from apps.gym.traces.events import ErrorRaised, decode_event
from apps.rollouts.models import Rollout

OUTCOMES = ("running", "completed", "failed", "cancelled", "cut_off")


@dataclass(frozen=True, slots=True)
class PastAttempt:
    """One attempt.

    `outcome` is one of OUTCOMES. It is `cut_off` without a final event: the worker was lost, or shut down and requeued
    the rollout.
    """

    attempt: int
    events: int
    outcome: str
    error_kind: str = ""
    message: str = ""

    @property
    def reason(self) -> str:
        """Return in a few words how the attempt ended."""
        if self.outcome == "cut_off":
            return "worker lost" if self.error_kind else "worker lost or shut down"
        return self.error_kind or self.outcome


def read_attempts(rollout: Rollout) -> list[PastAttempt]:
    """Return all attempts in order. Attempts whose worker was lost early have no events."""
    counts = dict(rollout.events.order_by().values_list("attempt").annotate(events=Count("seq")))
    ends = rollout.events.filter(kind__in=["error", "verification"]).order_by("attempt", "seq")
    # Only the existence of verifications is read, because they may be large. The last event counts: a reverification
    # may have rewarded a failed attempt.
    kinds = dict(ends.values_list("attempt", "kind"))
    final_events: dict[int, ErrorRaised | None] = dict.fromkeys(kinds)
    for attempt, payload in ends.filter(kind="error").values_list("attempt", "payload"):
        event = decode_event(payload)
        final_events[attempt] = event if isinstance(event, ErrorRaised) and kinds[attempt] == "error" else None
    last = max([rollout.attempt, *counts])
    past = [number for number in range(1, last + 1) if number != rollout.attempt]
    silent = sum(number not in final_events for number in past) + (_latest_has_no_end(rollout, final_events))
    # If the row counts as many lost workers as there are attempts without a final event, all of those lost their
    # worker.
    all_lost = rollout.lost > 0 and silent == rollout.lost
    return [_read(rollout, number, counts.get(number, 0), final_events, all_lost) for number in range(1, last + 1)]


def _latest_has_no_end(rollout: Rollout, final_events: dict[int, ErrorRaised | None]) -> bool:
    waits = rollout.status == Rollout.Status.QUEUED or rollout.error_kind == "worker_lost"
    return waits and rollout.attempt > 0 and rollout.attempt not in final_events


def _read(
    rollout: Rollout, number: int, events: int, final_events: dict[int, ErrorRaised | None], all_lost: bool
) -> PastAttempt:
    error = final_events.get(number)
    if error is not None:
        return PastAttempt(number, events, "failed", error.kind, error.message)
    if number in final_events:
        return PastAttempt(number, events, "completed")
    is_latest = number == rollout.attempt and rollout.status != Rollout.Status.QUEUED
    if is_latest and rollout.error_kind != "worker_lost":
        return PastAttempt(number, events, rollout.status, rollout.error_kind, rollout.error_message)
    return PastAttempt(number, events, "cut_off", "worker_lost" if all_lost else "")
