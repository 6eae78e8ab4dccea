"""The worker's callbacks for running rollouts (running.Listener). They also report calls to the breakers."""

from apps.accounts.telemetry.log_context import CURRENT_ROLLOUT
from apps.gym.calls.memory_budget import current_account
from apps.gym.calls.observers import Outcome
from apps.gym.calls.outbound import Outbound
from apps.gym.errors import GymError
from apps.gym.traces.events import TraceUnion
from apps.rollouts.engine.circuit_breakers import Breakers, Endpoint
from apps.rollouts.engine.claiming import Claim
from apps.rollouts.engine.connections import Settings
from apps.rollouts.engine.judge_seats import JudgeSeats
from apps.rollouts.engine.outbox import Outbox
from apps.rollouts.engine.running import Setting
from apps.rollouts.engine.throttling import Throttles
from apps.rollouts.engine.worker_counters import Meters

MAX_UNREADABLE = 5
"""Counted failures after which an unreadable reply is final, even if a breaker is open.

The tests of a breaker spread them over more than a minute: a gateway may send an HTML page while a server restarts.
"""
MAX_CLAIMS = 20
"""Claims of a rollout after which its next failure is final, even if it is transient or a breaker is open.

An endpoint that does not reply at all ends no rollout: they wait until it is back.
"""


class RolloutListener:
    """The callbacks of one worker. Used only on its event loop. `settings` caches the settings of collections."""

    def __init__(
        self,
        outbound: Outbound,
        outbox: Outbox,
        *,
        judge_seats: JudgeSeats,
        breakers: Breakers,
        throttles: Throttles,
        meters: Meters,
    ) -> None:
        self.settings = Settings(outbound, self._watch_call, judge_seats, throttles)
        self._outbox, self._breakers, self._throttles, self._meters = outbox, breakers, throttles, meters

    def add_event(self, claim: Claim, event: TraceUnion) -> None:
        size = self._outbox.add_event(claim, event)
        if account := current_account():
            account.retain(size)
        self._meters.count_event(event)

    def has_space(self) -> bool:
        return not self._outbox.is_full

    async def wait_for_space(self) -> None:
        await self._outbox.wait_for_space()

    def count_failure(self, claim: Claim, setting: Setting, failure: GymError) -> int | None:
        """Return None if the rollout has failed for good. Else it is retried: return the failures to count, 0 or 1.

        An attempt does not count as failed if its endpoint fails for all rollouts or accepts no calls at present, or if
        this worker is misconfigured. In the last case, other workers run the collection. It counts if the endpoint
        answers other rollouts (see circuit_breakers), or if its reply cannot be read (see MAX_UNREADABLE).
        """
        if failure.refused_by:
            return 0
        self._breakers.count_failure(claim.collection_id)
        if failure.is_misconfigured:
            self.settings.refuse(claim.collection_id, str(failure))
            return 0
        endpoint = _failing_endpoint(setting, failure)
        is_silent = self._breakers.is_silent(endpoint)
        if not failure.transient or (claim.attempt >= MAX_CLAIMS and not is_silent):
            return None
        most = setting.max_attempts
        if self._breakers.is_failing(endpoint, claim.rollout_id):
            if not failure.unreadable:
                return 0
            most = max(most, MAX_UNREADABLE)
        return 1 if claim.failures + 1 < most else None

    def _watch_call(self, endpoint: Endpoint, slug: str, outcome: Outcome, message: str) -> None:
        claim = CURRENT_ROLLOUT.get()
        rollout, collection = (claim.rollout_id, claim.collection_id) if claim else (None, 0)
        self._breakers.observe(endpoint, outcome, message, rollout, collection)
        if outcome == "quota":
            self._throttles.report_exhausted_quota(endpoint, message)
        self._meters.count_try(endpoint.kind, slug, outcome)


def _failing_endpoint(setting: Setting, failure: GymError) -> Endpoint:
    """Return the endpoint that failed.

    Without a judge model, a resource server has its own judge, so judge errors count against the environment.
    """
    if failure.kind == "policy_error":
        return Endpoint("policy_model", setting.policy_model_id)
    if failure.kind == "judge_error" and setting.judge_model_id is not None:
        return Endpoint("policy_model", setting.judge_model_id)
    return Endpoint("environment", setting.environment_id)
