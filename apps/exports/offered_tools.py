"""What attempts at tasks were offered: their tools, which an environment may name, and the agent of imported ones."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from apps.exports.export_selection import Candidate, Chosen
from apps.gym.traces.events import SessionOpened, decode_event
from apps.gym.traces.items import Tool
from apps.rollouts.models import TraceEvent

ATTEMPTS = 4
"""So many attempts of a task are looked at: one tells its tools, the others whether they had the same."""
ROLLOUTS = 50
"""Rollouts whose sessions one query reads; a session may hold hundreds of tools."""


@dataclass(slots=True)
class Offer:
    """`differs` where another attempt at the task had other tools; `unknown` where nobody began one."""

    tools: list[Tool]
    known: Literal["offered", "none", "unknown"]
    agent_ref: dict[str, Any] = field(default_factory=dict)
    differs: bool = False


class Offers:
    """Those of an export's tasks; `counts` tells them of the tasks that became rows."""

    def __init__(self, *, is_imported: bool) -> None:
        self.counts = dict.fromkeys(("offered", "none", "unknown", "differing"), 0)
        self._is_imported = is_imported

    def count(self, offer: Offer) -> None:
        self.counts[offer.known] += 1
        self.counts["differing"] += offer.differs

    def read(self, chunk: Iterable[Chosen]) -> dict[int, Offer]:
        """By task. Tools of its own are what a task's attempts are offered: for these no trace is read, but where it
        says who made it elsewhere."""
        offers: dict[int, Offer] = {}
        asked: dict[int, tuple[int, int]] = {}
        for one in chunk:
            own = one.task.row["responses_create_params"].get("tools") or []
            offers[one.task.pk] = Offer(own, "offered" if own else "unknown")
            if not own or self._is_imported:
                asked.update((rollout.id, (one.task.pk, rollout.attempt)) for rollout in _first(one.attempted))
        known: list[Tool] = []
        for rollout_id, attempt, session in _sessions(asked):
            task_id, counted = asked[rollout_id]
            offer = offers[task_id]
            if attempt != counted:
                continue
            # Most tasks have the tools of the one before: these are held once.
            known = known if session.tools == known else session.tools
            told = session.original.get("row", {}).get("agent_ref")
            offer.agent_ref = offer.agent_ref or (told if isinstance(told, dict) else {})
            if offer.known == "unknown":
                offer.tools, offer.known = known, "offered" if known else "none"
            elif offer.tools != known:
                offer.differs = True
        return offers


def _first(attempted: list[Candidate]) -> list[Candidate]:
    return [rollout for rollout in attempted if rollout.attempt][:ATTEMPTS]


def _sessions(asked: Iterable[int]) -> Iterable[tuple[int, int, SessionOpened]]:
    rollout_ids = sorted(asked)
    for first in range(0, len(rollout_ids), ROLLOUTS):
        rows = TraceEvent.objects.filter(
            rollout_id__in=rollout_ids[first : first + ROLLOUTS], seq=0, kind="session"
        ).order_by("rollout_id")
        for rollout_id, attempt, payload in rows.values_list("rollout_id", "attempt", "payload"):
            event = decode_event(payload)
            if isinstance(event, SessionOpened):
                yield rollout_id, attempt, event
