"""Find the tools that attempts at tasks were offered, and the agent of imported attempts."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from apps.exports.export_selection import Chosen
from apps.gym.traces.events import SessionOpened, decode_event
from apps.gym.traces.items import Tool
from apps.rollouts.models import TraceEvent

ATTEMPTS = 4
"""Attempts read per task: the first one determines the tools, the others show whether they differ."""
ROLLOUTS = 50
"""Rollouts per query. A session event may contain hundreds of tools."""


@dataclass(slots=True)
class Offer:
    """The tools of one task. `differs`: attempts had different tools. `unknown`: there are no attempts."""

    tools: list[Tool]
    known: Literal["offered", "none", "unknown"]
    agent_ref: dict[str, Any] = field(default_factory=dict)
    differs: bool = False


class Offers:
    """The tools offered for the tasks of an export. `counts` counts the exported tasks (see manifests.py)."""

    def __init__(self, *, is_imported: bool) -> None:
        self.counts = dict.fromkeys(("offered", "none", "unknown", "differing"), 0)
        self._is_imported = is_imported

    def count(self, offer: Offer) -> None:
        self.counts[offer.known] += 1
        self.counts["differing"] += offer.differs

    def read(self, chunk: Iterable[Chosen]) -> dict[int, Offer]:
        """Return the offers by task id.

        Traces are read only for tasks without tools of their own, and for imported attempts, to find their agent.
        """
        offers: dict[int, Offer] = {}
        asked: dict[int, tuple[int, int]] = {}
        for one in chunk:
            own = one.task.row["responses_create_params"].get("tools") or []
            offers[one.task.pk] = Offer(own, "offered" if own else "unknown")
            if not own or self._is_imported:
                begun = [rollout for rollout in one.attempted if rollout.attempt]
                asked.update((rollout.id, (one.task.pk, rollout.attempt)) for rollout in begun[:ATTEMPTS])
        known: list[Tool] = []
        for rollout_id, attempt, session in _sessions(asked):
            task_id, counted = asked[rollout_id]
            offer = offers[task_id]
            if attempt != counted:
                continue
            # Most tasks have the same tools as the previous one: share the object.
            known = known if session.tools == known else session.tools
            agent_ref = session.original.get("row", {}).get("agent_ref")
            offer.agent_ref = offer.agent_ref or (agent_ref if isinstance(agent_ref, dict) else {})
            if offer.known == "unknown":
                offer.tools, offer.known = known, "offered" if known else "none"
            elif offer.tools != known:
                offer.differs = True
        return offers


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
