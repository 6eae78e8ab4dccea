"""Verify stored rollouts with today's verifiers, to find rewards that earlier rules of the same verifier gave."""

import asyncio
from collections.abc import Sequence

from apps.environments.resource_servers import connect_verifier
from apps.gym.loop.reverification import Verdict
from apps.gym.stored_rules import RULES
from apps.gym.traces.events import Verification
from apps.gym.verifiers.registry import asks_judge
from apps.policies.policy_clients import open_outbound
from apps.rollouts.models import Collection, Rollout
from apps.rollouts.reverification.rescoring import SAME, Piece, read_piece, start_verifying

VERDICT = "verdict"
"""The name under which another reward of the same verifier is listed. The values are the rewards."""


def can_verify(collection: Collection) -> bool:
    """Return True if the verifier runs here, costs nothing, and is still the planned one."""
    environment = collection.environment
    planned = collection.snapshot.get("environment", {}).get("verifier")
    return (
        collection.rules_version < RULES
        and environment.verifies_here
        and planned == environment.verifier
        and not asks_judge(environment.verifier)
    )


def find_verdicts(collection: Collection, rollouts: Sequence[Rollout]) -> dict[int, tuple[float, float]]:
    """Return old and new reward by rollout, of completed rollouts whose verifier gives another reward today.

    Rollouts whose verification fails, or whose reward a person changed, are left out.
    """
    completed = [rollout for rollout in rollouts if rollout.status == Rollout.Status.COMPLETED]
    pieces = [read_piece(rollout, collection) for rollout in completed if rollout.reward is not None]
    pieces = [piece for piece in pieces if _stored_reward(piece) == piece.rollout.reward]
    if not pieces:
        return {}
    with asyncio.Runner() as runner:
        verdicts = runner.run(_verify(collection, pieces))
    return {
        piece.rollout.pk: (piece.rollout.reward or 0.0, verdict.verification.reward or 0.0)
        for piece, verdict in zip(pieces, verdicts, strict=True)
        if verdict.verification and abs((verdict.verification.reward or 0.0) - (piece.rollout.reward or 0.0)) > SAME
    }


def _stored_reward(piece: Piece) -> float | None:
    return next((event.reward for event in reversed(piece.events) if isinstance(event, Verification)), None)


async def _verify(collection: Collection, pieces: Sequence[Piece]) -> list[Verdict]:
    outbound = open_outbound()
    try:
        server = connect_verifier(collection.environment, outbound)
        return await asyncio.gather(*start_verifying(pieces, server, collection))
    finally:
        await outbound.close()
