"""Read all running collections with their limits, in one statement."""

from datetime import datetime
from typing import Any, NamedTuple

from django.db import connection

from apps.agents.models import Agent
from apps.rollouts.database_clock import as_utc
from apps.rollouts.engine.collection_limits import Budget

# Raw SQL, because compiling the ORM query takes longer than running it. The ORDER BY of `max_worker_losses` makes the
# planner use the index of queued rows; EXISTS would scan finished rows, which can be hundreds of thousands.
_SQL = """
    SELECT c.id, c.concurrency, c.policy_model_id, m.concurrency, m.worker_group,
        c.environment_id, e.concurrency, e.worker_group, e.judge_model_id, j.concurrency,
        e.adapter, e.health, a.kind, e.health_checked_at,
        (SELECT queued.lost FROM rollouts_rollout queued
            WHERE queued.collection_id = c.id AND queued.status = 'queued'
            ORDER BY queued.lost DESC, queued.id DESC LIMIT 1) AS max_worker_losses,
        c.max_tokens, c.max_cost, c.input_tokens, c.output_tokens, c.judge_tokens, c.cost, c.completed
    FROM rollouts_collection c
    JOIN policies_policymodel m ON m.id = c.policy_model_id
    JOIN environments_environment e ON e.id = c.environment_id
    JOIN agents_agent a ON a.id = c.agent_id
    LEFT JOIN policies_policymodel j ON j.id = e.judge_model_id
    WHERE c.state = 'running' ORDER BY c.priority, c.id
"""


class RunningCollection(NamedTuple):
    """A running collection with the concurrency limits of its model, environment and judge.

    `max_worker_losses` is the highest number of lost workers of a queued rollout; None if no rollout is queued.
    """

    pk: int
    concurrency: int | None
    model: int
    model_limit: int
    model_group: str
    environment: int
    environment_limit: int
    environment_group: str
    judge: int | None
    judge_limit: int | None
    adapter: str
    health: str
    agent_kind: str
    checked_at: datetime | None
    max_worker_losses: int | None
    budget: Budget

    @property
    def runs_in_worker(self) -> bool:
        """Return True if workers run its agent. Rollouts of external agents are claimed when an agent asks for one."""
        return self.agent_kind != Agent.Kind.EXTERNAL

    @property
    def group(self) -> str:
        return self.model_group or self.environment_group

    def is_claimable_by(self, group: str) -> bool:
        """Return True if there are queued rollouts that workers of this group may run; see `usable_by`."""
        groups = {self.model_group, self.environment_group, ""}
        return self.max_worker_losses is not None and groups == {group, ""}


def read_running() -> list[RunningCollection]:
    """Return the running collections of all worker groups, most urgent first."""
    with connection.cursor() as cursor:
        cursor.execute(_SQL)
        return [_running(row) for row in cursor.fetchall()]


def _running(row: tuple[Any, ...]) -> RunningCollection:
    fields, (checked_at, max_worker_losses), budget = row[:13], row[13:15], Budget(*row[15:])
    return RunningCollection(*fields, checked_at and as_utc(checked_at), max_worker_losses, budget)  # type: ignore[call-arg]
